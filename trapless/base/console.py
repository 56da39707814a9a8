# SPDX-License-Identifier: GPL-2.0-only
"""What every command tells a person: errors that name a remedy, and progress.

Progress goes to standard error, so that standard output stays the command's own. A step that ends
within a second shows nothing. On a terminal one line is kept up to date, with the time left where
the total is known. In a pipe or a log each slow step is one plain line, and another line every half
minute. The callers decide what is worth reporting.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Literal, Protocol, TextIO

SHOW_AFTER_S = 1.0
REDRAW_S = 0.2
SIGN_OF_LIFE_S = 30.0
COLUMNS_MIN, COLUMNS_DIGITS = 20, 4
"""The least width and the most digits of $COLUMNS: any other value is not taken for a width."""


class TraplessError(Exception):
    """Something a person can act on: what was wrong, with which value, and the remedy.

    `status` is the exit status of the command: 1 for a failure, 2 for wrong usage.
    """

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def printable(text: str) -> str:
    """Text for a terminal: no character in it is a command, even if a stranger wrote it.

    >>> printable("a\\x1b[2Jb\\n\\tc")
    'a?[2Jb\\n\\tc'
    """
    return "".join(one if one.isprintable() or one in "\n\t" else "?" for one in text)


class Progress(Protocol):
    """How long-running code reports what it does. One step at a time; a new one ends the old."""

    def step(self, text: str) -> None:
        """Begin a step; `text` says what is being done, without a full stop."""

    def advance(self, done: float, total: float) -> None:
        """Say how far the step has come, in any unit."""

    def note(self, text: str) -> None:
        """Print one lasting line, at once."""

    def done(self) -> None:
        """End the current step and clear its line: somebody else is about to print."""


class Silent:
    """Progress that shows nothing: for tests and for callers that need none."""

    def step(self, text: str) -> None:
        pass

    def advance(self, done: float, total: float) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def done(self) -> None:
        pass


class ConsoleProgress:
    """Progress on standard error. Use as a context manager; safe to call from any thread."""

    def __init__(self, stream: TextIO | None = None, *, tty: bool | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._tty = (self._stream.isatty() and colours() is not None) if tty is None else tty
        self._lock = threading.Lock()  # guards all fields below and writes to the stream
        self._text = ""
        self._began = 0.0
        self._fraction: float | None = None
        self._shown = False  # the line is on the terminal, or the plain line was printed
        self._said = 0.0  # when the last plain line was printed
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ConsoleProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            with self._lock:
                self._end("stopped after")
        self.close()

    def close(self) -> None:
        """End the step and the drawing thread."""
        self.done()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def step(self, text: str) -> None:
        failed = sys.exc_info()[0] is not None  # the handler of the error tells of the last step
        with self._lock:
            self._end("stopped after" if failed else "done in")
            self._text, self._began, self._fraction = text, time.monotonic(), None
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)
            self._thread.start()

    def advance(self, done: float, total: float) -> None:
        with self._lock:
            self._fraction = min(max(done / total, 0.0), 1.0) if total > 0 else None

    def note(self, text: str) -> None:
        with self._lock:
            self._clear()
            self._write(text + "\n")

    def done(self) -> None:
        with self._lock:
            self._end()

    def _end(self, how: str = "done in") -> None:
        elapsed = time.monotonic() - self._began
        self._clear()
        if self._text and self._shown and not self._tty:
            self._write(f"{self._text}: {how} {duration(elapsed)}\n")
        self._text, self._shown, self._fraction = "", False, None

    def _clear(self) -> None:
        if self._tty and self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the reader has gone: progress is not worth dying for
            self._tty = False

    def _draw(self) -> None:
        while not self._stop.wait(REDRAW_S):
            with self._lock:
                elapsed = time.monotonic() - self._began
                if self._text and elapsed >= SHOW_AFTER_S:
                    self._show(elapsed)

    def _show(self, elapsed: float) -> None:
        if self._tty:
            line = f"{self._text}  {self._state(elapsed)}"
            self._write("\r\x1b[K" + line[: terminal_columns(self._stream) - 1])
        elif not self._shown:
            self._write(f"{self._text} ...\n")
            self._said = time.monotonic()
        elif time.monotonic() - self._said >= SIGN_OF_LIFE_S:
            self._write(f"{self._text}: {self._state(elapsed)}\n")
            self._said = time.monotonic()
        self._shown = True

    def _state(self, elapsed: float) -> str:
        if self._fraction is None:
            return duration(elapsed)
        state = f"{self._fraction:4.0%}, {duration(elapsed)}"
        if self._fraction > 0.02:
            left = elapsed / self._fraction * (1 - self._fraction)
            state += f", about {duration(left)} left"
        return state


def duration(seconds: float) -> str:
    """A length of time as text: 0.4 s, 12 s, 3 min 05 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def colours() -> Literal["auto"] | None:
    """The colour system, as rich calls it: none if NO_COLOR asks for plain text."""
    return None if os.environ.get("NO_COLOR") else "auto"


def output_columns(stream: TextIO, otherwise: int) -> int:
    """How wide lines for `stream` are: $COLUMNS, the terminal's width, or `otherwise` for a file or
    a pipe."""
    if columns := _asked_columns():
        return columns
    return terminal_columns(stream) if stream.isatty() else otherwise


def _asked_columns() -> int:
    text = os.environ.get("COLUMNS", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= COLUMNS_DIGITS else 0
    return number if number >= COLUMNS_MIN else 0


def terminal_columns(stream: TextIO) -> int:
    """$COLUMNS, or the width of the terminal behind `stream`; 80 where that cannot be known."""
    if columns := _asked_columns():
        return columns
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
