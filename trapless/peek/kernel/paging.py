# SPDX-License-Identifier: GPL-2.0-only
"""Translates virtual addresses into physical ones by the page tables of an x86-64 machine.

Owns the format of the tables with four and with five levels. The caller gives the address of the
first table and a function that reads memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from trapless.peek.errors import PeekError

ENTRY = struct.Struct("<Q")
PRESENT = 1 << 0
LARGE = 1 << 7
ADDRESS_MASK = 0x000F_FFFF_FFFF_F000
INDEX_BITS = 9
PAGE_SHIFT = 12
LARGE_LEVELS = (2, 3)  # whose entries may be pages: of 2 MiB and 1 GiB
ADDRESS_BITS = {4: 48, 5: 57}

Reader = Callable[[int, int], bytes]


class NotMappedError(PeekError):
    """The page tables map no memory at a virtual address at this moment."""


@dataclass(frozen=True)
class PageTables:
    """One address space. `encryption` is a bit that some machines set in every entry."""

    read: Reader  # reads physical memory
    root: int
    levels: int = 4
    encryption: int = 0

    def physical(self, virtual: int) -> tuple[int, int]:
        """The physical address, and the number of bytes from there to the end of the page."""
        if not canonical(virtual, self.levels):
            raise NotMappedError(
                f"{virtual:#x} is not an address of a machine with {self.levels} levels"
            )
        table = self.root
        for level in range(self.levels, 0, -1):
            shift = PAGE_SHIFT + INDEX_BITS * (level - 1)
            index = virtual >> shift & (1 << INDEX_BITS) - 1
            (entry,) = ENTRY.unpack(self.read(table + ENTRY.size * index, ENTRY.size))
            if not entry & PRESENT:
                raise NotMappedError(f"no memory is mapped at {virtual:#x} (level {level})")
            target = entry & ADDRESS_MASK & ~self.encryption
            if level == 1 or (level in LARGE_LEVELS and entry & LARGE):
                inside = virtual & (1 << shift) - 1
                return (target & -(1 << shift)) | inside, (1 << shift) - inside
            table = target
        raise AssertionError("a walk ends at level 1")


def canonical(virtual: int, levels: int) -> bool:
    """Whether the bits above the translated ones all repeat the highest translated bit."""
    bits = ADDRESS_BITS[levels]
    return virtual >> bits - 1 in (0, (1 << 64 - bits + 1) - 1)
