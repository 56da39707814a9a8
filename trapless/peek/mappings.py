# SPDX-License-Identifier: GPL-2.0-only
"""Finds the RAM of a virtual machine among the mappings of the process that runs it.

Owns the reading of /proc/PID/maps, and what is known about the layouts of each monitor's machines:
QEMU's from its command line, the others' from their sources. Where mappings could be RAM in more
than one way, each way is offered, and the kernel that is found shows which is right.
"""

from __future__ import annotations

import bisect
import contextlib
import heapq
import itertools
import os
import re
import stat
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass, replace
from pathlib import Path

from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.process_memory import ProcessFile, denial, text_of
from trapless.peek.kernel.memory import (
    FOUR_GIB,
    GIB,
    FileMemory,
    MemoryFile,
    RawFile,
    Region,
    arm64_layout,
    in_pieces,
    place_of,
    raw_layouts,
    split_at,
)
from trapless.peek.qemu_arguments import Backend

ALIGNED = 2 << 20
"""QEMU begins RAM at such an address, so that the host may use large pages."""
RAM_MIN_BYTES, RAM_MAX_BYTES = 32 << 20, 32 << 40
PLACES_MAX = 8
WAYS_MAX = 24
"""The most ways that are tried in which mappings may be RAM."""
MAPPINGS_MAX = 1024
"""The longest mappings of a process, which are looked at: a monitor has some hundred."""
STEPS_MAX = 100_000
"""The most steps of the search for ways: a process that pretends to be a monitor may have none
among billions."""
DESCRIPTORS_MAX = 4096
"""Open files of a process, which are looked at: a monitor opens its RAM first, and may share
thousands of devices later. RAM whose file is not among them is read from the process."""
PARTS_MAX = 4096
"""Mappings that one machine's RAM may be in: a monitor's is in some hundred, where it has NUMA."""
LINE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([-r][-w][-x][ps]) ([0-9a-f]{1,16})"
    r" ([0-9a-f]{2,}:[0-9a-f]{2,}) ([0-9]{1,20})(?: +(.*))?",
    re.DOTALL,
)
"""A line of /proc/PID/maps."""

FileKey = tuple[str, int]
"""The device and the inode of a file, as the kernel writes them in /proc/PID/maps."""


@dataclass(frozen=True)
class Mapping:
    """Addresses of a process that lead to one file, or to memory without a file."""

    start: int
    end: int
    permissions: str
    offset: int
    device: str
    inode: int
    path: str

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def file(self) -> FileKey:
        return self.device, self.inode

    @property
    def is_shared_file(self) -> bool:
        return self.inode != 0 and self.permissions[3] == "s"

    @property
    def is_data(self) -> bool:
        return self.permissions.startswith("rw-")

    def is_continued_by(self, following: Mapping) -> bool:
        """Whether `following` continues this mapping: the kernel splits mappings as it needs."""
        return (
            following.start == self.end
            and following.permissions == self.permissions
            and following.file == self.file
            and (self.inode == 0 or following.offset == self.offset + self.length)
        )


@dataclass(frozen=True)
class Layout:
    """A monitor's machines, as its sources describe them: where RAM below 4 GiB may end."""

    holes: tuple[int, ...]
    name: str = ""  # in the names of the mappings that are RAM


LAYOUTS = {
    "firecracker": Layout((3 * GIB, 0xD0000000)),  # from 1.13 on, and before that
    "cloud-hypervisor": Layout((3 * GIB,)),
    "crosvm": Layout((0xD0000000, 2 * GIB), "crosvm_guest"),
}
"""Monitors by the names of their programs.

Firecracker: src/vmm/src/arch/x86_64/layout.rs; cloud-hypervisor: arch/src/x86_64/layout.rs; crosvm:
x86_64/src/lib.rs. All three go on at 4 GiB.
"""


def all_of(process: Path) -> Iterator[Mapping]:
    """The mappings of a process, in ascending order; OSError where they may not be looked at.

    A process gives its files any names. The kernel escapes line ends in them, so nothing else may
    end a line here: a form feed in a name would begin a mapping that is not there.
    """
    for line in text_of(process, "maps").split("\n"):
        if match := LINE.fullmatch(line):
            start, end, permissions, offset, device, inode, path = match.groups("")
            yield Mapping(
                int(start, 16), int(end, 16), permissions, int(offset, 16), device, int(inode), path
            )


def read(process: Path, *, joined: bool = True) -> list[Mapping]:
    """The writable data of a process, in ascending order.

    `joined`: neighbours of one kind are one, as QEMU's RAM is where attributes have split it.
    """
    try:
        found = list(all_of(process))
    except PermissionError:
        raise PeekError(denial(process)) from None
    except OSError as error:
        raise PeekError(f"process {process.name}: {error.strerror}") from error
    mappings: list[Mapping] = []
    for one in found:
        if joined and mappings and mappings[-1].is_continued_by(one):
            one = replace(mappings.pop(), end=one.end)
        mappings.append(one)
    return [one for one in mappings if one.is_data]


Ways = Iterator[list[Region]]
"""Ways in which RAM may lie: regions whose offsets are addresses of the process."""


