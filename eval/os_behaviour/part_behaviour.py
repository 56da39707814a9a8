# SPDX-License-Identifier: GPL-2.0-only
"""Runs section 5 of the paper: what an operating system does under four loads, by samples of its
memory.

This file owns the loads, their length, and how a guest is observed. observation.py samples,
analysis.py judges, paper_tables.py draws; eval/tools/loads/loads.py defines the loads.
"""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from eval.os_behaviour import analysis, observation, paper_tables, spec
from eval.tools.loads import loads
from eval.tools.loads.loads import Load
from eval.tools.modes import modes
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.observer import Observed, run_beside
from trapless.peek.errors import PeekError
from trapless.peek.sampling.recording import Recording
from trapless.results.result_file import Metric
from trapless.stock import real_programs
from trapless.vm import qemu
from trapless.vm.lab import LabConfig

GUEST_PROGRAM = f"{modes.BROUGHT}/os-behaviour"
RECORDING = "recording"
"""Beside the raw data: all samples, for `trapless peek report`."""
TIMEOUT_S = 4 * 3600.0
CONNECTIONS = 100
LIMIT_S = 1800
"""For a load that hangs: a busy machine takes many times as long as an idle one."""
NICE = 5
STEADY_CLOCK = "tsc=reliable"
"""A guest that a busy host keeps from running would distrust its clock, and read a slow device
thousands of times a second instead."""


@dataclass(frozen=True)
class Timed:
    """A load, and for how long at most it is on."""

    load: Load
    seconds: int


def timed_loads(quick: bool) -> tuple[Timed, ...]:
    """nop, qsort, make and httpd, in the paper's order."""
    nop = Load("nop", "", "exec sleep 3600")
    if quick:
        return (
            Timed(nop, 5),
            Timed(loads.sort(8 << 20), LIMIT_S),
            Timed(loads.make(loads.FEW), LIMIT_S),
            Timed(loads.serve(), LIMIT_S),
        )
    return (
        Timed(nop, 20),
        Timed(loads.sort(), LIMIT_S),
        Timed(loads.make(), LIMIT_S),
        Timed(loads.serve(), LIMIT_S),
    )


def collect(run: Collection) -> None:
    """One guest, one load after the other."""
    timed = timed_loads(run.quick)
    shutil.rmtree(run.directory / RECORDING, ignore_errors=True)
    root = real_programs.unpacked(run.progress)
    with tempfile.TemporaryDirectory(prefix="trapless-loads-") as folder:
        port = free_port()
        config = LabConfig(
            kernel=run.kernel,
            cpus=1,
            files=(
                *loads.guest_files(Path(folder)),
                (workload("os-behaviour"), GUEST_PROGRAM),
            ),
            timeout_s=TIMEOUT_S,
            module_parameters=f"probes={observation.NEEDED:d}",
            forward=(port, loads.PORT),
            append=STEADY_CLOCK,
        )
        seconds = run.chosen(spec.REQUESTS_S)
        asking = ask_argv(port, Path(folder), seconds)

        def observe(guest: Observed) -> None:
            run.write(observed(guest, run.directory / RECORDING, timed, asking))

        argv = modes.guest_argv(root, guest_script(timed))
        run_beside(run, "observed", modes.guest_config(config), argv, observe)
    used = {name: root.versions[name] for name in ("apache2-bin", "gcc-12", "libc6", "lua5.4")}
    run.write([{"versions": used}])


def guest_script(timed: Sequence[Timed]) -> list[str]:
    """Prepare everything, then one load after the other."""
    prepared = [one.load.prepare for one in timed if one.load.prepare]
    words = ["/tmp/os-behaviour", "\n".join(["set -e", *prepared])]
    for one in timed:
        words += [one.load.name, str(one.seconds), one.load.command]
    return ["set -e", loads.network(qemu.GUEST_ADDRESS), f"exec {shlex.join(words)}"]


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def ask_argv(port: int, folder: Path, seconds: int) -> list[str]:
    """More requests than the server can serve: each connection asks again at once."""
    return [
        *("nice", "-n", str(NICE), str(loads.program("ask"))),
        *("--port", str(port), "--path", f"/{loads.FILE_NAME}"),
        *("--expect", str(folder / loads.FILE_NAME), "--connections", str(CONNECTIONS)),
        *("--seconds", str(seconds)),
    ]


def observed(
    guest: Observed, folder: Path, timed: Sequence[Timed], asking: Sequence[str]
) -> list[Row]:
    """Follow the guest to its end; a row for each load."""
    clients: list[subprocess.Popen[str]] = []
    asked: list[threading.Thread] = []
    outputs: list[str] = []

    def end_with(client: subprocess.Popen[str]) -> None:
        outputs.append(client.communicate()[0])
        guest.go_on()  # the server has no end of its own

    def on_load(number: int) -> None:
        if timed[number - 1].load.name == "httpd":
            clients.append(subprocess.Popen(asking, stdout=subprocess.PIPE, text=True))
            asked.append(threading.Thread(target=end_with, args=clients))
            asked[0].start()

    try:
        stages = observation.follow(guest, folder, on_load)
    finally:
        for client in clients:
            with suppress(ProcessLookupError):
                client.kill()
        for thread in asked:
            thread.join()
    said = [json.loads(line) for output in outputs for line in output.splitlines()]
    failures = [str(row["failure"]) for row in said if "failure" in row]
    if failures or not any("requests" in row for row in said):
        raise PeekError(f"the requests failed: {'; '.join(failures) or 'no reply was counted'}")
    requests = next(row for row in said if "requests" in row)
    checks = [row for row in said if "check" in row]
    return [*checks, *rows_of(Recording.open(folder), timed, stages, requests)]


def rows_of(
    recording: Recording,
    timed: Sequence[Timed],
    stages: Mapping[int, observation.Stage],
    requests: Row,
) -> list[Row]:
    """The sums of each load. httpd counts from the first reply to the last."""
    whole, start = observation.windows(recording), observation.first_ns(recording)
    rows = []
    for number, one in enumerate(timed, 1):
        if number not in whole or number not in stages:
            raise PeekError(f"{one.load.name} was not seen: this machine is too busy to observe on")
        window, more = whole[number], {}
        if one.load.name == "httpd":
            begin, end = (
                (requests[key] - start) // observation.INTERVAL_NS
                for key in ("first_ns", "last_ns")
            )
            window = replace(window, begin=max(begin, window.begin), end=min(end, window.end))
            more = {"requests": requests}
        summary = observation.summarise(recording, number, window, stages[number])
        row = observation.row_of(summary, window, whole[number], stages[number])
        rows.append({"observed": one.load.name, "limit_s": one.seconds, **row, **more})
    return rows


def analyse(raw: Raw) -> Findings:
    results = analysis.loads_of(raw.rows)
    machine = analysis.machine_of(str(raw.meta.get("accelerator")))
    metrics: dict[str, Metric] = {}
    for one in results.values():
        metrics |= analysis.metrics_of(one)
    return Findings(metrics, tuple(analysis.claims_of(results, machine)))


figures = paper_tables.figures
