# SPDX-License-Identifier: GPL-2.0-only
"""Unwinds the stack of a stopped CPU from its registers, and judges by it where the CPU is.

Owns the names of the kernel's functions that begin and end handlers and idleness, and of those that
are entry or exit code. drgn finds the frames with the kernel's own unwind tables (ORC). Nothing
here reads the memory that samples are made of.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import drgn

from trapless.peek.errors import PeekError
from trapless.peek.kernel.kernel_stacks import stack_bytes
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.tier0 import Part
from trapless.vm.qmp import Registers

FRAMES_MAX = 200
REGISTER_NAMES = {
    **{f"R{letter}": letter.lower() for letter in ("AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP")},
    **{f"R{number}": f"r{number}" for number in range(8, 16)},
}
USER_CS, KERNEL_CS = 0x33, 0x10

NOT_UNWOUND = re.compile(r"(__pi_)?(__x86_(indirect|return)_thunk\w*|(srso|retbleed)_\w*thunk)$")
"""The thunks of indirect calls and returns, which have no unwind tables; the kernel's code for its
first instructions has a second name for each. drgn has no tables of modules either, whose code for
probes the kernel calls in place of an instruction."""
WORDS_MAX = 24
"""The most words on the stack between such code and the address that it returns to."""
CALL, CALL_BYTES = 0xE8, 5

INTERRUPT = re.compile(r"(asm_)?(sysvec_\w+|common_interrupt|spurious_interrupt|exc_nmi)$")
INTERRUPT_ENDS = re.compile(
    r"irqentry_exit\w*|raw_irqentry_exit\w*|preempt_schedule_irq|exit_to_user_mode\w*"
)
"""In these functions an interrupt has ended, although its frame is still on the stack."""
SOFTIRQ = re.compile(r"(__do_softirq|handle_softirqs)$")
IDLE = re.compile(r"(do_idle|cpu_startup_entry|cpu_idle_poll)$")

# Entry and exit code, in which memory still has the earlier state, or already the next one: these
# sections, and functions outside of them. They change the counts of handlers, and they exchange a
# task's stack one instruction before the pointer to it.
SECTIONS = (
    ("__entry_text_start", "__entry_text_end"),
    ("__noinstr_text_start", "__noinstr_text_end"),
)
TRANSITIONS = re.compile(
    r"(irq_(enter|exit)(_rcu)?|__irq_exit_rcu|__do_softirq|handle_softirqs|do_softirq_own_stack|"
    r"__switch_to|__switch_to_asm|irqentry_\w+|raw_irqentry_\w+|syscall_\w+_user_mode\w*|"
    r"(enter_from|exit_to)_user_mode\w*|(__)?ct_\w+|context_tracking_\w+)(\.\w+)*$"
)
TRANSITION_CALLERS = re.compile(
    r"(tick_nohz_irq_exit|__tick_nohz_full_update_tick|tick_irq_enter|irqentry_enter|"
    r"(__)?irq_(enter|exit)(_rcu)?|(__)?ct_\w+|__switch_to|__hrtimer_rearm_deferred|"
    r"wakeup_softirqd)(\.\w+)*$"
)
"""Functions that these call belong to entry and exit code as well: they notify time and RCU, set
the next timer and hand remaining softirqs on."""
WAKES = "try_to_wake_up"
"""Directly below the handler of softirqs, it is wakeup_softirqd, inlined."""


@dataclass(frozen=True)
class Stack:
    """The names of the functions on a stack, innermost first; empty in user mode."""

    names: tuple[str, ...]
    pointers: tuple[int, ...] = ()  # the stack pointer of each frame
    in_section: bool = False  # the CPU is in one of SECTIONS

    @property
    def in_transition(self) -> bool:
        """Whether the CPU is in entry or exit code."""
        if self.in_section or (self.names and TRANSITIONS.match(self.names[0])):
            return True
        return self._called_by is not None

    @property
    def place(self) -> str:
        """The function that the CPU is in, and the entry or exit code that called it."""
        if not self.names:
            return "user mode"
        outer = self._called_by
        return self.names[0] + (f" < {outer}" if outer not in (None, self.names[0]) else "")

    @property
    def _called_by(self) -> str | None:
        """The function of entry or exit code that the CPU is in, or was called from."""
        for called, name in itertools.pairwise(("", *self.names)):
            if INTERRUPT.match(name) or SOFTIRQ.match(name):
                return name if SOFTIRQ.match(name) and called == WAKES else None
            if TRANSITION_CALLERS.match(name):
                return name
        return None

    @property
    def part(self) -> Part:
        """Where a CPU with that stack is, if it is in the kernel."""
        over = False  # the interrupt whose frames come next is over
        for name in self.names:
            if SOFTIRQ.match(name):
                return Part.BOTTOM_HALF
            if INTERRUPT_ENDS.match(name):
                over = True
            elif INTERRUPT.match(name):
                if not over:
                    return Part.TOP_HALF
                over = not name.startswith("asm_")
            elif IDLE.match(name):
                return Part.IDLE
        return Part.KERNEL

    def __str__(self) -> str:
        return " < ".join(self.names[:8]) or "user mode"


class Unwinder:
    """Unwinds the stacks of one target. One thread."""

    def __init__(self, target: Target, prog: drgn.Program) -> None:
        self._target, self._prog = target, prog
        self._sections = [
            (target.symbol(start), target.symbol(end))
            for start, end in SECTIONS
            if target.has_symbol(start) and target.has_symbol(end)
        ]
        self._stack_bytes = stack_bytes(target)

    def stack(self, registers: Registers) -> Stack:
        """The stack of a CPU; without frames in user mode."""
        if registers.user:
            return Stack(())
        frames = list(self._frames(registers))
        # A probe's code belongs to where it was called from.
        inner = next((rip for rip, _ in frames if self._target.in_image(rip)), registers.rip)
        return Stack(
            tuple(map(self._function, (rip for rip, _ in frames))),
            tuple(pointer for _, pointer in frames),
            any(start <= inner < end for start, end in self._sections),
        )

    def _function(self, address: int) -> str:
        return str(self._target.name_of(address)).split("+")[0]

    def _frames(self, registers: Registers) -> Iterator[tuple[int, int]]:
        """(instruction, stack pointer) of each frame in the kernel."""
        rip, pointer = registers.rip, registers.general["RSP"]
        if not self._target.in_image(rip) or NOT_UNWOUND.match(self._function(rip)):
            yield rip, pointer
            caller = self._caller(pointer)
            if caller is None:
                return
            rip, pointer = caller
        trace = self._prog.stack_trace(self._pt_regs(registers, rip, pointer))
        for number in range(min(len(trace), FRAMES_MAX)):
            frame = trace[number]
            if frame.pc >> 63:
                # A return address may be the next function's: the call is before it.
                yield frame.pc - (0 if frame.interrupted else 1), frame.sp

    def _caller(self, pointer: int) -> tuple[int, int] | None:
        """(return address, stack pointer) of the nearest call on the stack, for code without
        tables.
        """
        for place in range(pointer, pointer + 8 * WORDS_MAX, 8):
            try:
                value = self._target.read_u64(place)
                if (
                    self._target.in_image(value)
                    and self._target.read(value - CALL_BYTES, 1)[0] == CALL
                    and not NOT_UNWOUND.match(self._function(value))
                ):
                    return value, place + 8
            except PeekError:
                return None
        return None

    def _pt_regs(self, registers: Registers, rip: int, pointer: int) -> Any:
        target = self._target
        data = bytearray(target.sizeof("pt_regs"))

        def put(name: str, value: int) -> None:
            where = target.offset("pt_regs", name)
            data[where : where + 8] = value.to_bytes(8, "little")

        for name, value in registers.general.items():
            put(REGISTER_NAMES[name], value)
        put("ip", rip)
        put("sp", pointer)
        put("flags", registers.rflags)
        put("cs", USER_CS if registers.user else KERNEL_CS)
        return drgn.Object.from_bytes_(self._prog, "struct pt_regs", bytes(data))

    def runs(self, registers: Registers, stack: Stack, task: int) -> bool:
        """Whether the CPU uses the stack, or in user mode the memory, of the task at an address."""
        target = self._target
        if registers.user:
            mm = target.read_u64(task + target.offset("task_struct", "mm"))
            table = target.read_u64(mm + target.offset("mm_struct", "pgd")) if mm else 0
            page = registers.cr3 & 0x000F_FFFF_FFFF_F000
            # With page-table isolation the user's table is the second of a pair.
            return bool(table) and page & ~0x1000 == target.physical(table) & ~0x1000
        base = target.read_u64(task + target.offset("task_struct", "stack"))
        return any(base <= one <= base + self._stack_bytes for one in stack.pointers[-2:])
