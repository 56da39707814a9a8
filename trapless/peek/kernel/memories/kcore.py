# SPDX-License-Identifier: GPL-2.0-only
"""Reads the memory of a machine by its own kernel: /proc/kcore, which root may read.

Owns the regions of memory in that file, the place of the kernel's note, and the words for a kernel
that does not let itself be read. The file is this machine's, or agent_memory.py reads another's.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.peek import errors, limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.guest_processor import IMAGE_BASE
from trapless.peek.kernel.memory import PAGE_BYTES, FileMemory, MemoryFile, RawFile, Region

KCORE = Path("/proc/kcore")
NOTE = Path("/sys/kernel/vmcoreinfo")
LOCKDOWN = Path("/sys/kernel/security/lockdown")

HERE = "this machine"
HEAD_BYTES = 64
PT_LOAD = 1
NO_ADDRESS = (1 << 64) - 1
"""The physical address of what is mapped page by page, and so has none."""
REGIONS_MAX = 64
"""The sampler has room for no more; real machines have some ten."""


@dataclass(frozen=True)
class Access:
    """What a machine says about the way to its memory. `error`: of opening kcore, or 0."""

    machine: str  # for messages
    error: int
    user: int
    lockdown: str  # like "none [integrity] confidentiality"; empty where it has none
    note: str  # the address and the size of the kernel's note

    @classmethod
    def here(cls, error: int) -> Access:
        """The same of this machine."""
        return cls(HERE, error, os.geteuid(), _line(LOCKDOWN), _line(NOTE))

    def check(self) -> None:
        """PeekError where the kernel does not let itself be read."""
        if self.error == 0:
            return
        level = re.search(r"\[(\w+)\]", self.lockdown)
        if self.error == errno.ENOENT:
            why = errors.KCORE_ABSENT.text(machine=self.machine)
        elif self.error not in (errno.EPERM, errno.EACCES):
            why = f"{KCORE} of {self.machine} cannot be opened: {os.strerror(self.error)}"
        elif self.user != 0:
            is_here = self.machine == HERE
            row = errors.KCORE_OF_ROOT_HERE if is_here else errors.KCORE_OF_ROOT_THERE
            why = row.text(machine=self.machine)
        elif level is not None and level[1] != "none":
            why = errors.KCORE_LOCKED.text(machine=self.machine, level=level[1])
        else:
            why = errors.KCORE_IN_CONTAINER.text(machine=self.machine)
        raise PeekError(why)

    def note_address(self) -> int:
        """The physical address of the kernel's note."""
        match = re.fullmatch(r"(0x[0-9a-f]{1,16}) [0-9a-f]{1,8}", self.note)
        if match is None:
            raise PeekError(
                f"{self.machine} has no {NOTE}: its kernel was built without CONFIG_VMCORE_INFO, "
                "without which it cannot be read"
            )
        return int(match[1], 16)


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def regions(name: str, read: Callable[[int, int], bytes]) -> list[Region]:
    """The memory in a kcore, by its table of segments; `read` takes an offset and a length.

    The kernel's image and what is mapped page by page are in memory that is there already.
    """
    head = read(0, HEAD_BYTES)
    (table,) = struct.unpack_from("<Q", head, 32)
    entry, count = struct.unpack_from("<HH", head, 54)
    is_x86_64 = head[:6] == b"\x7fELF\x02\x01" and struct.unpack_from("<H", head, 18) == (62,)
    if not is_x86_64 or entry != 56 or count > limits.SEGMENTS_MAX:
        raise PeekError(f"{name} is not of an x86-64 kernel")
    found = []
    for kind, _, offset, virtual, start, length, *_ in struct.iter_unpack(
        "<IIQQQQQQ", read(table, entry * count)
    ):
        if kind == PT_LOAD and start != NO_ADDRESS and virtual < IMAGE_BASE and length:
            if max(length, offset) >> 62:
                raise PeekError(f"{name} has a part of memory that cannot be right")
            found.append(Region(start, length, offset))
    found.sort(key=lambda region: region.start)
    if not 0 < len(found) <= REGIONS_MAX or any(
        one.end > following.start or one.start % PAGE_BYTES or one.length % PAGE_BYTES
        for one, following in zip(found, [*found[1:], Region(1 << 64, 0, 0)], strict=True)
    ):
        raise PeekError(f"{name} has a table of {len(found)} parts of memory that cannot be right")
    return found


class OwnMemory(FileMemory):
    """The memory of this machine. Its own processor reads it, by system calls."""

    def __init__(self, file: MemoryFile, regions: Sequence[Region], note: int) -> None:
        super().__init__(str(KCORE), [file], regions)
        self._note = note

    def duplicate(self) -> FileMemory:
        return OwnMemory(self.files[0].duplicate(), self.regions(), self._note)

    def populated(self) -> Iterator[tuple[int, int]]:
        yield self._note, PAGE_BYTES


def own_memory() -> OwnMemory:
    """The memory of this machine; PeekError says why its kernel does not show it."""
    error, file = 0, -1
    try:
        file = os.open(KCORE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        error = problem.errno or errno.EIO
    try:
        access = Access.here(error)
        access.check()
        found = regions(str(KCORE), lambda offset, length: os.pread(file, length, offset))
        return OwnMemory(RawFile(os.dup(file)), found, access.note_address())
    finally:
        if file >= 0:
            os.close(file)
