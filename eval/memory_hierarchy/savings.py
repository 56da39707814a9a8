# SPDX-License-Identifier: GPL-2.0-only
"""Makes metrics, tables and figures of the counts of real programs.

A program has two boots. Predictions are made from a run in user mode in the first one. Pairs of
runs in the second one, by turns in both modes, show the real saving. This file owns words and
digits; the arithmetic is that of `trapless stat` itself (trapless/stat/run_report.py), so what
holds here holds there.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eval.memory_hierarchy import areas
from trapless.experiments import fit
from trapless.experiments.collection import Row
from trapless.experiments.fit import Interval
from trapless.report.figures import Figure, Mark, Series, Table, bars
from trapless.results.result_file import Metric
from trapless.stat.costs import Saving, Term, supervisor_saving, supervisor_terms
from trapless.stat.run_counts import MODES, RunCounts
from trapless.stat.run_report import CALLS_APART, Report

PROCESSORS = {"core-i7-9700k": "i7-9700k", "ryzen-5-3600": "ryzen-3600"}
"""The modelled processors, and their names in names of metrics."""

NEAR = 0.2
"""How near a prediction has to be to the counted saving."""

ERROR = "supervisor.error"
PREDICTED = (
    "supervisor.predicted.instructions",
    *(f"{ERROR}{end}.ratio" for end in ("", "-low", "-high")),
)
LINE_BYTES, PAGE_BYTES = 64, 4096


@dataclass(frozen=True)
class Program:
    """One program: its description, and its runs in both boots."""

    name: str
    what: str
    version: str
    report: Report

    @property
    def saving(self) -> Saving:
        """Predicted of supervisor mode."""
        saving = supervisor_saving(self.report.counts)
        if saving is None:
            raise ValueError(f"{self.name}: supervisor mode was not calibrated")
        return saving

    @cached_property
    def saved(self) -> Interval:
        """Counted: the median of all pairs, and where it lies at 95%."""
        each = self.report.saved_each
        if len(each) < fit.SAMPLES_MIN:
            return Interval(statistics.median(each), min(each), max(each), len(each))
        return fit.confidence(each)

    def error(self, saved: float) -> float:
        """By how much the prediction is above that saving."""
        return self.saving.instructions / saved - 1 if saved > 0 else float("inf")

    def visit_kb(self, mode: str) -> float:
        """The number of lines that one side touches between two crossings, on average."""
        return (self.report.visit(mode, LINE_BYTES) or 0.0) / 1024


def programs_of(rows: Sequence[Row]) -> tuple[Program, ...]:
    """All programs of the raw rows; ValueError where a run is missing, or did something else."""
    runs: Mapping[str, Row] = {row["run"]: row for row in rows if "counted" in row}
    programs = []
    for about in (row for row in rows if "subject" in row):
        name = str(about["subject"])
        user, turns = (runs.get(f"{name}-{boot}") for boot in ("user", "turns"))
        if user is None or turns is None:
            raise ValueError(f"{name} was not counted in both boots")
        report = Report(RunCounts.of_json(user["counted"]), RunCounts.of_json(turns["counted"]))
        check(name, report, [user["proof"], turns["proof"]])
        programs.append(Program(name, str(about["what"]), str(about["version"]), report))
    if not programs:
        raise ValueError("no program was counted")
    return tuple(programs)


def check(name: str, report: Report, proofs: Sequence[str]) -> None:
    """Checks that all runs did the same work and succeeded, half of those in the second boot in
    supervisor mode."""
    first, again = report.counts, report.real
    assert again is not None
    if len(set(proofs)) > 1:
        raise ValueError(f"{name} did other work by turns: '{proofs[1]}' and not '{proofs[0]}'")
    if first.status or again.status:
        raise ValueError(f"{name} ended with status {first.status}, then {again.status}")
    if again.calls is None or not again.calls.direct:
        raise ValueError(f"{name} made no call in supervisor mode")
    if {len(again.repeats.get(mode, ())) for mode in MODES} != {len(again.repeats["trap"])}:
        raise ValueError(f"{name} did not run as often in both modes")
    numbers = [run.features["syscall"] for ran in again.repeats.values() for run in ran]
    calls = report.crossings["syscall"]
    if any(abs(number - calls) > CALLS_APART * calls for number in numbers):
        raise ValueError(f"{name} made {calls:,} calls, then {min(numbers):,} to {max(numbers):,}")


def metrics_of(programs: Sequence[Program]) -> Mapping[str, Metric]:
    """The report of `trapless stat` on each program, by name."""
    metrics: dict[str, Metric] = {}
    for program in programs:
        report, name = program.report, program.name
        millions = report.counts.instructions / 1e6
        calls, instructions = report.crossings["syscall"], report.counts.instructions
        counted: Mapping[str, float] = {
            "trap.total.instructions": instructions,
            "supervisor.predicted.instructions": program.saving.instructions,
            "crossings.syscalls.count": calls,
            "crossings.others.count": report.crossings["interrupt"],
            "crossings.all.per-million-instructions": report.entries / millions,
            "footprint.user-visit.bytes": report.visit("user", LINE_BYTES) or 0.0,
            "footprint.kernel-visit.bytes": report.visit("kernel", LINE_BYTES) or 0.0,
            "footprint.user-run.bytes": report.footprint("user", PAGE_BYTES),
            "footprint.kernel-run.bytes": report.footprint("kernel", PAGE_BYTES),
        }
        for key, value in counted.items():
            unit = key.rpartition(".")[2]
            kind = "modelled" if key in PREDICTED else "counted"
            metrics[f"{name}.{key}"] = Metric(round(value, 4), unit, kind)
        for key, metric in repeated(program).items():
            metrics[f"{name}.{key}"] = metric
        for processor, short in PROCESSORS.items():
            for part, share in shares(report, processor).items():
                key = f"{name}.crossings.{part}_{short}.share"
                metrics[key] = Metric(round(share, 4), "share", "modelled")
    near = sum(abs(program.error(program.saved.median)) <= NEAR for program in programs)
    metrics["programs.supervisor.within-20-percent.count"] = Metric(near, "count", "counted")
    metrics["programs.supervisor.all.count"] = Metric(len(programs), "count", "counted")
    return metrics


def repeated(program: Program) -> Mapping[str, Metric]:
    """The result of the pairs of runs: the saving, and the prediction's error, also at both ends of
    the median's 95% interval."""
    saved, each = program.saved, program.report.saved_each
    far = program.error(min(each)) - program.error(max(each))
    metrics = {
        "supervisor.saved.instructions": Metric(
            round(saved.median, 4), "instructions", "counted", saved.n, max(each) - min(each)
        )
    }
    ends = {"": saved.median, "-low": saved.high, "-high": saved.low}
    for end, value in ends.items() if saved.n >= fit.SAMPLES_MIN else [("", saved.median)]:
        error, spread = round(program.error(value), 4), 0.0 if end else round(far, 4)
        metrics[f"{ERROR}{end}.ratio"] = Metric(error, "ratio", "modelled", saved.n, spread)
    return metrics


