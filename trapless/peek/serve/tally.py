# SPDX-License-Identifier: GPL-2.0-only
"""Adds up what one machine did since it was first seen: counters that never go back.

Owns the sums that are served, and the course of the last minutes. sample_summary.py judges and adds
up the samples of a second; metrics.py and machines_page.py show the sums. Names of processes are
few, whatever the guest calls them: each would be a time series for ever in the database of whoever
asks.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from trapless.peek.guest_text import GuestText
from trapless.peek.sampling.recording import table_of
from trapless.peek.sampling.sample_rows import Flag, Head, Rows
from trapless.peek.sampling.sample_summary import Summary
from trapless.peek.sampling.tier0 import Part

COURSE_SECONDS = 120
UNSEEN = "unseen"
"""The state of a CPU in slots without a sample that counts: lost, torn, frozen or absent."""
BUSY = tuple(part for part in Part if part is not Part.IDLE)
NOTABLE = 20
"""A name is kept, while there is room, once it had this part of a CPU for a second."""
OTHERS = GuestText(b"(others)")


@dataclass(frozen=True)
class Second:
    """One second of a machine, for the page. Shares are of 1; None: not known."""

    busy: float | None
    queue: float
    disabled: float | None
    lost: float


@dataclass
class Cpu:
    """The sums of one CPU, in seconds of this host's clock."""

    states_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    queue_s: float = 0.0
    judged_s: float = 0.0
    disabled_s: float = 0.0
    switches: int = 0


@dataclass
class Tally:
    """The sums over all boots of a machine. One thread adds, with the lock of the settings held.

    `names_max`: how many processes are counted by name.
    """

    names_max: int = 0
    cpus: dict[str, Cpu] = field(default_factory=dict)
    run_s: dict[int, float] = field(default_factory=dict)  # by virtual processor, of the host
    steal_s: dict[int, float] = field(default_factory=dict)
    processes_s: dict[GuestText, float] = field(default_factory=dict)
    rows: int = 0
    lost: int = 0
    flags: Counter[Flag] = field(default_factory=Counter)
    queue_max: int = 0  # of one CPU, in the last second
    counts: tuple[int, int] | None = None  # processes and threads
    course: deque[Second] = field(default_factory=lambda: deque(maxlen=COURSE_SECONDS))
    _slot: int | None = None  # the last one of this run of the sampler
    _switches: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Another run of the sampler follows: its slots, and a kernel's counters, begin again."""
        self._slot = None
        self._switches.clear()

    def add(self, head: Head, batches: list[Rows], context_user: int | None) -> None:
        """Add the rows of about a second."""
        summary = Summary(head.groups, len(head.threads), context_user=context_user)
        summary.add(table_of(np.concatenate(batches)))  # ten at once take a fifth of the time
        if summary.slots is None:
            return
        first, last = summary.slots
        slots = last - (first - 1 if self._slot is None else self._slot)
        self._slot = last
        lost = max(slots - summary.rows, 0)
        self.rows += summary.rows
        self.lost += lost
        self.flags.update(summary.flags)
        self.counts = summary.counts or self.counts
        self.queue_max = max((one.queue_max for one in summary.cpus.values()), default=0)
        interval_s = head.interval_ns / 1e9
        for name in summary.cpus:
            self._add_cpu(name.removeprefix("cpu"), summary, name, slots, interval_s)
        if self.names_max:
            self._add_names(summary, interval_s)
        self.course.append(_second(summary, lost / max(slots, 1)))

    def _add_cpu(
        self, number: str, summary: Summary, name: str, slots: int, interval_s: float
    ) -> None:
        seen, cpu = summary.cpus[name], self.cpus.setdefault(number, Cpu())
        for part in Part:
            if seen.parts[part]:
                cpu.states_s[part.name.lower()] += int(seen.parts[part]) * interval_s
        cpu.states_s[UNSEEN] += max(slots - seen.samples, 0) * interval_s
        cpu.queue_s += seen.queue_sum * interval_s
        cpu.judged_s += seen.judged * interval_s
        cpu.disabled_s += seen.who.total() * interval_s
        if seen.switches is not None:
            first, last = seen.switches
            cpu.switches += max(last - self._switches.get(number, first), 0)
            self._switches[number] = last

    def _add_names(self, summary: Summary, interval_s: float) -> None:
        samples: Counter[GuestText] = Counter()
        for (_, name), count in summary.processes.items():
            samples[name] += count
        for name, count in samples.most_common():
            new = count * NOTABLE >= summary.rows and len(self.processes_s) < self.names_max
            kept = name if new or name in self.processes_s else OTHERS
            self.processes_s[kept] = self.processes_s.get(kept, 0.0) + count * interval_s

    def add_host(self, number: int, run_s: float, steal_s: float) -> None:
        """Add how long the host ran a virtual processor, and let it wait."""
        self.run_s[number] = self.run_s.get(number, 0.0) + run_s
        self.steal_s[number] = self.steal_s.get(number, 0.0) + steal_s


def _second(summary: Summary, lost: float) -> Second:
    queue = sum(cpu.queue_sum for cpu in summary.cpus.values()) / max(summary.rows, 1)
    return Second(
        sum(summary.share(part) for part in BUSY) if summary.samples else None,
        queue,
        summary.disabled if summary.judged else None,
        lost,
    )
