# SPDX-License-Identifier: GPL-2.0-only
"""Writes the symbols of a kernel as an ELF file, for gdb and tools like it.

Owns the file: the kernel's code, and symbols of the kernel and its modules at the addresses of this
run. Other sections only name the addresses that a symbol may have. The kernel's types are in it as
BTF, as the memory has them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.interop.core_writer import HEAD, created
from trapless.peek.kernel.kallsyms import KERNEL_HALF, MASK
from trapless.peek.kernel.memories.elf_core import MACHINES, MAGIC, PT_LOAD, SEGMENT

if TYPE_CHECKING:
    from trapless.peek.sandbox.client import SandboxedTarget

EXECUTABLE = 2
SECTION, SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
PROGBITS, SYMTAB, STRTAB, NOBITS = 1, 2, 3, 8
ALLOCATED, WRITABLE, CODE = 2, 1, 4
GLOBAL, OBJECT, FUNCTION = 1 << 4, 1, 2
SECTIONS_MAX = 0xFF00
ALIGNED = 16
FIRST_AT = HEAD.size + SEGMENT.size + 8
"""Where the first section begins, at a multiple of ALIGNED."""


@dataclass(frozen=True)
class Section:
    """A section; one without data (NOBITS) only covers addresses."""

    name: str
    kind: int
    flags: int = 0
    address: int = 0
    data: bytes = b""
    size: int = 0
    link: int = 0


def write(target: SandboxedTarget, path: Path) -> int:
    """Write the symbols into a file, which must not be there; their number. A file that does not
    become whole is removed."""
    table = _Table()
    sections = _sections(target, table)
    with created(path) as file:
        _put(file, MACHINES[target.processor.name], sections)
        target.check_same()
    return table.count


def _put(file: BinaryIO, machine: int, sections: Sequence[Section]) -> None:
    names, headers, place = b"\0", [bytes(SECTION.size)], FIRST_AT
    for one in (*sections, Section(".shstrtab", STRTAB)):
        name_at, names = len(names), names + one.name.encode() + b"\0"
        data = one.data if one.kind != STRTAB or one.data else names
        size, is_table = one.size or len(data), one.kind == SYMTAB
        fields = (one.flags, one.address, place, size, one.link, int(is_table), 1)
        headers.append(SECTION.pack(name_at, one.kind, *fields, SYMBOL.size * is_table))
        file.seek(place)
        file.write(data)
        place += len(data) + -len(data) % ALIGNED
    file.seek(place)
    file.write(b"".join(headers))
    identity, text = (MAGIC + b"\2\1\1").ljust(16, b"\0"), sections[0]
    sizes = (HEAD.size, SEGMENT.size, 1, SECTION.size, len(headers), len(headers) - 1)
    file.seek(0)
    start = (text.address, HEAD.size, place, 0)
    file.write(HEAD.pack(identity, EXECUTABLE, machine, 1, *start, *sizes))
    lengths = (len(text.data), len(text.data), ALIGNED)
    file.write(SEGMENT.pack(PT_LOAD, 5, FIRST_AT, text.address, text.address, *lengths))


def _sections(target: SandboxedTarget, table: _Table) -> list[Section]:
    """The sections, the code first; the symbols in them come into the table."""
    start, etext, end = (target.symbol(name) for name in ("_text", "_etext", "_end"))
    if not 0 < etext - start <= limits.IMAGE_BYTES_MAX or end < etext:
        raise PeekError(f"the kernel's code is from {start:#x} to {etext:#x}: it is damaged")
    text = target.read(start, etext - start)
    sections = [Section(".text", PROGBITS, ALLOCATED | CODE, start, text)]
    sections.append(Section(".data", NOBITS, ALLOCATED | WRITABLE, etext, size=end - etext))
    rows = [
        (address + target.symbols.shift & MASK, name)
        for address, name in target.symbols.rows()
        if address >= KERNEL_HALF
    ]
    table.add(rows, 1, start, etext, FUNCTION)
    table.add(rows, 2, etext, end, OBJECT)
    for module, spans, symbols in target.module_symbols():
        for address, size in spans:
            if len(sections) < SECTIONS_MAX:
                flags = ALLOCATED | CODE
                sections.append(Section(f".{module}", NOBITS, flags, address, size=size))
                table.add(symbols, len(sections), address, address + size, FUNCTION)
    begin, stop = target.symbol("__start_BTF"), target.symbol("__stop_BTF")
    if 0 < stop - begin <= limits.TYPES_BYTES_MAX:
        sections.append(Section(".BTF", PROGBITS, data=target.read(begin, stop - begin)))
    sections.append(Section(".symtab", SYMTAB, data=table.symbols(), link=len(sections) + 2))
    sections.append(Section(".strtab", STRTAB, data=bytes(table.names)))
    return sections


class _Table:
    """The table of symbols, and their names."""

    def __init__(self) -> None:
        self.names, self._rows = bytearray(1), [bytes(SYMBOL.size)]

    @property
    def count(self) -> int:
        return len(self._rows) - 1

    def symbols(self) -> bytes:
        return b"".join(self._rows)

    def add(
        self, rows: Sequence[tuple[int, GuestText]], section: int, start: int, end: int, kind: int
    ) -> None:
        """Add the symbols from an address to another one. A symbol ends where the next begins."""
        inside = [row for row in rows if start <= row[0] < end]
        ends = iter(sorted({address for address, _ in inside} | {end}))
        until = next(ends)
        for address, name in sorted(inside, key=itemgetter(0)):
            while until <= address:
                until = next(ends)
            fields = (len(self.names), GLOBAL | kind, 0, section, address, until - address)
            self._rows.append(SYMBOL.pack(*fields))
            self.names += str(name).encode() + b"\0"
