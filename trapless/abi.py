# SPDX-License-Identifier: GPL-2.0-only
"""The binary interface as Python sees it.

Owns the ctypes twins of the structures in include/uapi/linux/trapless.h and the numbers that go
with them. Owns no behaviour: nothing here opens the device. tests/abi/ compares every size,
offset and number with what the C compilers say.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Final, Literal

DEVICE: Final = "/dev/trapless"
VERSION: Final = 2

ENTRIES_MAX: Final = 4096
SPIN_US_MAX: Final = 1000

REQUEST_BYTES: Final = 64
SUBMIT_BYTES: Final = 4
PAGE_BYTES: Final = 4096

SETUP_WORKERS: Final = 1 << 0
SETUP_COMPLETIONS: Final = 1 << 1
SETUP_FLAGS: Final = SETUP_WORKERS | SETUP_COMPLETIONS


class State(enum.IntEnum):
    """enum tl_state: who owns a request."""

    FREE = 0
    SUBMITTED = 1
    RUNNING = 2
    DONE = 3
    CANCELED = 4


class Enter(enum.IntEnum):
    """TL_ENTER_*: what an lseek that enters the module asks for."""

    PROGRAM = 0
    NOTIFY = 1
    WAIT = 2
    BATCH = 3


ENTER_OFFSET: Final = (1 << 63) - 1
ENTER_OTHER: Final = 4
ANSWER: Final = 1 << 62


class Condition(enum.IntEnum):
    """enum tl_condition: when a step of a program jumps."""

    ALWAYS = 0
    ERROR = 1
    SUCCESS = 2
    ZERO = 3
    POSITIVE = 4
    SHORT = 5
    FULL = 6


class Stopped(enum.IntEnum):
    """enum tl_stopped: why a program or an unfinished batch returned."""

    NEVER = 0
    END = 1
    SIGNAL = 2
    STEPS = 3
    BUSY = 4
    PAUSE = 5


NR_MASK: Final = 0xFFF
NR_STORE: Final = 0xFFF
NR_INCREASE: Final = 0xFFE
NR_PROGRAM: Final = 0xFFD
PROGRAM_CHAIN: Final = 1
JUMPS: Final = 1 << 24
PROGRAM_BITS: Final = 0x01FFF000

NR_SCANDIR: Final = 0xFFC
SCAN_NO_DOTS: Final = 1 << 0
SCAN_SYNC_TYPE: Final = 0x6000
SCAN_FLAGS: Final = SCAN_NO_DOTS | SCAN_SYNC_TYPE
SCAN_MASK: Final = 0x5FFF
SCAN_ENTRY_MAX: Final = 4256


class Request(ctypes.Structure):
    """struct tl_request: one system call, exactly one cache line."""

    _fields_ = [
        ("nr", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
        ("condition", ctypes.c_uint8),
        ("target", ctypes.c_uint16),
        ("args", ctypes.c_uint64 * 6),
        ("result", ctypes.c_int64),
    ]


class Program(ctypes.Structure):
    """struct tl_program: where a program of calls is, and its budget."""

    _fields_ = [
        ("at", ctypes.c_uint32),
        ("stopped", ctypes.c_uint32),
        ("steps", ctypes.c_uint64),
    ]


class Completions(ctypes.Structure):
    """struct tl_completions: what stands before a queue of completions."""

    _fields_ = [
        ("armed", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 15),
    ]


class ScanEntry(ctypes.Structure):
    """struct tl_scan_entry: an entry of a directory with its attributes; its name follows."""

    _fields_ = [
        ("size", ctypes.c_uint16),
        ("name_at", ctypes.c_uint16),
        ("name_bytes", ctypes.c_uint16),
        ("error", ctypes.c_int16),
        ("d_ino", ctypes.c_uint64),
        ("d_off", ctypes.c_int64),
        ("mask", ctypes.c_uint32),
        ("blksize", ctypes.c_uint32),
        ("attributes", ctypes.c_uint64),
        ("attributes_mask", ctypes.c_uint64),
        ("nlink", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("mode", ctypes.c_uint16),
        ("type", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
        ("ino", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("atime_sec", ctypes.c_int64),
        ("btime_sec", ctypes.c_int64),
        ("ctime_sec", ctypes.c_int64),
        ("mtime_sec", ctypes.c_int64),
        ("atime_nsec", ctypes.c_uint32),
        ("btime_nsec", ctypes.c_uint32),
        ("ctime_nsec", ctypes.c_uint32),
        ("mtime_nsec", ctypes.c_uint32),
        ("rdev_major", ctypes.c_uint32),
        ("rdev_minor", ctypes.c_uint32),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("mnt_id", ctypes.c_uint64),
    ]


class Setup(ctypes.Structure):
    """struct tl_setup: what kind of ring, how many requests."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("entries", ctypes.c_uint32),
        ("spin_us", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 2),
    ]


