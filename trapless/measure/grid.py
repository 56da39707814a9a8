# SPDX-License-Identifier: GPL-2.0-only
"""Grids: many regions of the memory model, in rows that are spread over VMs on the host's cores.

A row is what is kept: as soon as all its regions are there it is written as a Parquet file of its
own, whole or not at all, so that nothing finished is lost when a run is killed or a guest dies. At
the end they become one Parquet file beside raw.jsonl.

The same rows always share a VM, whatever this machine's cores and whatever is there already: what
a guest counts depends a little on what it did before (its timer), and two runs shall be equal to
the byte. So a VM that was cut off is run again from its begin; rows that it makes a second time
must be equal to the first.

Each VM has a process of this program to drive it, which ends with its parent. This file owns rows,
VMs and progress; what a region is and what its label means is the experiment's business, what is
counted trapless/model's.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess, parent_process
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trapless.console import Silent, TraplessError
from trapless.measure.collect import Collection, Row, RowStream, boot_key, boot_record, fault
from trapless.model import plugin
from trapless.model import rows as model_rows
from trapless.model.plan import Plan
from trapless.vm import lab, qemu

ROWS_FOLDER = "rows"
LOOK_S = 0.5
"""How often the VMs' output is looked at, seconds."""

CONTEXT = multiprocessing.get_context("spawn")
"""How the processes beside the VMs are begun: fresh, for this one has threads."""

KEY = b"trapless.key"
HEADER = b"trapless.model"


@dataclass(frozen=True)
class Grid:
    """What is run: `rows` rows of `regions` regions each, in `vms` VMs. The guest's command gets,
    for the word MASK, a '1' for each row that it is to run and a '0' for each other."""

    name: str
    rows: int
    regions: int
    vms: int
    config: lab.LabConfig
    argv: tuple[str, ...]
    plan: Plan
    row_of: Callable[[int], int]  # label -> number of its row
    effort: Callable[[int], float]  # label -> how long it takes, in any unit
    describe: Callable[[int], Mapping[str, str | int]]  # label -> columns
    total: float  # effort of all regions

    def label(self, vm: int) -> str:
        """The name of a VM's boot."""
        return f"{self.name}-vm{vm}"

    def rows_of(self, vm: int) -> range:
        """The rows that share a VM: rows grow longer, and all VMs shall end together."""
        return range(vm, self.rows, self.vms)


MASK = "{rows}"


def parquet_path(directory: Path, name: str) -> Path:
    """Where the regions of a grid are, once it is finished."""
    return directory / f"{name}.parquet"


def collect(run: Collection, grids: Sequence[Grid], jobs: int | None = None) -> None:
    """Run what is missing of the grids, so many VMs at a time as there are cores, and join each.

    TraplessError where a VM failed; what the others finished is kept.
    """
    with tempfile.TemporaryDirectory(prefix="trapless-grid-") as folder:
        work = _Work(run, jobs or len(os.sched_getaffinity(0)))
        for grid in grids:
            description = Path(folder) / f"{grid.name}.model"
            grid.plan.write(description, qemu.parse_size(grid.config.memory))
            store = Store(
                run.directory / ROWS_FOLDER / grid.name,
                key_of(grid, description),
                grid,
                description,
            )
            work.add(store, run.adopt_saved(store.key))
        work.go()
    for store in work.stores:
        store.join(parquet_path(run.directory, store.grid.name))


def key_of(grid: Grid, description: Path) -> str:
    """What the counts depend on. The plugin's file is part of it, where files lie is not."""
    described = description.read_text(encoding="utf-8")
    rest = (*grid.argv, described, f"{grid.rows} rows, {grid.vms} VMs")
    return boot_key(grid.config, rest, [plugin.file(qemu.binary())])


