# SPDX-License-Identifier: GPL-2.0-only
"""Grids: many regions of the memory model, in rows that are spread over VMs.

The same rows always share a VM, wherever it runs and whatever is saved already: the counts of a
guest depend slightly on what it did before (its timer), and two runs must be equal to the byte. So
a VM that was interrupted runs again from its start, and rows that it makes a second time must
equal the first.

This file owns which VMs have to run. fleet.py runs them, and grid_rows.py keeps the rows. The
experiment defines regions and their labels; trapless/model counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection, boot_key
from trapless.experiments.fleet import fleet
from trapless.experiments.fleet.fleet import Vm
from trapless.experiments.fleet.grid_rows import Output, Shape, Store
from trapless.model import plugin_choice
from trapless.model.model_plan import Plan
from trapless.vm import lab, qemu

ROWS_FOLDER = "rows"
MASK = "{rows}"


@dataclass(frozen=True)
class Grid(Shape):
    """A grid of `rows` rows in `vms` VMs. In the guest's command, MASK becomes a '1' for each row
    that the VM runs and a '0' for each other."""

    rows: int
    vms: int
    config: lab.LabConfig
    argv: tuple[str, ...]
    plan: Plan
    total: float  # effort of all regions

    def label(self, vm: int) -> str:
        """The name of a VM's boot."""
        return f"{self.name}-vm{vm}"

    def rows_of(self, vm: int) -> range:
        """The rows that share a VM. Later rows take longer, so they are dealt out in turn."""
        return range(vm, self.rows, self.vms)

    def argv_of(self, vm: int) -> tuple[str, ...]:
        """The command of a VM."""
        wanted = self.rows_of(vm)
        mask = "".join("1" if row in wanted else "0" for row in range(self.rows))
        return tuple(word.replace(MASK, mask) for word in self.argv)

    @property
    def modelled(self) -> str:
        """The plugin's plan: what it is to model."""
        return self.plan.text(qemu.parse_size(self.config.memory))


def parquet_path(directory: Path, name: str) -> Path:
    """The file of a finished grid's regions."""
    return directory / f"{name}.parquet"


def collect(run: Collection, grids: Sequence[Grid], jobs: int | None = None) -> None:
    """Run the missing VMs of the grids by fleet.run(), and join the rows of each grid.

    A TraplessError says which VM failed; finished rows are kept.
    """
    works = [_Work(run, grid) for grid in grids]
    missing = [(work, vm) for work in works for vm in work.missing()]
    rows = sum(len(work.grid.rows_of(vm)) for work, vm in missing)
    title = f"{run.name}: {rows} rows on {len(missing)} VMs"
    failures = fleet.run(run, title, [work.vm(number) for work, number in missing], jobs)
    unjoined = [work for work in works if not work.joined]
    wanted = sum(work.grid.rows for work in unjoined)
    done = sum(len(work.store.done) for work in unjoined)
    if failures or done < wanted:
        raise TraplessError(
            f"{run.name}: {failures[0] if failures else 'regions are missing'}\n"
            f"{done} of {wanted} rows are finished and kept; the same command goes on there"
        )
    for work in works:
        if work.joined:
            work.store.drop()
        else:
            work.store.join(work.target)


def key_of(grid: Grid) -> str:
    """A hash of what the counts depend on: the plugin's content is part of it, paths are not."""
    rest = (*grid.argv, grid.modelled, f"{grid.rows} rows, {grid.vms} VMs")
    return boot_key(grid.config, rest, [plugin_choice.file(qemu.binary())])


class _Work:
    """One grid, and what an interrupted run has saved of it."""

    def __init__(self, run: Collection, grid: Grid) -> None:
        self.grid = grid
        self.target = parquet_path(run.directory, grid.name)
        self.store = Store(run.directory / ROWS_FOLDER / grid.name, key_of(grid), grid)
        self._saved = run.adopt_saved(self.store.key)
        labels = {grid.label(vm) for vm in range(grid.vms)}
        self.joined = labels.issubset(self._saved) and self.store.made(self.target)
        there = grid.rows if self.joined else len(self.store.done)
        if there:
            run.progress.note(f"{run.name}, {grid.name}: {there} of {grid.rows} rows are there")

    def missing(self) -> list[int]:
        """The VMs that have to run; none where the grid was finished before the interruption."""
        if self.joined:
            return []
        return [
            number
            for number in range(self.grid.vms)
            if self.grid.label(number) not in self._saved
            or not self.store.done.issuperset(self.grid.rows_of(number))
        ]

    def vm(self, number: int) -> Vm:
        """One VM for fleet.run()."""
        grid = self.grid
        return Vm(
            label=grid.label(number),
            key=self.store.key,
            config=grid.config,
            argv=grid.argv_of(number),
            modelled=grid.modelled,
            effort=grid.total / grid.vms,
            output=lambda file: Output(self.store, file),
        )
