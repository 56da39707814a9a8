# SPDX-License-Identifier: GPL-2.0-only
"""Reads the description of an ELF core: where it has physical memory, and the CPUs' registers.

Owns the program headers and the notes, as QEMU's dump-guest-memory, a kernel's /proc/vmcore,
makedumpfile and VirtualBox write them. The same memory may be in several segments: a core with
paging has one for each piece of virtual memory, and /proc/vmcore one more for the kernel's image.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence

from trapless.peek import errors, limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.guest_processor import ARM64, X86_64
from trapless.peek.kernel.memory import Region

MAGIC = b"\x7fELF"
HEAD_BYTES = 64
CORE = 4
MACHINES = {X86_64: 62, ARM64: 183}
"""The numbers of processors in ELF files (e_machine)."""
PT_LOAD, PT_NOTE = 1, 4
PN_XNUM = 0xFFFF
"""The number of segments that stands for a larger one, which is in the first section's header."""
SECTION_INFO_AT, SECTION_BYTES = 44, 64
SEGMENT = struct.Struct("<IIQQQQQQ")
PHYSICAL_MAX = 1 << 52
"""No processor has a physical address from here on: a segment beyond is of virtual memory alone."""

NOTE = struct.Struct("<III")
NT_PRSTATUS = 1
REGISTERS_AT = 112
"""In struct elf_prstatus, after the signal, the process and its times."""
ARM64_STATUS_BYTES = 392
"""The size of that structure on arm64, whose registers are not read."""
REGISTERS = (
    *("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx"),
    *("si", "di", "orig_ax", "ip", "cs", "flags", "sp", "ss"),
)
"""The order of struct user_regs_struct."""

Registers = dict[str, int]


def read(name: str, descriptor: int, size: int) -> tuple[list[Region], list[Registers]]:
    """The memory of an ELF core as regions of the file, and its CPUs' registers."""
    head = os.pread(descriptor, HEAD_BYTES, 0)
    if len(head) < HEAD_BYTES or head[4:6] != b"\x02\x01":
        raise PeekError(f"{name} is an ELF file, but not a 64-bit little-endian one")
    kind, machine = struct.unpack_from("<HH", head, 16)
    if kind != CORE or machine not in MACHINES.values():
        raise PeekError(f"{name} is an ELF file, but not the memory of an x86-64 or arm64 machine")
    regions, notes = list[Region](), b""
    wanted = [
        (one[0], one[2], one[4], one[5])
        for one in _segments(name, descriptor, head)
        if one[0] in (PT_LOAD, PT_NOTE) and one[5]
    ]
    whole = max((offset + length for _, offset, _, length in wanted), default=0)
    if whole > size:
        raise PeekError(errors.CORE_TRUNCATED.text(name=name, size=size, whole=whole))
    for segment_kind, offset, start, length in wanted:
        if segment_kind == PT_NOTE:
            notes = notes or os.pread(descriptor, min(length, limits.CORE_NOTES_BYTES_MAX), offset)
        elif start + length <= PHYSICAL_MAX:
            regions.append(Region(start, length, offset))
    if not regions:
        raise PeekError(errors.CORE_OF_XEN.text(name=name))
    merged = without_overlaps(regions)
    if len(merged) > limits.REGIONS_MAX:
        raise PeekError(f"{name} has memory in more than {limits.REGIONS_MAX:,} pieces")
    return merged, list(registers(notes))


def _segments(name: str, descriptor: int, head: bytes) -> Iterator[tuple[int, ...]]:
    table, sections = struct.unpack_from("<QQ", head, 32)
    entry, count = struct.unpack_from("<HH", head, 54)
    if count == PN_XNUM and sections:
        section = os.pread(descriptor, SECTION_BYTES, min(sections, 1 << 62))
        count = int.from_bytes(section[SECTION_INFO_AT : SECTION_INFO_AT + 4], "little")
    if entry != SEGMENT.size or not 0 < count <= limits.CORE_SEGMENTS_MAX:
        raise PeekError(f"{name} has a damaged table of segments ({count} of {entry} bytes)")
    data = os.pread(descriptor, entry * count, min(table, 1 << 62))
    if len(data) != entry * count:
        raise PeekError(f"{name} ends inside its table of segments: it was truncated")
    yield from SEGMENT.iter_unpack(data)


def without_overlaps(regions: Sequence[Region]) -> list[Region]:
    """The same memory, each address once, by the fewest regions.

    >>> without_overlaps([Region(0, 8, 100), Region(4, 8, 300), Region(12, 2, 308)])
    [Region(start=0, length=8, offset=100, file=0), Region(start=8, length=6, offset=304, file=0)]
    """
    merged: list[Region] = []
    for region in sorted(regions, key=lambda one: (one.start, -one.length)):
        start, offset = region.start, region.offset
        if merged and start < merged[-1].end:
            start, offset = merged[-1].end, offset + merged[-1].end - start
        if start >= region.end:
            continue
        last = merged[-1] if merged else None
        if last is not None and last.end == start and last.offset + last.length == offset:
            merged[-1] = Region(last.start, region.end - last.start, last.offset)
        else:
            merged.append(Region(start, region.end - start, offset))
    return merged


def registers(notes: bytes) -> Iterator[Registers]:
    """The registers of each CPU, by the notes of a dump, in their order."""
    place, count = 0, 0
    while place + NOTE.size <= len(notes) and count < limits.CPUS_MAX:
        name_bytes, length, kind = NOTE.unpack_from(notes, place)
        data_at = place + NOTE.size + (name_bytes + 3 & ~3)
        name = notes[place + NOTE.size : place + NOTE.size + min(name_bytes, 8)].rstrip(b"\0")
        end = REGISTERS_AT + 8 * len(REGISTERS)
        is_known = name == b"CORE" and kind == NT_PRSTATUS and length != ARM64_STATUS_BYTES
        if is_known and end <= length <= len(notes) - data_at:
            values = struct.unpack_from(f"<{len(REGISTERS)}Q", notes, data_at + REGISTERS_AT)
            yield dict(zip(REGISTERS, values, strict=True))
            count += 1
        place = data_at + (length + 3 & ~3)
