# SPDX-License-Identifier: GPL-2.0-only
"""Runs of `trapless stat` for an experiment: several programs counted, a VM each, a few at a time.

What is kept of a run is its Counted, as one row of the experiment's raw file; an interrupted
experiment goes on after the runs that were finished. Each VM has a process of this program to drive
it, which ends with its parent. Owns those processes; how a program is counted is trapless/stat's
business, which ones are is the experiment's.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shlex
import signal
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess, parent_process
from pathlib import Path

from trapless.console import Silent, TraplessError
from trapless.measure.collect import Collection, Row, RowStream, boot_key, boot_record, fault
from trapless.model import plugin
from trapless.paths import repo_root
from trapless.stat import counted, guest
from trapless.stat.guest import Job
from trapless.vm import lab, qemu
from trapless.vm.lab import LabConfig

CONTEXT = multiprocessing.get_context("spawn")
"""How the processes beside the VMs are begun: fresh, for this one may have threads."""


@dataclass(frozen=True)
class Run:
    """One program in one mode. `config` is the guest's, but for what counting adds to it.

    `after` is what the guest's shell does behind it, uncounted: its status is 0 only if the work
    was done, and what it prints is the run's proof.
    """

    label: str
    config: LabConfig
    job: Job
    processors: tuple[str, ...]
    after: str

    @property
    def argv(self) -> tuple[str, ...]:
        """The lab's command: counted first, then proved, in rows."""
        proof = f'proof=$({self.after}); test -n "$proof"'  # apart: `set -e` passes over &&
        said = 'printf \'{"proof": "%s"}\\n{"complete": true}\\n\' "$(echo $proof)"'
        return ("/bin/sh", "-c", f"set -e; {shlex.join(guest.argv(self.job))}; {proof}; {said}")

    @property
    def key(self) -> str:
        """What the counts depend on."""
        plan = counted.plan_of(self.processors).text(qemu.parse_size(self.config.memory))
        parts = [*self.argv, plan]
        sources = sorted((repo_root() / guest.SOURCES).rglob("*.[ch]"))
        files = [plugin.file(qemu.binary()), guest.program(), *sources]
        return boot_key(self.config, parts, files)


def collect(run: Collection, runs: Sequence[Run], jobs: int | None = None) -> None:
    """Count all that is not saved yet, so many at a time as there are cores.

    Each becomes a boot of its own, of one row: {"proof": ..., "counted": ...}. A TraplessError
    where one failed; what the others finished is kept.
    """
    waiting = [one for one in runs if not run.adopt_saved(one.key)]
    most = jobs or len(os.sched_getaffinity(0))
    active: list[_Vm] = []
    failures: list[str] = []
    done = 0
    run.progress.step(f"{run.name}, {run.part}: {len(waiting)} runs")
    try:
        while waiting or active:
            while waiting and len(active) < most:
                active.append(_Vm.start(run, waiting.pop(0)))
            connection.wait([vm.end for vm in active])
            for vm in [vm for vm in active if vm.end.poll()]:
                active.remove(vm)
                failures += vm.finish()
                done += 1
                run.progress.advance(done, done + len(active) + len(waiting))
    finally:
        for vm in active:
            vm.process.terminate()
            vm.process.join()
        run.progress.done()
    if failures:
        raise TraplessError(
            f"{run.name}: {failures[0]}\nruns that were finished are kept; the same command goes "
            "on there"
        )


@dataclass
class _Vm:
    """One run under way, seen from the parent."""

    collection: Collection
    run: Run
    process: BaseProcess
    end: Connection

    @classmethod
    def start(cls, collection: Collection, run: Run) -> _Vm:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=drive, args=(run, theirs), daemon=True)
        process.start()
        theirs.close()
        return cls(collection, run, process, ours)

    def finish(self) -> list[str]:
        """Keep what came of it; why that is nothing."""
        try:
            result, rows, wrong = self.end.recv()
        except EOFError:
            result, rows, wrong = None, [], "the process that drove the VM was killed"
        self.process.join()
        if result is None:
            return [f"{self.run.label}: {wrong}"]
        part, label = self.collection.part, f"{self.collection.part}-{self.run.label}"
        config = LabConfig(icount=True)
        head = boot_record(part, label, self.run.key, config, self.run.argv, result)
        self.collection.adopt(head, rows)
        return []


def drive(run: Run, end: Connection) -> None:
    """The process beside a VM: runs it, and answers (result, rows, what went wrong)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is the parent's, who ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        end.send((*count(run), ""))
    except TraplessError as error:
        end.send((None, [], str(error)))


def count(run: Run) -> tuple[lab.LabResult, list[Row]]:
    """One run, from boot to counts; a TraplessError where there are none to trust."""
    stream = RowStream(io.StringIO(), "", Silent())
    with tempfile.TemporaryDirectory(prefix="trapless-counting-") as name:
        folder = Path(name)
        config = guest.config(run.config, run.processors, folder, Silent())
        result = lab.run(config, run.argv, sink=stream.feed)
        stream.close()
        wrong = fault(stream, result)
        if wrong:
            raise TraplessError(wrong)
        found = counted.read(guest.rows_of(folder), result.release, run.processors)
    proofs = [row["proof"] for row in stream.rows if "proof" in row]
    if len(proofs) != 1:
        raise TraplessError(f"the run's proof is no text without quotes: {stream.noise[-1:]}")
    return result, [{"run": run.label, "proof": proofs[0], "counted": found.as_json()}]


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # and the VM dies with this process
