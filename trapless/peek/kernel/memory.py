# SPDX-License-Identifier: GPL-2.0-only
"""Reads the physical memory of an observed machine, which lies in files.

Owns the place of a physical address in the files that have the memory, and the message for an
address that has none. Files are opened read-only and read by pread(): a file that shrinks gives an
error, where a mapping would give a signal. memories/ has where memory comes from:
images of all formats, a process, a debugger's stub.
"""

from __future__ import annotations

import bisect
import errno
import os
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

OTHER_HOLES = (PC_HOLE, 0xD0000000, 0xE0000000)
"""Where others end it: VMware, cloud-hypervisor and Firecracker; Firecracker before 1.13;
VirtualBox."""

ARM64_START = GIB
"""Where RAM begins on QEMU's machine `virt` of arm64 (hw/arm/virt.c)."""

PAGE_BYTES = 4096
PLACES_SHOWN = 8


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

    def read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """The same for each address and length; at the same time where each read takes long."""


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

    Several threads may read at the same time. `is_saved`: an image, which changes no more.
    `registers` are those of the CPUs, in the order of their numbers, where an image has them.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[MemoryFile],
        regions: Sequence[Region],
        *,
        is_saved: bool = False,
        registers: Sequence[dict[str, int]] = (),
    ) -> None:
        self.name, self.is_saved, self.registers = name, is_saved, tuple(registers)
        self._files = tuple(files)
        self._regions = tuple(sorted(regions, key=lambda region: region.start))
        self._starts = [region.start for region in self._regions]

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
        return FileMemory(
            self.name, files, self._regions, is_saved=self.is_saved, registers=self.registers
        )

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

    def read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(*place) for place in places]

    def _region(self, address: int) -> Region:
        place = bisect.bisect_right(self._starts, address) - 1
        if place >= 0 and address < self._regions[place].end:
            return self._regions[place]
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
    regions = memory.regions()
    places = ", ".join(f"{one.start:#x} to {one.end - 1:#x}" for one in regions[:PLACES_SHOWN])
    if len(regions) > PLACES_SHOWN:
        places += f" and {len(regions) - PLACES_SHOWN} other ranges"
    return f"{memory.name} has no physical address {address:#x}: its memory is {places or 'empty'}"


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


def raw_layouts(
    size: int, hole: int | None = None, others: Sequence[int] = ()
) -> list[list[Region]]:
    """The layouts that a raw file with `size` bytes of RAM may have: those of QEMU's machines, and
    those with the holes of others."""
    if hole is not None:
        if not PAGE_BYTES <= hole <= FOUR_GIB or hole % PAGE_BYTES:
            raise PeekError(
                f"RAM below 4 GiB cannot end at {hole:#x}: give a multiple of 4096 up to 4 GiB",
                status=2,
            )
        return [split_at(size, hole)]
    holes = [PC_HOLE] if size >= PC_SPLIT_BYTES else []
    holes += [Q35_HOLE] if size >= Q35_SPLIT_BYTES else []
    holes += [one for one in others if one < size and one not in holes]
    # A plain image of all physical addresses comes last: nothing that monitors make looks like it
    # once there is a hole.
    return [split_at(size, one) for one in holes] + [[Region(0, size, 0)]]


def arm64_layout(size: int) -> list[Region]:
    """RAM of a machine of arm64, which has no hole."""
    return [Region(ARM64_START, size, 0)]


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
