# SPDX-License-Identifier: GPL-2.0-only
"""Reads what each thread is doing, and since when: its state, its CPU, its stack.

Owns the kernel's clocks and the letters of states. How long a thread has slept comes from the time
at which the scheduler last added up its run time. Stacks are unwound for those that are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.health.kernel_structures import WORD, Structures
from trapless.peek.kernel.kernel_stacks import Unwinder, stack_bytes
from trapless.peek.kernel.tasks import PF_KTHREAD, Entry, Walk
from trapless.peek.kernel.unwinding.frames import NO_STACK, Stack
from trapless.peek.limits import LimitError

SLEEPS, WAITS, STOPPED, TRACED, PARKED, DEAD = 1, 2, 4, 8, 0x40, 0x80
NO_LOAD, FROZEN = 0x400, 0x8000
ZOMBIE = 0x30
"""Bits of a thread's state, as in the kernel's include/linux/sched.h."""
PF_WQ_WORKER = 0x20
LETTERS = ((WAITS | NO_LOAD, "I"), (WAITS, "D"), (SLEEPS, "S"), (STOPPED, "T"), (TRACED, "t"))
REAL_TIME = (1, 2, 6)
"""SCHED_FIFO, SCHED_RR and SCHED_DEADLINE."""
FIRST_JIFFIES_S = 300
"""The kernel's clock of ticks begins this much below 2^32, to show overflows early."""
RATES = (100, 250, 300, 1000)
TICK = "tick_next_period"
"""The kernel's variable with the time of the next tick that it counts, in ns."""
NS = 1e9

NUMBERS = {
    "stack": "stack",
    "on_cpu": "on_cpu",
    "exit": "exit_state",
    "switches": "nvcsw",
    "preempted": "nivcsw",
    "ran": "se.exec_start",
    "arrived": "sched_info.last_arrival",
    "queued": "sched_info.last_queued",
    "policy": "policy",
    "priority": "rt_priority",
    "mm": "mm",
    "began": "start_time",
}
OPTIONAL = {
    "blocker": ("blocker",),
    "pi": ("pi_blocked_on",),
    "vfork": ("vfork_done",),
    "worker": ("worker_private", "set_child_tid"),
}
"""Each with the names that it has had, and absent where a kernel has none of them."""


@dataclass(frozen=True)
class Thread:
    """One thread at one moment. `values` are the members in NUMBERS and OPTIONAL."""

    entry: Entry
    state: int
    cpu: int
    values: dict[str, int]

    @property
    def address(self) -> int:
        return self.entry.address

    @property
    def pid(self) -> int:
        return self.entry.pid

    @property
    def title(self) -> str:
        """The thread for people, like "bash (123)"."""
        return f"{GuestText(self.entry.comm)} ({self.pid})"

    @property
    def is_kernel(self) -> bool:
        return bool(self.entry.flags & PF_KTHREAD)

    @property
    def is_worker(self) -> bool:
        return bool(self.entry.flags & PF_WQ_WORKER)

    @property
    def is_blocked(self) -> bool:
        """Whether it sleeps so that it counts as load, and has run before."""
        state = self.state
        begun = self.values["switches"] + self.values["preempted"] > 0
        return bool(state & WAITS) and not state & (NO_LOAD | PARKED | DEAD) and begun

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left of it but its status, for its parent."""
        return bool(self.values["exit"] & ZOMBIE or self.state & DEAD)

    @property
    def letter(self) -> str:
        """Its state as ps has it."""
        return "Z" if self.has_ended else letter_of(self.state)


def letter_of(state: int) -> str:
    """The letter of a state of a thread that has not ended."""
    for bits, letter in LETTERS:
        if state & bits == bits:
            return letter
    return "I" if state else "R"


class Clocks:
    """The clocks of one moment: the scheduler's of each CPU, and those of ticks and of time.

    NTP adjusts the clock of time, and with it that of ticks, but not the scheduler's. After weeks
    they differ by many seconds, so a time of one is never compared with a time of the other.
    """

    def __init__(self, structures: Structures) -> None:
        target, number = structures.target, structures.number
        self.rqs = {cpu: target.percpu("runqueues", cpu) for cpu in target.cpus_possible}
        self.ns = {cpu: number(rq, "rq", "clock") for cpu, rq in self.rqs.items()}
        # Run time is counted without interrupts, where the kernel is built so.
        self._behind = {
            cpu: self.ns[cpu] - number(rq, "rq", "clock_task") for cpu, rq in self.rqs.items()
        }
        self.now_ns = max(self.ns.values(), default=0)
        self.jiffies = structures.variable("jiffies_64")
        self.rate = self._rate(structures)
        self.uptime_s = max(self._uptime(self.rate), 0.0)
        has_time = target.has_symbol(TICK)
        time_ns = structures.variable(TICK, signed=True) if has_time else self.uptime_s * NS
        self.time_ns = round(time_ns)

    def _rate(self, structures: Structures) -> int:
        """The ticks of a second: the kernel describes them as a clock. Without that description,
        the uptime by the scheduler's clock tells them."""
        name, record = "clocksource_jiffies", "clocksource"
        if structures.target.has_symbol(name):
            place = structures.target.symbol(name)
            mult, shift = (structures.number(place, record, one) for one in ("mult", "shift"))
            tick_ns = mult >> min(shift, 63)
            return min(RATES, key=lambda rate: abs(NS / rate - tick_ns))
        return min(RATES, key=lambda rate: abs(self._uptime(rate) - self.now_ns / NS))

    def _uptime(self, rate: int) -> float:
        return (self.jiffies - (1 << 32) + FIRST_JIFFIES_S * rate) / rate

    def slept_s(self, thread: Thread) -> float:
        """How long a thread that sleeps has done so."""
        values = thread.values
        last = max(values["ran"] + self._behind.get(thread.cpu, 0), values["arrived"])
        return max(self.now_ns - last, 0) / NS

    def waited_s(self, thread: Thread) -> float:
        """How long a thread that wants to run has got no CPU."""
        queued = thread.values["queued"]
        return max(self.now_ns - queued, 0) / NS if queued else 0.0

    def ticks_s(self, since: int) -> float:
        """The seconds since a moment of the clock of ticks, of which the lower 32 bits count.

        What is read after the clock may be later than it.
        """
        ticks = (self.jiffies - since) & 0xFFFF_FFFF
        return ticks / self.rate if ticks < 1 << 31 else 0.0


