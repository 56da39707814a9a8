# SPDX-License-Identifier: GPL-2.0-only
"""Knows how processors differ: their page tables, and where Linux maps its image and all memory.

Owns the formats of page tables of x86-64 (four and five levels) and of arm64 (pages of 4, 16 and
64 KiB, addresses of up to 52 bits), and the choice by a kernel's VMCOREINFO note, which says all
that is needed. The caller gives a function that reads memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from trapless.peek.errors import PeekError
from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.memory import ARM64_START
from trapless.peek.kernel.vmcoreinfo import Vmcoreinfo

ENTRY = struct.Struct("<Q")
PRESENT = 1 << 0

# x86-64
LARGE = 1 << 7
LARGE_LEVELS = (2, 3)  # whose entries may be pages: of 2 MiB and 1 GiB
ADDRESS_MASK = 0x000F_FFFF_FFFF_F000
IMAGE_BASE = 0xFFFF_FFFF_8000_0000
"""Where the kernel's image is mapped; `phys_base` is the physical address behind it."""

# arm64
ARM64_TABLE = 1 << 1
"""The bit of an entry that leads to a table, and in the last table to a page: others are blocks."""
ARM64_ADDRESS_BITS = 48
"""Addresses in entries have as many bits; those of longer ones are elsewhere in the entry."""
PAGE_64K_SHIFT = 16

X86_64, ARM64 = "x86-64", "arm64"

KEYS = (
    *("NUMBER(phys_base)", "NUMBER(pgtable_l5_enabled)", "NUMBER(sme_mask)"),
    *("NUMBER(kimage_voffset)", "NUMBER(PHYS_OFFSET)", "NUMBER(VA_BITS)", "NUMBER(TCR_EL1_T1SZ)"),
    *("NUMBER(KERNELPACMASK)", "PAGESIZE"),
)
"""The lines of a note that processor_of() reads."""

Reader = Callable[[int, int], bytes]


class NotMappedError(PeekError):
    """The page tables map no memory at a virtual address at this moment."""


@dataclass(frozen=True)
class Paging:
    """The form of page tables of x86-64. `encryption` is a bit that some machines set in entries.

    `address_bits` are those of a virtual address that are translated, `index_bits` those that each
    table translates, and `top_bits` those of the first one.
    """

    levels: int = 4
    address_bits: int = 48
    page_shift: int = 12
    index_bits: int = 9
    top_bits: int = 9
    encryption: int = 0

    def decoded(self, entry: int, level: int) -> tuple[int, bool]:
        """The physical address in an entry that is present, and whether it is that of a page."""
        target = entry & ADDRESS_MASK & ~self.encryption
        return target, level == 1 or (level in LARGE_LEVELS and bool(entry & LARGE))

    def canonical(self, virtual: int) -> bool:
        """Whether the bits above the translated ones all repeat the highest translated bit."""
        bits = self.address_bits
        return virtual >> bits - 1 in (0, (1 << 64 - bits + 1) - 1)


@dataclass(frozen=True)
class Arm64Paging(Paging):
    """The form of page tables of arm64, the kernel's (TTBR1) and a process's (TTBR0)."""

    def decoded(self, entry: int, level: int) -> tuple[int, bool]:
        target = entry & (1 << ARM64_ADDRESS_BITS) - (1 << self.page_shift)
        if self.page_shift == PAGE_64K_SHIFT:
            target |= (entry >> 12 & 0xF) << 48
        elif self.address_bits > ARM64_ADDRESS_BITS:  # FEAT_LPA2
            target |= entry & 0x3 << 48 | (entry >> 8 & 0x3) << 50
        is_table = bool(entry & ARM64_TABLE)
        if level == 1 and not is_table:
            raise NotMappedError(f"the entry {entry:#x} of a last page table is no page")
        return target, level == 1 or not is_table

    def canonical(self, virtual: int) -> bool:
        """Whether the bits above the translated ones are all zeros, or all ones."""
        return virtual >> self.address_bits in (0, (1 << 64 - self.address_bits) - 1)


