# SPDX-License-Identifier: GPL-2.0-only
"""Finds the kernel that runs in a memory, and makes sure that it is there.

Owns the way from raw bytes to a kernel whose image, page tables and symbols agree with each other:
which note to believe, how a RAM file is laid out, and what to say of memory that holds no kernel
that we can read. What can only be checked with types is in checks.py.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trapless.peek.errors import PeekError
from trapless.peek.kernel import kallsyms, symbol_cache, vmcoreinfo
from trapless.peek.kernel.kallsyms import Symbols
from trapless.peek.kernel.memory import PAGE_BYTES, Memory
from trapless.peek.kernel.paging import PageTables
from trapless.peek.kernel.vmcoreinfo import Vmcoreinfo

IMAGE_BASE = 0xFFFF_FFFF_8000_0000
"""Where the kernel's image is mapped; `phys_base` is the physical address behind it."""

END_SLACK_BYTES = 64 << 20
"""Firmware keeps so much of the last memory to itself, at most, that the kernel never maps."""

CLOCK_LOOKS = 1200
"""At the clocks of several kernels, 50 ms apart, before none is taken to move: a minute."""

# Addresses in the note that the table of symbols has as well: they tell how it is to be read.
WITNESSES = ("_stext", "init_uts_ns", "init_top_pgt", "kallsyms_offsets", "prb")


@dataclass(frozen=True)
class KernelImage:
    """A kernel that is where its note says."""

    memory: Memory
    info: Vmcoreinfo
    tables: PageTables
    symbols: Symbols

    def read(self, virtual: int, length: int) -> bytes:
        """`length` bytes of the kernel's address space, all of them, or PeekError."""
        if length < 0:
            raise PeekError(f"cannot read {length} bytes")
        pieces = []
        while length > 0:
            physical, left = self.tables.physical(virtual)
            take = min(length, left)
            pieces.append(self.memory.read(physical, take))
            virtual += take
            length -= take
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_u64(self, virtual: int) -> int:
        return int.from_bytes(self.read(virtual, 8), "little")

    def memory_end(self) -> int:
        """The end of the memory that the kernel itself knows of, physical."""
        return self.read_u64(self.symbols.address("max_pfn_mapped")) * PAGE_BYTES


def locate(layouts: Sequence[Memory]) -> KernelImage:
    """The kernel in the memory, in whichever of its layouts makes sense."""
    notes = list(vmcoreinfo.find(layouts[0]))
    if not notes:
        raise PeekError(_nothing_found(layouts[0]))
    failures: list[PeekError] = []
    loose: list[tuple[int, KernelImage]] = []
    for memory in layouts:
        found = []
        for note in notes:
            try:
                found.append(_verified(memory, note))
            except PeekError as error:
                failures.append(error)
        if not found:
            continue
        image = found[0] if len(found) == 1 else _running(found)
        try:
            excess = _excess(image)
        except PeekError as error:
            failures.append(error)
            continue
        if excess < END_SLACK_BYTES:
            return image
        loose.append((excess, image))
    if loose:  # a kernel that was told to use less than there is
        return min(loose, key=lambda pair: pair[0])[1]
    raise PeekError(_none_fits(layouts[0], notes, failures)) from failures[0]


def _verified(memory: Memory, info: Vmcoreinfo) -> KernelImage:
    """The kernel that `info` describes, or PeekError when it is not there (any more)."""
    image_shift = info.number("phys_base") - IMAGE_BASE

    def read_image(virtual: int, length: int) -> bytes:
        return memory.read(virtual + image_shift, length)

    five = info.number("pgtable_l5_enabled", 0)
    tables = PageTables(
        memory.read,
        info.symbol("init_top_pgt") + image_shift,
        levels=5 if five else 4,
        encryption=info.number("sme_mask", 0),
    )
    start = info.symbol("_stext")
    physical, _ = tables.physical(start)
    if physical != start + image_shift:
        raise PeekError(
            f"{info.release} should be at {start + image_shift:#x}, but its own page tables say "
            f"{physical:#x}"
        )
    symbols = _symbols(info, kallsyms.read_tables(read_image, info.symbols()))
    image = KernelImage(memory, info, tables, symbols)
    if symbols.has("vmcoreinfo_note"):
        note = tables.physical(image.read_u64(symbols.address("vmcoreinfo_note")))[0]
        if note != info.address:
            raise PeekError(
                f"{info.release} keeps its note at {note:#x}; the one at "
                f"{info.address:#x} is a copy"
            )
    banner = image.read(symbols.address("linux_banner"), 512).split(b"\0")[0]
    if not banner.startswith(f"Linux version {info.release} ".encode()):
        raise PeekError(f"{info.release} says of itself {banner[:64].decode(errors='replace')!r}")
    build_id = _build_id(image)
    if info.build_id and build_id and info.build_id != build_id:
        raise PeekError(f"{info.release} has build-id {build_id}, its note says {info.build_id}")
    return image


