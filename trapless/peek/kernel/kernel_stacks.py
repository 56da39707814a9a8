# SPDX-License-Identifier: GPL-2.0-only
"""Unwinds kernel stacks: of threads that are switched out, and of CPUs whose registers are known.

A thread that is switched out has left its stack pointer in memory, so its stack is exact, and a
thread that ran meanwhile is noticed. The registers of a CPU that runs are not in memory: its stack
can be read only where somebody stops it and has its registers. unwinding/ has the frames of each
processor. All that is read here may be made up, so each walk has a budget, and each stack a bound.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.guest_processor import ARM64
from trapless.peek.kernel.loaded_modules import Modules
from trapless.peek.kernel.name_resolver import Resolver
from trapless.peek.kernel.tasks import COMM_BYTES, Entry, Walk
from trapless.peek.kernel.unwinding.arm64_frames import Arm64Frames
from trapless.peek.kernel.unwinding.frames import (
    NO_STACK,
    CpuRegisters,
    Frames,
    Stack,
    Window,
)
from trapless.peek.kernel.unwinding.x86_frames import X86Frames
from trapless.peek.kernel.user.user_stacks import (
    NO_USER_STACK,
    UserRegisters,
    UserStack,
    UserStacks,
)

WORD = 8
COUNT_OF_TASK = "thread_info.preempt.count"
"""Where arm64 has the preempt count, in a task."""
DEAD = 0x80
"""The bit in a thread's state (TASK_DEAD) that says that it has ended: its stack may soon have
another owner."""
_Known = tuple[tuple[int, ...], Stack, UserStack]
"""A thread's moment, and its stacks at that moment."""


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """A thread at the moment of a walk. `stack` is None while it is on a CPU, and `user` is that of
    its last entry to the kernel then."""

    pid: int
    group: int
    comm: GuestText
    state: int  # as the kernel has it: 0 wants to run, 1 and 2 sleep
    stack: Stack | None
    user: UserStack = NO_USER_STACK


@dataclass(frozen=True, slots=True)
class CpuStack:
    """The thread and the stacks of a CPU that stands still; in user mode, the kernel's stack is
    empty."""

    cpu: int
    pid: int
    group: int
    comm: GuestText
    stack: Stack
    user: UserStack = NO_USER_STACK


def stack_bytes(target: Resolver) -> int:
    """The bytes of a thread's stack: the first one has symbols at both ends."""
    if target.has_symbol("init_stack") and target.has_symbol("__end_init_task"):
        length = target.symbol("__end_init_task") - target.symbol("init_stack")
        if 0 < length <= limits.STACK_BYTES_MAX:
            return length
    return max(1 << 14, target.processor.page_bytes)


class Unwinder:
    """Unwinds the stacks of one kernel. One thread uses it."""

    def __init__(self, target: Resolver, modules: Modules | None = None) -> None:
        self._target = target
        self._list = modules
        form = Arm64Frames if target.processor.name == ARM64 else X86Frames
        self._frames: Frames = form(target, self._modules)
        self._bytes = stack_bytes(target)
        self._members = _Members(target, self._frames.pointer)
        self._known: dict[int, _Known] = {}  # by the thread's address
        self._users: UserStacks | None = None
        with contextlib.suppress(PeekError):  # a kernel whose processes are not understood
            self._users = UserStacks(target)

    def _modules(self) -> Modules:
        if self._list is None:
            self._list = Modules(self._target)
        return self._list

    @property
    def pointer(self) -> str:
        """The path in task_struct of the stack pointer of a thread that is switched out."""
        return self._frames.pointer

    def threads(self) -> list[ThreadStack]:
        """All threads with the stacks of those that are switched out.

        A stack that did not change since the last walk, because its thread did not run, is not
        unwound again.
        """
        with limits.within(limits.Budget(limits.STACKS)):
            self.begin()
            return list(self._threads())

    def kernel_stack(self, walk: Walk, entry: Entry) -> Stack | None:
        """The stack in the kernel of one thread; None where it is on a CPU, or ran meanwhile.

        The caller has a budget, and has begun.
        """
        seen = self._members.read(walk, entry)
        if seen.on_cpu or seen.state & DEAD:
            return None
        stack, _ = self._inactive(walk, entry, seen)
        after = self._members.read(walk, entry)
        return None if after.on_cpu or after.moment != seen.moment else stack

    def begin(self) -> None:
        """Begin to read the stacks of this moment."""
        self._frames.begin()
        if self._users is not None:
            self._users.begin()

    def _threads(self) -> Iterator[ThreadStack]:
        walk = Walk(self._target)
        known, self._known = self._known, {}
        interned: dict[Stack, Stack] = {}
        for entry in walk.entries():
            limits.spend()
            try:
                seen, stack, user = self._thread(walk, entry, known.get(entry.address))
            except limits.LimitError:
                return
            except PeekError:  # it came or went meanwhile
                continue
            if seen.state & DEAD:
                continue
            if stack is not None:
                if stack not in interned and len(interned) >= limits.STACKS_MAX:
                    stack = NO_STACK
                stack = interned.setdefault(stack, stack)
                if user is not None:
                    self._known[entry.address] = (seen.moment, stack, user)
            user = user or NO_USER_STACK
            yield ThreadStack(
                entry.pid, entry.group, GuestText(entry.comm), seen.state, stack, user
            )

    def _thread(
        self, walk: Walk, entry: Entry, known: _Known | None
    ) -> tuple[_Seen, Stack | None, UserStack | None]:
        """A thread's state and its stacks; no stack where it is on a CPU, or ran meanwhile.

        The user stack is None where too much time went into those of others.
        """
        before = self._members.read(walk, entry)
        if before.state & DEAD:
            return before, None, None
        if before.on_cpu:
            return before, None, self._last_entry(walk, before, entry.address)
        if known is not None and known[0] == before.moment:
            return before, *known[1:]
        stack, registers = self._inactive(walk, entry, before)
        user = self._user_stack(entry.address, registers)
        after = self._members.read(walk, entry)
        # A thread counts a switch before it leaves its CPU, so one that ran has another count.
        if after.on_cpu or after.moment != before.moment:
            return after, None, None
        return after, stack, user

    def _user_stack(
        self, task: int, registers: UserRegisters | None, *, earlier: bool = False
    ) -> UserStack | None:
        """The stack of a task in user mode; None where this walk has no time for it."""
        if registers is None or self._users is None:
            return NO_USER_STACK
        try:
            return self._users.stack(task, registers, earlier=earlier)
        except limits.LimitError:
            return None

    def _last_entry(self, walk: Walk, seen: _Seen, task: int) -> UserStack | None:
        """The stack in user mode that a thread on a CPU had at its last entry to the kernel."""
        entry = self._frames.last_entry(seen.stack + self._bytes)
        if entry is None:
            return NO_USER_STACK
        try:
            registers = self._frames.user_registers(walk.read(*entry))
        except limits.LimitError:
            raise
        except PeekError:
            return NO_USER_STACK
        # A thread of the kernel has never entered.
        return self._user_stack(task, registers, earlier=True)

    def _inactive(
        self, walk: Walk, entry: Entry, seen: _Seen
    ) -> tuple[Stack, UserRegisters | None]:
        """The stack of a thread that is switched out, and its registers of user mode."""
        end = seen.stack + self._bytes
        if not seen.stack <= seen.sp <= end - self._frames.least_bytes:
            return NO_STACK, None
        start, data = seen.sp, b""
        while start + len(data) < end:  # pages that are mapped one by one
            rest = min(4096 - (start + len(data)) % 4096, end - start - len(data))
            data += walk.read(start + len(data), rest)
        return self._frames.inactive(Window(self._target, start, data), entry.address)

    def cpus(self, registers: Sequence[CpuRegisters]) -> list[CpuStack]:
        """The stacks of CPUs that stand still, by their registers."""
        target, found = self._target, list[CpuStack]()
        symbol, offset = current_task(target)
        with limits.within(limits.Budget(limits.STACKS)):
            self.begin()
            for one in registers:
                if one.cpu not in target.percpu_bases:
                    continue
                task = target.read_u64(target.percpu(symbol, one.cpu) + offset)
                pid, group, comm = (
                    target.read(task + target.offset("task_struct", name), size)
                    for name, size in (("pid", 4), ("tgid", 4), ("comm", COMM_BYTES))
                )
                stack, user = self._frames.active(one)
                found.append(
                    CpuStack(
                        one.cpu,
                        int.from_bytes(pid, "little", signed=True),
                        int.from_bytes(group, "little", signed=True),
                        GuestText(comm),
                        stack,
                        self._user_stack(task, user) or NO_USER_STACK,
                    )
                )
        return found


