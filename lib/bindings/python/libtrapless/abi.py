# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Numbers of the C interface that have names in Python.

It owns no behaviour: the extension has that. tests/abi/test_bindings.py compares the numbers with
include/trapless.h.
"""

from __future__ import annotations

import enum
from typing import Final

STEPS_DEFAULT: Final = 1048576


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