def shares(report: Report, processor: str) -> Mapping[str, float]:
    """The shares of a program's modelled clocks that crossings cost: directly, and by what one side
    evicts of the other's."""
    clocks = report.clocks(processor)
    return {
        "direct": clocks.direct.middle / clocks.total.middle,
        "pollution": clocks.pollution.middle / clocks.total.middle,
    }


def predictions(programs: Sequence[Program]) -> Table:
    """The predicted saving beside the counted one."""
    lines = []
    for program in programs:
        saving, total = program.saving, program.report.counts.instructions
        saved, each = program.saved, program.report.saved_each
        low, high = program.error(saved.high), program.error(saved.low)
        lines.append(
            (
                program.name,
                program.what,
                f"{total / 1e6:,.1f} M",
                f"{program.report.crossings['syscall']:,}",
                f"{saving.instructions / 1e3:,.0f} K",
                f"{saved.median / 1e3:,.0f} K",
                f"{min(each) / 1e3:,.0f} to {max(each) / 1e3:,.0f} K, n = {saved.n}",
                f"{program.error(saved.median):+.1%}",
                f"{low:+.0%} to {high:+.0%}",
                f"{saved.median / total:.2%}",
            )
        )
    return Table(
        id="programs-savings",
        title="What supervisor mode saves a real program: predicted, and counted",
        columns=(
            "program", "work", "instructions", "system calls", "predicted", "counted, median",
            "pairs", "prediction off by", "at 95%", "saved of all",
        ),
        rows=tuple(lines),
        caption="Instructions of the program and all that it starts, user space and kernel. "
        "Predicted from a run in user mode and from loops counted in the same boot. Counted in "
        "another boot, in pairs of runs that take turns, one in user mode and one in supervisor "
        "mode: lowest and highest pair, and what the prediction is off by where the median of "
        "all such pairs may lie (bootstrap). Timer interrupts, and what the kernel has put off "
        "until then, make pairs differ. "
        f"Versions: {', '.join(f'{one.name} {one.version}' for one in programs)}.",
        kind="counted",
    )  # fmt: skip


