# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""The interface of libtrapless-ffi as ctypes sees it: numbers, structures and functions.

It owns no behaviour. tests/abi/test_bindings.py compares all of it with include/trapless.h.
"""

from __future__ import annotations

import ctypes
import enum
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_uint, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Final

LIBRARY: Final = "libtrapless-ffi.so.0"

PLAIN: Final = 1 << 0
MODULE: Final = 1 << 1
UNORDERED: Final = 1 << 2
STEPS_DEFAULT: Final = 1048576

NR_MASK: Final = 0xFFF
NR_STORE: Final = 0xFFF
NR_INCREASE: Final = 0xFFE


class Backend(enum.IntEnum):
    """enum tl_backend: who makes the calls."""

    PLAIN = 0
    """The library, by plain system calls."""

    MODULE = 1
    """The kernel module, by one crossing."""


class Condition(enum.IntEnum):
    """enum tl_condition: of which results a jump is made."""

    ALWAYS = 0
    ERROR = 1
    SUCCESS = 2
    ZERO = 3
    POSITIVE = 4
    SHORT = 5
    """Not negative and below the third argument, as of a short read or write."""

    FULL = 6
    """Equal to the third argument."""


class Source(enum.IntEnum):
    """TL_RESULT, TL_WORD32, TL_WORD64: where an argument is taken from."""

    RESULT = 1
    WORD32 = 2
    WORD64 = 3

    def of(self, argument: int) -> int:
        """The bits in the number of a call that say so of argument 0 to 5."""
        return self.value << (12 + 2 * argument)


class Stats(ctypes.Structure):
    """struct tl_stats: counts of a batch since it was created."""

    size: int
    crossings: int
    executed: int
    refused: int
    interrupted: int
    bypassed: int
    _fields_ = (
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("crossings", c_uint64),
        ("executed", c_uint64),
        ("refused", c_uint64),
        ("interrupted", c_uint64),
        ("bypassed", c_uint64),
        ("sleeps", c_uint64),
        ("wakeups", c_uint64),
        ("dropped", c_uint64),
    )


STATS_BYTES: Final = ctypes.sizeof(Stats)
at = ctypes.byref

FUNCTIONS: Final = {
    "tl_batch_create": (c_int, (POINTER(c_void_p), c_uint, c_uint)),
    "tl_batch_destroy": (None, (c_void_p,)),
    "tl_batch_backend": (c_int, (c_void_p,)),
    "tl_batch_add": (c_int, (c_void_p, c_uint32, *[c_uint64] * 6)),
    "tl_batch_flush": (c_int, (c_void_p,)),
    "tl_batch_flush_steps": (c_int, (c_void_p, c_uint64)),
    "tl_batch_barrier": (c_int, (c_void_p,)),
    "tl_batch_queued": (c_uint32, (c_void_p,)),
    "tl_batch_result": (c_int64, (c_void_p, c_uint)),
    "tl_batch_set_data": (c_int, (c_void_p, c_uint, c_uint64)),
    "tl_batch_data": (c_uint64, (c_void_p, c_uint)),
    "tl_batch_done": (c_bool, (c_void_p, c_uint)),
    "tl_batch_jump": (c_int, (c_void_p, c_uint, c_int, c_uint)),
    "tl_batch_next": (c_uint, (c_void_p,)),
    "tl_batch_at": (c_uint, (c_void_p,)),
    "tl_batch_get_stats": (c_int, (c_void_p, POINTER(Stats))),
    "tl_call_get_class": (c_int, (c_uint32, POINTER(c_char_p), POINTER(c_char_p))),
}
"""What each function returns and takes."""


@cache
def library() -> ctypes.CDLL:
    """libtrapless-ffi, loaded once. A call of it releases the interpreter's lock."""
    try:
        loaded = ctypes.CDLL(LIBRARY)
    except OSError as error:
        remedy = (
            "install libtrapless0; after make install run ldconfig as root, or set "
            "LD_LIBRARY_PATH to the folder that has it"
        )
        raise ImportError(f"{error}; {remedy}") from error
    for name, (returned, taken) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = returned, taken
    return loaded
