# SPDX-License-Identifier: GPL-2.0-only
"""A process in the toy kernel: its mappings, its stack, and a program in the cache of files.

Its thread (pid 7) has entered the kernel in the innermost of three functions with frame pointers.
Tests change a part of it and see what is said.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.unit.peek.toy_kernel import VMEMMAP, ToyKernel

AT = 0x720000  # physical; its structures have a page each
MM, NODE, LEAF, AREAS, FILE, NAME, XARRAY, LOWER = (AT + 0x1000 * page for page in range(8))
TABLES, STACK, PROGRAM = AT + 0x10000, AT + 0x20000, AT + 0x30000
CODE, STACK_TOP = 0x401000, 0x7FFF_F000
INNER, MIDDLE, OUTER = CODE + 0x10, CODE + 0x40, CODE + 0x80
IP = INNER + 4
FUNCTIONS = {"inner": INNER, "middle": MIDDLE, "outer": OUTER}
EXPORTED = ("middle",)
FRAME_BYTES = 0x40
PAGES = 3  # of the program: headers and dynamic symbols, code, sections and symbols
LEAF_KIND, ARANGE_KIND = 1, 3
EXECUTABLE = 0x4


class ToyProcess:
    """What to change is in `kernel.ram`, at the addresses above."""

    def __init__(self, kernel: ToyKernel, name: bytes = b"program") -> None:
        self.kernel, self._next_table = kernel, TABLES + 0x1000
        self._task("toy_worker")
        self._mappings()
        self._file(name)
        for page in range(PAGES):
            self.map(CODE - 0x1000 + 0x1000 * page, PROGRAM + 0x1000 * page)
        self.map(STACK_TOP - 0x1000, STACK)
        self.chain([(STACK_TOP - 0x800, MIDDLE + 8), (STACK_TOP - 0x700, OUTER + 8)])

    def virtual(self, physical: int) -> int:
        return self.kernel.direct_map + physical

    def words(self, physical: int, *words: int) -> None:
        self.kernel.put(physical, struct.pack(f"<{len(words)}Q", *words))

    def _task(self, task: str) -> None:
        kernel = self.kernel
        self.words(kernel.physical(kernel.symbols[task]) + 168, self.virtual(MM))
        self.registers = kernel.physical(kernel.symbols["stack_7"]) + 0x300 + 80
        self.words(self.registers, IP, 0x33, STACK_TOP - 0x880, STACK_TOP - 0x800)

    def chain(self, frames: Sequence[tuple[int, int]]) -> None:
        """Frames: where each is, and where it returns to; the last one's caller has none."""
        following = [*(place for place, _ in frames[1:]), 0]
        for (place, back), above in zip(frames, following, strict=True):
            self.words(STACK + place - (STACK_TOP - 0x1000), above, back)

    def map(self, virtual: int, physical: int) -> None:
        """Map a page for user mode."""
        table = TABLES
        for level in range(self.kernel.levels, 1, -1):
            at = table + 8 * (virtual >> 12 + 9 * (level - 1) & 511)
            (entry,) = struct.unpack_from("<Q", self.kernel.ram, at)
            if not entry:
                entry = self._next_table | 0x67
                self._next_table += 0x1000
                self.words(at, entry)
            table = entry & ~0xFFF
        self.words(table + 8 * (virtual >> 12 & 511), physical | 0x67)

    def _mappings(self) -> None:
        """A tree of two levels: a node for all addresses, and a leaf with two areas."""
        kernel, leaf = self.kernel, self.virtual(LEAF) | LEAF_KIND << 3 | 4
        root = self.virtual(NODE) | ARANGE_KIND << 3 | 6
        self.words(MM, self.virtual(TABLES), 0, root)
        self.words(NODE + 8, 0xFFFF_FFFF_FFFF)
        self.words(NODE + 80, leaf)
        code, stack = (
            (CODE - 0x1000, CODE - 0x1000 + 0x1000 * PAGES),
            (STACK_TOP - 0x1000, STACK_TOP),
        )
        self.words(LEAF + 8, code[0] - 1, code[1] - 1, stack[0] - 1, stack[1] - 1)
        areas = [self.virtual(AREAS), self.virtual(AREAS) + 0x40]
        self.words(LEAF + 128, 0, areas[0], 0, areas[1], 0)
        mm = self.virtual(MM)
        self.words(AREAS, *code, mm, EXECUTABLE, 0, self.virtual(FILE))
        self.words(AREAS + 0x40, *stack, mm, 0, 0, 0)
        assert kernel.levels in (4, 5)

    def _file(self, name: bytes) -> None:
        mapping, inode, dentry = FILE + 0x100, FILE + 0x200, FILE + 0x300
        self.words(FILE, 0, *map(self.virtual, (dentry, mapping, inode)))
        self.words(mapping + 8, self.virtual(XARRAY) + 2)
        self.words(inode, 4711, 0x1000 * PAGES)
        self.words(dentry + 8, self.virtual(NAME))
        self.kernel.put(NAME, name + b"\0")
        for page in range(PAGES):
            self.words(XARRAY + 8 + 8 * page, page_of(PROGRAM + 0x1000 * page))
        self.kernel.put(PROGRAM, program())

    def cached(self, page: int, entry: int) -> None:
        """Set the entry of a page in the cache."""
        self.words(XARRAY + 8 + 8 * page, entry)


def page_of(physical: int) -> int:
    """The address of the `struct page` of a page."""
    return VMEMMAP + physical // 4096 * 64


def program(names: dict[str, int] | None = None, exported: Sequence[str] = EXPORTED) -> bytes:
    """An ELF file that is mapped from CODE - 0x1000 on."""
    names, base = names or FUNCTIONS, CODE - 0x1000
    dynamic, dynamic_strings = _symbols({name: names[name] for name in exported if name in names})
    symbols, strings = _symbols(names)
    at, full_at, sections_at = 0x200, 0x2200, 0x2000
    strings_at, full_strings_at = at + len(dynamic), full_at + len(symbols)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQI", 3, 62, 1, 0, 64, sections_at, 0)
    header += struct.pack("<6H", 64, 56, 2, 64, 5, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, 0x3000, 0x3000, 4096)
    segments += struct.pack("<IIQQQQQQ", 2, 6, 0x180, base + 0x180, 0, 64, 64, 8)
    tags = ((5, base + strings_at), (6, base + at), (10, len(dynamic_strings)), (0, 0))
    head = (header + segments).ljust(0x180, b"\0") + b"".join(struct.pack("<2Q", *t) for t in tags)
    head = head.ljust(at, b"\0") + dynamic + dynamic_strings
    sections = [(0, 0, 0, 0), (11, at, len(dynamic), 2), (3, strings_at, len(dynamic_strings), 0)]
    sections += [(2, full_at, len(symbols), 4), (3, full_strings_at, len(strings), 0)]
    rows = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, place, size, link, 0, 8, 24)
        for kind, place, size, link in sections
    )
    rest = rows.ljust(0x200, b"\0") + symbols + strings
    return head.ljust(sections_at, b"\0") + rest


def _symbols(names: dict[str, int]) -> tuple[bytes, bytes]:
    table, strings = bytes(24), b"\0"
    for name, address in names.items():
        table += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, address, 0x20)
        strings += name.encode("utf-8", "surrogateescape") + b"\0"
    return table, strings
