# SPDX-License-Identifier: GPL-2.0-only
"""The binary interface as Python sees it.

Owns the numbers that the command and its tests use; structures.py has the structures. Owns no
behaviour: nothing here opens the device. tests/abi/ compares every size, offset and number with
what the C compilers say.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Final, Literal

from trapless.abi.structures import Info as Info
from trapless.abi.structures import Process as Process
from trapless.abi.structures import Processes as Processes
from trapless.abi.structures import Request as Request
from trapless.abi.structures import Supervisor as Supervisor
from trapless.abi.structures import Switch as Switch

DEVICE: Final = "/dev/trapless"
VERSION: Final = 2


class Condition(enum.IntEnum):
    """enum tl_condition: when a step of a program jumps."""

    ALWAYS = 0
    ERROR = 1
    SUCCESS = 2
    ZERO = 3
    POSITIVE = 4
    SHORT = 5
    FULL = 6


NR_MASK: Final = 0xFFF
NR_STORE: Final = 0xFFF
NR_INCREASE: Final = 0xFFE
JUMPS: Final = 1 << 24
PROGRAM_BITS: Final = 0x01FFF000


class Mode(enum.IntEnum):
    """enum tl_mode: where the system calls of a process return to."""

    USER = 0
    SUPERVISOR = 1


SWITCH_CHILDREN: Final = 1 << 0
SWITCH_EXEC: Final = 1 << 1
SWITCH_RESIDENT: Final = 1 << 2
SWITCH_ANY_USER: Final = 1 << 3
SWITCH_ALLOW_HLT: Final = 1 << 4
SWITCH_FLAGS: Final = (
    SWITCH_CHILDREN | SWITCH_EXEC | SWITCH_RESIDENT | SWITCH_ANY_USER | SWITCH_ALLOW_HLT
)

REFUSALS_MACHINE: Final = 16


class Refusal(enum.IntEnum):
    """enum tl_refusal: why a process is not switched."""

    PARAMETER = 0
    CONFIG = 1
    SYMBOL = 2
    PTI = 3
    FRED = 4
    LASS = 5
    IBT = 6
    SHSTK = 7
    IBRS = 8
    CALL_DEPTH = 9
    XEN = 10
    CONFIDENTIAL = 11
    CONTEXT = 12
    IST = 13
    ENTRY = 14
    LOCKDOWN = 15
    NOT_CAPABLE = 32
    OTHER_USER = 33
    PRIVILEGED = 34
    CONFINED = 35
    COMPAT = 36
    KERNEL_THREAD = 37
    VCPU = 38
    NOT_ROOTS = 39
    TRACED = 40
    HLT = 41
    SHADOW_STACK = 42
    NONE = 255


class Demotion(enum.IntEnum):
    """enum tl_demotion: index into Process.demotions."""

    INTERRUPT = 0
    PAGE_FAULT = 1
    EXCEPTION = 2
    DEBUG = 3
    NMI = 4
    MACHINE_CHECK = 5
    COMPAT_CALL = 6
    EXIT = 7


# asm-generic/ioctl.h: direction in bits 30-31, size in 16-29, type in 8-15, number in 0-7.
_IOC_WRITE: Final = 1
_IOC_READ: Final = 2
_MAGIC: Final = 0xE7


def _ioc(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | _MAGIC << 8 | number


IOC_INFO: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x01, ctypes.sizeof(Info))
IOC_SWITCH: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x06, ctypes.sizeof(Switch))
IOC_SUPERVISOR: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x07, ctypes.sizeof(Supervisor))
IOC_PROCESSES: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x08, ctypes.sizeof(Processes))


def result_argument(argument: int) -> int:
    """TL_RESULT: argument number `argument` (0..5) of a step is a slot, whose result is passed."""
    return 1 << (12 + 2 * argument)


def word_argument(argument: int, bits: Literal[32, 64]) -> int:
    """TL_WORD32, TL_WORD64: the argument is the address of a word of memory, which is passed."""
    return (2 if bits == 32 else 3) << (12 + 2 * argument)
