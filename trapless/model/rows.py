# SPDX-License-Identifier: GPL-2.0-only
"""Rows as the plugin, or the counters' program, wrote them: JSON lines that describe themselves.

Owns reading: what the columns are called, and what is left when a guest died in the middle. A line
that is not whole is no row. It owns nothing of what counts mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trapless.console import TraplessError

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
        """Of all accesses."""
        return sum(self.of(mode, structure, f"{kind}_misses") for kind in KINDS)

    def references(self, mode: str, structure: str) -> int:
        """Of all accesses."""
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
    try:
        with path.open(encoding="utf-8") as file:
            lines = _whole_lines(file.read())
    except OSError as error:
        raise TraplessError(f"{path}: {error.strerror}") from error
    header = next(lines, None)
    if header is None or header.get("format") not in FORMATS:
        raise TraplessError(f"{path}: not rows of the model")
    if header.get("version") != VERSION:
        raise TraplessError(f"{path}: rows of version {header.get('version')}, not {VERSION}")
    columns = tuple(header["columns"])
    places = {name: place for place, name in enumerate(columns)}
    rows: list[Row] = []
    events: list[str] = []
    complete = False
    for line in lines:
        if "counts" in line:
            if len(line["counts"]) != len(columns):
                raise TraplessError(f"{path}: row {line['number']} has not {len(columns)} counts")
            rows.append(Row(line["region"], line["number"], tuple(line["counts"]), places))
        elif "event" in line:
            events.append(line["event"])
        elif "end" in line:
            complete = line["end"]["rows"] == len(rows)
    return Recording(header, columns, tuple(rows), tuple(events), complete)


def _whole_lines(text: str) -> Iterator[dict[str, Any]]:
    """Each line up to the first that was not finished."""
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        try:
            yield json.loads(line)
        except ValueError:
            return
