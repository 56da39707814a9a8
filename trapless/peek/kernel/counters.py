# SPDX-License-Identifier: GPL-2.0-only
"""Reads what a kernel counts itself, for each CPU: interrupts, softirqs, and how long threads wait.

Owns where each kernel keeps these counts, found by features, and the rates between two readings.
A count only grows, so it is read once a second and not with each sample. /proc/interrupts,
/proc/softirqs and /proc/schedstat show the same numbers inside the target.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.limits import THREADS_MAX

INTERRUPTS = {
    "timer": ("apic_timer_irqs", "IRQ_COUNT_APIC_TIMER"),
    "reschedule": ("irq_resched_count", "IRQ_COUNT_RESCHEDULE"),
    "function call": ("irq_call_count", "IRQ_COUNT_CALL_FUNCTION"),
}
"""Interrupts of the processor's own kinds: members of irq_cpustat_t, which are an array in kernels
that have the constant."""
SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "RCU")
COUNTED_CPUS_MAX = 64
"""The sampler has room for no more, so a kernel that claims more is not sampled."""
DEVICE, DELAY = "device", "run_delay_ns"
RATE_MAX = 1e8
"""The most interrupts or softirqs in a second. A higher rate comes from overwritten memory."""
DELAY_RATE_MAX = 1e9 * THREADS_MAX
"""Nanoseconds that all threads of a CPU can wait in a second."""
SOFTIRQ = "softirq "
"""How the name of a softirq's counter begins."""


@dataclass(frozen=True)
class Counter:
    """One count of one CPU, at a physical address."""

    cpu: int
    name: str
    address: int
    size: int


@dataclass(frozen=True)
class Reading:
    """All counts at one time of this machine's CLOCK_MONOTONIC, in the order of the counters."""

    time_ns: int
    values: tuple[int, ...]


class Counters:
    """The counters of one kernel. What a kernel does not count is left out."""

    def __init__(self, target: Target) -> None:
        self._memory = target.memory
        self.all = tuple(_counters(target))

    def read(self) -> Reading:
        """The counts of this moment."""
        time_ns = time.monotonic_ns()
        values = self._memory.read_all([(one.address, one.size) for one in self.all])
        return Reading(time_ns, tuple(int.from_bytes(value, "little") for value in values))

    def rates(self, first: Reading, last: Reading) -> dict[int, dict[str, float]]:
        """The rates per second, by CPU and name."""
        return rates(self.all, first, last)


def rates(
    counters: Sequence[Counter], first: Reading, last: Reading
) -> dict[int, dict[str, float]]:
    """The rates per second between two readings, by CPU and name.

    Impossible rates are left out: the memory of a kernel that is gone is overwritten.

    >>> one = Counter(0, "timer", 0, 4)
    >>> rates([one], Reading(0, ((1 << 32) - 5,)), Reading(2 * 10**9, (95,)))
    {0: {'timer': 50.0}}
    >>> rates([one], Reading(0, (95,)), Reading(10**9, (0,)))
    {}
    """
    seconds = (last.time_ns - first.time_ns) / 1e9
    found: dict[int, dict[str, float]] = {}
    if seconds <= 0:
        return found
    for one, before, after in zip(counters, first.values, last.values, strict=True):
        count = (after - before) % (1 << 8 * one.size)
        rate = count / seconds
        if rate <= (DELAY_RATE_MAX if one.name == DELAY else RATE_MAX):
            found.setdefault(one.cpu, {})[one.name] = rate
    return found


def softirqs(values: Mapping[str, float]) -> dict[str, float]:
    """The softirqs among the rates of a CPU, by their own names."""
    return {
        name.removeprefix(SOFTIRQ): rate
        for name, rate in values.items()
        if name.startswith(SOFTIRQ)
    }


def interrupts(values: Mapping[str, float]) -> dict[str, float]:
    """The interrupts among the rates of a CPU."""
    names = (*INTERRUPTS, DEVICE)
    return {name: values[name] for name in names if name in values}


def _counters(target: Target) -> Iterator[Counter]:
    places = list(_places(target))
    for cpu in target.cpus_online[:COUNTED_CPUS_MAX]:
        for name, symbol, offset, size in places:
            with contextlib.suppress(PeekError):  # a CPU of a damaged kernel may have no memory
                at = target.physical(target.percpu(symbol, cpu) + offset)
                yield Counter(cpu, name, at, size)


def _places(target: Target) -> Iterator[tuple[str, str, int, int]]:
    """Name, per-CPU symbol, offset and size of each counter that the kernel has."""

    def place(
        name: str, symbol: str, record: str, path: str
    ) -> Iterator[tuple[str, str, int, int]]:
        try:
            found = target.place(record, path)
        except PeekError:
            return
        if target.has_symbol(symbol) and found.size in (4, 8) and not found.bits:
            yield name, symbol, found.offset, found.size

    for name, (member, constant) in INTERRUPTS.items():
        number = target.types.enumerator(constant)
        path = member if number is None else f"counts[{number[1]}]"
        yield from place(name, "irq_stat", "irq_cpustat_t", path)
    yield from place(DEVICE, "kstat", "kernel_stat", "irqs_sum")
    for name in SOFTIRQS:
        number = target.types.enumerator(f"{name}_SOFTIRQ")
        if number is not None:
            text = SOFTIRQ + name.lower()
            yield from place(text, "kstat", "kernel_stat", f"softirqs[{number[1]}]")
    yield from place(DELAY, "runqueues", "rq", "rq_sched_info.run_delay")
