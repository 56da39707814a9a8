# SPDX-License-Identifier: GPL-2.0-only
"""Modules that a target has loaded, and the symbols of each.

Owns walking the target's list while the target may change it: a walk that runs into something torn
keeps what it has. A module is read once; one that was unloaded is forgotten at the next look.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trapless.peek.errors import PeekError

if TYPE_CHECKING:
    from trapless.peek.kernel.target import Target

MODULES_MAX = 1024
SECTIONS_MAX = 16
SYMBOLS_MAX = 200_000
NAME_BYTES = 56
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


@dataclass(frozen=True)
class Module:
    """One loaded module: where it is, and what is where in it."""

    name: str
    spans: tuple[tuple[int, int], ...]  # (start, length), virtual
    addresses: tuple[int, ...]  # ascending
    names: tuple[str, ...]

    def has(self, address: int) -> bool:
        return any(start <= address < start + length for start, length in self.spans)

    def at(self, address: int) -> tuple[str, int]:
        """The symbol that an address inside belongs to, and the distance from it."""
        place = bisect.bisect_right(self.addresses, address) - 1
        if place < 0 or not any(
            start <= self.addresses[place] < start + length and start <= address < start + length
            for start, length in self.spans
        ):
            start = next(start for start, length in self.spans if start <= address < start + length)
            return f"{start:#x}", address - start
        return self.names[place], address - self.addresses[place]


class Modules:
    """The modules of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._loaded: dict[tuple[int, str], Module] = {}
        self.refresh()

    def __iter__(self) -> Iterator[Module]:
        return iter(self._loaded.values())

    def __len__(self) -> int:
        return len(self._loaded)

    def at(self, address: int) -> Module | None:
        """The module that an address belongs to."""
        for _ in range(2):
            for module in self._loaded.values():
                if module.has(address):
                    return module
            self.refresh()
        return None

    def refresh(self) -> None:
        """Look at the target's list again."""
        target = self._target
        found: dict[tuple[int, str], Module] = {}
        link, head = target.offset("module", "list"), target.symbol("modules")
        try:
            place, seen = target.read_u64(head), {head}
            while place not in seen and len(seen) <= MODULES_MAX:
                seen.add(place)
                base = place - link
                name_at = base + target.offset("module", "name")
                name = target.read(name_at, NAME_BYTES).split(b"\0")[0].decode(errors="replace")
                key = (base, name)
                found[key] = self._loaded.get(key) or _read(target, base, name)
                place = target.read_u64(place)
        except PeekError:  # torn by a module that came or went: the next look sees it whole
            pass
        self._loaded = found


def _read(target: Target, base: int, name: str) -> Module:
    spans = tuple(_spans(target, base))
    try:
        symbols = sorted(_symbols(target, base))
    except PeekError:  # being unloaded: its place is known, its names are gone
        symbols = []
    return Module(
        name, spans, tuple(address for address, _ in symbols), tuple(text for _, text in symbols)
    )


def _spans(target: Target, base: int) -> list[tuple[int, int]]:
    """Where its sections are: in one place, or in one for each kind of memory."""
    spans = []
    if target.has_member("module", "core_layout.base"):
        paths = ["core_layout"]
    else:
        count = target.place("module", "mem").size // target.place("module", "mem[0]").size
        paths = [f"mem[{index}]" for index in range(min(count, SECTIONS_MAX))]
    for path in paths:
        start = target.read_u64(base + target.offset("module", f"{path}.base"))
        data = target.read(base + target.offset("module", f"{path}.size"), 4)
        length = int.from_bytes(data, "little")
        if start and length:
            spans.append((start, length))
    return spans


def _symbols(target: Target, base: int) -> list[tuple[int, str]]:
    table = target.read_u64(base + target.offset("module", "kallsyms"))
    if table == 0:
        return []

    def field(name: str) -> int:
        place = target.place("mod_kallsyms", name)
        return int.from_bytes(target.read(table + place.offset, place.size), "little")

    count, strings = field("num_symtab"), field("strtab")
    if count > SYMBOLS_MAX:
        raise PeekError(f"a module claims {count} symbols")
    found = []
    for name, _, _, section, value, _ in SYMBOL.iter_unpack(
        target.read(field("symtab"), count * SYMBOL.size)
    ):
        if name and section and value:
            found.append((value, target.read_string(strings + name, 256)))
    return found
