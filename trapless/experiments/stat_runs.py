# SPDX-License-Identifier: GPL-2.0-only
"""Counts several programs for an experiment as `trapless stat` does, each in a VM of a fleet.

This file owns what runs in the VM, and what is kept: one row of the experiment's raw file with the
run's RunCounts. An interrupted experiment goes on after the finished runs. trapless/stat owns how a
program is counted; the experiment chooses the programs.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.experiments.collection import Collection, Row, boot_key
from trapless.experiments.fleet import fleet
from trapless.experiments.fleet.fleet import Vm
from trapless.model import plugin_choice
from trapless.stat import guest, run_counts
from trapless.stat.guest import Job
from trapless.stock import kbuild
from trapless.vm import qemu
from trapless.vm.lab import LabConfig


@dataclass(frozen=True)
class Run:
    """One program in one mode. Counting adds to `config`, the guest's configuration. `elsewhere`:
    each processor is also modelled beside another one that does the kernel's work.

    `after` is a command of the guest's shell that runs afterwards and is not counted. Its status is
    0 only if the program did its work, and its output is the proof of the run.
    """

    label: str
    config: LabConfig
    job: Job
    processors: tuple[str, ...]
    after: str
    elsewhere: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        """The lab's command: it counts the program, then prints the proof as a row."""
        proof = f'proof=$({self.after}); test -n "$proof"'  # apart: `set -e` passes over &&
        row = 'printf \'{"proof": "%s"}\\n{"complete": true}\\n\' "$(echo $proof)"'
        return ("/bin/sh", "-c", f"set -e; {shlex.join(guest.argv(self.job))}; {proof}; {row}")

    @property
    def modelled(self) -> str:
        """The plugin's plan: what it is to model."""
        plan = run_counts.plan_of(self.processors, elsewhere=self.elsewhere)
        return plan.text(qemu.parse_size(self.config.memory))

    @property
    def key(self) -> str:
        """A hash of what the counts depend on."""
        sources = sorted(kbuild.source_files(repo_root() / guest.SOURCES).items())
        files = [plugin_choice.file(qemu.binary()), guest.program(), *(path for _, path in sources)]
        return boot_key(self.config, [*self.argv, self.modelled], files)


def collect(run: Collection, runs: Sequence[Run], jobs: int | None = None) -> None:
    """Count every run that is not saved yet, by fleet.run().

    Each becomes a boot of its own with one row: {"proof": ..., "counted": ...}. A TraplessError
    says which run failed; the finished ones are kept. Guests of a quick collection start quickly.
    """
    runs = [replace(one, config=replace(one.config, quick_start=run.quick)) for one in runs]
    vms = [_vm(run, one) for one in runs if not run.adopt_saved(one.key)]
    failures = fleet.run(run, f"{run.name}, {run.part}: {len(vms)} runs", vms, jobs)
    if failures:
        raise TraplessError(
            f"{run.name}: {failures[0]}\nruns that were finished are kept; the same command goes "
            "on there"
        )


def _vm(collection: Collection, run: Run) -> Vm:
    return Vm(
        label=f"{collection.part}-{run.label}",
        key=run.key,
        config=guest.config(run.config, collection.progress),
        argv=run.argv,
        modelled=run.modelled,
        effort=1.0,
        output=lambda file: _Output(run, file),
    )


@dataclass
class _Output:
    """The output of the plugin. It is evaluated when the guest has ended."""

    run: Run
    file: Path
    effort: float = 0.0
    failure: str = ""

    def feed(self, piece: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(piece)

    def finish(self, release: str, rows: Sequence[Row]) -> Sequence[Row]:
        """One row with the proof and the counts."""
        proofs = [row["proof"] for row in rows if "proof" in row]
        if len(proofs) != 1:
            raise TraplessError("the run's proof is no text without quotes")
        counts = run_counts.read(self.file, release, self.run.processors)
        self.file.unlink()
        self.effort = 1.0
        return [{"run": self.run.label, "proof": proofs[0], "counted": counts.as_json()}]
