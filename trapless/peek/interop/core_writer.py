# SPDX-License-Identifier: GPL-2.0-only
"""Writes a machine's memory as an ELF core in the layout of /proc/vmcore.

Owns the notes and the segments that other tools need and QEMU's dumps lack: the VMCOREINFO, and the
virtual addresses of the kernel's image and of its map of all memory. The core is as sparse as the
memory.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trapless.base.os_errors import REMEDIES
from trapless.base.tools import interrupts_deferred
from trapless.peek.errors import PeekError
from trapless.peek.kernel import vmcoreinfo
from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.memories.elf_core import (
    CORE,
    MACHINES,
    MAGIC,
    NOTE,
    NT_PRSTATUS,
    PT_LOAD,
    PT_NOTE,
    REGISTERS,
    REGISTERS_AT,
    SEGMENT,
)
from trapless.peek.kernel.memory import PAGE_BYTES
from trapless.peek.kernel.target import Target

HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
PRSTATUS_BYTES = 336
SEGMENTS_MAX = 0xFFFE
CHUNK_BYTES = 1 << 20


def write(target: Target, path: Path) -> int:
    """Write the memory of the target into a file, which must not be there; the bytes of memory.
    A file that does not become whole is removed."""
    end = target.memory_end()
    ranges = [(one.start, min(one.end, end)) for one in target.memory.regions() if one.start < end]
    if len(ranges) + 2 > SEGMENTS_MAX:
        raise PeekError(f"its memory is in {len(ranges)} ranges, more than a core can have")
    notes = _notes(target)
    notes_at = _up(HEAD.size + SEGMENT.size * (len(ranges) + 2))
    places, place = list[int](), notes_at + _up(len(notes))
    for begin, stop in ranges:
        places.append(place)
        place += _up(stop - begin)
    segments = [(PT_NOTE, 0, notes_at, 0, 0, len(notes), len(notes), 0)]
    text, text_end = target.symbol("_text"), target.symbol("_end")
    physical, length = text + target.image_shift & MASK, _up(text_end - text)
    for (begin, stop), at in zip(ranges, places, strict=True):
        if text < text_end and begin <= physical and physical + length <= stop:
            segments.append((PT_LOAD, 7, at + physical - begin, text, physical, length, length, 0))
        size = stop - begin
        virtual = target.direct_map + begin & MASK
        segments.append((PT_LOAD, 7, at, virtual, begin, size, size, 0))
    with created(path) as file:
        _head(file, MACHINES[target.processor.name], segments)
        file.seek(notes_at)
        file.write(notes)
        _copy(target, file, ranges, places)
        file.truncate(place)
        target.check_same()
    return sum(stop - begin for begin, stop in ranges)


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """A new file for its owner alone: it may get all that the machine knows, as passwords and keys.
    It is removed where the block fails or is interrupted."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    remedy = "name a file that is not there, in a folder that you may write to"
    created = False
    try:
        try:
            with interrupts_deferred():
                descriptor = os.open(path, flags, 0o600)
                created = True
            with os.fdopen(descriptor, "wb") as file:
                yield file
        except BaseException:
            if created:
                path.unlink(missing_ok=True)
            raise
    except OSError as error:
        if created:
            room = REMEDIES.get(error.errno or 0, "name a file on a disk with more room")
            remedy = f"what was written of it is removed; {room}"
        raise PeekError(f"cannot write {path}: {error.strerror}; {remedy}") from error


def _up(length: int) -> int:
    return length + PAGE_BYTES - 1 & -PAGE_BYTES


def _head(file: BinaryIO, machine: int, segments: Sequence[tuple[int, ...]]) -> None:
    identity = (MAGIC + b"\2\1\1").ljust(16, b"\0")
    sizes = (HEAD.size, SEGMENT.size, len(segments), 0, 0, 0)
    file.write(HEAD.pack(identity, CORE, machine, 1, 0, HEAD.size, 0, 0, *sizes))
    for one in segments:
        file.write(SEGMENT.pack(*one))


def _note(name: bytes, kind: int, data: bytes) -> bytes:
    padded = name.ljust(len(name) + 3 & ~3, b"\0") + data.ljust(len(data) + 3 & ~3, b"\0")
    return NOTE.pack(len(name), len(data), kind) + padded


def _notes(target: Target) -> bytes:
    """The registers of the CPUs, where they are known, and the kernel's own note as it has it."""
    notes = b""
    for one in target.saved_registers():
        values = [one.values.get(name, 0) for name in REGISTERS]
        data = bytes(REGISTERS_AT) + struct.pack(f"<{len(values)}Q", *values)
        notes += _note(b"CORE\0", NT_PRSTATUS, data.ljust(PRSTATUS_BYTES, b"\0"))
    text = vmcoreinfo.text_at(target.memory, target.info.address)
    if text is None:
        raise PeekError(f"{target.memory.name}: its VMCOREINFO is gone: the target was restarted")
    return notes + _note(b"VMCOREINFO\0", 0, text)


def _copy(
    target: Target, file: BinaryIO, ranges: Sequence[tuple[int, int]], places: Sequence[int]
) -> None:
    """Copy what memory has of the ranges; zeros stay holes."""
    starts = [begin for begin, _ in ranges]
    for start, length in target.memory.populated():
        first = max(bisect.bisect_right(starts, start) - 1, 0)
        for number in range(first, bisect.bisect_left(starts, start + length)):
            begin, stop = ranges[number]
            place, end = max(start, begin), min(start + length, stop)
            while place < end:
                data = target.memory.read(place, min(CHUNK_BYTES, end - place))
                if data.count(0) != len(data):
                    file.seek(places[number] + place - begin)
                    file.write(data)
                place += len(data)
