# SPDX-License-Identifier: GPL-2.0-only
"""Unwinds the frames of arm64's kernel stacks: each function has a frame record, which holds the
address of its caller's record and the address that it returns to.

Owns the end of a stack, where the registers of user mode are saved, and the places amid a stack
where an interrupt saved those of the kernel (arch/arm64/kernel/stacktrace.c). Addresses may be
signed (FEAT_PAuth): the signature's bits are the kernel's own there, all ones.
"""

from __future__ import annotations

from collections.abc import Callable

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
from trapless.peek.kernel.unwinding.orc import Code
from trapless.peek.kernel.user.user_stacks import CODE_64, UserRegisters

SWITCHED = "thread.cpu_context"
"""The registers that a thread keeps while it is switched out, a member of task_struct."""
SAVED = {"pc": "pc", "sp": "sp", "pstate": "pstate", "fp": "regs[29]"}
"""The members of pt_regs that are read."""
MODE, CODE_32 = 0xF, 1 << 4
"""The bits of PSTATE that are 0 in user mode, and the one for code of 32 bits."""
INSTRUCTION_BYTES = 4
FORKED = "ret_from_fork"
"""Where a new thread begins: an address that nothing returns to."""
FINAL, REGISTERS = 1, 2
"""What stands behind a record of zeros (struct frame_record_meta): it is the outermost one, or that
of saved registers. Earlier kernels have zeros in the outermost one alone."""
VECTORS, FROM_USER = "vectors", range(0x400, 0x800)
"""Where exceptions enter the kernel, and which of these places are for those of user mode."""


class Arm64Frames:
    """The frames of one kernel. One thread uses it."""

    pointer = f"{SWITCHED}.sp"

    def __init__(self, target: Resolver, modules: Callable[[], Modules]) -> None:
        self._target = target
        self._code = Code(target, modules)
        self._switched = {
            name: target.offset("task_struct", f"{SWITCHED}.{name}") for name in ("fp", "pc")
        }
        self._saved = {name: target.offset("pt_regs", path) for name, path in SAVED.items()}
        self._record = target.offset("pt_regs", "stackframe")
        self._has_marks = target.has_member("pt_regs", "stackframe.type")
        self.least_bytes = target.sizeof("pt_regs")
        if not max(*self._saved.values(), self._record) < self.least_bytes <= 1 << 12:
            raise PeekError("struct pt_regs: the kernel's types are damaged")
        self._forked = target.symbol(FORKED)
        self._vectors = target.symbol(VECTORS)
        self._signature = target.processor.signature

    def begin(self) -> None:
        self._code.begin()

    def inactive(self, window: Window, task: int) -> tuple[Stack, UserRegisters | None]:
        fp, pc = (self._target.read_u64(task + self._switched[name]) for name in ("fp", "pc"))
        return self._stack(fp, pc, window, is_call=pc != self._forked)

    def active(self, registers: CpuRegisters) -> tuple[Stack, UserRegisters | None]:
        ip, sp, fp = (registers.values[name] for name in ("ip", "sp", "bp"))
        if registers.user:
            return Stack(Ending.USER, ()), UserRegisters(ip, sp, fp)
        if ip - self._vectors in FROM_USER:  # the registers are not saved yet
            return Stack(Ending.USER, (ip,)), None
        return self._stack(fp, ip, Window(self._target, 0, b""), is_call=False)

    def last_entry(self, end: int) -> tuple[int, int]:
        return end - self.least_bytes, self.least_bytes

    def user_registers(self, data: bytes) -> UserRegisters | None:
        pc, sp, pstate, fp = (
            int.from_bytes(data[self._saved[name] :][:WORD], "little") for name in SAVED
        )
        if pstate & MODE or not pc:
            return None
        return UserRegisters(pc, sp, fp, 0 if pstate & CODE_32 else CODE_64)

    def _stack(
        self, fp: int, pc: int, window: Window, *, is_call: bool
    ) -> tuple[Stack, UserRegisters | None]:
        """The stack from there on, and registers of user mode. `is_call`: `pc` is an address that
        is returned to."""
        addresses: list[int] = []
        ending, user = Ending.LOST, None
        try:
            saved = self._unwind(fp, pc, window, addresses, is_call=is_call)
            if saved is not None:
                user = self.user_registers(self._target.read(saved, self.least_bytes))
                ending = Ending.BOTTOM if user is None else Ending.USER
        except limits.LimitError:
            raise
        except PeekError:  # the stack leads out of what is mapped
            pass
        return Stack(ending, tuple(addresses)), user

    def _unwind(
        self, fp: int, pc: int, window: Window, addresses: list[int], *, is_call: bool
    ) -> int | None:
        """Collect the addresses from there on. Where the thread has saved registers of user mode,
        which end its stack; None where the stack was lost before."""
        while len(addresses) < limits.FRAMES_MAX:
            place = pc - INSTRUCTION_BYTES if is_call else pc
            if not self._code.is_code(place):
                break
            addresses.append(place)
            if fp % WORD:
                break
            above, back = window.word(fp), window.word(fp + WORD)
            if not above and not back:
                mark = window.word(fp + 2 * WORD) if self._has_marks else FINAL
                if mark == FINAL:
                    saved = fp - self._record
                    is_outermost = not window.start or saved + self.least_bytes == window.end
                    return saved if is_outermost else None
                if mark != REGISTERS:
                    break
                above, back = (self._word(window, fp, name) for name in ("fp", "pc"))
                is_call = False
            else:
                back |= self._signature
                # Kernels without marks keep a record for the code that was interrupted.
                is_call = back != self._word(window, fp, "pc")
            # A caller's record lies above. Only an interrupt has a stack of its own, of a CPU.
            if window.start and not fp < above < window.end:
                break
            fp, pc = above, back
        return None

    def _word(self, window: Window, record: int, name: str) -> int:
        """A register that is saved around a record, if one is."""
        return window.word(record - self._record + self._saved[name])
