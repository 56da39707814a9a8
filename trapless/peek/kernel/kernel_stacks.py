# SPDX-License-Identifier: GPL-2.0-only
"""Unwinds kernel stacks: of threads that are switched out, and of CPUs whose registers are known.

A thread that is switched out has left its stack pointer in memory, so its stack is exact, and a
thread that ran meanwhile is noticed. The registers of a CPU that runs are not in memory: its stack
can be read only where somebody stops it and has its registers. orc.py has the rules of frames. All
that is read here may be made up, so each walk has a budget, and each stack a bound.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.loaded_modules import Modules
from trapless.peek.kernel.name_resolver import Resolver
from trapless.peek.kernel.orc import (
    AT_ENTRY,
    AT_SAVED_REGISTERS,
    FRAME_POINTER,
    Kind,
    Register,
    Rule,
    code_of,
)
from trapless.peek.kernel.tasks import COMM_BYTES, Entry, Walk
from trapless.peek.kernel.user.user_stacks import (
    NO_USER_STACK,
    UserRegisters,
    UserStack,
    UserStacks,
)

WORD = 8
USER = 3  # the lowest bits of CS in user mode
DEAD = 0x80
"""The bit in a thread's state (TASK_DEAD) that says that it has ended: its stack may soon have
another owner."""
FRAME = ("r15", "r14", "r13", "r12", "bx", "bp", "ret_addr")
"""The words that a thread pushes last before it is switched out (struct inactive_task_frame)."""
FORKED = ("ret_from_fork_asm", "ret_from_fork")
"""Where a new thread begins: an address that nothing returns to."""
SAVED = ("ip", "cs", "sp", "bp", "r10", "r13", "di", "dx", "ax")
"""The members of pt_regs that unwinding may need."""
IN_REGISTER = {
    Register.AX: "ax",
    Register.R10: "r10",
    Register.R13: "r13",
    Register.DI: "di",
    Register.DX: "dx",
}
SEARCHED_WORDS_MAX = 24
"""The most words on the stack between code without rules and the address that it returns to."""
CALL, CALL_BYTES = 0xE8, 5


class Ending(IntEnum):
    """How a stack ended, outermost."""

    LOST = 0  # its caller could not be found: what is known is the inner part
    USER = 1  # at the entry from user mode
    BOTTOM = 2  # of a kernel thread, or of an idle CPU
    GUESSED = 3  # whole, but with a frame that no table has


@dataclass(frozen=True, slots=True)
class Stack:
    """The addresses of a stack's code, innermost first: of the calls, not of their returns."""

    ending: Ending
    addresses: tuple[int, ...]


NO_STACK = Stack(Ending.LOST, ())
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
class CpuRegisters:
    """The registers of a CPU that stands still, as far as unwinding needs them."""

    cpu: int
    user: bool
    values: dict[str, int]  # by the names in SAVED


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
    return 1 << 14


@dataclass(slots=True)
class _State:
    """The state of an unwinding."""

    ip: int
    sp: int
    bp: int
    signal: bool
    saved: dict[str, int] | None = None  # registers of this very frame, where they are known
    user: UserRegisters | None = None  # those at the entry from user mode
    user_at: int = 0  # their address, where all of them are on the stack


class _Window:
    """A thread's stack, read at once; what lies elsewhere is read word by word."""

    def __init__(self, target: Resolver, start: int, data: bytes) -> None:
        self._target, self._start, self._data = target, start, data

    def word(self, address: int) -> int:
        limits.spend()
        at = address - self._start
        if 0 <= at <= len(self._data) - WORD:
            return int.from_bytes(self._data[at : at + WORD], "little")
        if not address >> 63:
            raise PeekError(f"{address:#x} is no address of the kernel")
        return self._target.read_u64(address)


