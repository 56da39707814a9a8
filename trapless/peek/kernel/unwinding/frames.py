# SPDX-License-Identifier: GPL-2.0-only
"""The parts of a stack in the kernel that are the same on each processor, and what differs.

Owns the form of a stack, the window through which a thread's stack is read, and the questions that
x86_frames.py and arm64_frames.py answer. kernel_stacks.py asks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.name_resolver import Resolver
from trapless.peek.kernel.user.user_stacks import UserRegisters

WORD = 8


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


@dataclass(frozen=True, slots=True)
class CpuRegisters:
    """The registers of a CPU that stands still, as far as unwinding needs them."""

    cpu: int
    user: bool
    values: dict[str, int]  # by the names in x86_frames.SAVED


class Window:
    """A thread's stack, read at once; what lies elsewhere is read word by word.

    It reaches from `start`, the stack pointer, to `end`.
    """

    def __init__(self, target: Resolver, start: int, data: bytes) -> None:
        self._target, self.start, self._data = target, start, data

    @property
    def end(self) -> int:
        return self.start + len(self._data)

    def word(self, address: int) -> int:
        limits.spend()
        at = address - self.start
        if 0 <= at <= len(self._data) - WORD:
            return int.from_bytes(self._data[at : at + WORD], "little")
        if not address >> 63:
            raise PeekError(f"{address:#x} is no address of the kernel")
        return self._target.read_u64(address)


class Frames(Protocol):
    """The frames of one kernel's stacks. One thread uses it. PeekError where memory cannot be read,
    LimitError where it takes too long."""

    @property
    def pointer(self) -> str:
        """The path in task_struct of the stack pointer of a thread that is switched out."""

    @property
    def least_bytes(self) -> int:
        """The bytes that such a thread has on its stack at least."""

    def begin(self) -> None:
        """Begin to read the stacks of this moment."""

    def inactive(self, window: Window, task: int) -> tuple[Stack, UserRegisters | None]:
        """The stack of a thread that is switched out, and its registers of user mode. `task` is
        the address of its task_struct."""

    def active(self, registers: CpuRegisters) -> tuple[Stack, UserRegisters | None]:
        """The stack of a CPU that stands still, empty in user mode, and registers of user mode."""

    def last_entry(self, end: int) -> tuple[int, int] | None:
        """Where the thread whose stack ends there has saved its registers at its last entry from
        user mode, and the bytes that user_registers() takes; None where that is not known yet."""

    def user_registers(self, data: bytes) -> UserRegisters | None:
        """The registers of user mode that were saved; None where they are the kernel's."""
