# SPDX-License-Identifier: GPL-2.0-only
"""Counts the web server of examples/http beside its twins on epoll and io_uring, by turns in one
boot, and makes the ratios of their instructions a request.

This file owns the loads, the numbers of requests and turns, the metrics and the table. The turns
are made by http/turns.c, the loads by load/load.c, which compares every reply.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.servers.shapes import FEATURES, Shape, Talk, content, shape
from trapless.base import programs
from trapless.experiments.collection import Collection, Row, guest_folder
from trapless.experiments.experiment import Findings, Part, Raw
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

SERVERS = {
    "scheduler": "examples/http",
    "epoll": "eval/servers/http/epoll",
    "io_uring": "eval/servers/http/io_uring",
}
GUEST_PROGRAMS = {name: f"/bin/http-{name}" for name in SERVERS}
TWINS = ("epoll", "io_uring")
LOADS = ("keep1", "keep8", "keep64", "close1", "close8", "close64", "keep8-4k")
QUICK_LOADS = ("keep8", "close8")
TURNS, QUICK_TURNS = 6, 3
REQUESTS = {1: 256, 8: 512, 64: 1024}
"""Requests of a turn, by the number of connections."""

FOLDER = f"{guest_disk.MOUNT_POINT}/site"
"""On ext4: io_uring hands a read from tmpfs to a thread of its own."""

BODIES = "/bodies"
TIMEOUT_S = 3600.0
PUT_OFF = "rcutree.use_softirq=0"
SCRIPT = f"""\
set -e; ip link set lo up; cp -r {BODIES} {FOLDER}
mkdir -p /sys/kernel/debug; test -e {FEATURES} || mount -t debugfs none /sys/kernel/debug
echo NO_WAKEUP_PREEMPTION > {FEATURES}; exec "$@"
"""


def loads(*, quick: bool) -> tuple[Shape, ...]:
    """The loads of a run, by the names that metrics have."""
    names = QUICK_LOADS if quick else LOADS
    return tuple(shape(name, REQUESTS[shape(name, 1).connections]) for name in names)


def command(load: Shape, *, first: bool = False) -> str:
    """The load as a command of the guest's shell, for the server whose port is in $PORT.

    >>> command(shape("keep8", 512))[:59]
    '/bin/load --port $PORT --connections 8 --requests 512 --loc'
    """
    talk = Talk("--port PORT", content(load.bytes_), path=f"/{load.bytes_}")
    words = talk.command(load, first=first).replace("--port PORT", "--port $PORT")
    return f"{words.replace('/words/expect', f'{BODIES}/{load.bytes_}')} > /dev/null"


def turns_command(
    kind: str, turns: int, folder: str, servers: Mapping[str, str], chosen: Sequence[Shape]
) -> list[str]:
    """What puts the loads on servers of the guest by turns; they deliver what is in `folder`."""
    words = ["/bin/turns", kind, str(turns), folder, f"{command(chosen[0], first=True)} 2>&1"]
    words += [f"{name}={path}" for name, path in servers.items()]
    words.append("--")
    for load in chosen:
        words += [load.name, command(load)]
    return words


def collect(run: Collection) -> None:
    chosen = loads(quick=run.quick)
    turns = QUICK_TURNS if run.quick else TURNS
    words = turns_command("counted", turns, FOLDER, GUEST_PROGRAMS, chosen)
    with guest_folder(run.directory) as folder:
        config = LabConfig(
            kernel=run.kernel,
            cpus=1,
            icount=True,
            files=files(folder, chosen),
            modules=guest_disk.modules(run.kernel, run.progress),
            append=PUT_OFF,
            timeout_s=TIMEOUT_S,
        )
        argv = guest_disk.command(["/bin/sh", "-c", SCRIPT, "sh", *words])
        run.boot("turns", config, argv)
    run.write({"load": load.name, "requests": load.requests} for load in chosen)


def files(folder: Path, chosen: Sequence[Shape]) -> tuple[tuple[Path, str], ...]:
    """What the guest is given; the bodies are written into `folder`."""
    given = [(programs.find(path), GUEST_PROGRAMS[name]) for name, path in SERVERS.items()]
    given.append((programs.find("eval/servers/http/turns"), "/bin/turns"))
    given.append((programs.find("eval/servers/load/load"), "/bin/load"))
    for bytes_ in sorted({load.bytes_ for load in chosen}):
        body = folder / f"http-{bytes_}"
        body.write_bytes(content(bytes_))
        given.append((body, f"{BODIES}/{bytes_}"))
    return tuple(given)


# ---- Figures -----------------------------------------------------------------------------------


def requests_of(rows: Sequence[Row]) -> dict[str, int]:
    """The requests of a turn, by load; ValueError where there was none."""
    requests = {str(row["load"]): int(row["requests"]) for row in rows if "requests" in row}
    if not requests:
        raise ValueError("no load was put on examples/http")
    return requests


def each(rows: Sequence[Row], server: str, load: str, unit: str) -> list[float]:
    """What each turn counted a request, in the order of the turns."""
    requests = requests_of(rows)[load]
    counts = {
        int(row["turn"]): row["value"] / requests
        for row in rows
        if (row.get("server"), row.get("load"), row.get("unit")) == (server, load, unit)
    }
    if not counts:
        raise ValueError(f"{unit} of {server} under {load} were not counted")
    return [counts[turn] for turn in sorted(counts)]


def ratio(rows: Sequence[Row], twin: str, load: str) -> Metric:
    """Instructions a request of the scheduler's server to those of a twin; by pairs of turns."""
    ours, theirs = (each(rows, name, load, "instructions") for name in ("scheduler", twin))
    pairs = [one / other for one, other in zip(ours, theirs, strict=True)]
    spread = max(pairs) - min(pairs)
    return Metric(
        round(statistics.median(pairs), 4),
        f"ratio_to_{twin}",
        "counted",
        len(pairs),
        round(spread, 4),
    )


