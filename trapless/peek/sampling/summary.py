# SPDX-License-Identifier: GPL-2.0-only
"""What samples add up to: where each CPU was, its run queue, who ran, who switched interrupts off.

Reads a recording a segment at a time, so that hours fit in little memory. Samples that are torn,
absent or frozen for a CPU are counted and left out of its sums. What probes tell counts only in
samples of a moment when they were on. It owns no sampling, nothing of what a field means (tier0.py,
tier1.py), and not how sums are shown (tables.py, figures.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek.errors import PeekError
from trapless.peek.sampling import names as names_file
from trapless.peek.sampling import sites as sites_file
from trapless.peek.sampling import tier0, tier1
from trapless.peek.sampling.course import Course
from trapless.peek.sampling.probes import Mode
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.rows import Flag
from trapless.peek.sampling.sites import NO_SITES, Sites
from trapless.peek.sampling.tier0 import SYSTEM, Part
from trapless.peek.sampling.tier1 import WHO_TEXT, Entry, Who

LAG_BIN_NS = 100
LAG_BINS = 100_000
"""Lags are counted in steps of 100 ns up to 10 ms: hours of samples take no more memory."""

Column = npt.NDArray[Any]


def _zeros(kinds: int) -> npt.NDArray[np.int64]:
    return np.zeros(kinds, np.int64)


@dataclass
class Cpu:
    """What the samples of one CPU add up to."""

    who: Counter[int] = field(default_factory=Counter)  # samples with interrupts off, by Who
    counted: Counter[int] = field(default_factory=Counter)  # of these, while sites counted
    judged: int = 0  # samples of which it is known whether interrupts were off
    parts: npt.NDArray[np.int64] = field(default_factory=lambda: _zeros(len(Part)))
    entries: npt.NDArray[np.int64] = field(default_factory=lambda: _zeros(len(Entry)))
    left_out: int = 0
    queue_sum: int = 0
    queue_max: int = 0
    switches: tuple[int, int] | None = None  # how many there were at first, and at last

    @property
    def samples(self) -> int:
        return int(self.parts.sum())

    def share(self, part: Part) -> float:
        return float(self.parts[part]) / max(self.samples, 1)

    @property
    def disabled(self) -> float:
        """The share of samples with interrupts off, among those of which it is known."""
        return self.who.total() / max(self.judged, 1)


@dataclass(frozen=True)
class Routine:
    """A routine that switches interrupts off."""

    name: str
    samples: int  # of all CPUs together, that found interrupts off by it
    counted: int  # of these, those while it was counted how often
    own: int  # of the counted ones, those by a cli of its own, not by a lock function
    runs: int  # how often it ran such a cli; 0 where nobody counted


@dataclass
class Summary:
    """Samples, added up. `threads`: how many were recorded beside; none, one for all, or each."""

    groups: Sequence[str]
    threads: int
    sites: Sites = NO_SITES
    names: Mapping[int, str] = field(default_factory=dict)  # of the kernel's code, by address
    context_user: int | None = None
    course: Course | None = None
    cpus: dict[str, Cpu] = field(init=False)
    processes: Counter[tuple[int, str]] = field(default_factory=Counter)  # samples by (pid, name)
    rows: int = 0
    probed: Counter[Mode] = field(default_factory=Counter)  # rows with each kind of probe on
    slots: tuple[int, int] | None = None  # the first and the last with a sample
    flags: Counter[Flag] = field(default_factory=Counter)
    lags: npt.NDArray[np.int64] = field(default_factory=lambda: _zeros(LAG_BINS))
    counts: tuple[int, int] | None = None  # processes and threads that there were at last

    def __post_init__(self) -> None:
        self.cpus = {name: Cpu() for name in self.groups if name != SYSTEM}

    def add(self, table: pa.Table) -> None:
        """Take samples: columns as recordings have them."""
        if not table.num_rows:
            return
        slots, flags = table["slot"].to_numpy(), table["flags"].to_numpy()
        self.slots = (self.slots[0] if self.slots else int(slots[0]), int(slots[-1]))
        for flag in Flag:
            self.flags[flag] += int(((flags & flag) != 0).sum())
        self.rows += table.num_rows
        steps = np.minimum(table["lag_ns"].to_numpy() // LAG_BIN_NS, LAG_BINS - 1)
        self.lags += np.bincount(steps, minlength=LAG_BINS)
        modes = _modes(table)
        for mode in Mode:
            self.probed[mode] += int(((modes & mode) != 0).sum())
        if self.course is not None:
            self.course.add_rows(table)
        self._count(table)
        torn, frozen = table["torn"].to_numpy(), table["frozen"].to_numpy()
        bad = torn | table["absent"].to_numpy()
        for number, name in enumerate(self.cpus):
            mine = (bad >> np.uint64(number) & np.uint64(1)) | self._frozen(frozen, number)
            self._add_cpu(self.cpus[name], name, table, mine == 0, modes)

    def _frozen(self, frozen: npt.NDArray[np.uint64], number: int) -> npt.NDArray[np.uint64]:
        """Whether a CPU's own thread stood still; where one thread is all CPUs, that one."""
        if not self.threads:
            return np.zeros(len(frozen), np.uint64)
        bit = number if self.threads == len(self.cpus) else 0
        return (frozen >> np.uint64(bit)) & np.uint64(1)

    def _count(self, table: pa.Table) -> None:
        found = tier0.processes(table)
        if found is not None and "system.threads" in table.column_names:
            self.counts = int(found[-1]), int(table["system.threads"][-1].as_py())

    def _add_cpu(
        self,
        cpu: Cpu,
        name: str,
        table: pa.Table,
        good: npt.NDArray[np.bool_],
        modes: npt.NDArray[np.uint32],
    ) -> None:
        columns = _columns(table, name, good)
        modes = modes[good]
        cpu.left_out += int((~good).sum())
        found = where(columns, modes, self.context_user)
        cpu.parts += np.bincount(found, minlength=len(Part))
        queue = columns["nr_running"]
        if len(queue):
            cpu.queue_sum += int(queue.sum())
            cpu.queue_max = max(cpu.queue_max, int(queue.max()))
        if "nr_switches" in columns and len(queue):
            switches = columns["nr_switches"]
            first = cpu.switches[0] if cpu.switches else int(switches[0])
            cpu.switches = first, int(switches[-1])
        off = self._add_probed(cpu, columns, found, modes)
        if self.course is not None:
            slots = table["slot"].to_numpy()[good]
            self.course.add_cpu(slots, found, off, (modes & Mode.INTERRUPTS) != 0)
        comms = table[f"{name}.comm"].to_numpy(zero_copy_only=False)[good]
        running = (found == Part.PROCESS) | (found == Part.USER) | (found == Part.KERNEL)
        pairs = zip(columns["pid"][running].tolist(), comms[running].tolist(), strict=True)
        for (pid, comm), count in Counter(pairs).items():
            self.processes[(pid, _text(comm))] += count

    def _add_probed(
        self,
        cpu: Cpu,
        columns: dict[str, Column],
        found: npt.NDArray[np.uint8],
        modes: npt.NDArray[np.uint32],
    ) -> npt.NDArray[np.bool_]:
        """Add what only probes tell; in which samples interrupts were known to be off."""
        if "state" not in columns:
            return np.zeros(len(found), np.bool_)
        told = (modes & Mode.INTERRUPTS) != 0
        who = tier1.disabled_by(found, columns["state"])
        off: npt.NDArray[np.bool_] = told & (who != Who.ENABLED)
        cpu.judged += int(told.sum())
        cpu.who.update(_counter(who[off]))
        cpu.counted.update(_counter(who[off & ((modes & Mode.COUNTS) != 0)]))
        entered = (found == Part.KERNEL) & ((modes & Mode.PARTS) != 0)
        if "task_flags" in columns:
            entered &= (columns["task_flags"] & tier0.PF_KTHREAD) == 0
        reasons = np.where(columns["entry"] < len(Entry), columns["entry"], Entry.UNKNOWN)
        cpu.entries += np.bincount(reasons[entered], minlength=len(Entry))
        return off

    @property
    def samples(self) -> int:
        """Of all CPUs, without what was left out."""
        return sum(cpu.samples for cpu in self.cpus.values())

    @property
    def judged(self) -> int:
        """Of all CPUs: samples of which it is known whether interrupts were off."""
        return sum(cpu.judged for cpu in self.cpus.values())

    def share(self, part: Part) -> float:
        """The share of a part among the samples of all CPUs."""
        found = sum(int(cpu.parts[part]) for cpu in self.cpus.values())
        return found / max(self.samples, 1)

    @property
    def disabled(self) -> float:
        """The share of samples with interrupts off, of all CPUs."""
        return sum(cpu.who.total() for cpu in self.cpus.values()) / max(self.judged, 1)

    def routines(self) -> list[Routine]:
        """Who switched interrupts off, most of the time first."""
        who: Counter[int] = Counter()
        counted: Counter[int] = Counter()
        for cpu in self.cpus.values():
            who += cpu.who
            counted += cpu.counted
        return routines(who, counted, self.names, self.sites)

    def lost(self) -> float:
        """Which part of the slots has no sample, from the first one to the last."""
        first, last = self.slots if self.slots else (0, 0)
        return 1 - self.rows / max(last - first + 1, self.rows, 1)

    def flagged(self, flag: Flag) -> float:
        """Which part of the samples has a flag."""
        return self.flags[flag] / max(self.rows, 1)

    def lag_us(self, part: float) -> float:
        """The lag that so large a part of the samples does not exceed; inf beyond all bins."""
        place = int(np.searchsorted(np.cumsum(self.lags), part * max(self.rows, 1)))
        return (place + 1) * LAG_BIN_NS / 1e3 if place < LAG_BINS - 1 else float("inf")

    def lag_text(self, part: float) -> str:
        """The same for people."""
        lag = self.lag_us(part)
        return (
            f"over {LAG_BINS * LAG_BIN_NS / 1e6:g} ms" if lag == float("inf") else f"{lag:.1f} µs"
        )


