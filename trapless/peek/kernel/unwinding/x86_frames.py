# SPDX-License-Identifier: GPL-2.0-only
"""Unwinds the frames of x86-64's kernel stacks, by the rules of orc.py.

Owns what a thread leaves on its stack, and what is done where code has no rules. All that is read
here may be made up, so each stack has a bound, and each walk a budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.loaded_modules import Modules
from trapless.peek.kernel.name_resolver import Resolver
from trapless.peek.kernel.unwinding.frames import (
    WORD,
    CpuRegisters,
    Ending,
    Stack,
    Window,
)
from trapless.peek.kernel.unwinding.orc import (
    AT_ENTRY,
    AT_SAVED_REGISTERS,
    FRAME_POINTER,
    Kind,
    Register,
    Rule,
    code_of,
)
from trapless.peek.kernel.user.user_stacks import UserRegisters

USER = 3  # the lowest bits of CS in user mode
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


class X86Frames:
    """The frames of one kernel. One thread uses it."""

    pointer = "thread.sp"
    least_bytes = WORD * len(FRAME)

    def __init__(self, target: Resolver, modules: Callable[[], Modules]) -> None:
        self._target = target
        self._code = code_of(target, modules)
        self._saved = {name: target.offset("pt_regs", name) for name in SAVED}
        self._iret = self._saved["ip"]
        self._forked = {target.symbol(name) for name in FORKED if target.has_symbol(name)}
        self._below_end: int | None = None  # where entries from user mode save registers

    def begin(self) -> None:
        self._code.begin()

    def inactive(self, window: Window, _task: int) -> tuple[Stack, UserRegisters | None]:
        start, end = window.start, window.end
        values = {name: window.word(start + WORD * at) for at, name in enumerate(FRAME)}
        ip = values["ret_addr"]
        state = _State(ip, start + WORD * len(FRAME), values["bp"], ip in self._forked)
        stack = self._unwind(state, window)
        if state.user_at and stack.ending is Ending.USER and start <= state.user_at < end:
            self._below_end = end - state.user_at
        return stack, state.user

    def active(self, registers: CpuRegisters) -> tuple[Stack, UserRegisters | None]:
        values = registers.values
        if registers.user:
            return Stack(Ending.USER, ()), UserRegisters(values["ip"], values["sp"], values["bp"])
        window = Window(self._target, 0, b"")
        state = _State(values["ip"], values["sp"], values["bp"], True, dict(values))
        return self._unwind(state, window), state.user

    def last_entry(self, end: int) -> tuple[int, int] | None:
        if self._below_end is None:
            return None
        return end - self._below_end, max(self._saved.values()) + WORD

    def user_registers(self, data: bytes) -> UserRegisters | None:
        ip, sp, bp, cs = (
            int.from_bytes(data[self._saved[name] :][:WORD], "little")
            for name in ("ip", "sp", "bp", "cs")
        )
        return UserRegisters(ip, sp, bp, cs) if cs & USER else None

    # ---- Frames ----------------------------------------------------------------------------------

    def _unwind(self, state: _State, window: Window) -> Stack:
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

    def _step(self, state: _State, rule: Rule, window: Window) -> bool:
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

    def _base(self, state: _State, rule: Rule, window: Window) -> int:
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

    def _search(self, state: _State, window: Window) -> bool:
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
