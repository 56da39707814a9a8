# SPDX-License-Identifier: GPL-2.0-only
"""Turns the metrics of a result into tables and figures, which readers can compare.

Metrics named SUBJECT.MECHANISM.nN.UNIT of one subject, unit and kind become one table (a row a
mechanism, a column an N) and one figure; the rest become a list. It owns how a number is written.
It knows no experiment: names alone decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trapless.report.figures import Figure, Mark, Series, Table
from trapless.results.result_file import Metric, Result

BY_COUNT = re.compile(r"n(\d+)")
# What a unit is called in a sentence, where its name in a metric is not enough.
UNIT_TEXT = {
    "instructions": "instructions a call",
    "requester_instructions": "instructions of the requester a call",
    "crossings": "crossings for all calls",
    "ratio": "time a call, plain call = 1",
    "ratio_to_int": "time a call, plain call by INT = 1",
    "n": "N",
    "ns": "ns a call",
}
# The long names of subjects, where there is room; others have their short name.
SUBJECT_TEXT = {
    "nosys": "a call that does nothing (no such number)",
    "read1": "read of 1 B, cached, tmpfs",
    "read4k": "read of 4 KB, cached, tmpfs",
    "read1_disk": "read of 1 B, cached, ext4",
    "write1": "write of 1 B to /dev/null",
    "stat": "stat of a file",
}
# The baseline stands first, then our mechanisms, then those of others; variants follow their
# family.
FAMILY_ORDER = ("plain", "batch", "psc", "io_uring")
WORDS_CHARS = 24
"""A column of a document with a longer cell contains words, and is aligned to the left."""
OTHERS_MAX = 40  # metrics in a list that is read at a glance; more are for programs
WIDE_RANGE = 30.0  # largest over smallest from which a linear axis would hide the small values


@dataclass(frozen=True)
class Name:
    """The parts of a metric's name."""

    subject: str
    mechanism: str
    parameter: str  # empty where the name has none
    unit: str

    @staticmethod
    def of(text: str) -> Name:
        subject, mechanism, *parameter, unit = text.split(".")
        return Name(subject, mechanism, ".".join(parameter), unit)


@dataclass(frozen=True)
class Pivot:
    """One table: `cells[mechanism][n]`, all of one subject, unit and kind."""

    subject: str
    unit: str
    kind: str
    counts: tuple[int, ...]
    cells: Mapping[str, Mapping[int, Metric]]

    @property
    def title(self) -> str:
        return f"{subject_text(self.subject)}: {unit_text(self.unit)}"

    def is_best(self, metric: Metric, count: int) -> bool:
        """Whether it is the smallest of its column, where there is anything to compare with."""
        column = [row[count].value for row in self.cells.values() if count in row]
        return len(column) > 1 and metric.value == min(column)

    def figure(self) -> Figure | None:
        """The table as a plot; None where no line has two points."""
        series = tuple(
            Series(
                mechanism,
                tuple(float(count) for count in row),
                tuple(metric.value for metric in row.values()),
                tuple(metric.value - metric.spread / 2 for metric in row.values()),
                tuple(metric.value + metric.spread / 2 for metric in row.values()),
            )
            for mechanism, row in self.cells.items()
            if len(row) > 1
        )
        if not series:
            return None
        values = [y for line in series for y in line.y if y > 0]
        ratio = self.unit.startswith("ratio")  # half and double are equally far from equal
        wide = bool(values) and max(values) > WIDE_RANGE * min(values)
        return Figure(
            id=f"{self.subject}-{self.unit}-{self.kind}",
            title=self.title,
            x_label="calls a crossing, N",
            y_label=unit_text(self.unit),
            series=series,
            log_x=True,
            log_y=ratio or wide,
            kind=self.kind,
            marks=(Mark(1.0, ""),) if ratio else (),
        )


def pivots(result: Result) -> tuple[Pivot, ...]:
    """The tables over N that the metrics' names describe, in the order of the file."""
    groups: dict[tuple[str, str, str], dict[str, dict[int, Metric]]] = {}
    for text, metric in result.metrics.items():
        name = Name.of(text)
        match = BY_COUNT.fullmatch(name.parameter)
        if match:
            group = groups.setdefault((name.subject, name.unit, metric.kind), {})
            group.setdefault(name.mechanism, {})[int(match[1])] = metric
    tables = []
    for (subject, unit, kind), cells in groups.items():
        counts = tuple(sorted({count for row in cells.values() for count in row}))
        ordered = {name: dict(sorted(cells[name].items())) for name in sorted(cells, key=_rank)}
        tables.append(Pivot(subject, unit, kind, counts, ordered))
    return tuple(tables)


def _rank(mechanism: str) -> tuple[int, str]:
    family = mechanism.partition("-")[0]
    place = FAMILY_ORDER.index(family) if family in FAMILY_ORDER else len(FAMILY_ORDER)
    return place, mechanism


def others(result: Result) -> tuple[tuple[str, Metric], ...]:
    """The metrics that stand in no table over N."""
    return tuple(
        (text, metric)
        for text, metric in result.metrics.items()
        if not BY_COUNT.fullmatch(Name.of(text).parameter)
    )


def subject_text(subject: str) -> str:
    """A subject as people call it."""
    return SUBJECT_TEXT.get(subject, subject)


def unit_text(unit: str) -> str:
    """A unit as it stands in a heading or on an axis."""
    return UNIT_TEXT.get(unit.replace("-", "_"), re.sub("[_-]", " ", unit))


def of_bars(figure: Figure) -> Table:
    """The numbers of a figure with bars: a row a name, a column a series."""
    columns = [dict(zip(series.x, series.y, strict=True)) for series in figure.series]
    return Table(
        id=f"{figure.id}-numbers",
        title=f"{figure.title}, {figure.y_label}",
        columns=("", *(series.name for series in figure.series)),
        rows=tuple(
            (
                name.replace("\n", " "),
                *(f"{column[place]:.1f}" if place in column else "–" for column in columns),
            )
            for place, name in enumerate(figure.names)
        ),
        kind=figure.kind,
    )


def markdown(table: Table) -> str:
    """A table as a document has it, without title and caption."""
    columns = list(zip(*table.rows, strict=True))[1:] or [()] * (len(table.columns) - 1)
    words = (max(map(len, column), default=0) > WORDS_CHARS for column in columns)
    lines = [table.columns, ("---", *("---" if long else "--:" for long in words)), *table.rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def number(value: float) -> str:
    """A number with the digits that it deserves: two decimals below ten, none from a hundred."""
    size = abs(value)
    if float(value).is_integer() or size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.3g}"


def spread_text(metric: Metric) -> str:
    """The repeats and their spread: '1 run', '3 runs, equal', '5 runs, spread 0.02'."""
    if metric.n == 1:
        return "1 run"
    if metric.spread == 0:
        return f"{metric.n} runs, equal"
    return f"{metric.n} runs, spread {number(metric.spread)}"