class Unwinder:
    """Unwinds the stacks of one kernel. One thread uses it."""

    def __init__(self, target: Resolver, modules: Modules | None = None) -> None:
        self._target = target
        self._list = modules
        self._code = code_of(target, self._modules)
        self._bytes = stack_bytes(target)
        self._saved = {name: target.offset("pt_regs", name) for name in SAVED}
        self._iret = self._saved["ip"]
        self._forked = {target.symbol(name) for name in FORKED if target.has_symbol(name)}
        self._members = _Members(target)
        self._known: dict[int, _Known] = {}  # by the thread's address
        self._below_end: int | None = None  # where entries from user mode save registers
        self._users: UserStacks | None = None
        with contextlib.suppress(PeekError):  # a kernel whose processes are not understood
            self._users = UserStacks(target)

    def _modules(self) -> Modules:
        if self._list is None:
            self._list = Modules(self._target)
        return self._list

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
        stack, _ = self._inactive(walk, seen)
        after = self._members.read(walk, entry)
        return None if after.on_cpu or after.moment != seen.moment else stack

    def begin(self) -> None:
        """Begin to read the stacks of this moment."""
        self._code.begin()
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
        stack, registers = self._inactive(walk, before)
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
        if self._below_end is None:
            return NO_USER_STACK
        place, at = seen.stack + self._bytes - self._below_end, self._saved
        try:
            data = walk.read(place, max(at.values()) + WORD)
        except limits.LimitError:
            raise
        except PeekError:
            return NO_USER_STACK
        ip, sp, bp, cs = (
            int.from_bytes(data[at[name] : at[name] + WORD], "little")
            for name in ("ip", "sp", "bp", "cs")
        )
        if not cs & USER:  # a thread of the kernel has never entered
            return NO_USER_STACK
        return self._user_stack(task, UserRegisters(ip, sp, bp, cs), earlier=True)

    def _inactive(self, walk: Walk, seen: _Seen) -> tuple[Stack, UserRegisters | None]:
        """The stack of a thread that is switched out, and its registers of user mode."""
        end = seen.stack + self._bytes
        if not seen.stack <= seen.sp <= end - WORD * len(FRAME):
            return NO_STACK, None
        start, data = seen.sp, b""
        while start + len(data) < end:  # pages that are mapped one by one
            rest = min(4096 - (start + len(data)) % 4096, end - start - len(data))
            data += walk.read(start + len(data), rest)
        window = _Window(self._target, start, data)
        values = {name: window.word(start + WORD * at) for at, name in enumerate(FRAME)}
        ip = values["ret_addr"]
        state = _State(ip, start + WORD * len(FRAME), values["bp"], ip in self._forked)
        stack = self._unwind(state, window)
        if state.user_at and stack.ending is Ending.USER and 0 < end - state.user_at <= self._bytes:
            self._below_end = end - state.user_at
        return stack, state.user

    def cpus(self, registers: Sequence[CpuRegisters]) -> list[CpuStack]:
        """The stacks of CPUs that stand still, by their registers."""
        target, found = self._target, list[CpuStack]()
        current = percpu_word(target, "current_task")
        with limits.within(limits.Budget(limits.STACKS)):
            self.begin()
            for one in registers:
                if one.cpu not in target.percpu_bases:
                    continue
                task = target.read_u64((current + target.percpu_bases[one.cpu]) & MASK)
                pid, group, comm = (
                    target.read(task + target.offset("task_struct", name), size)
                    for name, size in (("pid", 4), ("tgid", 4), ("comm", COMM_BYTES))
                )
                stack, user = self._active(one)
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

    def _active(self, registers: CpuRegisters) -> tuple[Stack, UserRegisters | None]:
        """The stack in the kernel, which a CPU in user mode has none of, and user registers."""
        values = registers.values
        if registers.user:
            return Stack(Ending.USER, ()), UserRegisters(values["ip"], values["sp"], values["bp"])
        window = _Window(self._target, 0, b"")
        state = _State(values["ip"], values["sp"], values["bp"], True, dict(values))
        return self._unwind(state, window), state.user

    # ---- Frames ----------------------------------------------------------------------------------

    def _unwind(self, state: _State, window: _Window) -> Stack:
        addresses: list[int] = []
        ending, guessed = Ending.LOST, False
        try:
            while len(addresses) < limits.FRAMES_MAX:
                place = state.ip - (0 if state.signal else 1)
                is_code = self._code.is_code(place)
                if not is_code and (addresses or not state.signal):
                    break
                addresses.append(place)
                # Code that the kernel makes up as it runs, like that of BPF, has no rules.
                rule = self._code.rule(place, state.bp) if is_code else None
                if rule is not None and rule.kind is Kind.END:
                    ending = Ending.BOTTOM
                    break
                if rule is None or rule.sp == Register.UNDEFINED:
                    guessed = True
                    if len(addresses) == 1 and state.signal:
                        if not self._search(state, window):
                            break
                        continue
                    rule = FRAME_POINTER
                before = state.sp
                if self._step(state, rule, window):
                    ending = Ending.USER
                    break
                # A thread of the kernel has no registers of user mode.
                if rule is AT_ENTRY or (rule is AT_SAVED_REGISTERS and state.ip == 0):
                    ending = Ending.BOTTOM
                    break
                same_stack = rule.kind is Kind.CALL and rule.sp in (Register.SP, Register.BP)
                # A caller's frame lies above, or on another stack: of the thread that an interrupt,
                # which has a stack of its own, has met.
                if same_stack and 0 <= before - state.sp < limits.STACK_BYTES_MAX:
                    break
        except limits.LimitError:
            raise
        except PeekError:  # the stack leads out of what is mapped
            pass
        if guessed and ending is not Ending.LOST:
            ending = Ending.GUESSED
        return Stack(ending, tuple(addresses))

    def _step(self, state: _State, rule: Rule, window: _Window) -> bool:
        """Go to the caller's frame. Returns whether that is user mode."""
        sp = self._base(state, rule, window)
        if rule.kind is Kind.CALL:
            state.ip, state.sp, state.saved = window.word(sp - WORD), sp, None
        elif rule.kind is Kind.REGS:
            saved = {name: window.word(sp + at) for name, at in self._saved.items()}
            if saved["cs"] & USER:
                state.user = UserRegisters(saved["ip"], saved["sp"], saved["bp"], saved["cs"])
                state.user_at = sp
                return True
            state.ip, state.sp, state.saved = saved["ip"], saved["sp"], saved
        elif rule.kind is Kind.REGS_PARTIAL:
            at = {name: self._saved[name] - self._iret for name in ("ip", "cs", "sp")}
            saved = {name: window.word(sp + offset) for name, offset in at.items()}
            if saved["cs"] & USER:
                state.user = UserRegisters(saved["ip"], saved["sp"], state.bp, saved["cs"])
                return True
            # The other registers have kept their values.
            state.saved = {**state.saved, **saved} if state.saved is not None else None
            state.ip, state.sp = saved["ip"], saved["sp"]
        else:
            raise PeekError(f"nothing is known of the frame at {state.sp:#x}")
        if rule.bp == Register.PREV_SP:
            state.bp = window.word(sp + rule.bp_offset)
        elif rule.bp == Register.BP:
            state.bp = window.word(state.bp + rule.bp_offset)
        elif state.saved is not None and "bp" in state.saved:
            state.bp = state.saved["bp"]
        state.signal = rule.signal
        return False

    def _base(self, state: _State, rule: Rule, window: _Window) -> int:
        """The end of a frame, at which the caller's frame begins."""
        if rule.sp == Register.SP:
            return state.sp + rule.sp_offset
        if rule.sp == Register.BP:
            return state.bp + rule.sp_offset
        if rule.sp == Register.SP_INDIRECT:
            return window.word(state.sp) + rule.sp_offset
        if rule.sp == Register.BP_INDIRECT:
            return window.word(state.bp + rule.sp_offset)
        name = IN_REGISTER.get(rule.sp)
        if name is None or state.saved is None or name not in state.saved:
            raise PeekError(f"the frame at {state.sp:#x} is counted from a register that is lost")
        return state.saved[name]

    def _search(self, state: _State, window: _Window) -> bool:
        """Go to the nearest call on the stack, from code without rules; False where none is."""
        for at in range(state.sp, state.sp + WORD * SEARCHED_WORDS_MAX, WORD):
            value = window.word(at)
            place = value - 1
            if not self._code.is_code(place):
                continue
            rule = self._code.rule(place, state.bp)
            if rule is None or rule.sp == Register.UNDEFINED:
                continue
            if self._target.read(value - CALL_BYTES, 1)[0] == CALL:
                state.ip, state.sp, state.signal, state.saved = value, at + WORD, False, None
                return True
        return False


def percpu_word(target: Resolver, name: str) -> int:
    """The symbol of a per-CPU variable, or of the member of `pcpu_hot` that has its place."""
    if target.has_symbol(name):
        return target.symbol(name)
    return target.symbol("pcpu_hot") + target.offset("pcpu_hot", name)


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

    def __init__(self, target: Resolver) -> None:
        state = "__state" if target.has_member("task_struct", "__state") else "state"
        names = {"state": state, "stack": "stack", "sp": "thread.sp", "pid": "pid"}
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
