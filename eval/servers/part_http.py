# SPDX-License-Identifier: GPL-2.0-only
"""Counts the web server of examples/http beside its twins on epoll and io_uring, by turns in one
boot, and makes the ratios of their instructions a request; on a machine's own kernel, of their
times.

This file owns the numbers of requests, the metrics and the tables. The turns are made by
http/turns.c, the loads by load/load.c, which compares every reply. No claim is decided: the
published gains are of other servers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eval.servers import spec
from eval.servers.shapes import FEATURES, Shape, Talk, content, shape
from trapless.base import built_programs
from trapless.experiments import fit
from trapless.experiments.collection import Collection, Row, guest_folder
from trapless.experiments.experiment import Findings, Raw
from trapless.experiments.here import disk
from trapless.experiments.timed_rows import Clock, paired, ratio_metric
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
REQUESTS = {1: 256, 8: 512, 64: 1024}
"""Requests of a turn that is counted, by the number of connections."""
KEPT, CLOSED = 20_000, 8_000
"""Requests of a turn that is timed. Each closed connection takes a port for a while."""
BASE, INSIDE = "epoll", "epoll-supervisor"
TIMED = {**GUEST_PROGRAMS, INSIDE: f"supervisor:{GUEST_PROGRAMS[BASE]}"}
TIMED_NAMES = {
    "scheduler": "libtrapless",
    BASE: "epoll",
    INSIDE: "epoll in supervisor mode",
    "io_uring": "io_uring",
}

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
TIMED_SCRIPT = f'ip link set lo up; cp -r {BODIES} "$0" && exec "$@"'


def loads(run: Collection) -> tuple[Shape, ...]:
    """The loads of a run, by the names that metrics have."""
    names = run.chosen(spec.HTTP_LOADS)
    if not run.timed:
        return tuple(shape(name, REQUESTS[shape(name, 1).connections]) for name in names)
    share = run.chosen(spec.HTTP_SHARE)
    return tuple(
        replace(one, requests=max((CLOSED if one.close else KEPT) // share, one.connections))
        for one in (shape(name, KEPT) for name in names)
    )


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
    """The command that puts the loads on the guest's servers by turns; they deliver what is in
    `folder`."""
    words = ["/bin/turns", kind, str(turns), folder, f"{command(chosen[0], first=True)} 2>&1"]
    words += [f"{name}={path}" for name, path in servers.items()]
    words.append("--")
    for load in chosen:
        words += [load.name, command(load)]
    return words


def collect(run: Collection) -> None:
    """All servers at once; each load is put on them by turns."""
    devices, why = disk.of_run(run)
    if why:
        run.write([{"skipped": "the files' own disk", "reason": why}])
    chosen = loads(run)
    with guest_folder(run.directory) as folder:
        config = LabConfig(
            kernel=run.kernel,
            files=files(folder, chosen),
            modules=devices,
            timeout_s=TIMEOUT_S,
        )
        if run.timed:
            site = FOLDER if devices else "/site"
            rounds = run.chosen(spec.HTTP_ROUNDS)
            words = [site, *turns_command("measured", rounds, site, TIMED, chosen)]
            argv = ["/bin/sh", "-c", TIMED_SCRIPT, *words]
            config = replace(config, cpus=2, module_parameters="supervisor=1")
            run.boot("measured", config, guest_disk.command(argv) if devices else argv)
        else:
            turns = run.chosen(spec.HTTP_TURNS)
            words = turns_command("counted", turns, FOLDER, GUEST_PROGRAMS, chosen)
            argv = guest_disk.command(["/bin/sh", "-c", SCRIPT, "sh", *words])
            run.boot("turns", replace(config, cpus=1, icount=True, append=PUT_OFF), argv)
    run.write({"load": load.name, "requests": load.requests} for load in chosen)


def files(folder: Path, chosen: Sequence[Shape]) -> tuple[tuple[Path, str], ...]:
    """The files of the guest; the bodies are written into `folder`."""
    given = [(built_programs.find(path), GUEST_PROGRAMS[name]) for name, path in SERVERS.items()]
    given.append((built_programs.find("eval/servers/http/turns"), "/bin/turns"))
    given.append((built_programs.find("eval/servers/load/load"), "/bin/load"))
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
    """The counts for a request in each turn, in the order of the turns."""
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
    if raw.timed:
        return analyse_timed(raw)
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


Samples = Mapping[tuple[str, str], Sequence[float]]
"""Server and load -> what a request took, turn by turn."""


def samples(raw: Raw, unit: str) -> Samples:
    """The cost of a request in each turn, in that unit, for each server that was measured."""
    pairs = {
        (row["server"], row["load"]): None  # in the order of the loads
        for row in raw.rows
        if (row.get("kind"), row.get("unit")) == ("measured", unit)
    }
    if not pairs:
        raise ValueError(f"{unit} of no server were measured")
    return {pair: each(raw.rows, *pair, unit) for pair in pairs}


def ratios(taken: Samples) -> Mapping[tuple[str, str], fit.Summary]:
    """Server and load -> its share of what the twin on epoll took in the same turn."""
    found = {}
    for (server, load), values in taken.items():
        one = paired(values, taken[BASE, load]) if server != BASE else None
        if one is not None:
            found[server, load] = one
    return found


def inside(raw: Raw) -> tuple[int, int]:
    """Calls of the server in supervisor mode that stayed there, and those that left; (0, 0) where
    the mode was not offered."""
    rows = [row for row in raw.rows if row.get("server") == INSIDE and "stayed" in row]
    return (int(rows[0]["stayed"]), int(rows[0]["left"])) if rows else (0, 0)


def analyse_timed(raw: Raw) -> Findings:
    clock = Clock.of(raw.rows)
    metrics: dict[str, Metric] = {}
    for (server, load), values in samples(raw, "clocks").items():
        metrics[f"http.{server}.{load}.ns"] = clock.ns(values)
    used = samples(raw, "cpu-ns")
    for (server, load), values in used.items():
        one = replace(clock, per_ns=1.0).ns(values)
        metrics[f"http.{server}.{load}.cpu-ns"] = replace(one, unit="cpu-ns")
    for (server, load), share in ratios(used).items():
        metrics[f"http.{server}.{load}.ratio"] = ratio_metric(share)
    stayed, left = inside(raw)
    if stayed:
        share_inside = round(stayed / (stayed + left), 4)
        metrics["http.epoll-supervisor.all.share"] = Metric(share_inside, "share", "counted")
    return Findings(metrics)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    if raw.timed:
        return (timed_table(raw),)
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


def timed_table(raw: Raw) -> Table:
    clock, used, whole = Clock.of(raw.rows), samples(raw, "cpu-ns"), samples(raw, "clocks")
    shares = ratios(used)
    rows = tuple(
        (
            load,
            TIMED_NAMES[server],
            f"{fit.summary(values).median / 1000:,.2f}",
            fit.percent(shares[server, load]) if (server, load) in shares else "",
            f"{clock.ns(whole[server, load]).value / 1000:,.2f}",
        )
        for (server, load), values in used.items()
    )
    stayed, left = inside(raw)
    calls = f" {stayed / (stayed + left):.1%} of its calls were made there." if stayed else ""
    return Table(
        id="http",
        title="The web server of examples/http and its twins: the time of a request",
        columns=("load", "server", "its CPU, µs", "of epoll's", "until the reply, µs"),
        rows=rows,
        caption="Medians of turns; every reply was compared. The server's CPU time is that of "
        "its process, in user mode and in the kernel. Until the reply: the whole load's time "
        f"by its requests, with the load's own work and its start.{calls}",
        kind="measured",
    )
