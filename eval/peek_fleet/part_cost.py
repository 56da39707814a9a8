# SPDX-License-Identifier: GPL-2.0-only
"""Measures the daemon that observes one real guest, then many simulated ones.

Owns the guest, the simulated machines that are made of its memory, the metrics and the table.
measured_daemon.py has the daemon.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from eval.peek_fleet import spec
from eval.peek_fleet.measured_daemon import Daemon, Usage, daemon
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.observer import shared_folder
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import tier0
from trapless.peek.sandbox.client import open_target
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig
from trapless.vm.qmp import Monitor

INTERVAL_NS = 10_000_000
WINDOW_S = 20.0
SETTLE_S = 5.0
MEMORY = "256M"
CPUS = 2
NO_HANDLER = bytes(3) + b"\x80"
"""A preempt count of this state, with the bit that means that nothing else wants to run."""
BUSY_PERCENT = 30
BUSY_ERROR_MAX = 0.05
"""The busy share of a simulated machine is known: the daemon's must not be farther from it."""
CORES_MAX, MEMORY_MAX_MB = 1.0, 500.0
"""The bounds of the daemon's cost for 50 machines."""
GUEST = """
(while :; do find / -xdev >/dev/null; usleep 100000; done) & load=$!
read over; kill $load; echo '{"complete": true}'
"""
READY_S = 600.0
CAPTION = (
    f"Each machine is sampled {1e9 / INTERVAL_NS:.0f} times a second. Memory divides pages among "
    "the daemon's processes that share them; resident counts them for each. Opening is the most "
    "memory until all machines were sampled. "
    f"50 machines may take {CORES_MAX:g} processor and {MEMORY_MAX_MB:.0f} MB."
)


def collect(run: Collection) -> None:
    repeats = run.chosen(spec.REPEATS)
    with tempfile.TemporaryDirectory(prefix="trapless-fleet-", dir=shared_folder()) as folder:
        saved = Path(folder) / "saved"
        run.write(_real(run, Path(folder), saved, repeats))
        with open_target(saved) as target:
            words = _words(target, saved)
        for count in spec.FLEETS:
            run.progress.step(f"{count} simulated machine{'s' * (count > 1)}")
            with _simulated(saved, words, count) as pattern:
                run.write(_measured("simulated", count, pattern, (), repeats))
        run.progress.done()


# ---- The machines --------------------------------------------------------------------------------


def _real(run: Collection, folder: Path, saved: Path, repeats: int) -> list[Row]:
    """Measure with a guest that runs, and save its memory."""
    ram, monitor = folder / "ram", folder / "monitor"
    config = LabConfig(
        kernel=run.kernel,
        cpus=CPUS,
        memory=MEMORY,
        module=False,
        shared_memory=ram,
        monitor=monitor,
        timeout_s=READY_S,
    )
    guests, ours = os.pipe()
    rows: list[Row] = []
    failures: list[BaseException] = []

    def observe() -> None:
        try:
            rows.extend(_measured("real", 1, "none", [ram], repeats))
            with Monitor(monitor) as control, control.stopped():
                shutil.copyfile(ram, saved)
        except BaseException as error:
            failures.append(error)
        finally:
            os.close(ours)  # the guest ends

    run.forget("real")
    thread = threading.Thread(target=observe, name="observer")
    thread.start()
    try:
        run.boot("real", config, ["sh", "-c", GUEST], stdin=guests)
    finally:
        thread.join()
        os.close(guests)
    if failures:
        raise failures[0]
    return rows


def _words(target: Target, saved: Path) -> list[str]:
    """The arguments of a simulated machine: where the clock and the current tasks are.

    In the saved memory, no CPU is left in a handler.
    """
    init = target.symbol("init_task")
    link = target.offset("task_struct", "tasks")
    first = target.read_u64(init + link) - link  # the first process
    clock = target.physical(target.symbol("jiffies_64"))
    fields = [field for group in tier0.groups(target) for field in group.fields]
    current = [field.address for field in fields if field.name == "current"]
    with saved.open("r+b") as file:
        for field in fields:
            if field.name == "preempt_count":
                file.seek(field.address)  # of so little memory, the file has no hole
                file.write(NO_HANDLER)
    return [hex(clock), str(BUSY_PERCENT), *map(hex, (init, first, *current))]


