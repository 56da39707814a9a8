# SPDX-License-Identifier: GPL-2.0-only
"""Experiment servers on a machine's own kernel: the web server of examples/http and its twins,
timed.

This file owns the loads and rounds there, and the metrics in nanoseconds. part_http.py has the
commands; the turns are made by http/turns.c. No claim is decided: the published gains are of other
servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.servers import part_http, spec
from eval.servers.shapes import Shape, shape
from trapless.experiments import fit
from trapless.experiments.clocks import Clock, paired, ratio_metric
from trapless.experiments.collection import Collection, guest_folder
from trapless.experiments.experiment import Findings, Part, Raw, Spec
from trapless.experiments.here import disk
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

BASE = "epoll"
INSIDE = "epoll-supervisor"
SERVERS = {
    **part_http.GUEST_PROGRAMS,
    INSIDE: f"supervisor:{part_http.GUEST_PROGRAMS[BASE]}",
}
NAMES = {
    "scheduler": "libtrapless",
    BASE: "epoll",
    INSIDE: "epoll in supervisor mode",
    "io_uring": "io_uring",
}
LOADS = ("keep1", "keep8", "keep64", "close1", "close8", "close64", "keep8-4k")
QUICK_LOADS, LEAST_LOADS = ("keep8", "close8"), ("keep8",)
KEPT, CLOSED = 20_000, 8_000
"""Requests of a turn. Each closed connection takes a port for a while."""
QUICK_SHARE, LEAST_SHARE = 4, 200
ROUNDS, QUICK_ROUNDS = 15, 5
SCRIPT = f'ip link set lo up; cp -r {part_http.BODIES} "$0" && exec "$@"'

Samples = Mapping[tuple[str, str], Sequence[float]]
"""Server and load -> what a request took, turn by turn."""


def loads(run: Collection) -> tuple[Shape, ...]:
    share = run.chosen(1, QUICK_SHARE, LEAST_SHARE)
    named = [shape(name, KEPT) for name in run.chosen(LOADS, QUICK_LOADS, LEAST_LOADS)]
    return tuple(
        replace(one, requests=max((CLOSED if one.close else KEPT) // share, one.connections))
        for one in named
    )


def collect(run: Collection) -> None:
    """All servers at once; each load is put on them by turns."""
    devices, why = disk.ram_disk()
    if why:
        run.write([{"skipped": "the files' own disk", "reason": why}])
    chosen = loads(run)
    rounds = run.chosen(ROUNDS, QUICK_ROUNDS, fit.SAMPLES_MIN)
    site = part_http.FOLDER if devices else "/site"
    words = part_http.turns_command("measured", rounds, site, SERVERS, chosen)
    argv = ["/bin/sh", "-c", SCRIPT, site, *words]
    with guest_folder(run.directory) as folder:
        config = LabConfig(
            kernel=run.kernel,
            cpus=2,
            files=part_http.files(folder, chosen),
            modules=devices,
            module_parameters="supervisor=1",
            timeout_s=part_http.TIMEOUT_S,
        )
        run.boot("measured", config, guest_disk.command(argv) if devices else argv)
    run.write({"load": load.name, "requests": load.requests} for load in chosen)


def samples(raw: Raw, unit: str) -> Samples:
    """What the turns took a request, in that unit, of each server that was measured."""
    pairs = {
        (row["server"], row["load"]): None  # in the order of the loads
        for row in raw.rows
        if (row.get("kind"), row.get("unit")) == ("measured", unit)
    }
    if not pairs:
        raise ValueError(f"{unit} of no server were measured")
    return {pair: part_http.each(raw.rows, *pair, unit) for pair in pairs}


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


def analyse(raw: Raw) -> Findings:
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


def figures(raw: Raw) -> tuple[Table, ...]:
    clock, used, whole = Clock.of(raw.rows), samples(raw, "cpu-ns"), samples(raw, "clocks")
    shares = ratios(used)
    rows = tuple(
        (
            load,
            NAMES[server],
            f"{fit.summary(values).median / 1000:,.2f}",
            fit.percent(shares[server, load]) if (server, load) in shares else "",
            f"{clock.ns(whole[server, load]).value / 1000:,.2f}",
        )
        for (server, load), values in used.items()
    )
    stayed, left = inside(raw)
    calls = f" {stayed / (stayed + left):.1%} of its calls were made there." if stayed else ""
    return (
        Table(
            id="http",
            title="The web server of examples/http and its twins: the time of a request",
            columns=("load", "server", "its CPU, µs", "of epoll's", "until the reply, µs"),
            rows=rows,
            caption="Medians of turns; every reply was compared. The server's CPU time is that of "
            "its process, in user mode and in the kernel. Until the reply: the whole load's time "
            f"by its requests, with the load's own work and its start.{calls}",
            kind="measured",
        ),
    )


SPEC = Spec(
    name="servers",
    paper=spec.SPEC.paper,
    question=spec.SPEC.question,
    method=(
        "The web server of examples/http, on libtrapless, and its twins on epoll and io_uring, the "
        "one on epoll also in supervisor mode, serve the same loads by turns on this machine's own "
        "kernel. The bytes of every reply are compared. Measured: the time that the kernel gave to "
        "the server's process, and the time of the whole load by the time-stamp counter."
    ),
    limits=(
        "The published gains are of Apache, nginx, redis and others: those servers are not run "
        "here, and the verdicts on them stay open.",
        "The servers have CPU 0 and the load has CPU 1; the network is the loopback device. "
        "Whether both are threads of one core decides what they share.",
        "io_uring leaves the end of a connection to the kernel's threads, whose time is not the "
        "server's.",
    ),
    parts=(Part("http", collect, analyse, figures),),
    minutes=(0.3, 3),
)
