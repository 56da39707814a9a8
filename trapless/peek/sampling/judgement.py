# SPDX-License-Identifier: GPL-2.0-only
"""Judges samples: which of them count for a CPU, where it was, who had switched interrupts off.

Owns the choice between what a stock kernel shows (tier0.py) and what probes add (tier1.py), for
each sample by itself. sample_summary.py adds judged samples up, and trace/samples.py makes slices
of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek.guest_text import GuestText
from trapless.peek.sampling import tier0, tier1
from trapless.peek.sampling.probes import Mode
from trapless.peek.sampling.tier0 import SYSTEM
from trapless.peek.sampling.tier1 import Who

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class CpuSamples:
    """The samples that count for one CPU. All arrays but `good` have an element for each."""

    name: str  # of the CPU's group, like "cpu0"
    good: npt.NDArray[np.bool_]  # for each row of the table, whether it counts
    frozen: int  # rows in which the CPU's thread wanted to run, and did not
    slots: Column
    columns: Mapping[str, Column]  # the CPU's numbers, without names and pointers
    modes: npt.NDArray[np.uint32]  # the probes that were on, as Mode
    parts: npt.NDArray[np.uint8]  # where the CPU was, as Part

    def with_mode(self, mode: Mode) -> npt.NDArray[np.bool_]:
        """In which samples a kind of probe was on."""
        on: npt.NDArray[np.bool_] = (self.modes & mode) != 0
        return on

    def disabled_by(self) -> npt.NDArray[np.uint64] | None:
        """Who had switched interrupts off, as Who; ENABLED where that is not known.

        None where no probes were sampled at all.
        """
        if "state" not in self.columns:
            return None
        who = tier1.disabled_by(self.parts, self.columns["state"])
        return np.where(self.with_mode(Mode.INTERRUPTS), who, np.uint64(Who.ENABLED))

    def comms(self, table: pa.Table) -> list[GuestText]:
        """The names of the tasks, from the table that the samples are of."""
        column = table[f"{self.name}.comm"].to_numpy(zero_copy_only=False)[self.good]
        texts = {comm: GuestText(comm) for comm in set(column)}
        return [texts[comm] for comm in column]


def judge(
    table: pa.Table, groups: Sequence[str], threads: int, context_user: int | None
) -> Iterator[CpuSamples]:
    """The samples of each CPU among `groups`, from a table with the columns of recordings.

    A sample does not count for a CPU where its group was torn or absent, or where the CPU's thread
    was frozen. `threads`: none, one for all CPUs, or one for each. `context_user`: the state of
    user mode, as tier0.context_user() gives it.
    """
    cpus = [name for name in groups if name != SYSTEM]
    modes = _modes(table)
    bad = table["torn"].to_numpy() | table["absent"].to_numpy()
    frozen = table["frozen"].to_numpy()
    for number, name in enumerate(cpus):
        wrong, stood = bad >> np.uint64(number) & np.uint64(1), 0
        if threads:
            bit = number if threads == len(cpus) else 0
            still = frozen >> np.uint64(bit) & np.uint64(1)
            wrong, stood = wrong | still, int(still.sum())
        good = wrong == 0
        columns = {
            column.removeprefix(f"{name}."): table[column].to_numpy()[good]
            for column in table.column_names
            if column.startswith(f"{name}.") and not column.endswith((".comm", ".current"))
        }
        parts = where(columns, modes[good], context_user)
        slots = table["slot"].to_numpy()[good]
        yield CpuSamples(name, good, stood, slots, columns, modes[good], parts)


def where(
    columns: Mapping[str, Column], modes: npt.NDArray[np.uint32], context_user: int | None = None
) -> npt.NDArray[np.uint8]:
    """Where a CPU was in each sample, as Part, by all that is known about that sample."""
    parts = tier0.parts(
        columns["preempt_count"],
        columns["pid"],
        columns.get("context"),
        columns.get("context_active"),
        columns.get("task_flags"),
        context_user,
    )
    if "state" not in columns:
        return parts
    probed = tier1.parts(columns["preempt_count"], columns["pid"], columns["state"])
    return np.where((modes & Mode.PARTS) != 0, probed, parts)


def _modes(table: pa.Table) -> npt.NDArray[np.uint32]:
    """The probes that were on in each row."""
    if "system.probes" not in table.column_names:
        return np.zeros(table.num_rows, np.uint32)
    return tier1.modes(table["system.probe_magic"].to_numpy(), table["system.probes"].to_numpy())


def probes_on(table: pa.Table, mode: Mode) -> int:
    """The number of rows in which a kind of probe was on."""
    return int(((_modes(table) & mode) != 0).sum())