class Threads:
    """All threads of a kernel at one moment."""

    def __init__(self, structures: Structures, unwinder: Unwinder) -> None:
        self.structures, self._unwinder = structures, unwinder
        self._target = structures.target
        self._walk = Walk(self._target)
        state = structures.member("task_struct", "__state", "state")
        cpu = structures.member("task_struct", "thread_info.cpu", "cpu")
        optional = {
            key: path
            for key, paths in OPTIONAL.items()
            if (path := next((one for one in paths if structures.has("task_struct", one)), ""))
        }
        names = {"state": state, "cpu": cpu, "sp": unwinder.pointer, **NUMBERS, **optional}
        places = {key: self._target.place("task_struct", path) for key, path in names.items()}
        self._first = min(place.offset for place in places.values())
        self._length = max(one.offset + one.size for one in places.values()) - self._first
        self._at = {key: (one.offset - self._first, one.size) for key, one in places.items()}
        self._stacks: dict[int, Stack | None] = {}
        self._unwinder.begin()
        self.all: dict[int, Thread] = {}
        for entry in self._walk.entries():
            try:
                self.all[entry.address] = self._read(entry)
            except LimitError:
                raise
            except PeekError:  # it came or went meanwhile
                continue

    def _read(self, entry: Entry) -> Thread:
        data = self._walk.read(entry.address + self._first, self._length)
        values = {
            key: int.from_bytes(data[at : at + size], "little")
            for key, (at, size) in self._at.items()
        }
        state = values.pop("state") & 0xFFFF_FFFF
        return Thread(entry, state, values.pop("cpu"), values)

    def title(self, address: int) -> str:
        """A thread by its address, for people."""
        thread = self.all.get(address)
        return thread.title if thread is not None else "a thread that has ended"

    @cached_property
    def _stack_bytes(self) -> int:
        return stack_bytes(self._target)

    def stack(self, thread: Thread) -> Stack | None:
        """The stack of a thread in the kernel; None while it is on a CPU."""
        if thread.address not in self._stacks:
            try:
                stack = self._unwinder.kernel_stack(self._walk, thread.entry)
            except LimitError:
                raise
            except PeekError:
                stack = NO_STACK
            self._stacks[thread.address] = stack
        return self._stacks[thread.address]

    def functions(self, thread: Thread) -> tuple[str, ...]:
        """The functions on a thread's stack, innermost first, without the scheduler's."""
        stack = self.stack(thread)
        return () if stack is None else self.functions_of(stack.addresses)

    def functions_of(self, addresses: Sequence[int]) -> tuple[str, ...]:
        """The functions of a stack, without the scheduler's own at its top."""
        names = [self.structures.function(address) for address in addresses]
        while names and is_of_scheduler(names[0]):
            names.pop(0)
        return tuple(names)

    def words(self, thread: Thread) -> tuple[int, list[int]]:
        """Where the used part of a thread's stack begins, and its words."""
        start, end = thread.values["sp"], thread.values["stack"] + self._stack_bytes
        if not thread.values["stack"] <= start < end or start % WORD:
            return start, []
        data = self._target.read(start, end - start)
        return start, [
            int.from_bytes(data[at : at + WORD], "little") for at in range(0, len(data), WORD)
        ]

    def on_stack(self, address: int, task: int) -> bool:
        """Whether an address is on the stack of a thread."""
        thread = self.all.get(task)
        stack = 0 if thread is None else thread.values["stack"]
        return 0 < stack <= address < stack + self._stack_bytes


SCHEDULER = frozenset(
    """
    __switch_to __schedule schedule schedule_timeout io_schedule io_schedule_timeout __cond_resched
    schedule_preempt_disabled preempt_schedule_irq preempt_schedule_common __schedule_loop
    schedule_timeout_uninterruptible schedule_rtlock rt_mutex_schedule schedule_idle schedule_user
    schedule_hrtimeout schedule_hrtimeout_range schedule_hrtimeout_range_clock
    """.split()  # noqa: SIM905
)


def is_of_scheduler(function: str) -> bool:
    """Whether a function only leaves the CPU to others."""
    return function.split(".")[0] in SCHEDULER
