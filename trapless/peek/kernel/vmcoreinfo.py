# SPDX-License-Identifier: GPL-2.0-only
"""Reads VMCOREINFO: the note that a kernel leaves in its memory for readers from outside.

Owns the search for the note, an ELF note at the beginning of a page, and its lines. A note proves
nothing, because a kernel from before a reboot, or one in a VM inside the target, leaves one as
well. image.py checks it.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.memory import PAGE_BYTES, Memory
from trapless.peek.limits import LimitError

NAME = b"VMCOREINFO\0"
HEADER = struct.Struct("<III")  # bytes of the name, bytes of the text, type
TEXT_AT = HEADER.size + len(NAME) + 1
NOTE_START = NAME + b"\0OSRELEASE="
BANNER = re.compile(rb"Linux version \d[\w.+~-]+(?= \()")
CHUNK_BYTES = 4 << 20
"""Memory is searched in pieces of this size."""


@dataclass(frozen=True)
class Vmcoreinfo:
    """One note. Keys are as in the text: `SYMBOL(_stext)`, `NUMBER(phys_base)`, `OSRELEASE`."""

    data: bytes = field(repr=False)  # the text
    address: int  # physical address of the note
    values: Mapping[bytes, bytes] = field(repr=False)

    @classmethod
    def of(cls, data: bytes, address: int = 0) -> Vmcoreinfo:
        """The note with that text; lines of an unknown form are left out."""
        lines = (line.partition(b"=") for line in data.split(b"\n"))
        return cls(data, address, {key: value for key, equals, value in lines if equals})

    @property
    def release(self) -> GuestText:
        return GuestText(self._value("OSRELEASE"))

    @property
    def build_id(self) -> str:
        """The build-id in hexadecimal; empty where the note has none."""
        text = self.values.get(b"BUILD-ID", b"")
        try:
            return bytes.fromhex(str(GuestText(text))).hex()
        except ValueError:
            raise PeekError(
                f"the kernel's VMCOREINFO says BUILD-ID={str(GuestText(text))!r}, which is not "
                "hexadecimal"
            ) from None

    @property
    def kernel_offset(self) -> int:
        """The distance by which KASLR has moved the kernel from the addresses it was linked to."""
        return self._integer("KERNELOFFSET", 16)

    def symbol(self, name: str) -> int:
        return self._integer(f"SYMBOL({name})", 16)

    def symbols(self, names: tuple[str, ...]) -> dict[str, int]:
        """Those of these symbols that the note has."""
        return {name: self.symbol(name) for name in names if self.has_symbol(name)}

    def number(self, name: str, default: int | None = None) -> int:
        key = f"NUMBER({name})"
        if default is not None and key.encode() not in self.values:
            return default
        return self._integer(key, 0)

    def has_number(self, name: str) -> bool:
        return f"NUMBER({name})".encode() in self.values

    def integers(self, keys: tuple[str, ...]) -> dict[str, int]:
        """The numbers in those of these lines that the note has."""
        return {key: self._integer(key, 0) for key in keys if key.encode() in self.values}

    @property
    def page_bytes(self) -> int:
        return self._integer("PAGESIZE", 10)

    def has_symbol(self, name: str) -> bool:
        return f"SYMBOL({name})".encode() in self.values

    def _value(self, key: str) -> bytes:
        try:
            return self.values[key.encode()]
        except KeyError:
            raise PeekError(f"the kernel's VMCOREINFO has no {key}") from None

    def _integer(self, key: str, base: int) -> int:
        value = self._value(key)
        try:
            if len(value) > limits.DIGITS_MAX:
                raise ValueError
            return int(value, base)
        except ValueError:
            shown = str(GuestText(value[: 2 * limits.DIGITS_MAX]))
            raise PeekError(
                f"the kernel's VMCOREINFO says {key}={shown!r}, which is no number"
            ) from None


def find(memory: Memory) -> Iterator[Vmcoreinfo]:
    """The notes in memory, of whichever kernel, in ascending order, those with one text once.

    Any process of a guest may fill its memory with pages that look like notes.
    """
    seen: set[bytes] = set()
    for address in _pages_with_note(memory):
        limits.spend()
        data = text_at(memory, address)
        if data is None:
            continue
        digest = hashlib.sha256(data).digest()
        if digest not in seen:
            seen.add(digest)
            yield Vmcoreinfo.of(data, address)


def text_at(memory: Memory, address: int) -> bytes | None:
    """The text of the note at an address as bytes; None where there is none."""
    try:
        head = memory.read(address, TEXT_AT)
        name_bytes, text_bytes, kind = HEADER.unpack_from(head)
        if name_bytes != len(NAME) or kind != 0 or not 0 < text_bytes <= limits.NOTE_BYTES_MAX:
            return None
        if head[HEADER.size :] != NOTE_START[: TEXT_AT - HEADER.size]:
            return None
        return memory.read(address + TEXT_AT, text_bytes).rstrip(b"\0")
    except LimitError:
        raise
    except PeekError:  # a piece of an old note, cut by the end of memory
        return None


def is_empty(memory: Memory) -> bool:
    """Whether memory holds only zeros."""
    return all(data.count(0) == len(data) for _, data in _chunks(memory))


def banner_of(memory: Memory) -> GuestText:
    """The first banner of a kernel in memory, like "Linux version 6.1.0"; or empty."""
    for _, data in _chunks(memory):
        banner = BANNER.search(data)
        if banner is not None:
            return GuestText(banner[0])
    return GuestText(b"")


def _chunks(memory: Memory) -> Iterator[tuple[int, bytes]]:
    for start, length in memory.populated():
        for place in range(start, start + length, CHUNK_BYTES):
            yield place, memory.read(place, min(CHUNK_BYTES, start + length - place))


def _pages_with_note(memory: Memory) -> Iterator[int]:
    for place, data in _chunks(memory):
        # A note begins its page, so one byte of each page tells nearly all that have none.
        letters = data[HEADER.size :: PAGE_BYTES]
        page = letters.find(NOTE_START[0])
        while page >= 0:
            offset = page * PAGE_BYTES
            if data.startswith(NOTE_START, offset + HEADER.size):
                yield place + offset
            page = letters.find(NOTE_START[0], page + 1)
