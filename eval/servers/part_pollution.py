# SPDX-License-Identifier: GPL-2.0-only
"""Models caches and TLBs under the web server of examples/http and its twin on epoll: which misses
user mode and the kernel cause each other, and how many of them batches avoid.

The number of connections that ask at once decides how many calls a crossing makes. A third machine
is modelled from the same run: there another processor does the kernel's work, like FlexSC's
workers. This file owns the loads, the metrics and the drawings; counting is trapless/stat's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eval.servers import part_http, shapes
from eval.servers.counting import AFTER, MEMORY, PROCESSORS, PUT_OFF, TIMEOUT_S, WARM
from eval.servers.server_results import SHORT
from eval.servers.shapes import Shape, shape
from eval.servers.unmodified.web_servers import PORT, SITE, http
from trapless.base import built_programs
from trapless.experiments import stat_runs
from trapless.experiments.collection import Collection, Row, guest_folder
from trapless.experiments.experiment import Findings, Raw
from trapless.experiments.stat_runs import Run
from trapless.model.model_plan import Variant
from trapless.report.figures import Figure, Mark, Series, Table
from trapless.results.result_file import Metric
from trapless.stat.guest import Job
from trapless.stat.run_counts import RunCounts
from trapless.stat.run_report import MODES, Ends, Report
from trapless.vm.lab import LabConfig

SERVERS = ("scheduler", "epoll")
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
REQUESTS = 512
ELSEWHERE = "elsewhere"
"""The scheduler's server where another processor does the kernel's work, in names of metrics."""

ROLES = ("l1d", "l1i", "l2", "dtlb")
"""Caches and TLBs whose misses become metrics."""


def loads() -> tuple[Shape, ...]:
    """Kept connections in lockstep."""
    return tuple(shape(f"keep{number}", REQUESTS) for number in CONNECTIONS)


def label(server: str, load: str) -> str:
    """The name of a run."""
    return f"http-{server}-{load}"


def runs(kernel: str, folder: Path) -> Iterator[Run]:
    """Each server under each load; what the guests are given is written into `folder`."""
    talk = http(shapes.SMALL)
    body = folder / "pollution-body"
    body.write_bytes(talk.expect)
    for load in loads():
        for server in SERVERS:
            program = f"/bin/http-{server}"
            files = (
                (built_programs.find(part_http.SERVERS[server]), program),
                (built_programs.find("eval/servers/load/load"), shapes.LOAD),
                (body, f"{shapes.WORDS}/expect"),
            )
            config = LabConfig(
                kernel=kernel, memory=MEMORY, files=files, append=PUT_OFF, timeout_s=TIMEOUT_S
            )
            served = f"mkdir -p {SITE}; cp {shapes.WORDS}/expect {SITE}/{shapes.SMALL}"
            job = Job(
                (program, str(PORT), SITE),
                prepare=f"set -e; ip link set lo up; {served}",
                load=shapes.load(talk, load),
                ready=shapes.ready(talk, load),
                warm=WARM,
                calibrate=False,
            )
            yield Run(label(server, load.name), config, job, PROCESSORS, AFTER, elsewhere=True)


def collect(run: Collection) -> None:
    with guest_folder(run.directory) as folder:
        stat_runs.collect(run, tuple(runs(run.kernel, folder)))
    run.write(
        {
            "load": load.name,
            "connections": load.connections,
            "requests": load.requests,
            "check": f"examples/http and epoll modelled, {load.name}: each reply compared",
            "made": load.requests,
        }
        for load in loads()
    )


# ---- Figures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Modelled:
    """One server under one load. All figures are those of a request."""

    server: str
    load: str
    connections: int
    requests: int
    counts: RunCounts

    @cached_property
    def _report(self) -> Report:
        return Report(self.counts)

    @property
    def crossings(self) -> float:
        """System calls by trap."""
        return self._report.crossings["syscall"] / self.requests

    @property
    def instructions(self) -> float:
        return self.counts.instructions / self.requests

    def clocks(self, processor: str) -> Ends:
        """All modelled clocks."""
        return self._a_request(self._report.clocks(processor).total)

    def pollution(self, processor: str) -> Ends:
        """The clocks of misses that user mode and the kernel cause each other."""
        return self._a_request(self._report.clocks(processor).pollution)

    def parts(self, processor: str) -> tuple[float, float, float]:
        """The clocks of instructions and traps, of misses by the other side, of all other misses;
        at the middle of all costs."""
        work = self._a_request(self._report.clocks_of_work(processor)).middle
        polluted = self.pollution(processor).middle
        return work, polluted, self.clocks(processor).middle - work - polluted

    def by_other_side(self, processor: str, role: str) -> float:
        """Those misses of one cache or TLB."""
        misses = {one.role: one.other for one in self._report.misses(processor)}
        return misses[role] / self.requests

    def misses(self, processor: str, role: str, *, elsewhere: bool = False) -> float:
        """All misses of it."""
        variant = Variant(processor, elsewhere=elsewhere).id
        row = self.counts.row
        return (
            sum(self._report.plan.misses(row, mode, variant, role) for mode in MODES)
            / self.requests
        )

    def clocks_elsewhere(self, processor: str) -> Ends:
        """The clocks of both processors where another one does the kernel's work."""
        return self._a_request(self._report.clocks_elsewhere(processor))

    def _a_request(self, ends: Ends) -> Ends:
        return Ends(*(end / self.requests for end in (ends.low, ends.middle, ends.high)))