def _counter(values: npt.NDArray[Any]) -> dict[int, int]:
    places, counts = np.unique(values, return_counts=True)
    return dict(zip(places.tolist(), counts.tolist(), strict=True))


def routines(
    who: Counter[int], counted: Counter[int], names: Mapping[int, str], sites: Sites
) -> list[Routine]:
    """Samples by who switched interrupts off, the places of one function together."""
    samples: Counter[str] = Counter()
    told: Counter[str] = Counter()
    own: Counter[str] = Counter()
    runs, disabling = sites.runs_by_function(), sites.disabling()
    for place, count in who.items():
        name = WHO_TEXT.get(place) or names_file.name_in(names, place)
        samples[name] += count
        told[name] += counted[place]
        own[name] += counted[place] if place in disabling else 0
    return [
        Routine(name, count, told[name], own[name], runs[name])
        for name, count in samples.most_common()
    ]


def where(
    columns: dict[str, Column], modes: npt.NDArray[np.uint32], context_user: int | None = None
) -> npt.NDArray[np.uint8]:
    """Where a CPU was in each sample, by all that is known about that sample."""
    found = tier0.parts(
        columns["preempt_count"],
        columns["pid"],
        columns.get("context"),
        columns.get("context_active"),
        columns.get("task_flags"),
        context_user,
    )
    if "state" not in columns:
        return found
    told = tier1.parts(columns["preempt_count"], columns["pid"], columns["state"])
    return np.where((modes & Mode.PARTS) != 0, told, found)


