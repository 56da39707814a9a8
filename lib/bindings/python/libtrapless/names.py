# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""The names of system calls and their numbers, as the library's own table has them."""

from __future__ import annotations

import ctypes
from functools import cache

from libtrapless import abi


@cache
def _numbers() -> dict[str, int]:
    library, numbers = abi.library(), {}
    name = ctypes.c_char_p()
    for nr in range(abi.NR_MASK):
        if library.tl_call_get_class(nr, ctypes.byref(name), None) >= 0 and name.value:
            numbers[name.value.decode()] = nr
    return numbers


def number(name: str) -> int:
    """The number of a system call on x86-64.

    >>> number("openat")
    257
    """
    try:
        return _numbers()[name]
    except KeyError:
        raise ValueError(f"no system call has the name {name!r}") from None


def name_of(nr: int) -> str:
    """The name of a number, for messages."""
    name = ctypes.c_char_p()
    known = abi.library().tl_call_get_class(nr, ctypes.byref(name), None) >= 0
    return name.value.decode() if known and name.value else f"call {nr}"