def modelled_of(rows: Sequence[Row]) -> tuple[Modelled, ...]:
    """All runs, by load and server; ValueError where one is missing, failed or was not whole."""
    counted = {str(row["run"]): row for row in rows if "counted" in row}
    found = []
    for about in (row for row in rows if "connections" in row):
        for server in SERVERS:
            name = label(server, about["load"])
            proof = f"{about['requests']} replies, each compared"
            if name not in counted or counted[name]["proof"] != proof:
                raise ValueError(f"{name} was not counted, or not each reply was right")
            counts = RunCounts.of_json(counted[name]["counted"])
            if counts.status:
                raise ValueError(f"{name}: the load ended with status {counts.status}")
            found.append(
                Modelled(server, about["load"], about["connections"], about["requests"], counts)
            )
    if not found:
        raise ValueError("no server was modelled")
    return tuple(found)


def pairs(modelled: Sequence[Modelled]) -> Iterator[tuple[Modelled, Modelled]]:
    """The scheduler's server and its twin, of each load."""
    for one in modelled:
        if one.server == SERVERS[0]:
            twin = next(o for o in modelled if (o.server, o.load) == (SERVERS[1], one.load))
            yield one, twin


def ratio(one: Ends, other: Ends) -> Ends:
    """With all costs at the same end."""
    return Ends(one.low / other.low, one.middle / other.middle, one.high / other.high)


def analyse(raw: Raw) -> Findings:
    metrics: dict[str, Metric] = {}

    def add(name: str, value: float, digits: int, kind: str = "modelled") -> None:
        metrics[name] = Metric(round(value, digits), name.rpartition(".")[2], kind)

    modelled = modelled_of(raw.rows)
    for one in modelled:
        for processor in PROCESSORS:
            name = f"http.{one.server}.{one.load}_{SHORT[processor]}"
            add(f"{name}.clocks", one.clocks(processor).middle, 0)
            add(f"{name}.pollution-clocks", one.pollution(processor).middle, 0)
            for role in ROLES:
                others = one.by_other_side(processor, role)
                add(f"{name}.{role}-misses-by-other-side", others, 2)
    for one, twin in pairs(modelled):
        for processor in PROCESSORS:
            base, place = twin.clocks(processor), f"{one.load}_{SHORT[processor]}"
            of_both = {SERVERS[0]: one.clocks, ELSEWHERE: one.clocks_elsewhere}
            for name, count in of_both.items():
                value = ratio(count(processor), base).middle
                add(f"http.{name}.{place}.clocks_to_epoll", value, 4)
    return Findings(metrics)