def analyse(raw: Raw) -> Findings:
    metrics = {}
    for load in requests_of(raw.rows):
        for twin in TWINS:
            metrics[f"http.scheduler.{load}.ratio_to_{twin}"] = ratio(raw.rows, twin, load)
        for server in SERVERS:
            counts = each(raw.rows, server, load, "instructions")
            metrics[f"http.{server}.{load}.instructions"] = Metric(
                round(statistics.median(counts)),
                "instructions",
                "counted",
                len(counts),
                round(max(counts) - min(counts)),
            )
            metrics[f"http_kernel_threads.{server}.{load}.instructions"] = Metric(
                round(statistics.median(each(raw.rows, server, load, "kernel-threads"))),
                "instructions",
                "counted",
                len(counts),
            )
            (crossings,) = each(raw.rows, server, load, "crossings")
            metrics[f"http.{server}.{load}.crossings"] = Metric(
                round(crossings, 2), "crossings", "counted"
            )
    return Findings(metrics)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    rows = []
    for load in requests_of(raw.rows):
        counts = {
            name: statistics.median(each(raw.rows, name, load, "instructions")) for name in SERVERS
        }
        crossings = (each(raw.rows, name, load, "crossings")[0] for name in SERVERS)
        threads = (
            statistics.median(each(raw.rows, name, load, "kernel-threads")) for name in SERVERS
        )
        rows.append(
            (
                load,
                *(f"{counts[name]:,.0f}" for name in SERVERS),
                *(f"{ratio(raw.rows, twin, load).value:.3f}" for twin in TWINS),
                *(f"{one:.2f}" for one in crossings),
                *(f"{one:,.0f}" for one in threads),
            )
        )
    return (
        Table(
            id="http",
            title="The web server of examples/http and its twins: what a request takes",
            columns=(
                "load",
                *(f"instructions, {name}" for name in SERVERS),
                *(f"scheduler / {twin}" for twin in TWINS),
                *(f"crossings, {name}" for name in SERVERS),
                *(f"kernel's threads, {name}" for name in SERVERS),
            ),
            rows=tuple(rows),
            caption="Instructions of the server's process, in user mode and in the kernel; medians "
            "of turns in one boot. The three share the code that reads requests and writes heads. "
            "What the kernel's own threads execute stands beside: io_uring leaves the end of a "
            "connection to them.",
            kind="counted",
        ),
    )


PART = Part(name="http", collect=collect, analyse=analyse, figures=figures)
