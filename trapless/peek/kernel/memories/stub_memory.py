# SPDX-License-Identifier: GPL-2.0-only
"""Reads physical memory through a debugger's stub, and finds there which memory a machine has.

A stub does not tell how much memory there is, or where. Page tables do: the kernel's map of all
memory is the part of them where most addresses are mapped one after the other. The kernel's note
(VMCOREINFO) is not looked for in all memory, which would take minutes: the kernel has a pointer to
it among its own data.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice

from trapless.base.console import TraplessError
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.guest_processor import (
    ADDRESS_MASK,
    IMAGE_BASE,
    LARGE,
    LARGE_LEVELS,
    PRESENT,
)
from trapless.peek.kernel.memories.remote_memory import Place, RemoteMemory
from trapless.peek.kernel.memory import PAGE_BYTES, FileMemory, Region
from trapless.vm.stub import OPEN_LIMIT_S, STOPPED_LIMIT_S, Stub

WRITABLE = 1 << 1
ENTRIES = 512
FIVE_LEVELS = 1 << 12  # in CR4
PTI = 1 << 12
"""In CR3, where the kernel hides from user mode (PTI): user mode's half of a pair of tables. Where
it does not, newer kernels have no pairs, and a table may be at any page."""
MEMORY_MIN = 4 << 20
"""No machine has less, and the half of user mode maps less of it."""
ALIGNMENT = 1 << 30
"""The kernel's map of all memory begins at a multiple of it."""
HOLE = range(0xA0000, 0x100000)
"""Below 1 MiB, memory of devices, which is mapped as if it were memory."""
NOTE_AT, NOTE_NAME = 12, b"VMCOREINFO\0"
IMAGE_BYTES_MAX = 1 << 30
READ_BYTES = 2 << 20


class StubMemory(RemoteMemory):
    """Memory behind a stub, which this object closes. Each read stops the machine."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        with stub.stopped(OPEN_LIMIT_S):
            mapped, shift, regions = _map_of_all_memory(stub)
            if not regions:
                raise PeekError(
                    f"{stub.address}: the page tables of its first CPU are not those of a Linux "
                    "kernel, or not yet"
                )
            super().__init__(f"the machine at {stub.address}", regions)
            self._notes = tuple(islice(self._candidate_notes(mapped, shift), limits.NOTES_MAX))

    def stopped(self, limit_s: float = STOPPED_LIMIT_S) -> AbstractContextManager[None]:
        """A block during which the machine stands still, for reads of one moment."""
        return self.stub.stopped(limit_s)

    def moment(self, limit_s: float) -> AbstractContextManager[None]:
        return self.stopped(limit_s)

    def close(self) -> None:
        self.stub.close()

    def duplicate(self) -> FileMemory:
        host, _, port = self.stub.address.rpartition(":")
        return StubMemory(Stub(host, int(port)))

    def populated(self) -> Iterator[tuple[int, int]]:
        for page in self._notes:
            yield page, PAGE_BYTES

    def transfer(self, places: Sequence[Place]) -> list[bytes]:
        try:
            return [self.stub.read(*place) for place in places]
        except TraplessError as error:
            raise PeekError(f"cannot read {self.name}: {error}") from error

    def _candidate_notes(self, mapped: list[_Page], shift: int) -> Iterator[int]:
        """Pages that begin with a note, to which the image's data has a pointer."""
        starts = [one.start for one in self._regions]
        seen = set[int]()
        for data in self._image_data(mapped):
            for pointer in set(struct.unpack(f"<{len(data) // 8}Q", data)) - seen:
                page = pointer - shift
                number = bisect_right(starts, page) - 1
                if pointer % PAGE_BYTES or number < 0 or page >= self._regions[number].end:
                    continue
                seen.add(pointer)
                head = self.stub.read(page, NOTE_AT + len(NOTE_NAME))
                if head.endswith(NOTE_NAME):
                    yield page

    def _image_data(self, mapped: list[_Page]) -> Iterator[bytes]:
        """The writable data of the image, in pieces, up to a bound."""
        left = limits.TYPES_BYTES_MAX
        for one in mapped:
            if one.virtual < IMAGE_BASE or one.virtual >= IMAGE_BASE + IMAGE_BYTES_MAX:
                continue
            if one.is_writable:
                end = one.physical + min(one.length, left)
                for at in range(one.physical, end, READ_BYTES):
                    yield self.stub.read(at, min(READ_BYTES, end - at))
                left -= end - one.physical