@dataclass
class Store:
    """The finished rows of a grid, each in a file; those of other conditions are dropped."""

    folder: Path
    key: str
    grid: Grid
    description: Path  # of what is modelled, for the plugin
    done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.glob("row-*.parquet")):
            try:
                sound = (pq.read_schema(path).metadata or {}).get(KEY) == self.key.encode()
            except (OSError, pa.ArrowException):
                sound = False
            if sound:
                self.done.add(int(path.stem.removeprefix("row-")))
            else:
                path.unlink()

    def has_all(self, vm: int) -> bool:
        """Whether all rows of a VM are there."""
        return self.done.issuperset(self.grid.rows_of(vm))

    def path(self, row: int) -> Path:
        return self.folder / f"row-{row:05d}.parquet"

    def add(self, row: int, header: Mapping[str, Any], regions: Sequence[model_rows.Row]) -> None:
        """Keep a finished row; one that is made again must be what it was."""
        columns: dict[str, list[Any]] = {}
        for region in regions:
            for name, value in self.grid.describe(region.label).items():
                columns.setdefault(name, []).append(value)
        for place, name in enumerate(header["columns"]):
            columns[name] = [region.counts[place] for region in regions]
        told = {KEY: self.key.encode(), HEADER: json.dumps(header, sort_keys=True).encode()}
        table = pa.table(columns).replace_schema_metadata(told)
        if row not in self.done:
            _write(table, self.path(row))
            self.done.add(row)
        elif not pq.read_table(self.path(row)).equals(table):
            raise TraplessError(
                f"row {row} of {self.grid.name} was made again and differs from the first: the "
                f"emulator does not repeat itself on this machine ({self.path(row)})"
            )

    def join(self, target: Path) -> None:
        """All rows as one file; the folder of single ones goes."""
        tables = [pq.read_table(self.path(row)) for row in sorted(self.done)]
        if len({table.schema.metadata[HEADER] for table in tables}) > 1:
            raise TraplessError(
                f"{self.folder}: its rows were modelled differently; remove it and run again"
            )
        _write(pa.concat_tables(tables), target)
        shutil.rmtree(self.folder)
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
class _Vm:
    """One VM at work, seen from the parent, and how far its output has come."""

    store: Store
    label: str
    config: lab.LabConfig
    argv: tuple[str, ...]
    output: Path
    process: BaseProcess
    end: Connection
    seen: int = 0
    kept: set[int] = field(default_factory=set)
    effort: float = 0.0
    result: lab.LabResult | None = None
    checks: list[Row] = field(default_factory=list)
    failure: str = ""

    @property
    def over(self) -> bool:
        return self.result is not None or bool(self.failure)

    def look(self) -> None:
        """Take the driving process's word, if it has come, and keep the rows finished by now.

        A region is sound once the guest went on to another, or ended well: it ends at a bad sum.
        """
        if not self.over and self.end.poll():
            try:
                self.result, self.checks, self.failure = self.end.recv()
            except EOFError:
                self.failure = "the process that drove the VM was killed"
        if not self.output.exists() or not self.output.stat().st_size:
            return
        recording = model_rows.read(self.output)
        if recording.events:
            self.failure = f"the model complains: {recording.events[0]}"
        if len(recording.rows) == self.seen and not self.over:
            return
        grid = self.store.grid
        self.seen = len(recording.rows)
        self.effort = sum(grid.effort(region.label) for region in recording.rows)
        sound = recording.rows if self.result else recording.rows[:-1]
        by_row: dict[int, list[model_rows.Row]] = {}
        for region in sound:
            by_row.setdefault(grid.row_of(region.label), []).append(region)
        for row, regions in by_row.items():
            if len(regions) == grid.regions and row not in self.kept:
                self.store.add(
                    row, {**recording.header, "columns": list(recording.columns)}, regions
                )
                self.kept.add(row)


@dataclass
class _Work:
    """The VMs that have to be run, a few at a time."""

    run: Collection
    jobs: int
    stores: list[Store] = field(default_factory=list)
    waiting: list[tuple[Store, int]] = field(default_factory=list)  # grids, numbers of their VMs
    active: list[_Vm] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    effort: float = 0.0  # of VMs that are over

    def add(self, store: Store, saved: Sequence[str]) -> None:
        """A grid, but for what an interrupted run has saved of it."""
        grid = store.grid
        if store.done:
            self.run.progress.note(
                f"{self.run.name}, {grid.name}: {len(store.done)} of {grid.rows} rows are there"
            )
        self.stores.append(store)
        self.waiting += [
            (store, vm)
            for vm in range(grid.vms)
            if grid.label(vm) not in saved or not store.has_all(vm)
        ]

    def go(self) -> None:
        """Run them all; a VM that fails does not keep the others from their work."""
        rows = sum(len(store.grid.rows_of(vm)) for store, vm in self.waiting)
        total = sum(store.grid.total / store.grid.vms for store, _ in self.waiting)
        self.run.progress.step(f"{self.run.name}: {rows} rows on {len(self.waiting)} VMs")
        try:
            while self.waiting or self.active:
                while self.waiting and len(self.active) < self.jobs:
                    self.active.append(self._start(*self.waiting.pop(0)))
                connection.wait([vm.end for vm in self.active], LOOK_S)
                for vm in list(self.active):
                    vm.look()
                    if vm.over:
                        self._end(vm)
                done = self.effort + sum(vm.effort for vm in self.active)
                self.run.progress.advance(done, total)
        finally:
            for vm in self.active:
                vm.process.terminate()
                vm.process.join()
            self.run.progress.done()
        rows = sum(store.grid.rows for store in self.stores)
        done_rows = sum(len(store.done) for store in self.stores)
        if self.failures or done_rows < rows:
            raise TraplessError(
                f"{self.run.name}: {self.failures[0] if self.failures else 'regions are missing'}\n"
                f"{done_rows} of {rows} rows are finished and kept; the same command goes on there"
            )

    def _start(self, store: Store, number: int) -> _Vm:
        grid = store.grid
        label, rows = grid.label(number), grid.rows_of(number)
        mask = "".join("1" if row in rows else "0" for row in range(grid.rows))
        argv = tuple(word.replace(MASK, mask) for word in grid.argv)
        output = store.description.with_name(f"{label}.jsonl")
        told = plugin.argument(config=store.description, output=output)
        config = replace(grid.config, plugins=(*grid.config.plugins, told))
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=drive, args=(config, argv, theirs), daemon=True)
        process.start()
        theirs.close()
        return _Vm(store, label, config, argv, output, process, ours)

    def _end(self, vm: _Vm) -> None:
        if vm.failure:
            vm.process.terminate()
        vm.process.join()
        self.active.remove(vm)
        self.effort += vm.effort
        if vm.result is None:
            self.failures.append(f"{vm.label}: {vm.failure}")
            return
        head = boot_record(self.run.part, vm.label, vm.store.key, vm.config, vm.argv, vm.result)
        self.run.adopt(head, vm.checks)


def drive(config: lab.LabConfig, argv: tuple[str, ...], end: Connection) -> None:
    """The process beside a VM: runs it, and answers (result, rows, what went wrong)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is the parent's, who ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    stream = RowStream(io.StringIO(), "", Silent())
    try:
        result = lab.run(config, argv, sink=stream.feed)
        stream.close()
        wrong = fault(stream, result)
        end.send((None if wrong else result, stream.rows, wrong))
    except TraplessError as error:
        end.send((None, [], str(error)))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # and the VM dies with this process