@dataclass(frozen=True)
class PageTables:
    """One address space, by the physical address of its first table."""

    read: Reader  # reads physical memory
    root: int
    form: Paging = Paging()

    def physical(self, virtual: int) -> tuple[int, int]:
        """The physical address, and the number of bytes from there to the end of the page."""
        form = self.form
        if not form.canonical(virtual):
            raise NotMappedError(
                f"{virtual:#x} is not an address of a machine with {form.levels} levels"
            )
        table, bits = self.root, form.top_bits
        for level in range(form.levels, 0, -1):
            shift = form.page_shift + form.index_bits * (level - 1)
            index = virtual >> shift & (1 << bits) - 1
            (entry,) = ENTRY.unpack(self.read(table + ENTRY.size * index, ENTRY.size))
            if not entry & PRESENT:
                raise NotMappedError(f"no memory is mapped at {virtual:#x} (level {level})")
            target, is_page = form.decoded(entry, level)
            if is_page:
                inside = virtual & (1 << shift) - 1
                return (target & -(1 << shift)) | inside, (1 << shift) - inside
            table, bits = target, form.index_bits
        raise AssertionError("a walk ends at level 1")


@dataclass(frozen=True)
class Processor:
    """What a kernel's processor decides. Symbols are those of the kernel's variables."""

    name: str
    paging: Paging
    root: str  # the first page table of the kernel
    image_shift: int  # turns a virtual address inside the image into a physical one
    last_page: str  # the number of the page behind the last one that the kernel uses
    map_base: str  # where all memory is mapped or begins, which differs between two boots
    direct_map: int | None = None  # virtual address of physical address 0; None: `map_base` has it
    signature: int = 0  # bits of a kernel address that may hold its signature
    user_bits: int = MASK  # of a user address: the others may hold its signature

    @property
    def page_bytes(self) -> int:
        return 1 << self.paging.page_shift

    def may_have(self, start: int) -> bool:
        """Whether memory may begin at a physical address: a PC's begins far below 1 GiB."""
        return self.name != X86_64 or start < ARM64_START


def processor_of(info: Vmcoreinfo) -> Processor:
    """The processor of a kernel, by its note; PeekError where it is one that is not known."""
    if info.has_number("phys_base"):
        levels, bits = (5, 57) if info.number("pgtable_l5_enabled", 0) else (4, 48)
        return Processor(
            X86_64,
            Paging(levels, bits, encryption=info.number("sme_mask", 0)),
            root="init_top_pgt",
            image_shift=info.number("phys_base") - IMAGE_BASE,
            last_page="max_pfn_mapped",
            map_base="page_offset_base",
        )
    if not info.has_number("kimage_voffset"):
        raise PeekError(
            f"the VMCOREINFO of {info.release} has neither NUMBER(phys_base), as on x86-64, nor "
            "NUMBER(kimage_voffset), as on arm64: kernels of other processors cannot be read"
        )
    bits = info.number("VA_BITS")
    paging = _arm64_paging(info, bits)
    return Processor(
        ARM64,
        paging,
        root="swapper_pg_dir",
        image_shift=-info.number("kimage_voffset"),
        last_page="max_pfn",
        map_base="memstart_addr",
        direct_map=-(1 << bits) - info.number("PHYS_OFFSET") & MASK,
        signature=info.number("KERNELPACMASK", 0),
        user_bits=(1 << paging.address_bits) - 1,
    )


def _arm64_paging(info: Vmcoreinfo, built_bits: int) -> Paging:
    """The form that a kernel uses: one that was built for 52 bits runs with 48 or 47 where the
    processor has no more."""
    page_shift = info.page_bytes.bit_length() - 1
    bits = 64 - info.number("TCR_EL1_T1SZ", 64 - built_bits)
    if page_shift not in (12, 14, 16) or not 36 <= bits <= built_bits <= 52:
        raise PeekError(
            f"{info.release} says that its pages have {info.page_bytes} bytes and its addresses "
            f"{bits} of {built_bits} bits: no arm64 has such"
        )
    index_bits = page_shift - 3

    def levels(of_bits: int) -> int:
        return -(-(of_bits - page_shift) // index_bits)

    # Where the number of levels is the same, the first table is that of the longer addresses.
    top = built_bits if levels(built_bits) == levels(bits) else bits
    top_bits = top - page_shift - index_bits * (levels(bits) - 1)
    return Arm64Paging(levels(bits), bits, page_shift, index_bits, top_bits)