def qemu_ways(
    mappings: Sequence[Mapping],
    backends: Sequence[Backend],
    holes: Sequence[int],
    *,
    is_arm64: bool = False,
) -> Iterator[list[list[Region]]]:
    """Where a QEMU's RAM may be: groups of layouts of the same bytes, likeliest first.

    RAM is the backends' memory, one behind the other. `holes` are as for raw_layouts().
    """
    sizes = [backend.size for backend in backends]
    mappings = sorted(
        heapq.nlargest(MAPPINGS_MAX, mappings, key=lambda one: one.length),
        key=lambda one: one.start,
    )
    choices = [_places(mappings, one, sizes.count(one.size)) for one in backends]
    for backend, places in zip(backends, choices, strict=True):
        if not places:
            raise PeekError(
                f"none of its mappings has the {backend.size >> 20} MiB of {backend.name}"
            )
    groups: dict[frozenset[int], list[list[Region]]] = {}
    total = sum(backend.size for backend in backends)
    layouts = [split_at(total, hole) for hole in holes] + raw_layouts(total)
    if is_arm64:
        layouts = [arm64_layout(total)]
    for way in itertools.islice(_distinct(choices), WAYS_MAX):
        pieces, start = [], 0
        for place, backend in zip(way, backends, strict=True):
            pieces.append(Region(start, backend.size, place))
            start += backend.size
        group = groups.setdefault(frozenset(way), [])
        for layout in layouts:
            regions = in_pieces(layout, pieces)
            if regions not in group:
                group.append(regions)
    if not groups:
        raise PeekError(f"its mappings are not the {len(backends)} parts of its RAM")
    yield from groups.values()


