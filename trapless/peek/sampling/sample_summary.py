# SPDX-License-Identifier: GPL-2.0-only
"""Adds samples up: where each CPU was, its run queue, who ran, who switched interrupts off.

Owns the sums of a recording, which is read a segment at a time, so that hours fit in little memory.
judgement.py decides what each sample means; samples that do not count for a CPU are left out of its
sums, and their number is kept. recording_tables.py and recording_figures.py show the sums.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel import counters
from trapless.peek.sampling import code_names as names_file
from trapless.peek.sampling import sites as sites_file
from trapless.peek.sampling import tier0
from trapless.peek.sampling.course import Course
from trapless.peek.sampling.judgement import CpuSamples, judge, probes_on
from trapless.peek.sampling.probes import Mode
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.sample_rows import Flag
from trapless.peek.sampling.sites import NO_SITES, Sites
from trapless.peek.sampling.tier0 import SYSTEM, Part
from trapless.peek.sampling.tier1 import WHO_TEXT, Entry, Who

LAG_BIN_NS = 100
LAG_BINS = 100_000
"""Lags are counted in steps of 100 ns up to 10 ms, so hours of samples take no more memory."""
NO_PID = -1
OTHERS = (NO_PID, GuestText(b"(others)"))
"""The sum of the processes that are not kept one by one."""


def _zeros(kinds: int) -> npt.NDArray[np.int64]:
    return np.zeros(kinds, np.int64)


@dataclass
class Cpu:
    """The sums over the samples of one CPU."""

    who: Counter[int] = field(default_factory=Counter)  # samples with interrupts off, by Who
    counted: Counter[int] = field(default_factory=Counter)  # of these, while sites counted
    judged: int = 0  # samples for which it is known whether interrupts were off
    parts: npt.NDArray[np.int64] = field(default_factory=lambda: _zeros(len(Part)))
    entries: npt.NDArray[np.int64] = field(default_factory=lambda: _zeros(len(Entry)))
    left_out: int = 0
    frozen: int = 0  # of these, with a thread of this machine that wanted to run, and did not
    queue_sum: int = 0
    queue_max: int = 0
    switches: tuple[int, int] | None = None  # since boot, in the first sample and in the last

    @property
    def samples(self) -> int:
        """The number of samples that count."""
        return int(self.parts.sum())

    def share(self, part: Part) -> float:
        """The share of the samples in which the CPU was there, 0 to 1."""
        return float(self.parts[part]) / max(self.samples, 1)

    @property
    def steal(self) -> float:
        """The share of the wall-clock time in which the CPU was kept from running, 0 to 1."""
        return self.frozen / max(self.samples + self.left_out, 1)

    @property
    def disabled(self) -> float:
        """The share of the judged samples in which interrupts were off, 0 to 1."""
        return self.who.total() / max(self.judged, 1)


@dataclass(frozen=True)
class Routine:
    """A routine that switches interrupts off."""

    name: str
    samples: int  # of all CPUs, in which this routine had switched interrupts off
    counted: int  # of these, taken while sites counted their runs
    own: int  # of the counted ones, switched off by a cli of its own, not by a lock function
    runs: int  # of a cli of its own; 0 where sites did not count


@dataclass
class Summary:
    """The sums over samples. One thread.

    `groups` and `threads` are as for judge(). `course` sums the same over time, where it is given.
    """

    groups: Sequence[str]
    threads: int
    sites: Sites = NO_SITES
    names: Mapping[int, GuestText] = field(default_factory=dict)  # places in the kernel's code
    context_user: int | None = None
    course: Course | None = None
    rates: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # as counters.py has
    differences: Sequence[str] = ()  # where this kernel's memory is known to differ from registers
    cpus: dict[str, Cpu] = field(init=False)
    processes: Counter[tuple[int, GuestText]] = field(
        default_factory=Counter
    )  # samples by (pid, name)
    rows: int = 0
    probed: Counter[Mode] = field(default_factory=Counter)  # rows with each kind of probe on
    slots: tuple[int, int] | None = None  # the first and the last with a sample
    flags: Counter[Flag] = field(default_factory=Counter)
    lags: npt.NDArray[np.int64] = field(default_factory=lambda: _zeros(LAG_BINS))
    counts: tuple[int, int] | None = None  # processes and threads in the last sample

    def __post_init__(self) -> None:
        self.cpus = {name: Cpu() for name in self.groups if name != SYSTEM}

    def add(self, table: pa.Table) -> None:
        """Add samples: a table with the columns of recordings."""
        if not table.num_rows:
            return
        slots, flags = table["slot"].to_numpy(), table["flags"].to_numpy()
        self.slots = (self.slots[0] if self.slots else int(slots[0]), int(slots[-1]))
        for flag in Flag:
            self.flags[flag] += int(((flags & flag) != 0).sum())
        self.rows += table.num_rows
        steps = np.minimum(table["lag_ns"].to_numpy() // LAG_BIN_NS, LAG_BINS - 1)
        self.lags += np.bincount(steps, minlength=LAG_BINS)
        for mode in Mode:
            self.probed[mode] += probes_on(table, mode)
        if self.course is not None:
            self.course.add_rows(table)
        processes = tier0.processes(table)
        if processes is not None and "system.threads" in table.column_names:
            self.counts = int(processes[-1]), int(table["system.threads"][-1].as_py())
        for samples in judge(table, self.groups, self.threads, self.context_user):
            self._add_cpu(self.cpus[samples.name], samples, table)

    def _add_cpu(self, cpu: Cpu, samples: CpuSamples, table: pa.Table) -> None:
        columns, parts = samples.columns, samples.parts
        cpu.left_out += int((~samples.good).sum())
        cpu.frozen += samples.frozen
        cpu.parts += np.bincount(parts, minlength=len(Part))
        if len(parts):
            cpu.queue_sum += int(columns["nr_running"].sum())
            cpu.queue_max = max(cpu.queue_max, int(columns["nr_running"].max()))
        if len(parts) and "nr_switches" in columns:
            switches = columns["nr_switches"]
            first = cpu.switches[0] if cpu.switches else int(switches[0])
            cpu.switches = first, int(switches[-1])
        off = _add_probed(cpu, samples)
        if self.course is not None:
            self.course.add_cpu(samples.slots, parts, off, samples.with_mode(Mode.INTERRUPTS))
        running = (parts == Part.PROCESS) | (parts == Part.USER) | (parts == Part.KERNEL)
        comms = itertools.compress(samples.comms(table), running)
        self.processes.update(zip(columns["pid"][running].tolist(), comms, strict=True))
        self.processes = _bounded(self.processes, OTHERS, limits.SUMS_MAX)
        for_each = limits.SUMS_MAX // len(self.cpus)
        cpu.who = _bounded(cpu.who, Who.OTHERS, for_each)
        cpu.counted = _bounded(cpu.counted, Who.OTHERS, for_each)

    @property
    def samples(self) -> int:
        """The number of samples of all CPUs that count."""
        return sum(cpu.samples for cpu in self.cpus.values())

    @property
    def judged(self) -> int:
        """The number of samples of all CPUs for which it is known whether interrupts were off."""
        return sum(cpu.judged for cpu in self.cpus.values())

    def share(self, part: Part) -> float:
        """The share of a part among the samples of all CPUs, 0 to 1."""
        return sum(int(cpu.parts[part]) for cpu in self.cpus.values()) / max(self.samples, 1)

    @property
    def disabled(self) -> float:
        """The share of the judged samples of all CPUs in which interrupts were off, 0 to 1."""
        return sum(cpu.who.total() for cpu in self.cpus.values()) / max(self.judged, 1)

    def routines(self) -> list[Routine]:
        """Who switched interrupts off, the most samples first."""
        who: Counter[int] = Counter()
        counted: Counter[int] = Counter()
        for cpu in self.cpus.values():
            who += cpu.who
            counted += cpu.counted
        return routines(who, counted, self.names, self.sites)

    @property
    def still(self) -> bool | None:
        """Whether no CPU took an interrupt, so that the clock never moved; None if that is
        unknown."""
        known = [counters.interrupts(values) for values in self.rates.values()]
        if not known or not all({"timer", counters.DEVICE} <= set(values) for values in known):
            return None
        return not any(rate for values in known for rate in values.values())

    def lost(self) -> float:
        """The share of the slots between the first and the last sample that have none, 0 to 1."""
        first, last = self.slots if self.slots else (0, 0)
        return 1 - self.rows / max(last - first + 1, self.rows, 1)

    def flagged(self, flag: Flag) -> float:
        """The share of the samples that have a flag, 0 to 1."""
        return self.flags[flag] / max(self.rows, 1)

    def lag_us(self, part: float) -> float:
        """The lag in µs that the share `part` of the samples keeps to; inf beyond all bins."""
        place = int(np.searchsorted(np.cumsum(self.lags), part * max(self.rows, 1)))
        return (place + 1) * LAG_BIN_NS / 1e3 if place < LAG_BINS - 1 else float("inf")

    def lag_text(self, part: float) -> str:
        """The same as text, with its unit."""
        lag = self.lag_us(part)
        return (
            f"over {LAG_BINS * LAG_BIN_NS / 1e6:g} ms" if lag == float("inf") else f"{lag:.1f} µs"
        )


def _add_probed(cpu: Cpu, samples: CpuSamples) -> npt.NDArray[np.bool_]:
    """Add what only probes show; in which samples interrupts are known to have been off."""
    who = samples.disabled_by()
    if who is None:
        return np.zeros(len(samples.parts), np.bool_)
    off: npt.NDArray[np.bool_] = who != Who.ENABLED
    cpu.judged += int(samples.with_mode(Mode.INTERRUPTS).sum())
    cpu.who.update(_counter(who[off]))
    cpu.counted.update(_counter(who[off & samples.with_mode(Mode.COUNTS)]))
    entered = (samples.parts == Part.KERNEL) & samples.with_mode(Mode.PARTS)
    if "task_flags" in samples.columns:
        entered &= (samples.columns["task_flags"] & tier0.PF_KTHREAD) == 0
    entry = samples.columns["entry"]
    reasons = np.where(entry < len(Entry), entry, Entry.UNKNOWN)
    cpu.entries += np.bincount(reasons[entered], minlength=len(Entry))
    return off


Name = TypeVar("Name", bound=Hashable)


def _bounded(sums: Counter[Name], others: Name, most: int) -> Counter[Name]:
    """Sums of at most so many names; those with the fewest samples become one, `others`.

    >>> _bounded(Counter(a=9, b=2, c=1, d=1), "z", 3)
    Counter({'a': 9, 'z': 4})
    """
    if len(sums) <= most:
        return sums
    kept = Counter(dict(sums.most_common(most // 2)))
    kept[others] += sums.total() - kept.total()
    return kept


def _counter(values: npt.NDArray[Any]) -> dict[int, int]:
    places, counts = np.unique(values, return_counts=True)
    return dict(zip(places.tolist(), counts.tolist(), strict=True))


def routines(
    who: Counter[int], counted: Counter[int], names: Mapping[int, GuestText], sites: Sites
) -> list[Routine]:
    """Samples by who switched interrupts off; the places of one function are added up."""
    samples: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    own: Counter[str] = Counter()
    runs, disabling = sites.runs_by_function(), sites.disabling()
    for place, count in who.items():
        name = WHO_TEXT.get(place) or names_file.name_in(names, place)
        samples[name] += count
        counts[name] += counted[place]
        own[name] += counted[place] if place in disabling else 0
    return [
        Routine(name, count, counts[name], own[name], runs[name])
        for name, count in samples.most_common()
    ]


def left_out_text(count: int) -> str:
    """How many samples are left out of a recording, and why; empty for none."""
    why = "they came after the last tick of a kernel that was gone"
    return f"{count:,} samples, because {why}" if count else ""


def summarise(recording: Recording) -> Summary:
    """The sums over a recording's whole segments; PeekError where it has no rows."""
    summary = Summary(
        [str(name) for name in recording.meta["groups"]],
        len(recording.meta["threads"]),
        sites_file.load(recording),
        names_file.load(recording),
        recording.meta["about"].get("context_user"),
        Course.over(recording.slots()),
        recording.rates(),
        _differences(recording),
    )
    for table in recording.tables():
        summary.add(table)
    unnamed = {place for cpu in summary.cpus.values() for place in cpu.who} - set(summary.names)
    if unnamed - set(Who):
        summary.names = {**names_file.from_symbols(recording, unnamed), **summary.names}
    if not summary.rows:
        reasons = filter(None, (left_out_text(recording.left_out()), *recording.problems))
        raise PeekError("; ".join((f"{recording.folder}: no rows", *reasons)))
    return summary


def _differences(recording: Recording) -> list[str]:
    texts = recording.meta["about"].get("differences", ())
    return [visible(str(text)) for text in texts[: limits.DIFFERENCES_MAX]]
