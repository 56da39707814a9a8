# SPDX-License-Identifier: GPL-2.0-only
"""Grids: many regions of the memory model, in rows that are spread over VMs, on cores or machines.

The same rows always share a VM, wherever it runs and whatever is there already: what a guest counts
depends a little on what it did before (its timer), and two runs shall be equal to the byte. So a VM
that was cut off is run again from its begin; rows that it makes a second time must be equal to the
first.

This file owns which VMs have to be run, and progress. How rows are kept is grid_rows.py's, where
VMs run grid_engine.py's, how one is driven there grid_vm.py's; what a region is and what its label
means is the experiment's business, what is counted trapless/model's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trapless.console import Silent, TraplessError
from trapless.measure.collect import Collection, boot_key, boot_record
from trapless.measure.grid_engine import End, Engine, Growth
from trapless.measure.grid_rows import Output, Shape, Store
from trapless.measure.grid_vm import Outcome, pack
from trapless.model import plugin
from trapless.model.plan import Plan
from trapless.vm import lab, qemu

ROWS_FOLDER = "rows"
LOOK_S = 0.5
"""How often it is asked what VMs have said, seconds."""

MASK = "{rows}"


@dataclass(frozen=True)
class Grid(Shape):
    """What is run: `rows` rows in `vms` VMs. The guest's command gets, for the word MASK, a '1' for
    each row that it is to run and a '0' for each other."""

    rows: int
    vms: int
    config: lab.LabConfig
    argv: tuple[str, ...]
    plan: Plan
    effort: Callable[[int], float]  # label -> how long it takes, in any unit
    total: float  # effort of all regions

    def label(self, vm: int) -> str:
        """The name of a VM's boot."""
        return f"{self.name}-vm{vm}"

    def rows_of(self, vm: int) -> range:
        """The rows that share a VM: rows grow longer, and all VMs shall end together."""
        return range(vm, self.rows, self.vms)

    def argv_of(self, vm: int) -> tuple[str, ...]:
        """The command of a VM."""
        wanted = self.rows_of(vm)
        mask = "".join("1" if row in wanted else "0" for row in range(self.rows))
        return tuple(word.replace(MASK, mask) for word in self.argv)

    @property
    def modelled(self) -> str:
        """What the plugin models, in its words."""
        return self.plan.text(qemu.parse_size(self.config.memory))


def parquet_path(directory: Path, name: str) -> Path:
    """Where the regions of a grid are, once it is finished."""
    return directory / f"{name}.parquet"


def collect(run: Collection, grids: Sequence[Grid], jobs: int | None = None) -> None:
    """Run what is missing of the grids, so many VMs at a time as there are cores, and join each.

    Where `run` names a scheduler, its workers are used instead of this machine's cores.
    TraplessError where a VM failed; what the others finished is kept.
    """
    works = [_Work(run, grid) for grid in grids]
    waiting = [vm for work in works for vm in work.missing()]
    if waiting:
        jobs = min(jobs or len(os.sched_getaffinity(0)), len(waiting))
        with (
            Engine(run.scheduler, jobs, run.progress) as engine,
            tempfile.TemporaryDirectory(prefix="trapless-grid-") as scratch,
        ):
            _Crew(run, engine, Path(scratch), waiting).go()
    for work in works:
        if work.joined:
            work.store.drop()
        else:
            work.store.join(work.target)


def key_of(grid: Grid) -> str:
    """What the counts depend on. The plugin's file is part of it, where files lie is not."""
    rest = (*grid.argv, grid.modelled, f"{grid.rows} rows, {grid.vms} VMs")
    return boot_key(grid.config, rest, [plugin.file(qemu.binary())])


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

    def missing(self) -> list[_Vm]:
        """The VMs that have to be run; none, where what was cut off came after this grid."""
        if self.joined:
            return []
        return [
            _Vm(self, number)
            for number in range(self.grid.vms)
            if self.grid.label(number) not in self._saved
            or not self.store.done.issuperset(self.grid.rows_of(number))
        ]


