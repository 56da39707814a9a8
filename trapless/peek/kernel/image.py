# SPDX-License-Identifier: GPL-2.0-only
"""Finds the image of the kernel that runs in a memory.

Owns the way from raw bytes to a kernel whose image, page tables and symbols agree with each other:
it chooses the VMCOREINFO note and the layout of the RAM file, and explains why a memory holds no
kernel that can be read. checks.py compares what can be compared with types only.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from trapless.peek import errors, limits
from trapless.peek.errors import BootingError, PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel import kallsyms, kallsyms_search, symbol_cache, vmcoreinfo
from trapless.peek.kernel.guest_processor import PageTables, Processor, processor_of
from trapless.peek.kernel.kallsyms import Symbols
from trapless.peek.kernel.memory import PAGE_BYTES, Memory
from trapless.peek.kernel.symbol_cache import FileStore, Store
from trapless.peek.kernel.vmcoreinfo import Vmcoreinfo

IMAGE_ALIGNED = 2 << 20
"""The image begins at a multiple of this, and `_stext` soon after."""

END_SLACK_BYTES = 64 << 20
"""The most that firmware keeps to itself at the end of memory, which the kernel never maps."""

CLOCK_PAUSE_S = 0.05

# Symbols whose addresses the note has as well: they show how the table of symbols is to be read.
NOTE_SYMBOLS = (
    *("_stext", "init_uts_ns", "init_top_pgt", "swapper_pg_dir", "kallsyms_offsets", "prb"),
)


class SymbolTable(Protocol):
    """The symbols of a kernel, as kallsyms.py describes them, wherever they are."""

    @property
    def shift(self) -> int: ...

    def __len__(self) -> int: ...

    def has(self, name: str) -> bool: ...

    def address(self, name: str) -> int: ...

    def at(self, address: int) -> tuple[GuestText, int] | None: ...

    def size_at(self, address: int) -> int: ...

    def kind_at(self, address: int) -> str: ...

    def rows(self) -> Iterator[tuple[int, GuestText]]: ...


@dataclass(eq=False)
class KernelImage:
    """A kernel that is where its note says, in the physical memory `memory`."""

    memory: Memory
    info: Vmcoreinfo
    processor: Processor
    page_tables: PageTables
    symbols: SymbolTable

    def read(self, virtual: int, length: int) -> bytes:
        """Exactly `length` bytes from a virtual address; PeekError where some are not mapped."""
        if length < 0:
            raise PeekError(f"cannot read {length} bytes")
        pieces = []
        while length > 0:
            physical, left = self.page_tables.physical(virtual)
            take = min(length, left)
            pieces.append(self.memory.read(physical, take))
            virtual += take
            length -= take
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_u64(self, virtual: int) -> int:
        """The unsigned number of 8 bytes at a virtual address."""
        return int.from_bytes(self.read(virtual, 8), "little")

    def memory_end(self) -> int:
        """The physical address at which the memory that the kernel uses ends."""
        last = self.read_u64(self.symbols.address(self.processor.last_page))
        return last * self.processor.page_bytes


def locate(layouts: Sequence[Memory], store: Store | None = None) -> KernelImage:
    """The kernel in a memory, in the layout that its page tables and its memory's end fit best.

    `layouts` are the same bytes at different physical addresses, likeliest first. Symbols are kept
    in `store`, which is the user's cache by default. PeekError says what the memory has instead of
    a kernel.
    """
    finds = _Finds()
    candidates = list(finds.candidates(layouts))
    if not finds.notes:
        raise BootingError(_no_note(layouts[0]))
    loose: list[tuple[int, KernelImage]] = []
    budget = limits.Budget(limits.NOTES)
    tables = _Tables(store or FileStore())
    for memory in layouts:
        images = []
        for note in (note for place, note in candidates if place is memory):
            try:
                with limits.within(budget):
                    images.append(_verified(memory, note, tables))
            except limits.LimitError:
                raise
            except PeekError as error:
                finds.failed(error)
        if not images:
            continue
        image = images[0] if len(images) == 1 else _running(images)
        try:
            excess = _excess(image)
        except PeekError as error:
            finds.failed(error)
            continue
        if excess < END_SLACK_BYTES:
            return image
        loose.append((excess, image))
    if loose:  # a kernel with the boot parameter mem= uses less than there is
        return min(loose, key=lambda pair: pair[0])[1]
    raise BootingError(finds.none_fits(layouts[0])) from finds.failures[0]


def described(memory: Memory, info: Vmcoreinfo) -> KernelImage:
    """The kernel that a note describes, which is known without a search."""
    return _verified(memory, info, _Tables(FileStore()))


class _Finds:
    """The notes of a memory: how many there are, some of their releases, and why none fits."""

    def __init__(self) -> None:
        self.notes = 0
        self.failures: list[PeekError] = []
        self._releases: set[GuestText] = set()

    def candidates(self, layouts: Sequence[Memory]) -> Iterator[tuple[Memory, Vmcoreinfo]]:
        """Each note whose page tables map the image to where the note has it, and the layout.

        A process of the guest may have filled memory with notes, so this looks at little of each.
        """
        count = 0
        for note in vmcoreinfo.find(layouts[0]):
            self.notes += 1
            if self.notes > limits.NOTES_SEEN_MAX:
                raise limits.LimitError(
                    f"{layouts[0].name} has more than {limits.NOTES_SEEN_MAX:,} different notes of "
                    "kernels: a program of the guest has made them up"
                )
            if len(self._releases) < limits.FAILURES_SHOWN:
                self._releases.add(GuestText(note.values.get(b"OSRELEASE", b"?")))
            for memory in layouts:
                try:
                    processor = processor_of(note)
                    if layouts[1:] and not processor.may_have(memory.regions()[0].start):
                        continue
                    _tables(memory, note, processor)
                except PeekError as error:
                    self.failed(error)
                    continue
                count += 1
                if count > limits.NOTES_MAX:
                    raise limits.LimitError(
                        f"{memory.name} has more than {limits.NOTES_MAX} notes of kernels: "
                        "a program of the guest has made them up"
                    )
                yield memory, note

    def failed(self, error: PeekError) -> None:
        """Keep a reason, if there are few."""
        if len(self.failures) < limits.FAILURES_SHOWN:
            self.failures.append(error)

    def none_fits(self, memory: Memory) -> str:
        """The message that no kernel can be read, with the reasons."""
        releases = ", ".join(map(str, sorted(self._releases)))
        return "\n  ".join(
            [
                f"{memory.name} has the VMCOREINFO of {releases}, but no such kernel that can be "
                "read: the machine was restarting, or the image is damaged or another machine's",
                *dict.fromkeys(map(str, self.failures)),
            ]
        )


def _tables(memory: Memory, info: Vmcoreinfo, processor: Processor) -> PageTables:
    """The page tables that a note names; PeekError where they do not map the image."""
    shift = processor.image_shift
    tables = PageTables(memory.read, info.symbol(processor.root) + shift, processor.paging)
    start = info.symbol("_stext")
    physical, _ = tables.physical(start)
    if physical != start + shift:
        raise PeekError(
            f"{info.release} should be at {start + shift:#x}, but its own page tables say "
            f"{physical:#x}"
        )
    return tables


def _verified(memory: Memory, info: Vmcoreinfo, known: _Tables) -> KernelImage:
    """The kernel that `info` describes; PeekError if it is not in memory, or not any more."""
    processor = processor_of(info)
    tables = _tables(memory, info, processor)
    symbols = known.symbols(memory, info, processor.image_shift)
    image = KernelImage(memory, info, processor, tables, symbols)
    if symbols.has("vmcoreinfo_note"):
        note = tables.physical(image.read_u64(symbols.address("vmcoreinfo_note")))[0]
        if note != info.address:
            # Of several notes with the same text, the search has found the first, where the first
            # layout has it.
            own = vmcoreinfo.text_at(memory, note)
            if own != info.data:
                raise PeekError(
                    f"{info.release} keeps its note at {note:#x}; the one at "
                    f"{info.address:#x} is another"
                )
            image.info = info = replace(info, address=note)
    if symbols.has("schedule") and not symbols.has("init_task"):
        raise PeekError(errors.NO_SYMBOLS_OF_DATA.text(release=info.release))
    banner = GuestText(image.read(symbols.address("linux_banner"), limits.TEXT_CHARS_MAX))
    if not str(banner).startswith(f"Linux version {info.release} "):
        raise PeekError(f"{info.release} says of itself {str(banner)[:64]!r}")
    build_id = _build_id(image)
    if info.build_id and build_id and info.build_id != build_id:
        raise PeekError(f"{info.release} has build-id {build_id}, its note says {info.build_id}")
    return image


class _Tables:
    """The tables of symbols that notes name, each read once, also those that cannot be decoded:
    many notes may name the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[tuple[object, ...], Symbols | str] = {}  # or why there are none

    def symbols(self, memory: Memory, info: Vmcoreinfo, image_shift: int) -> Symbols:
        """The symbols by the tables of a note, which have the addresses that the note has."""
        build_id = info.build_id
        places, anchors = info.symbols(kallsyms.TABLES), info.symbols(NOTE_SYMBOLS)
        key = (id(memory), image_shift, *places.items(), *anchors.items(), info.kernel_offset)
        known = self._read.get(key)
        if known is None:
            if len(self._read) >= limits.SYMBOL_TABLES_MAX:
                raise limits.LimitError(
                    f"{memory.name} has notes that name more than {limits.SYMBOL_TABLES_MAX} "
                    "tables of symbols: a program of the guest has made them up"
                )
            try:
                if "kallsyms_names" not in places:
                    places = _by_form(memory, info.symbol("_stext"), image_shift)
                raw = kallsyms.read_tables(
                    lambda virtual, length: memory.read(virtual + image_shift, length), places
                )
                known = self._decoded(raw, anchors, info, build_id)
            except limits.LimitError:
                raise
            except PeekError as error:
                known = str(error)
            self._read[key] = known
        if isinstance(known, str):
            raise PeekError(known)
        return known

    def _decoded(
        self, raw: kallsyms.RawTables, anchors: dict[str, int], info: Vmcoreinfo, build_id: str
    ) -> Symbols:
        symbols = symbol_cache.load(self._store, build_id, raw, info.kernel_offset)
        # Not every kernel's table has all of them.
        if symbols is None or not all(
            symbols.address(name) == address
            for name, address in anchors.items()
            if symbols.has(name)
        ):
            symbols = kallsyms.decode(raw, anchors, info.kernel_offset)
            symbol_cache.save(self._store, build_id, raw, symbols)
        return symbols


