# SPDX-License-Identifier: GPL-2.0-only
"""Reads the functions of a program or library (ELF) from those of its pages that are in memory.

Owns the parts of the format that name functions: the symbol tables that the sections name, and
where their headers are not in memory, the one that the dynamic linker uses, which is mapped. A
missing page is read as zeros, so it costs the names in it and nothing else.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from trapless.peek import limits
from trapless.peek.guest_text import GuestText

MAGIC = b"\x7fELF\x02\x01"
HEADER = struct.Struct("<32xQQ6xHHHH2x")  # e_phoff, e_shoff, then the sizes and counts of both
SEGMENT = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
ENTRY = struct.Struct("<QQ")
HEADER_BYTES = 64
LOADED, DYNAMIC = 1, 2
SYMBOLS, DYNAMIC_SYMBOLS, WITHOUT_DATA = 2, 11, 8
END, STRINGS_AT, SYMBOLS_AT, STRINGS_SIZE = 0, 5, 6, 10
"""The tags of the dynamic section that are needed (DT_STRTAB, DT_SYMTAB, DT_STRSZ)."""
FUNCTIONS = (2, 10)
"""The types of symbols that are functions (STT_FUNC, STT_GNU_IFUNC)."""

Read = Callable[[int, int], bytes]
"""Reads bytes of the file: offset, length. What is not in memory is zeros."""


class Segment(NamedTuple):
    """A part of the file that is loaded, and the address that the file was linked for."""

    offset: int
    address: int
    length: int


class _Table(NamedTuple):
    """Where a symbol table and its strings are in the file."""

    offset: int
    length: int
    strings: int
    strings_length: int


class Functions:
    """The functions of one file. len() says how many: they are kept for all walks."""

    def __init__(self, read: Read) -> None:
        self._segments: list[Segment] = []
        self._starts: list[int] = []
        self._functions: list[tuple[int, int, GuestText]] = []  # address, size, name
        header = read(0, HEADER_BYTES)
        if not header.startswith(MAGIC):
            return
        segments_at, sections_at, *shapes = HEADER.unpack_from(header)
        segment_size, segments, section_size, sections = shapes
        dynamic: Segment | None = None
        if segment_size == SEGMENT.size and segments <= limits.ELF_SEGMENTS_MAX:
            for row in SEGMENT.iter_unpack(read(segments_at, SEGMENT.size * segments)):
                kind, _, offset, address, _, length, _, _ = row
                if kind == LOADED:
                    self._segments.append(Segment(offset, address, length))
                elif kind == DYNAMIC:
                    dynamic = Segment(offset, address, length)
        tables: list[_Table] = []
        if section_size == SECTION.size and sections <= limits.ELF_SECTIONS_MAX:
            tables = list(_of_sections(read(sections_at, SECTION.size * sections)))
        if not tables and dynamic is not None:
            tables = list(self._of_dynamic(read, dynamic))
        names: dict[int, tuple[int, GuestText]] = {}
        for table in tables[: limits.ELF_TABLES_MAX]:
            for address, size, name in _functions(read, table):
                if len(names) >= limits.USER_SYMBOLS_MAX:
                    break
                if address not in names or size > names[address][0]:
                    names[address] = (size, name)
        self._functions = [(address, *names[address]) for address in sorted(names)]
        self._starts = [address for address, _, _ in self._functions]

    def __len__(self) -> int:
        return len(self._functions)

    def at(self, offset: int) -> GuestText | None:
        """The function that has a place in the file; None where no symbol has it."""
        for segment in self._segments:
            if segment.offset <= offset < segment.offset + segment.length:
                break
        else:
            return None
        address = offset - segment.offset + segment.address
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        start, size, name = self._functions[place]
        # Code in assembler may have no size: it goes on to the next function.
        return name if address < start + size or not size else None

    def _of_dynamic(self, read: Read, dynamic: Segment) -> Iterator[_Table]:
        """The table for the dynamic linker, which the strings follow, as all linkers place them."""
        count = min(dynamic.length // ENTRY.size, limits.ELF_SECTIONS_MAX)
        values: dict[int, int] = {}
        for tag, value in ENTRY.iter_unpack(read(dynamic.offset, count * ENTRY.size)):
            if tag == END:
                break
            values.setdefault(tag, value)
        symbols, strings = (self._offset(values.get(tag)) for tag in (SYMBOLS_AT, STRINGS_AT))
        if symbols is not None and strings is not None and symbols < strings:
            yield _Table(symbols, strings - symbols, strings, values.get(STRINGS_SIZE, 0))

    def _offset(self, address: int | None) -> int | None:
        """Where in the file an address is that it was linked for."""
        for segment in self._segments:
            if address is not None and 0 <= address - segment.address < segment.length:
                return address - segment.address + segment.offset
        return None


def _of_sections(headers: bytes) -> Iterator[_Table]:
    sections = list(SECTION.iter_unpack(headers))
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind in (SYMBOLS, DYNAMIC_SYMBOLS) and link < len(sections):
            strings = sections[link]
            if strings[1] != WITHOUT_DATA:
                yield _Table(offset, length, strings[4], strings[5])


def _functions(read: Read, table: _Table) -> Iterator[tuple[int, int, GuestText]]:
    """Address, size and name of each function in a table."""
    length = min(table.length, SYMBOL.size * limits.USER_SYMBOLS_MAX)
    data = read(table.offset, length - length % SYMBOL.size)
    strings = read(table.strings, min(table.strings_length, limits.USER_STRINGS_BYTES_MAX))
    for name, kind, _, section, address, size in SYMBOL.iter_unpack(data):
        if kind & 0xF not in FUNCTIONS or not section or not 0 < name < len(strings):
            continue
        end = strings.find(b"\0", name, name + limits.USER_NAME_BYTES_MAX)
        text = strings[name : end if end >= 0 else name + limits.USER_NAME_BYTES_MAX]
        if text:
            limits.spend()
            yield address, size, GuestText(text)
