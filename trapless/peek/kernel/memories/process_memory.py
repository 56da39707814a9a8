# SPDX-License-Identifier: GPL-2.0-only
"""Reads the memory of a process of this machine: a file whose offsets are the process's addresses.

Owns the files of /proc that it takes, and who may open them. The right to read is asked for
when they are opened, and never again: whoever has the descriptors may read until the process ends.
The caller knows where in the process a machine has its RAM (mappings.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from trapless.peek import errors
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memory import PAGE_BYTES

TEXT_BYTES_MAX = 16 << 20
"""The most that is read of a file in /proc/PID: a process may give itself a command line of
gigabytes, and map files with long names."""
ENTRY_BYTES = 8
THERE = bytes(1 if top & 0xC0 else 0 for top in range(256))
"""The highest byte of a page's entry in the page map, as whether the page is present or swapped."""
ENTRIES_READ = 1 << 18
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def text_of(process: Path, name: str) -> str:
    """The text of a file of a process, by a folder like /proc/123; OSError where it is too long."""
    with (process / name).open("rb") as file:
        data = file.read(TEXT_BYTES_MAX + 1)
    if len(data) > TEXT_BYTES_MAX:
        raise OSError(errno.EFBIG, f"its {name} is longer than any machine's")
    return data.decode(errors="replace")


class ProcessFile:
    """The memory of a process. Pages that the process never touched are not read."""

    def __init__(self, descriptor: int, page_map: int | None) -> None:
        self.descriptor, self._page_map = descriptor, page_map

    @property
    def page_map(self) -> int | None:
        """The descriptor of the page map, if there is one."""
        return self._page_map

    @classmethod
    def open(cls, process: Path) -> ProcessFile:
        """The memory of a process, by a folder like /proc/123; PeekError names missing rights."""
        try:
            descriptor = os.open(process / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PeekError(denial(process)) from error
        except OSError as error:
            raise PeekError(f"process {process.name}: {error.strerror}") from error
        page_map = None
        with contextlib.suppress(OSError):  # some kernels have none; then all pages are read
            page_map = os.open(process / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
        return cls(descriptor, page_map)

    def duplicate(self) -> ProcessFile:
        page_map = None if self._page_map is None else os.dup(self._page_map)
        return ProcessFile(os.dup(self.descriptor), page_map)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            if self._page_map is not None:
                os.close(self._page_map)

    def populated(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        if self._page_map is None:
            yield offset, end
            return
        first, last = offset // PAGE_BYTES, -(-end // PAGE_BYTES)
        for page in range(first, last, ENTRIES_READ):
            count = min(ENTRIES_READ, last - page)
            entries = os.pread(self._page_map, count * ENTRY_BYTES, page * ENTRY_BYTES)
            there = entries[ENTRY_BYTES - 1 :: ENTRY_BYTES].translate(THERE)
            begin = there.find(b"\1")
            while begin >= 0:
                stop = there.find(b"\0", begin)
                stop = len(there) if stop < 0 else stop
                yield (
                    max((page + begin) * PAGE_BYTES, offset),
                    min((page + stop) * PAGE_BYTES, end),
                )
                begin = there.find(b"\1", stop)


def denial(process: Path, scope: Path = SCOPE) -> str:
    """Why this process may not read another's memory, and what would help."""
    pid = process.name
    try:
        owner = process.stat().st_uid
    except OSError:
        return f"the memory of process {pid} may not be read: it has ended"
    if owner != os.geteuid() and os.geteuid() != 0:
        return errors.OTHER_USER.text(pid=pid, user=_user(owner))
    try:
        restriction = int(scope.read_text())
    except (OSError, ValueError):
        restriction = 0
    if restriction == 3:
        return errors.PTRACE_OF_NOBODY.text(pid=pid)
    if restriction and os.geteuid() != 0:
        return errors.PTRACE_OF_ROOT.text(pid=pid, scope=restriction)
    return errors.PTRACE_IN_CONTAINER.text(pid=pid)


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} (user {number})"
    except KeyError:
        return f"user {number}"
