# SPDX-License-Identifier: GPL-2.0-only
"""Tells which errors come from foreign or damaged data in code that was written for our own.

This file owns only that distinction: every other error is one of ours, and is not reported as
damage.
"""

from __future__ import annotations

from types import NoneType

VALUES = (NoneType, bool, int, float, str, bytes, list, dict)
"""The types of JSON and tables: data of another shape lack the attributes that ours have."""


def is_of_data(error: Exception) -> bool:
    """Whether the data may have caused the error.

    >>> is_of_data(KeyError("rows")), is_of_data(NameError("rows")), is_of_data(RuntimeError())
    (True, False, False)
    """
    if isinstance(error, AttributeError):
        return isinstance(error.obj, VALUES)
    return isinstance(error, (ArithmeticError, LookupError, TypeError, ValueError))
