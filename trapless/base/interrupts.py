# SPDX-License-Identifier: GPL-2.0-only
"""Ctrl-C and SIGTERM: they end the command once, wherever it is, after all clean-up has run.

This file owns their handler. tools.interrupts_deferred() keeps them from the middle of a step.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

AGAIN_S = 0.001
"""Seconds after which an interrupt is sent again that Python could not raise at its arrival."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as a kind of Ctrl-C: the code that cleans up after one cleans up after both."""


def take() -> None:
    """Let both raise from now on. A signal that our parent ignores stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)
    sys.unraisablehook = _unraisable


def ignore() -> None:
    """Let both do nothing from now on: the command has ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, _frame: FrameType | None) -> None:
    """Raise, unless the code that runs cleans up after an earlier one: its clean-up is finished."""
    handled = sys.exception()
    while handled is not None:
        if isinstance(handled, KeyboardInterrupt):
            return
        handled = handled.__context__
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _unraisable(one: sys.UnraisableHookArgs) -> None:
    """Python prints what destructors and callbacks raise, and continues; so the interrupt is sent
    again."""
    if not isinstance(one.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(one)
        return
    number = signal.SIGTERM if isinstance(one.exc_value, Terminated) else signal.SIGINT
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
