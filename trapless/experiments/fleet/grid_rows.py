# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a grid: taken from what a VM's plugin writes, kept one by one, joined at the end.

A row is kept as soon as all its regions are there, as a Parquet file of its own, whole or not at
all, so that nothing finished is lost when a run is killed or a guest dies. This file owns the files
and what makes a region sound; which rows are wanted, and from which VM, is grid.py's business.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trapless.base.console import TraplessError
from trapless.experiments.collection import Row
from trapless.model import rows as model_rows

KEY = b"trapless.key"
HEADER = b"trapless.model"


@dataclass(frozen=True)
class Shape:
    """What the rows of a grid are made of."""

    name: str
    regions: int  # in each row
    row_of: Callable[[int], int]  # label -> number of its row
    effort: Callable[[int], float]  # label -> how long it takes, in any unit
    describe: Callable[[int], Mapping[str, str | int]]  # label -> columns


@dataclass
class Store:
    """The finished rows of a grid, each in a file; those of other conditions are dropped."""

    folder: Path
    key: str
    shape: Shape
    done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob("row-*.parquet")):
            if self.made(path):
                self.done.add(int(path.stem.removeprefix("row-")))
            else:
                path.unlink()

    def made(self, path: Path) -> bool:
        """Whether a file is there, sound, and of these conditions."""
        try:
            return (pq.read_schema(path).metadata or {}).get(KEY) == self.key.encode()
        except (OSError, pa.ArrowException):
            return False

    def path(self, row: int) -> Path:
        return self.folder / f"row-{row:05d}.parquet"

    def add(self, row: int, header: Mapping[str, Any], regions: Sequence[model_rows.Row]) -> None:
        """Keep a finished row; one that is made again must be what it was."""
        columns: dict[str, list[Any]] = {}
        for region in regions:
            for name, value in self.shape.describe(region.label).items():
                columns.setdefault(name, []).append(value)
        for place, name in enumerate(header["columns"]):
            columns[name] = [region.counts[place] for region in regions]
        metadata = {KEY: self.key.encode(), HEADER: json.dumps(header, sort_keys=True).encode()}
        table = pa.table(columns).replace_schema_metadata(metadata)
        if row not in self.done:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(table, self.path(row))
            self.done.add(row)
        elif not pq.read_table(self.path(row)).equals(table):
            raise TraplessError(
                f"row {row} of {self.shape.name} was made again and differs from the first: the "
                f"emulator does not repeat itself ({self.path(row)})"
            )

    def join(self, target: Path) -> None:
        """All rows as one file; the folder of single ones goes."""
        tables = [pq.read_table(self.path(row)) for row in sorted(self.done)]
        if len({table.schema.metadata[HEADER] for table in tables}) > 1:
            raise TraplessError(
                f"{self.folder}: its rows were modelled differently; remove it and run again"
            )
        _write(pa.concat_tables(tables), target)
        self.drop()

    def drop(self) -> None:
        """The single rows go: they have been joined."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the other grids' rows are in there
            self.folder.parent.rmdir()


def _write(table: pa.Table, path: Path) -> None:
    """The file is there whole, or not at all; equal tables are equal files."""
    partial = path.with_name(f".{path.name}.part")
    pq.write_table(table.combine_chunks(), partial, compression="zstd")
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


@dataclass
class Output:
    """What one run of a VM's plugin writes, as it comes in pieces that are cut anywhere.

    A region is sound once the guest went on to another, or ended well: it ends at a bad sum.
    """

    store: Store
    scratch: Path  # a file that is ours
    effort: float = 0.0  # of the regions that came
    failure: str = ""
    _head: bytes = b""
    _rest: bytes = b""
    _last: model_rows.Row | None = None
    _header: dict[str, Any] = field(default_factory=dict)
    _rows: dict[int, list[model_rows.Row]] = field(default_factory=dict)

    def feed(self, piece: bytes) -> None:
        """Take the next piece and keep the rows that it finished."""
        lines, newline, self._rest = (self._rest + piece).rpartition(b"\n")
        if not newline:
            return
        if not self._head:
            self._head, _, lines = lines.partition(b"\n")
        self.scratch.write_bytes(self._head + b"\n" + (lines + b"\n" if lines else b""))
        recording = model_rows.read(self.scratch)
        self._header = {**recording.header, "columns": list(recording.columns)}
        if recording.events:
            self.failure = f"the model complains: {recording.events[0]}"
        for region in recording.rows:
            self.effort += self.store.shape.effort(region.label)
            self._take_last()
            self._last = region

    def finish(self, _release: str, rows: Sequence[Row]) -> Sequence[Row]:
        """The guest came to its end, with all checks passed, of which it tells in its own rows."""
        self._take_last()
        return rows

    def _take_last(self) -> None:
        if self._last is None:
            return
        row = self.store.shape.row_of(self._last.label)
        regions = self._rows.setdefault(row, [])
        regions.append(self._last)
        self._last = None
        if len(regions) == self.store.shape.regions:
            self.store.add(row, self._header, self._rows.pop(row))
