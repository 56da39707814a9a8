# SPDX-License-Identifier: GPL-2.0-only
"""Reads the rows of the plugin and of the counters' program: JSON lines that describe themselves.

This file owns reading: what the columns are called, and what is left when a guest died in the
middle. A line that is not whole is no row. It does not own the meaning of the counts.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trapless.base.console import TraplessError

FORMATS, VERSION = ("trapless-model", "trapless-counters"), 1
KINDS = ("read", "write", "fetch")


@dataclass(frozen=True)
class Row:
    """The counts of one region, in the order of the recording's columns."""

    label: int
    number: int
    counts: tuple[int, ...]
    places: Mapping[str, int]

    def __getitem__(self, column: str) -> int:
        return self.counts[self.places[column]]

    def of(self, mode: str, structure: str, what: str) -> int:
        """One count of a structure: of("kernel", name, "read_misses")."""
        return self[f"{mode}.{structure}.{what}"]

    def misses(self, mode: str, structure: str) -> int:
        """The misses of all accesses."""
        return sum(self.of(mode, structure, f"{kind}_misses") for kind in KINDS)

    def references(self, mode: str, structure: str) -> int:
        """The number of all accesses."""
        return sum(self.of(mode, structure, f"{kind}_references") for kind in KINDS)

    def crossings(self) -> dict[str, int]:
        """The ledger: how often each kind of transition happened."""
        prefix = "crossings."
        return {
            name.removeprefix(prefix): self.counts[place]
            for name, place in self.places.items()
            if name.startswith(prefix)
        }


@dataclass(frozen=True)
class Recording:
    """One file. `complete`: QEMU ended the ordinary way; without it the rows are still whole.

    Counters write no last line: a file of theirs is never `complete`.
    """

    header: Mapping[str, Any]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    events: tuple[str, ...]
    complete: bool


def read(path: Path) -> Recording:
    """All of a file's rows; a TraplessError if it is no such file."""
    rows: list[Row] = []
    rest = _each(path, rows.append)
    return Recording(rest.header, rest.columns, tuple(rows), rest.events, rest.complete)


def add_up(path: Path, group: Callable[[int], int] = lambda label: label) -> Recording:
    """Rows added up by `group` of their labels, however many there are: one for each group.

    Their `label` is the group, their `number` how many rows were added.
    """
    sums: dict[int, list[int]] = {}
    numbers: dict[int, int] = {}
    places: Mapping[str, int] = {}

    def add(row: Row) -> None:
        nonlocal places
        places, to = row.places, group(row.label)
        before = sums.get(to)
        sums[to] = list(map(operator.add, before, row.counts) if before else row.counts)
        numbers[to] = numbers.get(to, 0) + 1

    rest = _each(path, add)
    rows = tuple(Row(to, numbers[to], tuple(sums[to]), places) for to in sorted(sums))
    return Recording(rest.header, rest.columns, rows, rest.events, rest.complete)


def _each(path: Path, take: Callable[[Row], None]) -> Recording:
    """Hand over each row as it is read; what else the file holds."""
    try:
        with path.open(encoding="utf-8") as file:
            return _each_of(path, _whole_lines(file), take)
    except OSError as error:
        raise TraplessError(f"{path}: {error.strerror}") from error


def _each_of(path: Path, lines: Iterator[dict[str, Any]], take: Callable[[Row], None]) -> Recording:
    header = next(lines, None)
    if header is None or header.get("format") not in FORMATS:
        raise TraplessError(f"{path}: not rows of the model")
    if header.get("version") != VERSION:
        raise TraplessError(f"{path}: rows of version {header.get('version')}, not {VERSION}")
    columns = tuple(header["columns"])
    places = {name: place for place, name in enumerate(columns)}
    events: list[str] = []
    number, complete = 0, False
    for line in lines:
        if "counts" in line:
            if len(line["counts"]) != len(columns):
                raise TraplessError(f"{path}: row {line['number']} has not {len(columns)} counts")
            take(Row(line["region"], line["number"], tuple(line["counts"]), places))
            number += 1
        elif "event" in line:
            events.append(line["event"])
        elif "end" in line:
            complete = line["end"]["rows"] == number
    return Recording(header, columns, (), tuple(events), complete)


def _whole_lines(file: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Each line up to the first that was not finished."""
    for line in file:
        if not line.endswith("\n"):
            return
        try:
            yield json.loads(line)
        except ValueError:
            return
