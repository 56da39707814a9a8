# SPDX-License-Identifier: GPL-2.0-only
"""Fleets: an experiment's VMs, run side by side on this machine's cores or on several machines.

This file owns when a VM starts, progress, and what happens if a VM fails or its worker is lost.
engine.py runs the VMs, and vm.py drives one of them. The output of a VM is passed on as it comes:
grid.py and trapless/experiments/stat_runs.py say which VMs are wanted, and read their output.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trapless.base.console import Silent, TraplessError
from trapless.experiments.collection import Collection, Row, boot_record, own_folder
from trapless.experiments.fleet.engine import End, Engine, Growth
from trapless.experiments.fleet.vm import Outcome, pack
from trapless.vm import lab

FOLDER = "fleet"
"""The folder for files of workers and outputs, beside the experiment's. If a run is killed, the
next one removes it."""

LOOK_S = 0.5
"""How often new output of VMs is read, seconds."""


class Output(Protocol):
    """Takes the output of one run of a VM, in pieces that may end anywhere."""

    @property
    def effort(self) -> float:
        """How much of the run is done, in the unit of Vm.effort."""

    @property
    def failure(self) -> str:
        """Why the run has failed; empty while it has not."""

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""

    def finish(self, release: str, rows: Sequence[Row], /) -> Sequence[Row]:
        """The rows to keep, after the guest came to its end and passed all checks.

        `release` is the guest's kernel. A TraplessError says why the run has failed after all.
        """


@dataclass(frozen=True)
class Vm:
    """One VM that is wanted: its job, and the taker of its output.

    `label` and `key` are those of its boot. `output` gets a file of its own. A VM runs again where
    a worker was lost: each run has an output.
    """

    label: str
    key: str
    config: lab.LabConfig
    argv: tuple[str, ...]
    modelled: str
    effort: float
    output: Callable[[Path], Output]


def run(
    collection: Collection, title: str, vms: Sequence[Vm], jobs: int | None = None
) -> Sequence[str]:
    """Run all, as many at a time as there are cores, and keep a boot of each. Returns why some
    failed.

    Where `collection` names a scheduler, its workers are used instead of this machine's cores. A VM
    that fails does not keep the others from their work.
    """
    if not vms:
        return ()
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(vms))
    with (
        collection.turn(alone=collection.scheduler is None),
        own_folder(collection.directory, FOLDER) as folder,
        Engine(collection.scheduler, jobs, folder, collection.progress) as engine,
    ):
        fleet = _Fleet(collection, engine, folder, [_Runs(vm) for vm in vms])
        fleet.go(title)
    return fleet.failures


@dataclass
class _Runs:
    """A VM and its runs."""

    vm: Vm
    outputs: dict[str, Output] = field(default_factory=dict)

    @property
    def effort(self) -> float:
        """The effort of the run that is furthest."""
        return max((output.effort for output in self.outputs.values()), default=0.0)


class _Fleet:
    """The VMs of one fleet, as many at a time as the engine takes."""

    def __init__(
        self, collection: Collection, engine: Engine, folder: Path, all_runs: Sequence[_Runs]
    ) -> None:
        self._collection, self._engine, self._folder = collection, engine, folder
        self._all = {runs.vm.label: runs for runs in all_runs}
        self._waiting = list(all_runs)
        self._active: set[str] = set()
        self.failures: list[str] = []

    def go(self, title: str) -> None:
        """Run them all."""
        progress, total = self._collection.progress, sum(one.vm.effort for one in self._waiting)
        progress.step(title)
        try:
            while self._waiting or self._active:
                self._start()
                for news in self._engine.look(LOOK_S):
                    runs = self._all[news.label]
                    self._grown(runs, news) if isinstance(news, Growth) else self._over(runs, news)
                progress.advance(sum(runs.effort for runs in self._all.values()), total)
        finally:
            progress.done()

    def _start(self) -> None:
        free = self._engine.slots - len(self._active)
        for runs in self._waiting[: max(free, 0)]:
            vm = runs.vm
            self._waiting.remove(runs)
            self._active.add(vm.label)
            # Fetches and builds what a guest lacks; the fleet's line of progress stays.
            packed = pack(vm.label, vm.config, vm.argv, vm.modelled.encode(), Silent())
            self._engine.start(*packed)

    def _output(self, runs: _Runs, run: str) -> Output:
        if run not in runs.outputs:
            if runs.outputs:
                label = runs.vm.label
                self._collection.progress.note(f"{label}: a worker was lost; the VM runs once more")
            runs.outputs[run] = runs.vm.output(self._folder / f"{run}.jsonl")
        return runs.outputs[run]

    def _grown(self, runs: _Runs, news: Growth) -> None:
        output = self._output(runs, news.run)
        output.feed(news.data)
        if output.failure and runs.vm.label in self._active:
            self._engine.stop(runs.vm.label)
            self._fail(runs.vm, output.failure)

    def _over(self, runs: _Runs, news: End) -> None:
        if news.outcome is None:  # for a while, nobody said that it is wanted
            self._active.discard(runs.vm.label)
            self._waiting.append(runs)
        elif news.outcome.result is None:
            self._fail(runs.vm, news.outcome.failure)
        else:
            self._finish(runs, news.run, news.outcome, news.outcome.result)

    def _finish(self, runs: _Runs, run: str, outcome: Outcome, result: lab.LabResult) -> None:
        vm, part = runs.vm, self._collection.part
        try:
            rows = self._output(runs, run).finish(result.release, outcome.checks)
        except TraplessError as error:
            self._fail(vm, str(error))
            return
        head = boot_record(part, vm.label, vm.key, vm.config, vm.argv, result)
        times = {"began_s": round(outcome.began_s, 1), "wall_s": round(outcome.wall_s, 1)}
        self._collection.adopt({**head, **times}, rows)
        self._active.discard(vm.label)

    def _fail(self, vm: Vm, why: str) -> None:
        self.failures.append(f"{vm.label}: {why}")
        self._active.discard(vm.label)