def _distinct(choices: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Each way to take one place of each choice and none twice, in the order of product()."""
    steps = itertools.count()
    chosen: list[int] = []
    left = [iter(choices[0])]
    while left and next(steps) < STEPS_MAX:
        place = next(left[-1], None)
        if place is None:
            left.pop()
            if chosen:
                chosen.pop()
        elif place not in chosen:
            if len(left) == len(choices):
                yield (*chosen, place)
            else:
                chosen.append(place)
                left.append(iter(choices[len(left)]))


def _places(mappings: Sequence[Mapping], backend: Backend, count: int) -> list[int]:
    """Where the memory of a backend may begin, likeliest first; `count` backends are as large."""
    named = [one for one in mappings if backend.path and one.path.startswith(backend.path)]
    fitting = [one for one in named or mappings if one.length == backend.size]
    if len(fitting) < count:  # one may be joined with what the process has beside it
        fitting = [one for one in named or mappings if one.length >= backend.size]
    # QEMU's first memory has the highest address, and nothing else is likely to be as long.
    fitting.sort(key=lambda one: (one.length, -one.start))
    places = []
    for one in fitting:
        if one.length == backend.size or one.inode:
            places.append(one.start)
            continue
        # The process's own allocations in front of it and behind it are in one mapping with it.
        last = one.end - backend.size
        places += [
            place
            for place in (last, -(-one.start // ALIGNED) * ALIGNED)
            if place % ALIGNED == 0 and place <= last
        ]
    return list(dict.fromkeys(places))[: max(PLACES_MAX, count)]


def all_other_ways(process: Path, layout: Layout) -> Iterator[list[list[Region]]]:
    """Where another monitor's RAM may be: in mappings as they are, or where those were split.

    A stack of a thread that was started later is put next to RAM without a file.
    """
    tried = []
    for joined in (False, True):
        for way in other_ways(read(process, joined=joined), layout):
            if way not in tried:
                tried.append(way)
                yield way


def other_ways(mappings: Sequence[Mapping], layout: Layout) -> Iterator[list[list[Region]]]:
    """Where another monitor's RAM may be, as qemu_ways() has it."""
    named = [one for one in mappings if layout.name in one.path and one.length >= RAM_MIN_BYTES]
    longest = sorted(named, key=lambda one: (-one.length, -one.start))[:PLACES_MAX]
    for hole in layout.holes:
        for low in (one for one in longest if one.length == hole):
            for high in (one for one in longest if one is not low):
                yield [[Region(0, hole, low.start), Region(FOUR_GIB, high.length, high.start)]]
    for hole in layout.holes:
        for one in (one for one in longest if one.length > hole):
            rest = one.length - hole
            # The second of two mappings is put below the first one, and both become one.
            yield [
                [Region(0, hole, one.start + rest), Region(FOUR_GIB, rest, one.start)],
                [Region(0, hole, one.start), Region(FOUR_GIB, rest, one.start + hole)],
            ]
    for one in longest:
        if one.length <= max(layout.holes):
            yield [[Region(0, one.length, one.start)]]


def memories(
    process: Path,
    mappings: Sequence[Mapping],
    name: str,
    ways: Sequence[Sequence[Region]],
    held: Table[FileKey, Path],
) -> list[FileMemory]:
    """Memories of the same bytes, one for each of the layouts, whose files are open.

    A mapping that is shared with a file is read from the file, which the sampler can map as well;
    all others are read from the process. `held` is what held_files() gives. PeekError says which
    bound the process exceeds. The caller closes the memories.
    """
    size = sum(region.length for region in ways[0])
    if size > RAM_MAX_BYTES:
        raise PeekError(f"{name} says that it has {size >> 40:,} TiB: no machine has so much")
    with contextlib.ExitStack() as failed:
        with contextlib.closing(_Files(process, held)) as files:
            layouts = [_placed(mappings, regions, files) for regions in ways]
            files.confirm()
            found = []
            try:
                for placed in layouts:
                    copies = []
                    for file in files.opened:
                        copies.append(file.duplicate())
                        failed.callback(copies[-1].close)
                    found.append(FileMemory(name, copies, placed))
            except OSError as error:
                count = len(files.opened) * len(layouts)
                raise PeekError(
                    f"{name}: {error.strerror}: its RAM takes {count} open files (ulimit -n)"
                ) from error
        failed.pop_all()
    return found


def _placed(mappings: Sequence[Mapping], regions: Sequence[Region], files: _Files) -> list[Region]:
    """Regions of addresses as regions of files."""
    placed: list[Region] = []
    for region in regions:
        for mapping, part in _parts(mappings, region):
            if len(placed) == PARTS_MAX:
                raise PeekError(f"its RAM is in more than {PARTS_MAX} mappings: no monitor's is")
            number = files.number(mapping)
            is_process = isinstance(files.opened[number], ProcessFile)
            offset = part.offset if is_process else part.offset - mapping.start + mapping.offset
            placed.append(Region(part.start, part.length, offset, number))
    return placed


def _parts(mappings: Sequence[Mapping], region: Region) -> Iterator[tuple[Mapping, Region]]:
    """The parts of a region that are in one mapping each."""
    begin = bisect.bisect_right(mappings, region.offset, key=lambda one: one.end)
    for at in range(begin, len(mappings)):
        mapping = mappings[at]
        first = max(mapping.start, region.offset)
        last = min(mapping.end, region.offset + region.length)
        if first >= last:
            break
        yield mapping, Region(region.start + first - region.offset, last - first, first)


class _Files:
    """The files that the mappings of one process lead to: each is looked for and opened once."""

    PROCESS: FileKey = ("", 0)

    def __init__(self, process: Path, held: Table[FileKey, Path]) -> None:
        self._process, self._held = process, held
        self.opened: list[MemoryFile] = []
        self._numbers: dict[FileKey, int] = {}  # of each in `opened`

    def close(self) -> None:
        for file in self.opened:
            file.close()

    def number(self, mapping: Mapping) -> int:
        """The place in `opened` of the file that has a mapping's memory."""
        key = mapping.file if mapping.is_shared_file else self.PROCESS
        if key not in self._numbers:
            shared = _shared(self._process, mapping, self._held) if key != self.PROCESS else None
            if shared is not None:
                self._add(key, RawFile(shared))
            else:
                if self.PROCESS not in self._numbers:
                    self._add(self.PROCESS, ProcessFile.open(self._process))
                self._numbers[key] = self._numbers[self.PROCESS]
        return self._numbers[key]

    def _add(self, key: FileKey, file: MemoryFile) -> None:
        self._numbers[key] = len(self.opened)
        self.opened.append(file)

    def confirm(self) -> None:
        """PeekError unless the process maps all files that are open here, and may write to them.

        An inode's number may be another file's later, which this process may read and that one may
        not. Those that are open here keep theirs, so the mappings are looked at once more.
        """
        if all(isinstance(file, ProcessFile) for file in self.opened):
            return
        shared = {one.file for one in read(self._process, joined=False) if one.is_shared_file}
        for key, number in self._numbers.items():
            if isinstance(self.opened[number], RawFile) and key not in shared:
                raise PeekError("its mappings have changed while they were looked at; try again")


def _shared(
    process: Path, mapping: Mapping, held: Table[FileKey, Path] | None = None
) -> int | None:
    """A descriptor of the file that a mapping is shared with; None where it cannot be opened."""
    held = held_files(process) if held is None else held
    names = [held[mapping.file]] if mapping.file in held else []
    if mapping.path.startswith("/") and not re.search(r"\(deleted\)$", mapping.path):
        names.append(Path(f"{process}/root{mapping.path}"))
    for name in names:
        with contextlib.suppress(OSError), place_of(name) as (probe, same):
            status = os.fstat(probe)
            if key_of(status) == mapping.file and stat.S_ISREG(status.st_mode):
                return os.open(same, os.O_RDONLY | os.O_CLOEXEC)
    return None


def held_files(process: Path) -> dict[FileKey, Path]:
    """The paths of the files that a process has open, of the first DESCRIPTORS_MAX."""
    found: dict[FileKey, Path] = {}
    with contextlib.suppress(OSError), os.scandir(process / "fd") as entries:
        for entry in itertools.islice(entries, DESCRIPTORS_MAX):
            with contextlib.suppress(OSError):
                found.setdefault(key_of(entry.stat()), Path(entry.path))
    return found


def key_of(status: os.stat_result) -> FileKey:
    """The numbers by which /proc/PID/maps names a file."""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino
