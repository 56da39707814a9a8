# SPDX-License-Identifier: GPL-2.0-only
"""The machine's consoles as one: text goes to all of them, a key may come from any.

The kernel's command line says which there are: the screen, and a serial port where there is one.
This file owns their settings, and how a program is run on them. What was shown is kept, because it
can be read again when the screen has moved on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ACTIVE = Path("/sys/class/tty/console/active")
SHOWN_BYTES_MAX = 8 << 20
"""The most bytes of shown text that are kept; the oldest are dropped first."""
STUCK_S = 2.0
"""How long a console may take no byte before it is given up: a serial line that nobody reads."""
PIECE_BYTES = 1 << 12
FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
CTRL_C = b"\x03"
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
"""The escape sequences that move a cursor or colour text."""


class Consoles:
    """All active consoles. close() gives them their former settings."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._open: dict[int, Path] = {}
        self._before: dict[int, list[Any]] = {}
        self._shown = bytearray()
        for path in paths:
            with contextlib.suppress(OSError, termios.error):  # a port without hardware behind it
                self._add(path)

    @classmethod
    def active(cls) -> Consoles:
        """Those that the kernel prints to. Of the screen, the terminal that one sees first."""
        names = ACTIVE.read_text().split()
        return cls([Path("/dev") / ("tty1" if name == "tty0" else name) for name in names])

    def _add(self, path: Path) -> None:
        descriptor = os.open(path, FLAGS)
        try:
            self._before[descriptor] = termios.tcgetattr(descriptor)
            _settle(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._open[descriptor] = path

    def close(self) -> None:
        for descriptor in self._open:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(descriptor, termios.TCSADRAIN, self._before[descriptor])
            os.close(descriptor)
        self._open.clear()

    def __enter__(self) -> Consoles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def say(self, text: str = "") -> None:
        """Print a line on all consoles."""
        self.write(text.encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Print bytes on all consoles, and keep them."""
        self._shown += data
        del self._shown[:-SHOWN_BYTES_MAX]
        for descriptor in list(self._open):
            self._write(descriptor, data)

    def _write(self, descriptor: int, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                if not select.select([], [descriptor], [], STUCK_S)[1]:
                    return
            except OSError:
                return

    def shown(self) -> bytes:
        """The text that was shown so far, without escapes. Of a line that was drawn over, the last
        form stays."""
        lines = ESCAPES.sub(b"", bytes(self._shown)).replace(b"\r\n", b"\n").split(b"\n")
        return b"\n".join(line.rpartition(b"\r")[2] for line in lines)

    def key(self, limit_s: float | None = None) -> tuple[str, Path] | None:
        """The next key, and the console that it came from; None where none comes in time."""
        end = None if limit_s is None else time.monotonic() + limit_s
        while True:
            left = None if end is None else max(end - time.monotonic(), 0)
            ready = select.select(list(self._open), [], [], left)[0]
            if not ready:
                return None
            for descriptor in ready:
                if typed := _typed(descriptor):
                    return typed[:1].decode("ascii", "replace"), self._open[descriptor]

    def on_one(self, path: Path, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Run a program that has the console at `path` for itself, until it ends."""
        descriptor = next(number for number, its in self._open.items() if its == path)
        os.set_blocking(descriptor, True)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, self._before[descriptor])
        try:
            subprocess.run(
                ["setsid", "-c", *argv],
                stdin=descriptor,
                stdout=descriptor,
                stderr=descriptor,
                env={**os.environ, **env},
                check=False,
            )
        except OSError as error:
            self.say(f"{argv[0]}: {error.strerror}")
        finally:
            self._open_again(descriptor)

    def _open_again(self, descriptor: int) -> None:
        """Open a console again: a program that had it for itself hangs it up at its end, with all
        its descriptors. A console that is gone is given up."""
        try:
            again = os.open(self._open[descriptor], FLAGS)
            os.dup2(again, descriptor, inheritable=False)
            os.close(again)
            termios.tcsetattr(descriptor, termios.TCSANOW, self._before[descriptor])
            _settle(descriptor)
        except (OSError, termios.error):
            os.close(descriptor)
            del self._open[descriptor]

    def run(self, argv: Sequence[str], env: Mapping[str, str]) -> int:
        """Run a program whose output goes to all consoles; its status, as a shell says it.
        Ctrl-C on one of them interrupts it."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 25, 80, 0, 0))
        with subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **env},
            start_new_session=True,
        ) as process:
            os.close(theirs)
            try:
                self._follow(process, ours)
            finally:
                os.close(ours)
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    def _follow(self, process: subprocess.Popen[bytes], output: int) -> None:
        while True:
            for descriptor in select.select([output, *self._open], [], [])[0]:
                if descriptor != output:
                    if CTRL_C in _typed(descriptor):
                        process.send_signal(signal.SIGINT)
                elif piece := _piece(output):
                    self.write(piece)
                else:
                    return


def _settle(descriptor: int) -> None:
    """Keys at once and unseen, no signals, no flow control: a line of noise could stop it."""
    settings = termios.tcgetattr(descriptor)
    settings[0] &= ~(termios.IXON | termios.IXOFF)
    settings[2] = (settings[2] | termios.CLOCAL) & ~termios.CRTSCTS
    settings[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)


def _typed(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, PIECE_BYTES)
    except OSError:
        return b""


def _piece(output: int) -> bytes:
    """The next of a program's output; nothing at its end."""
    try:
        return os.read(output, PIECE_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:  # nobody has the other end any more
            return b""
        raise
