# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a grid: read from the output of a VM's plugin, saved one by one, joined at the end.

A row is saved in one step as soon as all its regions are there, as a Parquet file of its own, so
that no finished row is lost when a run is killed or a guest dies. This file owns the files, and
decides when a region is sound. grid.py decides which rows are wanted, and from which VM.
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
    """The parts of a grid's rows."""

    name: str
    regions: int  # in each row
    row_of: Callable[[int], int]  # label -> number of its row
    effort: Callable[[int], float]  # label -> how long it takes, in any unit
    describe: Callable[[int], Mapping[str, str | int]]  # label -> columns


@dataclass
class Store:
    """The finished rows of a grid, each in a file. Rows of other conditions are removed."""

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
        """Whether a file exists, is sound, and was made under these conditions."""
        try:
            return (pq.read_schema(path).metadata or {}).get(KEY) == self.key.encode()
        except (OSError, pa.ArrowException):
            return False

    def path(self, row: int) -> Path:
        return self.folder / f"row-{row:05d}.parquet"

    def add(self, row: int, header: Mapping[str, Any], regions: Sequence[model_rows.Row]) -> None:
        """Save a finished row; one that is made again must equal the first."""
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
        """Write all rows as one file, and remove the files of single rows."""
        tables = [pq.read_table(self.path(row)) for row in sorted(self.done)]
        if len({table.schema.metadata[HEADER] for table in tables}) > 1:
            raise TraplessError(
                f"{self.folder}: its rows were modelled differently; remove it and run again"
            )
        _write(pa.concat_tables(tables), target)
        self.drop()

    def drop(self) -> None:
        """Remove the files of single rows."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the other grids' rows are in there
            self.folder.parent.rmdir()


def _write(table: pa.Table, path: Path) -> None:
    """Write the file in one step; equal tables make equal files.

    Few counts are the same: dictionaries, and the statistics of hundreds of columns, would take
    more than a quarter of the file.
    """
    partial = path.with_name(f".{path.name}.part")
    pq.write_table(
        table.combine_chunks(),
        partial,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        write_statistics=False,
    )
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


@dataclass
class Output:
    """The output of one run of a VM's plugin, in pieces that may end anywhere.

    A region is sound when the guest has gone on to the next one or has ended well: a wrong sum ends
    the guest.
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
        """Take the next piece and save the rows that it completes."""
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
        """Take the last region, and keep the guest's rows about its checks."""
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
