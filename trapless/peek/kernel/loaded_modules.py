# SPDX-License-Identifier: GPL-2.0-only
"""Reads which modules a kernel has loaded, and the symbols of each.

Owns the walk of the kernel's list, which the kernel may change during the walk: a walk that meets a
torn entry keeps the modules before it. A module is read once; a refresh forgets unloaded modules.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.name_resolver import Resolver

NAME_BYTES = 56
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


@dataclass(frozen=True)
class Module:
    """One loaded module: the virtual addresses that it occupies, and its symbols."""

    name: GuestText
    spans: tuple[tuple[int, int], ...]  # (start, length), virtual
    addresses: tuple[int, ...]  # ascending
    names: tuple[GuestText, ...]
    unwinding: tuple[int, int, int] = (0, 0, 0)  # its tables: places, entries, and their number

    def has(self, address: int) -> bool:
        """Whether a virtual address is inside the module."""
        return any(start <= address < start + length for start, length in self.spans)

    def at(self, address: int) -> tuple[GuestText, int]:
        """The symbol that an address inside belongs to, and its distance from that in bytes."""
        start, length = next(span for span in self.spans if 0 <= address - span[0] < span[1])
        place = bisect.bisect_right(self.addresses, address) - 1
        if place < 0 or not start <= self.addresses[place] < start + length:
            return GuestText(f"{start:#x}".encode()), address - start
        return self.names[place], address - self.addresses[place]


class Modules:
    """The modules of one kernel. One thread."""

    def __init__(self, target: Resolver) -> None:
        self._target = target
        self._loaded: dict[tuple[int, GuestText], Module] = {}
        self.refresh()

    def __iter__(self) -> Iterator[Module]:
        return iter(self._loaded.values())

    def __len__(self) -> int:
        return len(self._loaded)

    def at(self, address: int) -> Module | None:
        """The module that an address belongs to. An unknown address makes it read the list."""
        for _ in range(2):
            module = self.known(address)
            if module is not None:
                return module
            self.refresh()
        return None

    def symbol(self, module: str, name: str) -> int | None:
        """The address of a symbol of a module; None where the module does not have it."""
        for one in self._loaded.values():
            if one.name.says(module):
                for place, text in enumerate(one.names):
                    if text.says(name):
                        return one.addresses[place]
        return None

    def known(self, address: int) -> Module | None:
        """The module that an address belongs to, by the list as it was read last."""
        return next((module for module in self._loaded.values() if module.has(address)), None)

    def refresh(self) -> None:
        """Read the kernel's list again."""
        with limits.within(limits.Budget(limits.MODULES)):
            self._read_list()

    def _read_list(self) -> None:
        target = self._target
        loaded: dict[tuple[int, GuestText], Module] = {}
        link, head = target.offset("module", "list"), target.symbol("modules")
        try:
            place, visited = target.read_u64(head), {head}
            while place not in visited and len(visited) <= limits.MODULES_MAX:
                visited.add(place)
                base = place - link
                name_at = base + target.offset("module", "name")
                name = GuestText(target.read(name_at, NAME_BYTES))
                key = (base, name)
                left = limits.MODULE_SYMBOLS_TOTAL_MAX - sum(
                    len(one.names) for one in loaded.values()
                )
                loaded[key] = self._loaded.get(key) or _read(target, base, name, left)
                place = target.read_u64(place)
        except PeekError:  # a module came or went: the next refresh reads the list whole
            pass
        self._loaded = loaded


def _read(target: Resolver, base: int, name: GuestText, most: int) -> Module:
    spans = tuple(_spans(target, base))
    try:
        symbols = sorted(_symbols(target, base, min(most, limits.MODULE_SYMBOLS_MAX)))
    except PeekError:  # it is being unloaded, or forged: its addresses are known, its names are not
        symbols = []
    addresses, names = zip(*symbols, strict=True) if symbols else ((), ())
    return Module(name, spans, addresses, names, _unwinding(target, base))


def _unwinding(target: Resolver, base: int) -> tuple[int, int, int]:
    """Where its unwind tables (ORC) are, and their length; zeros where the kernel has none."""
    if not target.has_member("module", "arch.num_orcs"):
        return 0, 0, 0
    count = target.read(base + target.offset("module", "arch.num_orcs"), 4)
    places, entries = (
        target.read_u64(base + target.offset("module", f"arch.{name}"))
        for name in ("orc_unwind_ip", "orc_unwind")
    )
    return places, entries, int.from_bytes(count, "little")


def _spans(target: Resolver, base: int) -> list[tuple[int, int]]:
    """(start, length) of its sections: they lie in one piece, or in one for each kind of memory."""
    spans = []
    if target.has_member("module", "core_layout.base"):
        paths = ["core_layout"]
    else:
        count = target.place("module", "mem").size // target.place("module", "mem[0]").size
        paths = [f"mem[{index}]" for index in range(min(count, limits.MODULE_SECTIONS_MAX))]
    for path in paths:
        start = target.read_u64(base + target.offset("module", f"{path}.base"))
        data = target.read(base + target.offset("module", f"{path}.size"), 4)
        length = int.from_bytes(data, "little")
        if start and length:
            spans.append((start, length))
    return spans


def _symbols(target: Resolver, base: int, most: int) -> list[tuple[int, GuestText]]:
    table = target.read_u64(base + target.offset("module", "kallsyms"))
    if table == 0:
        return []

    def field(name: str) -> int:
        place = target.place("mod_kallsyms", name)
        return int.from_bytes(target.read(table + place.offset, place.size), "little")

    count, strings = field("num_symtab"), field("strtab")
    if count > most:
        raise PeekError(f"a module claims {count} symbols")
    rows = SYMBOL.iter_unpack(target.read(field("symtab"), count * SYMBOL.size))
    return [
        (value, target.read_string(strings + name, limits.MODULE_NAME_BYTES))
        for name, _, _, section, value, _ in rows
        if name and section and value
    ]
