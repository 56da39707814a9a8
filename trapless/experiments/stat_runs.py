# SPDX-License-Identifier: GPL-2.0-only
"""Runs of `trapless stat` for an experiment: several programs counted, a VM of a fleet each.

What is kept of a run is its RunCounts, as one row of the experiment's raw file; an interrupted
experiment goes on after the runs that were finished. Owns what runs there and what is kept of it;
how a program is counted is trapless/stat's business, which ones are is the experiment's.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.experiments.collection import Collection, Row, boot_key
from trapless.experiments.fleet import fleet
from trapless.experiments.fleet.fleet import Vm
from trapless.model import plugin
from trapless.stat import guest, run_counts
from trapless.stat.guest import Job
from trapless.vm import qemu
from trapless.vm.lab import LabConfig


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
    def modelled(self) -> str:
        """What the plugin models, in its words."""
        return run_counts.plan_of(self.processors).text(qemu.parse_size(self.config.memory))

    @property
    def key(self) -> str:
        """What the counts depend on."""
        sources = sorted((repo_root() / guest.SOURCES).rglob("*.[ch]"))
        files = [plugin.file(qemu.binary()), guest.program(), *sources]
        return boot_key(self.config, [*self.argv, self.modelled], files)


def collect(run: Collection, runs: Sequence[Run], jobs: int | None = None) -> None:
    """Count all that is not saved yet, as fleet.run() does.

    Each becomes a boot of its own, of one row: {"proof": ..., "counted": ...}. A TraplessError
    where one failed; what the others finished is kept.
    """
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
    """What the plugin writes: counted when it is all there."""

    run: Run
    file: Path
    effort: float = 0.0
    failure: str = ""

    def feed(self, piece: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(piece)

    def finish(self, release: str, rows: Sequence[Row]) -> Sequence[Row]:
        """One row, of what was proved and what was counted."""
        proofs = [row["proof"] for row in rows if "proof" in row]
        if len(proofs) != 1:
            raise TraplessError("the run's proof is no text without quotes")
        found = run_counts.read(self.file, release, self.run.processors)
        self.file.unlink()
        self.effort = 1.0
        return [{"run": self.run.label, "proof": proofs[0], "counted": found.as_json()}]
