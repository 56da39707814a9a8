# SPDX-License-Identifier: GPL-2.0-only
"""Standard streams that are closed, full or read by nobody.

This file owns how a command ends then: with an error in words, and never with a traceback. Output
of guests is the lab's own business.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from trapless.base.console import TraplessError
from trapless.base.os_errors import explained

NAME_CHARS = 40
"""The part of a text that is quoted before the first character that cannot be written."""


class ReaderLeftError(BrokenPipeError):
    """The error for output that nobody reads any more. It has no errno, because click ends in its
    own way for that errno."""


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Write to a standard stream: its errors name it."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeftError(f"nobody reads standard {name}") from error
    except OSError as error:
        error.filename = f"cannot write to standard {name}"
        raise


class _Output(io.TextIOWrapper):
    @property
    def encoding(self) -> str:  # type: ignore[override]
        """With the name of the escapes: click writes UTF-8 to a stream that is plain ASCII."""
        name = super().encoding
        return name if self.errors == "strict" else f"{name}:{self.errors}"

    def write(self, text: str, /) -> int:
        with _named(self._name()):
            return super().write(text)

    def flush(self) -> None:
        with _named(self._name()):
            super().flush()

    def _name(self) -> str:
        return "output" if self.fileno() == 1 else "error"


def write_bytes(data: bytes) -> None:
    """Write bytes that are not text to standard output, at once."""
    with _named("output"):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextmanager
def standard_streams() -> Iterator[None]:
    """Run a command. What it printed is written when the block ends; an OSError of that, or one
    that nobody in the block has explained, becomes a TraplessError. A reader that has left is a
    ReaderLeftError."""
    _open_closed()
    sys.stdout, sys.stderr = _output(sys.stdout), _output(sys.stderr)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python writes when it ends
        if isinstance(error, ReaderLeftError):
            raise
        raise explained(error) from error
    except UnicodeEncodeError as error:
        part = error.object[max(error.start - NAME_CHARS, 0) : error.end]
        raise TraplessError(
            f"a name cannot be written as {error.encoding}: ...{part!a}; rename that folder or file"
        ) from error


def _output(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, _Output):
        return stream
    kept = stream in (sys.__stdout__, sys.__stderr__)  # another one closes its buffer at its end
    encoding, errors, by_line = stream.encoding, stream.errors, stream.line_buffering
    buffer = stream.buffer if kept else stream.detach()
    if isinstance(buffer, io.RawIOBase):  # PYTHONUNBUFFERED: what is written in part is lost there
        buffer, by_line = io.BufferedWriter(buffer), True
    return _Output(buffer, encoding, errors, line_buffering=by_line)


def _open_closed() -> None:
    """Put /dev/null where the caller closed a stream: else a file would get its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    if _reads_itself():
        os.dup2(fd, 0)
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding != "utf-8":
        # A guest's names differ on every terminal: what its encoding lacks is an escape.
        sys.stdout.reconfigure(errors="backslashreplace")


def _reads_itself() -> bool:
    """Whether the input is the pipe that takes the output, which then never ends. bash starts a
    command in $( ) like this if its own input is closed."""
    pipe = os.fstat(0)
    return stat.S_ISFIFO(pipe.st_mode) and any(
        os.path.samestat(pipe, os.fstat(output)) for output in (1, 2)
    )
