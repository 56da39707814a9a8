# SPDX-License-Identifier: GPL-2.0-only
"""The log of this machine's kernel from a moment on, in the form in which a guest's log comes."""

from __future__ import annotations

import os
from types import TracebackType

from trapless.base.console import TraplessError

DEVICE = "/dev/kmsg"
RECORD_BYTES = 1 << 14
US_PER_S = 1_000_000


class KernelLog:
    """A context manager, which begins behind the last line that the kernel has printed."""

    def __enter__(self) -> KernelLog:
        try:
            self._file = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise TraplessError(
                f"{DEVICE}: {error.strerror}; complaints of the kernel would stay unseen"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def read(self) -> str:
        """All lines since then; records that were overwritten meanwhile are missing."""
        lines = []
        while True:
            try:
                lines.append(line_of(os.read(self._file, RECORD_BYTES)))
            except BlockingIOError:
                return "".join(lines)
            except BrokenPipeError:  # overwritten; the next read continues behind it
                continue


def line_of(record: bytes) -> str:
    """A record as the console prints it.

    >>> line_of(b"6,12,2100000,-;usb: new device\\n SUBSYSTEM=usb\\n")
    '[    2.100000] usb: new device\\n'
    """
    head, _, text = record.decode(errors="replace").partition(";")
    fields = head.split(",")
    us = int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else 0
    return f"[{us // US_PER_S:5d}.{us % US_PER_S:06d}] {text.partition(chr(10))[0]}\n"
