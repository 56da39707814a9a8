# SPDX-License-Identifier: GPL-2.0-only
"""Reads numbers, pointers and lists out of a kernel's structures, by the names of their members.

Owns the bound of each list. Kernels give some members another name as time goes on, so a member may
be asked for by several names.
"""

from __future__ import annotations

from collections.abc import Iterator

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.target import Target, function_of

WORD = 8


class Structures:
    """The structures of one kernel."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def has(self, record: str, path: str) -> bool:
        """Whether the kernel has a member."""
        return self.target.has_member(record, path)

    def member(self, record: str, *paths: str) -> str:
        """The first of several names that the kernel has for a member; PeekError without any."""
        for path in paths[:-1]:
            if self.has(record, path):
                return path
        self.target.place(record, paths[-1])
        return paths[-1]

    def at(self, record: str, path: str) -> int:
        """The bytes from the beginning of a structure to a member."""
        return self.target.offset(record, path)

    def number(self, address: int, record: str, path: str, *, signed: bool = False) -> int:
        """A whole number in a member."""
        place = self.target.place(record, path)
        if not 0 < place.size <= WORD:
            raise PeekError(f"{record}.{path} is no number")
        data = self.target.read(address + place.offset, place.size)
        if place.bits:
            return int.from_bytes(data, "little") >> place.bit & (1 << place.bits) - 1
        return int.from_bytes(data, "little", signed=signed)

    def text(self, address: int, record: str, path: str) -> GuestText:
        """The text in a member that is an array of characters."""
        place = self.target.place(record, path)
        size = min(place.size, limits.TEXT_CHARS_MAX)
        return GuestText(self.target.read(address + place.offset, size))

    def variable(self, name: str, size: int = WORD, *, signed: bool = False) -> int:
        """A whole number in a variable of the kernel."""
        return int.from_bytes(
            self.target.read(self.target.symbol(name), size), "little", signed=signed
        )

    def links(self, head: int) -> Iterator[int]:
        """The addresses of the links in a list, without its head."""
        place, seen = self.target.read_u64(head), {head}
        while place not in seen and len(seen) <= limits.LINKS_MAX:
            seen.add(place)
            yield place
            place = self.target.read_u64(place)

    def function(self, address: int) -> str:
        """The function that an address is in, with its module."""
        return function_of(str(self.target.name_of(address)))