def _by_form(memory: Memory, stext: int, image_shift: int) -> dict[str, int]:
    """The tables of symbols of a kernel whose note does not name them."""

    def read(virtual: int, length: int) -> bytes:
        """Up to that many bytes, as far as there is memory."""
        start = virtual + image_shift
        for region in memory.regions():
            if region.start <= start < region.end:
                return _beginning(memory, start, min(length, region.end - start))
        return b""

    return kallsyms_search.find(read, stext & ~(IMAGE_ALIGNED - 1))


def _beginning(memory: Memory, start: int, length: int) -> bytes:
    """The memory from an address on, up to a page that is not there: not every source of memory
    knows its end."""
    try:
        return memory.read(start, length)
    except PeekError:
        data = b""
        with suppress(PeekError):
            while len(data) < length:
                data += memory.read(start + len(data), PAGE_BYTES)
        return data[:length]


def _build_id(image: KernelImage) -> str:
    """The build-id in the ELF notes of the image; empty where it has none."""
    symbols = image.symbols
    if not (symbols.has("__start_notes") and symbols.has("__stop_notes")):
        return ""
    start = symbols.address("__start_notes")
    length = symbols.address("__stop_notes") - start
    if not 0 < length <= limits.ELF_NOTES_BYTES_MAX:
        raise PeekError(f"the kernel's notes take {length} bytes: its symbols are damaged")
    data, place = image.read(start, length), 0
    while place + 12 <= len(data):
        limits.spend()
        name_bytes, text_bytes, kind = struct.unpack_from("<III", data, place)
        name_at = place + 12
        text_at = name_at + (name_bytes + 3 & ~3)
        if kind == 3 and data[name_at : name_at + name_bytes] == b"GNU\0":
            return data[text_at : text_at + text_bytes].hex()
        place = text_at + (text_bytes + 3 & ~3)
    return ""