@contextmanager
def _simulated(saved: Path, words: Sequence[str], count: int) -> Iterator[str]:
    """Run so many simulated machines; the pattern of their names."""
    program = workload("peek-fleet")
    with ExitStack() as stack:
        for number in range(count):
            name = f"peek-fleet-{os.getpid()}-{number}"
            argv = ["qemu-system-x86_64", "-name", name, "-m", MEMORY, str(saved), *words]
            process = subprocess.Popen(argv, executable=program, stdin=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
        yield f"peek-fleet-{os.getpid()}-*"


# ---- The measurement -----------------------------------------------------------------------------


def _measured(
    kind: str, count: int, pattern: str, files: Sequence[Path], repeats: int
) -> Iterator[Row]:
    """A row for the opening of all machines, and one for each window in which they are sampled."""
    place = {"machines": count, "kind": kind}
    with daemon(pattern, files, INTERVAL_NS) as observer:
        began = time.monotonic()
        peak = observer.usage()

        def look() -> None:
            nonlocal peak
            peak = max(peak, observer.usage(), key=lambda usage: usage.pss_kb)

        observer.await_sampled(count, look)
        opened_s = time.monotonic() - began
        yield {**place, "what": "opening", "seconds": opened_s, **asdict(peak)}
        time.sleep(SETTLE_S)
        for repeat in range(repeats):
            yield {**place, "what": "window", "repeat": repeat, **_window(observer)}


def _window(observer: Daemon) -> Row:
    before, first, start = observer.usage(), observer.scrape(), time.monotonic()
    usages: list[Usage] = []
    while time.monotonic() - start < WINDOW_S:
        usages.append(observer.usage())
        time.sleep(1.0)
    after, last, seconds = observer.usage(), observer.scrape(), time.monotonic() - start
    moved: defaultdict[str, float] = defaultdict(float)
    for (name, vm), value in last.items():
        moved[name] += value - first.get((name, vm), 0.0)
    states = "trapless_vm_cpu_seconds_total"
    return {
        "seconds": seconds,
        "cpu_s": after.cpu_s - before.cpu_s,
        "pss_kb": max(usage.pss_kb for usage in usages),
        "rss_kb": max(usage.rss_kb for usage in usages),
        "processes": max(usage.processes for usage in usages),
        "up": sum(value for (name, _), value in last.items() if name == "trapless_vm_up"),
        "taken": moved["trapless_vm_taken_samples_total"],
        "lost": moved["trapless_vm_lost_samples_total"],
        "process_s": moved[f"{states} process"],
        "idle_s": moved[f"{states} idle"],
    }


# ---- What it says --------------------------------------------------------------------------------


def analyse(raw: Raw) -> Findings:
    metrics: dict[str, Metric] = {}
    for kind, count in _fleets(raw.rows):
        windows = _windows(raw.rows, kind, count)
        _check(kind, count, windows)
        (opening,) = (row for row in _of(raw.rows, kind, count) if row["what"] == "opening")
        name = f"{kind}{count}.serve"
        metrics[f"{name}.cpu.cores"] = _metric([_cores(row) for row in windows], "cores")
        metrics[f"{name}.memory.mb"] = _metric([row["pss_kb"] / 1000 for row in windows], "mb")
        metrics[f"{name}.resident.mb"] = _metric([row["rss_kb"] / 1000 for row in windows], "mb")
        metrics[f"{name}.lost.ratio"] = _metric([_lost(row) for row in windows], "ratio")
        metrics[f"{name}.opening-memory.mb"] = _metric([opening["pss_kb"] / 1000], "mb")
        if kind == "simulated":
            metrics[f"{name}.opening.s"] = _metric([opening["seconds"]], "s")
            metrics[f"{name}.busy.ratio"] = _metric([_busy(row) for row in windows], "ratio")
    return Findings(metrics)


def _fleets(rows: Sequence[Row]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((row["kind"], row["machines"]) for row in rows if "kind" in row))


def _of(rows: Sequence[Row], kind: str, count: int) -> list[Row]:
    return [row for row in rows if (row.get("kind"), row.get("machines")) == (kind, count)]


def _windows(rows: Sequence[Row], kind: str, count: int) -> list[Row]:
    return [row for row in _of(rows, kind, count) if row["what"] == "window"]


def _check(kind: str, count: int, windows: Sequence[Row]) -> None:
    """Checks that all machines were sampled, and that the figures of simulated ones are right."""
    if not windows:
        raise ValueError(f"{kind}, {count} machines: nothing was measured")
    for row in windows:
        if row["up"] != count:
            raise ValueError(f"{kind}: {row['up']:.0f} of {count} machines were sampled")
        share = BUSY_PERCENT / 100
        if kind == "simulated" and abs(_busy(row) - share) > BUSY_ERROR_MAX:
            raise ValueError(f"simulated CPUs were {_busy(row):.1%} busy, and are {share:.0%}")


def _cores(row: Row) -> float:
    return float(row["cpu_s"]) / float(row["seconds"])


def _lost(row: Row) -> float:
    return float(row["lost"]) / max(float(row["lost"]) + float(row["taken"]), 1.0)


def _busy(row: Row) -> float:
    return float(row["process_s"]) / max(float(row["process_s"]) + float(row["idle_s"]), 1e-9)


def _metric(values: Sequence[float], unit: str) -> Metric:
    spread = round(max(values) - min(values), 5)
    return Metric(round(statistics.median(values), 5), unit, "measured", len(values), spread)


def figures(raw: Raw) -> tuple[Table, ...]:
    lines = []
    metrics = analyse(raw).metrics
    for kind, count in _fleets(raw.rows):
        name = f"{kind}{count}.serve"
        values = {key: metrics[f"{name}.{key}"].value for key in SHOWN}
        lines.append(
            (
                f"{count} {kind}",
                f"{values['cpu.cores']:.2f}",
                f"{values['memory.mb']:.0f} MB",
                f"{values['resident.mb']:.0f} MB",
                f"{values['opening-memory.mb']:.0f} MB",
                f"{values['lost.ratio']:.2%}",
            )
        )
    return (
        Table(
            id="peek-fleet",
            title="What `trapless peek serve` takes of its host",
            columns=("machines", "processors", "memory", "resident", "opening", "samples lost"),
            rows=tuple(lines),
            caption=CAPTION,
            kind="measured",
        ),
    )


SHOWN = ("cpu.cores", "memory.mb", "resident.mb", "opening-memory.mb", "lost.ratio")
