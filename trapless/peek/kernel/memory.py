# SPDX-License-Identifier: GPL-2.0-only
"""Reads the physical memory of an observed machine: a VM's RAM file, a saved image, an ELF core.

Owns the place of a physical address in the files that have the memory, and the message for an
address that has none. Files are opened read-only and read by pread(): a file that shrinks gives an
error, where a mapping would give a signal. process_memory.py has the memory of a process as a file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trapless.peek import limits
from trapless.peek.errors import PeekError

GIB = 1 << 30
FOUR_GIB = 4 * GIB

# Where QEMU ends the RAM below 4 GiB, and from which size on it does (hw/i386/pc_q35.c, pc_piix.c
# and microvm.c): the rest continues at 4 GiB. For other machines the caller gives the hole.
Q35_SPLIT_BYTES, Q35_HOLE = 0xB0000000, 2 * GIB
PC_SPLIT_BYTES, PC_HOLE = 0xE0000000, 3 * GIB

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Region:
    """`length` bytes of physical memory from `start`.

    They are in one of the memory's files, by its number, from `offset` on.
    """

    start: int
    length: int
    offset: int
    file: int = 0

    @property
    def end(self) -> int:
        return self.start + self.length


class Memory(Protocol):
    """Physical memory of one machine."""

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def size(self) -> int:
        """The size in bytes, without the holes between regions."""

    def regions(self) -> Sequence[Region]:
        """The regions of memory, in ascending order, without overlaps."""

    def populated(self) -> Iterator[tuple[int, int]]:
        """(address, length) of each range that may hold data, from the beginning of a page on."""

    def read(self, address: int, length: int) -> bytes:
        """Exactly `length` bytes from a physical address; PeekError where memory has fewer."""


class MemoryFile(Protocol):
    """An open file that has memory. Whoever has the descriptor may read, whatever it may open."""

    @property
    def descriptor(self) -> int:
        """The descriptor for reading by pread()."""

    def populated(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """(begin, end) of each part of [offset, end) that may hold other data than zeros."""

    def duplicate(self) -> MemoryFile:
        """The same with a descriptor of its own."""

    def close(self) -> None:
        """Close the file; every later read is an error."""


class RawFile:
    """A file on a file system, which may have holes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def duplicate(self) -> RawFile:
        return RawFile(os.dup(self.descriptor))

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def populated(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        while offset < end:
            data = self._seek(offset, os.SEEK_DATA)
            if data is None or data >= end:
                break
            hole = self._seek(data, os.SEEK_HOLE)
            offset = end if hole is None else min(hole, end)
            yield data, offset

    def _seek(self, place: int, whence: int) -> int | None:
        """The offset of the next byte of data or of a hole; None after the last."""
        try:
            return os.lseek(self.descriptor, place, whence)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise


class FileMemory:
    """Memory in files, by a table of regions. Use it as a context manager, or call close().

    Several threads may read at the same time. `is_core`: a machine's dump, which changes no more.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[MemoryFile],
        regions: Sequence[Region],
        *,
        is_core: bool = False,
    ) -> None:
        self.name, self.is_core = name, is_core
        self._files = tuple(files)
        self._regions = tuple(sorted(regions, key=lambda region: region.start))

    def __enter__(self) -> FileMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; every later read is an error."""
        for file in self._files:
            file.close()

    def duplicate(self) -> FileMemory:
        """The same memory with descriptors of its own."""
        files = [file.duplicate() for file in self._files]
        return FileMemory(self.name, files, self._regions, is_core=self.is_core)

    def descriptors(self) -> tuple[int, ...]:
        """The open files that have the memory: whoever has them may read."""
        return tuple(file.descriptor for file in self._files)

    def descriptor(self, region: Region) -> int:
        """The open file that has a region: whoever has it may read."""
        return self._files[region.file].descriptor

    @property
    def files(self) -> Sequence[MemoryFile]:
        """The files that the regions name by their numbers."""
        return self._files

    @property
    def size(self) -> int:
        return sum(region.length for region in self._regions)

    def regions(self) -> Sequence[Region]:
        return self._regions

    def populated(self) -> Iterator[tuple[int, int]]:
        for region in self._regions:
            file, end = self._files[region.file], region.offset + region.length
            try:
                for data, stop in file.populated(region.offset, end):
                    first = region.start + data - region.offset
                    first = max(region.start, first - first % PAGE_BYTES)  # a page is never cut
                    yield first, region.start + stop - region.offset - first
            except OSError as error:
                raise PeekError(f"{self.name}: {error.strerror}") from error

    def read(self, address: int, length: int) -> bytes:
        limits.spend(1, length)
        pieces, place, left = [], address, length
        while left > 0:
            region = self._region(place)
            take = min(left, region.end - place)
            pieces.append(self._pread(take, place, region))
            place += take
            left -= take
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _region(self, address: int) -> Region:
        for region in self._regions:
            if region.start <= address < region.end:
                return region
        raise PeekError(no_address(self, address))

    def _pread(self, length: int, address: int, region: Region) -> bytes:
        offset = address - region.start + region.offset
        try:
            data = os.pread(self._files[region.file].descriptor, length, offset)
        except OSError as error:
            raise PeekError(f"cannot read {self.name}: {error.strerror}") from error
        if len(data) != length:
            raise PeekError(
                f"{self.name} ends before physical address {address + length:#x}: it was "
                "truncated, or the machine that it belonged to is gone"
            )
        return data


def no_address(memory: Memory, address: int) -> str:
    """The message that a memory has no such physical address."""
    places = ", ".join(f"{one.start:#x} to {one.end - 1:#x}" for one in memory.regions())
    return f"{memory.name} has no physical address {address:#x}: its memory is {places or 'empty'}"


def open_memory(path: Path, hole: int | None = None) -> list[FileMemory]:
    """The memory in a file, once for each layout that it may have, likeliest first.

    An ELF core describes its layout. For a raw file, `hole` is the physical address at which RAM
    below 4 GiB ends; without it, the layouts of QEMU's machines are returned, and the kernel that
    is found shows which of them is right. The caller closes all of them.
    """
    descriptor = _open(path)
    try:
        size = _size(path, descriptor)
        head = os.pread(descriptor, 64, 0)
        is_core = head[:4] == b"\x7fELF"
        if is_core:
            if hole is not None:
                raise PeekError(
                    f"{path} is an ELF core, which describes its own layout; leave --hole out",
                    status=2,
                )
            layouts = [_core_regions(path, descriptor, head, size)]
        else:
            layouts = raw_layouts(size, hole)
        return [
            FileMemory(str(path), [RawFile(os.dup(descriptor))], regions, is_core=is_core)
            for regions in layouts
        ]
    finally:
        os.close(descriptor)


@contextmanager
def place_of(path: Path) -> Iterator[tuple[int, Path]]:
    """The file at a path: a descriptor for fstat() alone, and a path that still leads to the file
    if the first path is changed. A device is not opened, because that alone may have any effect, or
    wait for ever."""
    probe = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield probe, Path(f"/proc/self/fd/{probe}")
    finally:
        os.close(probe)


def _open(path: Path) -> int:
    try:
        with place_of(path) as (probe, same):
            mode = os.fstat(probe).st_mode
            if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
                return os.open(same, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise PeekError(f"cannot open {path}: {error.strerror}") from error
    raise PeekError(
        f"{path} is not a file of memory; give the RAM file of a VM "
        "(QEMU: memory-backend-file,share=on,mem-path=FILE), a raw image or an ELF core"
    )


def _size(path: Path, descriptor: int) -> int:
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
    except OSError as error:
        process = re.fullmatch(r"/proc/(\d+)/mem", str(path))
        way = f"--pid {process[1]} reads the machine that a process runs" if process else ""
        raise PeekError(f"{path} has no end: {way or error.strerror}") from error
    if size < PAGE_BYTES:
        raise PeekError(f"{path} has {size} bytes, less than one page of memory")
    return size


def raw_layouts(size: int, hole: int | None = None) -> list[list[Region]]:
    """The layouts that a raw file with `size` bytes of RAM may have."""
    if hole is not None:
        if not PAGE_BYTES <= hole <= FOUR_GIB or hole % PAGE_BYTES:
            raise PeekError(
                f"RAM below 4 GiB cannot end at {hole:#x}: give a multiple of 4096 up to 4 GiB",
                status=2,
            )
        return [split_at(size, hole)]
    holes = [PC_HOLE] if size >= PC_SPLIT_BYTES else []
    holes += [Q35_HOLE] if size >= Q35_SPLIT_BYTES else []
    # A plain image of all physical addresses comes last: nothing that QEMU makes looks like it
    # once there is a hole.
    return [split_at(size, one) for one in holes] + [[Region(0, size, 0)]]


def split_at(size: int, hole: int) -> list[Region]:
    """RAM whose part below 4 GiB ends at `hole`; the rest goes on at 4 GiB."""
    if size <= hole:
        return [Region(0, size, 0)]
    return [Region(0, hole, 0), Region(FOUR_GIB, size - hole, hole)]


def in_pieces(layout: Sequence[Region], pieces: Sequence[Region]) -> list[Region]:
    """A layout of RAM whose bytes lie in pieces; their `start` counts the bytes of RAM, without
    holes.

    >>> in_pieces([Region(0, 3, 0), Region(8, 3, 3)], [Region(0, 2, 70), Region(2, 4, 10, 1)])
    ... # doctest: +NORMALIZE_WHITESPACE
    [Region(start=0, length=2, offset=70, file=0), Region(start=2, length=1, offset=10, file=1),
     Region(start=8, length=3, offset=11, file=1)]
    """
    regions = []
    for region in layout:
        for piece in pieces:
            first = max(region.offset, piece.start)
            last = min(region.offset + region.length, piece.end)
            if first < last:
                start, offset = first - region.offset, first - piece.start
                regions.append(
                    Region(region.start + start, last - first, piece.offset + offset, piece.file)
                )
    return regions


def _core_regions(path: Path, descriptor: int, head: bytes, size: int) -> list[Region]:
    """The PT_LOAD segments of an ELF core, as QEMU's dump-guest-memory writes it."""
    if head[4:6] != b"\x02\x01" or len(head) < 64:
        raise PeekError(f"{path} is an ELF file, but not a 64-bit little-endian one")
    kind, machine = struct.unpack_from("<HH", head, 16)
    if (kind, machine) != (4, 62):
        raise PeekError(f"{path} is an ELF file, but not the memory of an x86-64 machine")
    (table,) = struct.unpack_from("<Q", head, 32)
    entry, count = struct.unpack_from("<HH", head, 54)
    if entry < 56 or not 0 < count <= limits.SEGMENTS_MAX:
        raise PeekError(f"{path} has a damaged table of segments ({count} of {entry} bytes)")
    data = os.pread(descriptor, entry * count, table)
    if len(data) != entry * count:
        raise PeekError(f"{path} ends inside its table of segments: it was truncated")
    regions = []
    for index in range(count):
        segment_kind, _, offset, _, start, length = struct.unpack_from(
            "<IIQQQQ", data, entry * index
        )
        if segment_kind != 1 or length == 0:
            continue
        if offset + length > size:
            raise PeekError(
                f"{path} is truncated: it has {size} bytes, and memory up to {offset + length}"
            )
        regions.append(Region(start, length, offset))
    if not regions:
        raise PeekError(f"{path} is an ELF core without memory")
    return regions