def _excess(image: KernelImage) -> int:
    """The bytes of memory beyond what its kernel uses; PeekError where memory ends before that."""
    end, used_end = image.memory.regions()[-1].end, image.memory_end()
    if end < used_end:
        why = errors.MEMORY_TOO_SHORT.text(
            name=image.memory.name, end=hex(end), release=image.info.release, used_end=hex(used_end)
        )
        raise PeekError(why)
    return end - used_end


def _running(images: list[KernelImage]) -> KernelImage:
    """Of several whole kernels, the one whose clock moves."""
    before = [_clock(image) for image in images]
    for _ in range(round(limits.CLOCK_S / CLOCK_PAUSE_S)):
        time.sleep(CLOCK_PAUSE_S)
        moving = [one for one, was in zip(images, before, strict=True) if _clock(one) != was]
        if len(moving) == 1:
            return moving[0]
    names = ", ".join(f"{one.info.release} at {one.info.address:#x}" for one in images)
    raise PeekError(
        f"{images[0].memory.name} has {len(images)} kernels, and no clock shows which of them "
        f"runs: {names}; one is left from before a reboot"
    )


def _clock(image: KernelImage) -> int:
    return image.read_u64(image.symbols.address("jiffies_64"))


def _no_note(memory: Memory) -> str:
    values = {"name": memory.name, "size": memory.size >> 20}
    if vmcoreinfo.is_empty(memory):
        return errors.ALL_ZEROS.text(**values)
    if banner := vmcoreinfo.banner_of(memory):
        return errors.STILL_BOOTING.text(**values, banner=banner)
    return errors.NO_LINUX.text(**values)