PLACES = {"l1i": "L1i", "l1d": "L1d", "l2": "L2", "dtlb": "data TLB"}


def pollution(programs: Sequence[Program]) -> Table:
    """Footprints, and what crossings cost on today's processors."""
    lines = []
    for program in programs:
        report = program.report
        millions = report.counts.instructions / 1e6
        for processor in report.counts.processors:
            clocks, part = report.clocks(processor), shares(report, processor)
            other = {one.role: one.other for one in report.misses(processor)}
            lines.append(
                (
                    program.name,
                    clocks.name,
                    f"{report.entries / millions:,.0f}",
                    f"{program.visit_kb('user'):.1f} KB",
                    f"{program.visit_kb('kernel'):.1f} KB",
                    *(f"{other.get(role, 0) / report.entries:.1f}" for role in PLACES),
                    f"{part['direct']:.1%}",
                    f"{part['pollution']:.1%}",
                )
            )
    return Table(
        id="programs-crossings",
        title="What crossings cost real programs",
        columns=(
            "program", "processor", "crossings a million instructions", "U a visit", "K a visit",
            *(f"{text} misses" for text in PLACES.values()),
            "clocks: directly", "by pollution",
        ),
        rows=tuple(lines),
        caption="U and K: lines of 64 bytes, code and data, that each side touches between two "
        "crossings, on average (counted). Misses: a crossing, only those that would not be if user "
        "space and kernel had caches of their own; below 0 where each finds what the other has "
        "brought in. Shares of modelled clocks, at the middle of all costs.",
        kind="modelled",
    )  # fmt: skip


def thousands(instructions: float) -> str:
    """
    >>> thousands(-1234.5), thousands(-20)
    ('-1.2 K', '0')
    """
    return f"{instructions / 1e3:+,.1f} K" if abs(instructions) >= 50 else "0"


def terms(programs: Sequence[Program]) -> Table:
    """The terms of the predictions."""
    calibrated: Sequence[Term] = supervisor_terms(programs[0].report.counts)
    lines = []
    for term in calibrated:
        parts = [program.saving.parts[term.name] for program in programs]
        lines.append((term.text, f"{term.saved:+,.0f}", *map(thousands, parts)))
    return Table(
        id="programs-terms",
        title="What a prediction is made of",
        columns=("what supervisor mode changes", "saves, once", *(one.name for one in programs)),
        rows=tuple(lines),
        caption="Instructions. Once: the difference of a loop in both modes, in the boot of "
        f"{programs[0].name}; each program's own boot calibrates its own.",
        kind="counted",
    )


def visits(programs: Sequence[Program]) -> Figure:
    """U and K of each program, as places on the maps of Fig. 5 and 6."""
    edge = float(areas.X_MAX_KB)
    points = []
    for program in programs:
        user, kernel = program.visit_kb("user"), program.visit_kb("kernel")
        points.append(Series(f"{program.name}: {user + kernel:.0f} KB", (user,), (kernel,)))
    return Figure(
        id="programs-visits",
        title="Where real programs lie on the maps of Fig. 5 and 6",
        x_label="U: touched in user space between two crossings, KB",
        y_label="K: touched in the kernel, KB",
        series=(
            *points,
            Series("U + K = 64 KB: to here range X", (0.0, edge), (edge, 0.0)),
        ),
        caption="Lines of 64 bytes, code and data, mean of all visits.",
        kind="counted",
    )


def compared(programs: Sequence[Program]) -> Figure:
    """Predicted and counted saving, side by side."""
    groups = {
        program.name: {
            "predicted": 100 * (1 + program.error(program.saved.median)),
            "counted": 100.0,
        }
        for program in programs
    }
    return Figure(
        id="programs-predicted",
        title="Supervisor mode's saving: predicted, in percent of what was counted",
        x_label="",
        y_label="instructions saved, counted = 100",
        series=bars(groups, {"predicted": "predicted from the run in user mode"}),
        marks=(Mark(80.0, "20% less"), Mark(100.0, "counted"), Mark(120.0, "20% more")),
        names=tuple(groups),
        kind="counted",
    )