def clocks_table(modelled: Sequence[Modelled]) -> Table:
    """Clocks by load and processor, and where those went that batches take away."""
    rows = []
    for one, twin in pairs(modelled):
        for processor in PROCESSORS:
            mine, theirs = one.clocks(processor), twin.clocks(processor)
            ends = ratio(mine, theirs)
            both = zip(twin.parts(processor), one.parts(processor), strict=True)
            rows.append(
                (
                    one.load,
                    SHORT[processor],
                    f"{theirs.middle:,.0f}",
                    f"{mine.middle:,.0f}",
                    f"{ends.middle:.2f}",
                    f"{min(ends.low, ends.high):.2f}-{max(ends.low, ends.high):.2f}",
                    *(f"{before - after:,.0f}" for before, after in both),
                    f"{ratio(one.clocks_elsewhere(processor), theirs).middle:.2f}",
                )
            )
    return Table(
        id="http-pollution",
        title="The web server of examples/http against epoll, in modelled clocks",
        columns=(
            "load", "processor", "epoll", "scheduler", "ratio", "range",
            "by work", "by the other", "by its own", "elsewhere",
        ),
        rows=tuple(rows),
        caption="Clocks of a request; the ratio at the middle of all costs, and over their range. "
        "Saved are clocks of work (instructions and traps), of misses that user mode and the "
        "kernel cause the other, and of each side's own misses. Elsewhere: the ratio where another "
        "processor does the kernel's work of the scheduler's server, with private caches and a "
        "shared last one; both are added up.",
        kind="modelled",
    )  # fmt: skip


def misses_table(modelled: Sequence[Modelled]) -> Table:
    """Misses by the other side, and all, for each cache and TLB."""
    rows = []
    for one in modelled:
        for processor in PROCESSORS:
            cells = (
                f"{round(one.by_other_side(processor, role))} of "
                f"{round(one.misses(processor, role))}"
                for role in ROLES
            )
            crossings = f"{one.crossings:.2f}"
            rows.append((one.load, one.server, crossings, SHORT[processor], *cells))
        if one.server != SERVERS[0]:
            continue
        for processor in PROCESSORS:
            away = (f"{round(one.misses(processor, role, elsewhere=True))}" for role in ROLES)
            rows.append((one.load, ELSEWHERE, "", SHORT[processor], *away))
    return Table(
        id="http-misses",
        title="Misses that user mode and the kernel cause each other, of all",
        columns=("load", "server", "crossings", "processor", *ROLES),
        rows=tuple(rows),
        caption="A request; below 0 where each side finds what the other one has loaded. "
        "Elsewhere: all misses of both processors, those included for which the other one has "
        "written the line.",
        kind="modelled",
    )


def ratios_figure(modelled: Sequence[Modelled]) -> Figure:
    """Clocks to those of epoll, over the connections that ask at once."""
    series = []
    for processor in PROCESSORS:
        both = tuple(pairs(modelled))
        places = tuple(float(one.connections) for one, _ in both)
        for words, count in (
            ("batches", Modelled.clocks),
            ("kernel elsewhere", Modelled.clocks_elsewhere),
        ):
            values = tuple(
                ratio(count(one, processor), twin.clocks(processor)).middle for one, twin in both
            )
            series.append(Series(f"{words}, {SHORT[processor]}", places, values))
    return Figure(
        id="http-clocks",
        title="The web server's modelled clocks to those of its twin on epoll",
        x_label="connections that ask at once",
        y_label="clocks, epoll = 1",
        series=tuple(series),
        log_x=True,
        marks=(Mark(1.0, "epoll"),),
        from_zero=False,
        kind="modelled",
    )


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    modelled = modelled_of(raw.rows)
    return (ratios_figure(modelled), clocks_table(modelled), misses_table(modelled))
