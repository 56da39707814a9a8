# SPDX-License-Identifier: GPL-2.0-only
"""Declares the error that every part of peek raises, in a file that all of them may import.

Whoever raises it says what is wrong with which image, and what a person can do.
"""

from __future__ import annotations

from trapless.base.console import TraplessError


class PeekError(TraplessError):
    """A fault of the observed machine or of its image that a person can act on."""


class BootingError(PeekError):
    """A memory without a kernel that can be read, as while a machine boots. Only its caller knows
    whether a machine runs in it, so that waiting helps."""


class ImageError(PeekError):
    """A fault of a saved image, which changes no more: waiting does not help."""


WAIT = "--wait 60 waits for a kernel that has booted"
"""The remedy where a machine runs that may be booting: the last line of such an error."""