def current_task(target: Resolver) -> tuple[str, int]:
    """Where each CPU has the address of its task: a per-CPU symbol, and an offset in bytes."""
    if target.has_symbol("current_task"):
        return "current_task", 0
    if target.has_symbol("pcpu_hot"):
        return "pcpu_hot", target.offset("pcpu_hot", "current_task")
    return "runqueues", target.offset("rq", "curr")  # which the scheduler has on each processor


def preempt_count(target: Resolver) -> tuple[str, int] | None:
    """Where each CPU has its count of nested contexts, in the same way; without a symbol, the
    offset is one in the task that the CPU runs. None where it is not known."""
    if target.has_symbol("__preempt_count"):
        return "__preempt_count", 0
    if target.has_symbol("pcpu_hot") and target.has_member("pcpu_hot", "preempt_count"):
        return "pcpu_hot", target.offset("pcpu_hot", "preempt_count")
    if target.has_member("task_struct", COUNT_OF_TASK):
        return "", target.offset("task_struct", COUNT_OF_TASK)
    return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The facts about a stack in its thread's structure."""

    pid: int
    on_cpu: bool
    state: int
    stack: int
    sp: int
    switches: tuple[int, int]

    @property
    def moment(self) -> tuple[int, ...]:
        """Numbers that change when the thread runs."""
        return (self.pid, self.stack, self.sp, *self.switches)


class _Members:
    """Where the members are that say where a thread's stack is, read at once."""

    def __init__(self, target: Resolver, pointer: str) -> None:
        state = "__state" if target.has_member("task_struct", "__state") else "state"
        names = {"state": state, "stack": "stack", "sp": pointer, "pid": "pid"}
        names |= {"on_cpu": "on_cpu", "nvcsw": "nvcsw", "nivcsw": "nivcsw"}
        places = {key: target.place("task_struct", path) for key, path in names.items()}
        self._first = min(place.offset for place in places.values())
        self._length = max(place.offset + place.size for place in places.values()) - self._first
        if self._length > limits.STACK_BYTES_MAX:
            raise PeekError(f"a task_struct of {self._length:,} bytes: the types are damaged")
        self._at = {key: (place.offset - self._first, place.size) for key, place in places.items()}

    def read(self, walk: Walk, entry: Entry) -> _Seen:
        data = walk.read(entry.address + self._first, self._length)

        def number(key: str) -> int:
            at, size = self._at[key]
            return int.from_bytes(data[at : at + size], "little")

        return _Seen(
            number("pid"),
            bool(number("on_cpu")),
            number("state") & 0xFFFF_FFFF,
            number("stack"),
            number("sp"),
            (number("nvcsw"), number("nivcsw")),
        )