@dataclass
class _Vm:
    """One VM, and how far it has come. It may run more than once, where a worker was lost."""

    work: _Work
    number: int
    outputs: dict[str, Output] = field(default_factory=dict)  # of each run
    efforts: dict[str, float] = field(default_factory=dict)  # how far each run has come

    @property
    def grid(self) -> Grid:
        return self.work.grid

    @property
    def label(self) -> str:
        return self.grid.label(self.number)

    @property
    def effort(self) -> float:
        """Of the run that has come furthest."""
        return max(self.efforts.values(), default=0.0)


class _Crew:
    """The VMs that have to be run, as many at a time as the engine takes."""

    def __init__(
        self, run: Collection, engine: Engine, scratch: Path, waiting: Sequence[_Vm]
    ) -> None:
        self._run, self._engine, self._scratch = run, engine, scratch
        self._all = {vm.label: vm for vm in waiting}
        self._waiting = list(waiting)
        self._active: set[str] = set()
        self._failures: list[str] = []

    def go(self) -> None:
        """Run them all; a VM that fails does not keep the others from their work."""
        run, vms = self._run, self._all.values()
        rows = sum(len(vm.grid.rows_of(vm.number)) for vm in vms)
        total = sum(vm.grid.total / vm.grid.vms for vm in vms)
        run.progress.step(f"{run.name}: {rows} rows on {len(vms)} VMs")
        try:
            while self._waiting or self._active:
                self._start()
                for said in self._engine.look(LOOK_S):
                    vm = self._all[said.label]
                    self._grown(vm, said) if isinstance(said, Growth) else self._over(vm, said)
                run.progress.advance(sum(vm.effort for vm in vms), total)
        finally:
            run.progress.done()
        works = {id(vm.work): vm.work for vm in vms}.values()
        wanted = sum(work.grid.rows for work in works)
        done = sum(len(work.store.done) for work in works)
        if self._failures or done < wanted:
            raise TraplessError(
                f"{run.name}: {self._failures[0] if self._failures else 'regions are missing'}\n"
                f"{done} of {wanted} rows are finished and kept; the same command goes on there"
            )

    def _start(self) -> None:
        free = self._engine.slots - len(self._active)
        for vm in self._waiting[: max(free, 0)]:
            self._waiting.remove(vm)
            self._active.add(vm.label)
            modelled = vm.grid.modelled.encode()
            argv = vm.grid.argv_of(vm.number)
            # What a guest lacks is fetched and built here, with the grid's line left standing.
            self._engine.start(*pack(vm.label, vm.grid.config, argv, modelled, Silent()))

    def _grown(self, vm: _Vm, said: Growth) -> None:
        if said.run not in vm.outputs:
            if vm.outputs:
                self._run.progress.note(f"{vm.label}: a worker was lost; the VM runs once more")
            vm.outputs[said.run] = Output(vm.work.store, self._scratch / f"{said.run}.jsonl")
            vm.efforts[said.run] = 0.0
        output = vm.outputs[said.run]
        seen = len(output.labels)
        output.feed(said.data)
        vm.efforts[said.run] += sum(map(vm.grid.effort, output.labels[seen:]))
        if output.failure and vm.label in self._active:
            self._engine.stop(vm.label)
            self._fail(vm, output.failure)

    def _over(self, vm: _Vm, said: End) -> None:
        if said.outcome is None:  # nobody was there to want it, for a while
            self._active.discard(vm.label)
            self._waiting.append(vm)
        elif said.outcome.result is None:
            self._fail(vm, said.outcome.failure)
        else:
            self._finish(vm, said.run, said.outcome)

    def _finish(self, vm: _Vm, run: str, outcome: Outcome) -> None:
        output = vm.outputs.get(run)
        if output is not None:
            output.ended_well()
        assert outcome.result is not None
        head = boot_record(
            self._run.part,
            vm.label,
            vm.work.store.key,
            vm.grid.config,
            vm.grid.argv_of(vm.number),
            outcome.result,
        )
        times = {"began_s": round(outcome.began_s, 1), "wall_s": round(outcome.wall_s, 1)}
        self._run.adopt({**head, **times}, outcome.checks)
        self._active.discard(vm.label)

    def _fail(self, vm: _Vm, why: str) -> None:
        self._failures.append(f"{vm.label}: {why}")
        self._active.discard(vm.label)