def _modes(table: pa.Table) -> npt.NDArray[np.uint32]:
    """Which probes were on in each row."""
    if "system.probes" not in table.column_names:
        return np.zeros(table.num_rows, np.uint32)
    return tier1.modes(table["system.probe_magic"].to_numpy(), table["system.probes"].to_numpy())


def _columns(table: pa.Table, name: str, good: npt.NDArray[np.bool_]) -> dict[str, Column]:
    """A CPU's numbers, in the samples that mean something."""
    start = f"{name}."
    return {
        column.removeprefix(start): table[column].to_numpy()[good]
        for column in table.column_names
        if column.startswith(start) and not column.endswith((".comm", ".current"))
    }


def summarise(recording: Recording) -> Summary:
    """Add up all that is whole of a recording."""
    summary = Summary(
        [str(name) for name in recording.meta["groups"]],
        len(recording.meta["threads"]),
        sites_file.load(recording),
        names_file.load(recording),
        recording.meta["about"].get("context_user"),
        Course.over(recording.slots()),
    )
    for table in recording.tables():
        summary.add(table)
    unnamed = {place for cpu in summary.cpus.values() for place in cpu.who} - set(summary.names)
    if unnamed - set(Who):
        summary.names = {**names_file.from_symbols(recording, unnamed), **summary.names}
    if not summary.rows:
        raise PeekError(f"{recording.folder}: no rows; {'; '.join(recording.problems)}")
    return summary


def _text(comm: bytes) -> str:
    return comm.split(b"\0")[0].decode("utf-8", "replace")