def _symbols(info: Vmcoreinfo, raw: kallsyms.RawTables) -> Symbols:
    witnesses = {name: info.symbol(name) for name in WITNESSES if info.has_symbol(name)}
    found = symbol_cache.load(info.build_id, raw, info.kernel_offset)
    if found is not None and all(
        found.has(name) and found.address(name) == address for name, address in witnesses.items()
    ):
        return found
    decoded = kallsyms.decode(raw, witnesses, info.kernel_offset)
    symbol_cache.save(info.build_id, raw, decoded)
    return decoded


def _build_id(image: KernelImage) -> str:
    """Of the image in memory, from its ELF notes; empty where it has none."""
    symbols = image.symbols
    if not (symbols.has("__start_notes") and symbols.has("__stop_notes")):
        return ""
    start = symbols.address("__start_notes")
    length = symbols.address("__stop_notes") - start
    if not 0 < length <= 16 * PAGE_BYTES:
        raise PeekError(f"the kernel's notes take {length} bytes: its symbols are damaged")
    data, place = image.read(start, length), 0
    while place + 12 <= len(data):
        name_bytes, text_bytes, kind = struct.unpack_from("<III", data, place)
        name_at = place + 12
        text_at = name_at + (name_bytes + 3 & ~3)
        if kind == 3 and data[name_at : name_at + name_bytes] == b"GNU\0":
            return data[text_at : text_at + text_bytes].hex()
        place = text_at + (text_bytes + 3 & ~3)
    return ""


def _excess(image: KernelImage) -> int:
    """By how much the memory is larger than what the kernel in it uses; an error if smaller."""
    end, known_end = image.memory.regions()[-1].end, image.memory_end()
    if end < known_end:
        raise PeekError(
            f"{image.memory.name} ends at physical address {end:#x}, but its kernel "
            f"{image.info.release} has memory up to {known_end:#x}: the file was truncated, or "
            "RAM below 4 GiB ends elsewhere (--hole)"
        )
    return end - known_end


def _running(found: list[KernelImage]) -> KernelImage:
    """Of several kernels that are all there, the one whose clock moves."""
    before = [_clock(one) for one in found]
    for _ in range(CLOCK_LOOKS):
        time.sleep(0.05)
        moving = [one for one, was in zip(found, before, strict=True) if _clock(one) != was]
        if len(moving) == 1:
            return moving[0]
    names = ", ".join(f"{one.info.release} at {one.info.address:#x}" for one in found)
    raise PeekError(
        f"{found[0].memory.name} has {len(found)} kernels, and nothing tells which of them runs: "
        f"{names}; one is left from before a reboot"
    )


def _clock(image: KernelImage) -> int:
    return image.read_u64(image.symbols.address("jiffies_64"))


def _nothing_found(memory: Memory) -> str:
    if vmcoreinfo.is_empty(memory):
        why = "it is all zeros: the machine has not been started, or its RAM is another file"
    elif banner := vmcoreinfo.banner_of(memory):
        why = (
            f'"{banner}" is there, but still booting, or was built without '
            "CONFIG_VMCORE_INFO; it is not looked for in any other way"
        )
    else:
        why = (
            "either no Linux runs in it, or one that is still booting, was built without "
            "CONFIG_VMCORE_INFO, or encrypts its memory"
        )
    return f"no kernel in {memory.name} ({memory.size >> 20} MiB): it has no VMCOREINFO; {why}"


def _none_fits(memory: Memory, notes: Sequence[Vmcoreinfo], failures: Sequence[PeekError]) -> str:
    names = sorted({note.values.get("OSRELEASE", "?") for note in notes})
    reasons = list(dict.fromkeys(str(failure) for failure in failures))
    return "\n  ".join(
        [
            f"{memory.name} has the VMCOREINFO of {', '.join(names)}, but no such kernel that "
            "could be read: the image is damaged, or of another machine",
            *reasons[:5],
        ]
    )