class _Page:
    """Pages that follow one another, as the tables map them."""

    __slots__ = ("is_writable", "length", "physical", "virtual")

    def __init__(self, virtual: int, physical: int, length: int, is_writable: bool) -> None:
        self.virtual, self.physical, self.length = virtual, physical, length
        self.is_writable = is_writable

    def continues(self, following: _Page) -> bool:
        """Whether `following` continues this run. Pages that may be devices' stay by themselves."""
        return (
            following.virtual == self.virtual + self.length
            and following.physical == self.physical + self.length
            and following.is_writable == self.is_writable
            and self.physical not in HOLE
            and following.physical not in HOLE
        )


class _Tables:
    """The kernel's half of the page tables of a machine that stands still."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._levels = 5 if stub.register("cr4") & FIVE_LEVELS else 4
        self._read = 0

    def mapped(self, root: int) -> list[_Page]:
        """All pages that the tables of a root map, by their addresses."""
        found: list[_Page] = []
        for page in self._walk(root, self._levels, 0, ENTRIES // 2, True):
            if found and found[-1].continues(page):
                found[-1].length += page.length
            elif len(found) < limits.RUNS_MAX:
                found.append(page)
            else:
                raise limits.LimitError(
                    f"{self._stub.address} has more than {limits.RUNS_MAX:,} runs of pages"
                )
        return found

    def _walk(
        self, table: int, level: int, base: int, first: int, writable: bool
    ) -> Iterator[_Page]:
        self._read += 1
        if self._read > limits.TABLES_READ_MAX:
            raise limits.LimitError(
                f"{self._stub.address} has more than {limits.TABLES_READ_MAX:,} page tables"
            )
        size = 1 << 12 + 9 * (level - 1)
        for index, (entry,) in enumerate(
            struct.iter_unpack("<Q", self._stub.read(table, 8 * ENTRIES))
        ):
            if index < first or not entry & PRESENT:
                continue
            virtual = base + index * size
            if level == self._levels:
                virtual |= -(1 << 12 + 9 * level) & (1 << 64) - 1
            can = writable and bool(entry & WRITABLE)
            if level == 1 or (level in LARGE_LEVELS and entry & LARGE):
                yield _Page(virtual, entry & ADDRESS_MASK & -size, size, can)
            else:
                yield from self._walk(entry & ADDRESS_MASK, level - 1, virtual, 0, can)


def _map_of_all_memory(stub: Stub) -> tuple[list[_Page], int, list[Region]]:
    """What the kernel's tables map, where its map of all memory begins, and the memory in it."""
    tables, root = _Tables(stub), stub.register("cr3") & ADDRESS_MASK
    mapped = tables.mapped(root)
    shift, regions = _memory(mapped)
    if root & PTI and sum(one.length for one in regions) < MEMORY_MIN:
        mapped = tables.mapped(root & ~PTI)
        shift, regions = _memory(mapped)
    return mapped, shift, regions


def _memory(mapped: list[_Page]) -> tuple[int, list[Region]]:
    """Where the map of all memory begins, and the memory that it maps."""
    lengths: Counter[int] = Counter()
    for one in mapped:
        shift = one.virtual - one.physical
        if shift % ALIGNMENT == 0 and one.virtual < IMAGE_BASE:
            lengths[shift] += one.length
    if not lengths:
        return 0, []
    ((shift, _),) = lengths.most_common(1)
    regions: list[Region] = []
    for one in sorted(mapped, key=lambda page: page.physical):
        if one.virtual - one.physical != shift or one.physical in HOLE:
            continue
        if regions and regions[-1].end == one.physical:
            start = regions[-1].start
            regions[-1] = Region(start, regions[-1].length + one.length, start)
        else:
            regions.append(Region(one.physical, one.length, one.physical))
        if len(regions) > limits.SEGMENTS_MAX:
            raise limits.LimitError(f"its memory is in more than {limits.SEGMENTS_MAX} parts")
    return shift, regions
