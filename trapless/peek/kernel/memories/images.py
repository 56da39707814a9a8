# SPDX-License-Identifier: GPL-2.0-only
"""Opens an image of a machine's memory, whatever its format.

Owns the way from a path to memory that can be read: which format it is, what reads or unpacks it,
and what is said of files that are no memory. The layouts of raw images are in memory.py.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from trapless.peek import errors, limits
from trapless.peek.errors import ImageError, PeekError
from trapless.peek.kernel.memories import elf_core, formats, unpacking
from trapless.peek.kernel.memories.formats import Format, Kind
from trapless.peek.kernel.memory import (
    OTHER_HOLES,
    PAGE_BYTES,
    FileMemory,
    RawFile,
    Region,
    arm64_layout,
    place_of,
    raw_layouts,
)

LIME_HEADER = struct.Struct("<IIQQ8x")
LIME_MAGIC, LIME_VERSION = 0x4C694D45, 1
PACKED_DEPTH_MAX = 3
"""Formats inside each other, as a kdump-compressed dump that was packed by gzip."""


def open_memory(path: Path, hole: int | None = None) -> list[FileMemory]:
    """The memory in a file, once for each layout that it may have, likeliest first.

    Most formats describe their layout. For a raw file, `hole` is the physical address at which RAM
    below 4 GiB ends; without it, the layouts of the usual monitors are returned, and the kernel
    that is found shows which of them is right. The caller closes all of them.
    """
    descriptor = _open(path)
    try:
        size = _size(path, descriptor)
        try:
            return _memories(str(path), descriptor, size, hole, 0)
        except PeekError as error:
            if formats.recognise(os.pread(descriptor, formats.HEAD_BYTES, 0)).kind is Kind.RAW:
                raise
            raise ImageError(str(error), status=error.status) from error
    finally:
        os.close(descriptor)


def _memories(
    name: str, descriptor: int, size: int, hole: int | None, depth: int
) -> list[FileMemory]:
    found = formats.recognise(os.pread(descriptor, formats.HEAD_BYTES, 0))
    if found.kind is Kind.OTHER:
        raise PeekError(f"{name} is {found.name}; {found.remedy}")
    if depth > PACKED_DEPTH_MAX:
        raise PeekError(f"{name} is packed more than {PACKED_DEPTH_MAX} times; unpack it")
    if found.kind is Kind.RAW:
        if size < PAGE_BYTES:
            raise PeekError(f"{name} has {size} bytes, less than one page of memory")
        layouts = _raw_layouts(size, hole, OTHER_HOLES)
        return _of(name, descriptor, layouts, is_saved=depth > 0)
    if found.kind is Kind.ELF:
        _refuse_hole(name, found, hole)
        regions, registers = elf_core.read(name, descriptor, size)
        return _of(name, descriptor, [regions], registers)
    if found.kind is Kind.LIME:
        _refuse_hole(name, found, hole)
        return _of(name, descriptor, [_lime(name, descriptor, size)])
    unpacked = unpacking.unpack(name, descriptor, found.kind)
    try:
        if not unpacked.layouts:
            return _memories(name, unpacked.descriptor, unpacked.size, hole, depth + 1)
        if found.kind not in (Kind.MIGRATION, Kind.SAVED):
            _refuse_hole(name, found, hole)
        elif hole is not None:
            unpacked = unpacking.Unpacked(
                unpacked.descriptor, unpacked.size, _raw_layouts(unpacked.size, hole)
            )
        return _of(name, unpacked.descriptor, unpacked.layouts, unpacked.registers)
    finally:
        os.close(unpacked.descriptor)


def open_ram(path: Path, hole: int | None = None) -> list[FileMemory]:
    """The memory in the RAM file of a running machine: whatever its guest writes, it is raw."""
    descriptor = _open(path)
    try:
        layouts = _raw_layouts(_size(path, descriptor), hole)
        return _of(str(path), descriptor, layouts, is_saved=False)
    finally:
        os.close(descriptor)


def _raw_layouts(size: int, hole: int | None, others: Sequence[int] = ()) -> list[list[Region]]:
    """Those of x86-64, and that of arm64 where no hole was given."""
    layouts = raw_layouts(size, hole, others)
    return layouts if hole is not None else [*layouts, arm64_layout(size)]


def _of(
    name: str,
    descriptor: int,
    layouts: Sequence[Sequence[Region]],
    registers: Sequence[elf_core.Registers] = (),
    *,
    is_saved: bool = True,
) -> list[FileMemory]:
    return [
        FileMemory(
            name, [RawFile(os.dup(descriptor))], regions, is_saved=is_saved, registers=registers
        )
        for regions in layouts
    ]


def _refuse_hole(name: str, found: Format, hole: int | None) -> None:
    if hole is not None:
        raise PeekError(
            f"{name} is an image ({found.kind.value}) that describes its own layout; "
            "leave --hole out",
            status=2,
        )


def _lime(name: str, descriptor: int, size: int) -> list[Region]:
    """The ranges of a LiME image."""
    regions, place = list[Region](), 0
    while place < size:
        head = os.pread(descriptor, LIME_HEADER.size, place)
        if len(head) < LIME_HEADER.size:
            raise PeekError(f"{name} ends inside a header of LiME: it was truncated")
        magic, version, first, last = LIME_HEADER.unpack(head)
        length = last + 1 - first
        if (magic, version) != (LIME_MAGIC, LIME_VERSION) or length <= 0:
            raise PeekError(f"{name} has no header of LiME at {place:#x}: it is damaged")
        place += len(head)
        if place + length > size:
            raise PeekError(
                f"{name} is cut off (truncated): it has {size} bytes, and a whole one "
                f"{place + length} or more; copy it again"
            )
        regions.append(Region(first, length, place))
        if len(regions) > limits.REGIONS_MAX or last >= elf_core.PHYSICAL_MAX:
            raise PeekError(f"{name} has memory up to {last:#x}, in more ranges than any machine")
        place += length
    return elf_core.without_overlaps(regions)


def _open(path: Path) -> int:
    try:
        with place_of(path) as (probe, same):
            mode = os.fstat(probe).st_mode
            if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
                return os.open(same, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.EACCES:
            raise PeekError(errors.FILE_OF_OTHERS.text(name=path)) from error
        vm = error.errno == errno.ENOENT and path.name == str(path)
        hint = f"; a VM is named by --vm {path}" if vm else ""
        raise PeekError(f"cannot open {path}: {error.strerror}{hint}") from error
    raise PeekError(
        f"{path} is not a file of memory; give the RAM file of a VM "
        "(QEMU: memory-backend-file,share=on,mem-path=FILE), or an image of any usual format"
    )


def _size(path: Path, descriptor: int) -> int:
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
    except OSError as error:
        process = re.fullmatch(r"/proc/(\d+)/mem", str(path))
        way = f"--pid {process[1]} reads the machine that a process runs" if process else ""
        raise PeekError(f"{path} has no end: {way or error.strerror}") from error
    return size
