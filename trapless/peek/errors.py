# SPDX-License-Identifier: GPL-2.0-only
"""The error of everything that looks at a machine from outside, on its own so that all may use it.

Owns no message: who raises it says what was wrong with which image, and what to do.
"""

from __future__ import annotations

from trapless.base.console import TraplessError


class PeekError(TraplessError):
    """Something about the observed machine or its image that a person can act on."""