class Info(ctypes.Structure):
    """struct tl_info: what the loaded module is and allows."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("abi", ctypes.c_uint32),
        ("entries_max", ctypes.c_uint32),
        ("calls_allowed", ctypes.c_uint32),
        ("version", ctypes.c_char * 32),
    ]


class Stats(ctypes.Structure):
    """struct tl_stats: kernel-side counts of one ring since set-up."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("crossings", ctypes.c_uint64),
        ("executed", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("interrupted", ctypes.c_uint64),
        ("bypassed", ctypes.c_uint64),
        ("sleeps", ctypes.c_uint64),
        ("wakeups", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
    ]


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


DEMOTIONS: Final = len(Demotion)


class Switch(ctypes.Structure):
    """struct tl_switch: one request to switch a process."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("pid", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("refusal", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 3),
    ]


class Supervisor(ctypes.Structure):
    """struct tl_supervisor: what the module can do on this machine."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("refusals", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 2),
    ]


class Process(ctypes.Structure):
    """struct tl_process: one switched process and its counts."""

    _fields_ = [
        ("pid", ctypes.c_int32),
        ("mode", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("supervisor", ctypes.c_uint32),
        ("resident", ctypes.c_int32),
        ("comm", ctypes.c_char * 16),
        ("calls_direct", ctypes.c_uint64),
        ("calls_worked", ctypes.c_uint64),
        ("calls_left", ctypes.c_uint64),
        ("calls_kernel", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("demotions", ctypes.c_uint64 * DEMOTIONS),
    ]


class Processes(ctypes.Structure):
    """struct tl_processes: a request for the list of switched processes."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("entry_size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("total", ctypes.c_uint32),
        ("entries", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
    ]


# asm-generic/ioctl.h: direction in bits 30-31, size in 16-29, type in 8-15, number in 0-7.
_IOC_WRITE: Final = 1
_IOC_READ: Final = 2
_MAGIC: Final = 0xE7


def _ioc(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | _MAGIC << 8 | number


IOC_INFO: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x01, ctypes.sizeof(Info))
IOC_SETUP: Final = _ioc(_IOC_WRITE, 0x02, ctypes.sizeof(Setup))
IOC_STATS: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x03, ctypes.sizeof(Stats))
IOC_ENTER: Final = _ioc(0, 0x04, 0)
IOC_EXIT: Final = _ioc(0, 0x05, 0)
IOC_WAKE: Final = _ioc(0, 0x09, 0)
IOC_RING: Final = _ioc(0, 0x0A, 0)
IOC_SWITCH: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x06, ctypes.sizeof(Switch))
IOC_SUPERVISOR: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x07, ctypes.sizeof(Supervisor))
IOC_PROCESSES: Final = _ioc(_IOC_READ | _IOC_WRITE, 0x08, ctypes.sizeof(Processes))


def ring_submit_offset(entries: int) -> int:
    """TL_RING_SUBMIT_OFFSET: where a worker ring's indices begin, in bytes.

    >>> ring_submit_offset(64)
    4096
    """
    return entries * REQUEST_BYTES


def ring_bytes(entries: int) -> int:
    """TL_RING_BYTES: the length to mmap, in bytes.

    >>> ring_bytes(1), ring_bytes(64)
    (4096, 8192)
    """
    unrounded = entries * (REQUEST_BYTES + SUBMIT_BYTES)
    return (unrounded + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)


def ring_completions_bytes(entries: int) -> int:
    """TL_RING_COMPLETIONS_BYTES: how much longer the mapping is with a queue of completions.

    >>> ring_completions_bytes(64)
    4096
    """
    unrounded = ctypes.sizeof(Completions) + entries * SUBMIT_BYTES
    return (unrounded + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)


def result_argument(argument: int) -> int:
    """TL_RESULT: argument number `argument` (0..5) of a step is a slot, whose result is passed."""
    return 1 << (12 + 2 * argument)


def word_argument(argument: int, bits: Literal[32, 64]) -> int:
    """TL_WORD32, TL_WORD64: the argument is the address of a word of memory, which is passed."""
    return (2 if bits == 32 else 3) << (12 + 2 * argument)


def wait_argument(n: int, left: int, limit_us: int = 0) -> int:
    """TL_WAIT, TL_WAIT_US: the argument that makes Enter.WAIT notify n, then wait for `left`.

    It waits until `left` are unfinished, or for `limit_us` microseconds unless that is 0.

    >>> wait_argument(4, 0)
    4
    """
    return n | left << 16 | limit_us << 32
