# SPDX-License-Identifier: GPL-2.0-only
"""Figures and tables as data: what an experiment shows, and not how it is drawn.

An experiment makes them from its raw files. plot.py draws a Figure as SVG; html.py and
text_report.py format Tables for a page and a terminal. This file draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """One line. `low` and `high`, where given, are the smallest and largest repeat at each x.

    The line has a gap where y is not a number.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for label, values in (("y", self.y), ("low", self.low), ("high", self.high)):
            if len(values) != len(self.x) and (values or label == "y"):
                raise ValueError(f"series {self.name!r}: {len(self.x)} x but {len(values)} {label}")


@dataclass(frozen=True)
class Mark:
    """A level to compare with, drawn across a figure: a published value, a bound, a plain call."""

    y: float
    label: str


@dataclass(frozen=True)
class Figure:
    """A plot of series over one parameter. `kind` is measured, counted or modelled.

    With `names` it has bars in place of lines: a group for each name, in which every series has
    the bar at x = 0 for the first name, 1 for the second. With `stacked` it has areas, or one bar a
    name, one upon the other: all series have the same x, and y that add up to something.
    """

    id: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    caption: str = ""
    kind: str = "counted"
    marks: tuple[Mark, ...] = ()
    from_zero: bool = True  # the y axis begins at 0, so that lengths can be compared by eye
    names: tuple[str, ...] = ()
    stacked: bool = False

    def __post_init__(self) -> None:
        if self.stacked and len({series.x for series in self.series}) > 1:
            raise ValueError(f"figure {self.id!r}: series that are stacked have the same x")
        places = set(range(len(self.names)))
        for series in self.series if self.names else ():
            if not set(series.x) <= places:
                raise ValueError(f"figure {self.id!r}: {series.name!r} has a bar without a name")


@dataclass(frozen=True)
class Map:
    """Ratios over two parameters: `cells[j][i]` is at x[i] and y[j]; None where there is none.

    A ratio of 1 divides its colours; `scale` says what it is a ratio of. x and y rise in equal
    steps. `outlines` are lines that are drawn over it, each through points of its own: bounds that
    the text speaks of. `names` are words at points: what lies between such lines is called.
    """

    id: str
    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    cells: tuple[tuple[float | None, ...], ...]
    absent: str = "too few to compare"  # what a cell without a ratio means
    caption: str = ""
    kind: str = "counted"
    outlines: tuple[tuple[tuple[float, float], ...], ...] = ()
    names: tuple[tuple[float, float, str], ...] = ()
    scale: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.cells if len(row) != len(self.x)]
        if wrong or len(self.cells) != len(self.y) or len(self.x) < 2 or len(self.y) < 2:
            raise ValueError(f"map {self.id!r}: not {len(self.y)} rows of {len(self.x)} cells")


@dataclass(frozen=True)
class Table:
    """Rows of text under columns; numbers are already text with the digits that they deserve.

    A table whose columns have no names is a list of facts: it has no head.
    """

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.id!r}: {len(self.columns)} columns but a row has {len(row)}"
                )


def lines(
    points: Mapping[str, Mapping[int, float]], names: Mapping[str, str]
) -> tuple[Series, ...]:
    """Series of y by x, where `points` is key -> x -> y; `names` says which keys, and their names.

    >>> lines({"a": {2: 0.5, 1: 1.0}, "b": {}}, {"a": "first", "b": "second"})
    (Series(name='first', x=(1.0, 2.0), y=(1.0, 0.5), low=(), high=()),)
    """
    return tuple(
        Series(
            name,
            tuple(float(x) for x in sorted(points[key])),
            tuple(points[key][x] for x in sorted(points[key])),
        )
        for key, name in names.items()
        if points.get(key)
    )


def bars(groups: Mapping[str, Mapping[str, float]], names: Mapping[str, str]) -> tuple[Series, ...]:
    """Series of bars, where `groups` is group -> key -> y: the figure's names are the groups.

    >>> bars({"read": {"a": 2.0}, "write": {"a": 3.0}}, {"a": "first"})
    (Series(name='first', x=(0.0, 1.0), y=(2.0, 3.0), low=(), high=()),)
    """
    columns = {
        key: {place: group[key] for place, group in enumerate(groups.values()) if key in group}
        for key in names
    }
    return lines(columns, names)
