# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek trace --recording`: a recording as a Perfetto trace. Needs no module.

Samples become slices: equal ones in a row are one slice, from the first to the one that differs.
So a slice's ends are true to an interval, and what was shorter than that may be missing: each CPU
has a track for where it was and one for which process it ran, and its run queue as a counter. Where
samples are missing, or mean nothing for a CPU (torn, frozen, absent), there is nothing. It owns no
meaning of samples (tier0.py, tier1.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek.sampling import names as names_file
from trapless.peek.sampling import tier1
from trapless.peek.sampling.probes import Mode
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.summary import where
from trapless.peek.sampling.tables import COLUMNS
from trapless.peek.sampling.tier0 import SYSTEM, Part
from trapless.peek.sampling.tier1 import WHO_TEXT, Who
from trapless.peek.trace.perfetto_file import PerfettoFile
from trapless.peek.trace.trace import open_output

GAP_SLOTS = 3
"""As many slots without a sample, and a slice ends: what was there meanwhile is not known."""

Column = npt.NDArray[Any]
Namer = Callable[[int], str | None]


@dataclass(frozen=True)
class Exported:
    """What was written."""

    samples: int
    slices: int
    cpus: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.slices:,} slices of {self.cpus} CPUs from {self.samples:,} samples"
        return "; ".join((text, *self.problems))


@dataclass
class _Track:
    """Values that become slices; `name` says how a value is called, None that it is no slice."""

    out: PerfettoFile
    number: int
    interval_ns: int
    name: Namer
    slices: int = 0
    _value: int | None = None
    _slot: int = 0  # of the last sample
    _t_ns: int = 0
    _is_open: bool = False

    def add(self, slots: Column, times: Column, values: Column) -> None:
        """Samples that mean something, in order."""
        if not len(slots):
            return
        jumps = np.diff(slots.astype(np.int64), prepend=self._slot) > GAP_SLOTS
        changes = np.append(True, values[1:] != values[:-1]) | jumps
        for place in np.flatnonzero(changes).tolist():
            value, t_ns = int(values[place]), int(times[place])
            if place:
                self._t_ns = int(times[place - 1])
            if value != self._value or jumps[place]:
                self._end(min(t_ns, self._t_ns + self.interval_ns) if jumps[place] else t_ns)
                self._begin(value, t_ns)
        self._slot, self._t_ns = int(slots[-1]), int(times[-1])

    def close(self) -> None:
        self._end(self._t_ns + self.interval_ns)

    def _begin(self, value: int, t_ns: int) -> None:
        self._value = value
        name = self.name(value)
        if name is not None:
            self.out.slice_begin(self.number, t_ns, name)
            self._is_open = True
            self.slices += 1

    def _end(self, t_ns: int) -> None:
        if self._is_open:
            self.out.slice_end(self.number, t_ns)
            self._is_open = False


@dataclass
class _Cpu:
    """One CPU's tracks, and what its processes are called."""

    out: PerfettoFile
    name: str
    number: int  # among the groups
    interval_ns: int
    who: Namer
    context_user: int | None
    _comms: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _labels: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.title = f"CPU {self.name.removeprefix('cpu')}"

        def track(name: str, namer: Namer) -> _Track:
            number = self.out.track(name, self.title)
            return _Track(self.out, number, self.interval_ns, namer)

        self.part = track("where", lambda value: COLUMNS[Part(value)])
        self.process = track("process", lambda value: self._labels[value] or None)
        self.disabled = track("interrupts off, by", self.who)
        self.queue = self.out.counter("run queue", self.title, "threads")
        self._length = -1

    @property
    def slices(self) -> int:
        return self.part.slices + self.process.slices + self.disabled.slices

    def add(self, table: pa.Table, times: Column, modes: Column, good: Column) -> None:
        start = f"{self.name}."
        columns = {
            column.removeprefix(start): table[column].to_numpy(zero_copy_only=False)[good]
            for column in table.column_names
            if column.startswith(start)
        }
        slots, times, modes = table["slot"].to_numpy()[good], times[good], modes[good]
        found = where(columns, modes, self.context_user)
        self.part.add(slots, times, found)
        self.process.add(slots, times, self._processes(columns["pid"], columns["comm"]))
        if "state" in columns:
            told = (modes & Mode.INTERRUPTS) != 0
            who = tier1.disabled_by(found, columns["state"])
            self.disabled.add(slots, times, np.where(told, who, np.uint64(Who.ENABLED)))
        self._count(times, columns["nr_running"])

    def _processes(self, pids: Column, comms: Column) -> Column:
        numbers = np.empty(len(pids), np.int64)
        for place, key in enumerate(zip(pids.tolist(), comms.tolist(), strict=True)):
            number = self._comms.get(key)
            if number is None:
                number = self._comms[key] = len(self._labels)
                comm = key[1].split(b"\0")[0].decode("utf-8", "replace")
                self._labels.append(f"{comm} {key[0]}" if key[0] else "")
            numbers[place] = number
        return numbers

    def _count(self, times: Column, lengths: Column) -> None:
        changes = np.flatnonzero(np.diff(lengths.astype(np.int64), prepend=self._length))
        for place in changes.tolist():
            self._length = int(lengths[place])
            self.out.count(self.queue, int(times[place]), self._length)

    def close(self) -> None:
        for track in (self.part, self.process, self.disabled):
            track.close()


def export(folder: Path, output: Path) -> Exported:
    """Write the recording in `folder` as a Perfetto trace."""
    recording = Recording.open(folder)
    about = recording.meta["about"]
    names = names_file.load(recording)

    def who(value: int) -> str | None:
        if value == Who.ENABLED:
            return None
        return WHO_TEXT.get(value) or names_file.name_in(names, value)

    with open_output(output) as file:
        out = PerfettoFile(file.buffer)
        out.begin(str(about.get("release", "")), str(about.get("banner", "")))
        cpus = [
            _Cpu(
                out,
                str(name),
                number,
                int(recording.meta["interval_ns"]),
                who,
                about.get("context_user"),
            )
            for number, name in enumerate(recording.meta["groups"])
            if name != SYSTEM
        ]
        samples = 0
        for table in recording.tables():
            samples += table.num_rows
            _add(recording, table, cpus)
        for cpu in cpus:
            cpu.close()
    slices = sum(cpu.slices for cpu in cpus)
    return Exported(samples, slices, len(cpus), recording.problems)


def _add(recording: Recording, table: pa.Table, cpus: Sequence[_Cpu]) -> None:
    times = recording.times_ns(table)
    modes = np.zeros(table.num_rows, np.uint32)
    if "system.probes" in table.column_names:
        magic, active = (table[f"system.{name}"].to_numpy() for name in ("probe_magic", "probes"))
        modes = tier1.modes(magic, active)
    bad = table["torn"].to_numpy() | table["absent"].to_numpy()
    frozen = table["frozen"].to_numpy()
    threads = len(recording.meta["threads"])
    for cpu in cpus:
        mine = bad >> np.uint64(cpu.number) & np.uint64(1)
        if threads:  # where one thread is all CPUs, it stood still for all
            bit = cpu.number if threads == len(cpus) else 0
            mine = mine | (frozen >> np.uint64(bit) & np.uint64(1))
        cpu.add(table, times, modes, mine == 0)
