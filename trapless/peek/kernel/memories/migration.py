# SPDX-License-Identifier: GPL-2.0-only
"""Reads the memory in a migration stream of QEMU: what `migrate` and `virsh save` write.

Owns the part of the stream that has RAM, which comes first (QEMU's docs/devel/migration and
migration/ram.c). The state of devices and CPUs behind it is not read. Runs in the unpacker's jail.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, BinaryIO

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.pieces import PAGE_BYTES, Pieces

MAGIC, VERSION = b"QEVM", 3
START, PART, LAST, FULL, SUBSECTION, CONFIGURATION, COMMAND, FOOTER = 1, 2, 3, 4, 5, 7, 8, 0x7E
ZERO, MEM_SIZE, PAGE, EOS, CONTINUE, XBZRLE, HOOK, COMPRESSED, FLUSH = (
    *(0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x100),
    0x200,
)
NOT_RAM = ("vga", "/rom@", "pc.bios", "pc.rom", "system.flash", "isa-bios")
"""How names of blocks begin that are no RAM of the machine; those of PCI devices have a colon."""
BLOCKS_MAX = 256
_DAMAGED = "it is damaged, or of a version of QEMU whose stream is not known"


class _Stream:
    """The numbers of the stream, which are big-endian."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def take(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) != length:
            raise PeekError("it ends in the middle: it was truncated")
        return data

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def name(self) -> bytes:
        return self.take(self.number(1))


class _Ram:
    """The blocks of memory, and their pages as they come: a page may come again."""

    def __init__(self, stream: _Stream, pieces: Pieces) -> None:
        self._stream, self._pieces = stream, pieces
        self._blocks: dict[bytes, tuple[int, int]] = {}
        """Base in the file and length of each block; a base below 0: it is no RAM."""
        self._there: dict[bytes, bytearray] = {}
        self.size = 0
        self._block = b""

    def read(self) -> None:
        """Read one section: pages up to the mark of its end."""
        while True:
            word = self._stream.number(8)
            flags, address = word & PAGE_BYTES - 1, word & ~(PAGE_BYTES - 1)
            if flags & EOS:
                return
            if flags & MEM_SIZE:
                self._sizes(address)
            elif flags & (ZERO | PAGE | COMPRESSED):
                if not flags & CONTINUE:
                    self._block = self._stream.name()
                self._page(address, self._content(flags))
            elif flags & XBZRLE:
                raise PeekError("it was made with the capability xbzrle, which is not read")
            elif flags != FLUSH:
                raise PeekError(f"its pages have the flags {flags:#x}: {_DAMAGED}")

    def _content(self, flags: int) -> bytes:
        if flags & ZERO:
            return self._stream.take(1) * PAGE_BYTES
        if flags & PAGE:
            return self._stream.take(PAGE_BYTES)
        length = self._stream.number(4)
        if length > 2 * PAGE_BYTES:
            raise PeekError(f"a packed page of it takes {length} bytes: {_DAMAGED}")
        data = zlib.decompressobj().decompress(self._stream.take(length), PAGE_BYTES)
        if len(data) != PAGE_BYTES:
            raise PeekError(f"a packed page of it is not whole: {_DAMAGED}")
        return data

    def _sizes(self, total: int) -> None:
        sizes: dict[bytes, int] = {}
        while sum(sizes.values()) < total:
            name, length = self._stream.name(), self._stream.number(8)
            if not 0 < length <= limits.UNPACKED_BYTES_MAX or len(sizes) >= BLOCKS_MAX:
                raise PeekError(f"it has a block of {length} bytes: {_DAMAGED}")
            sizes[name] = length
        ram = [one for one in sizes if b":" not in one and not one.startswith(_PREFIXES)]
        for name in sorted(ram, key=_place):
            self._blocks[name] = self.size, sizes[name]
            self.size += sizes[name]
        for name in sizes:
            self._blocks.setdefault(name, (-1, sizes[name]))
        if not 0 < self.size <= limits.UNPACKED_BYTES_MAX:
            raise PeekError(f"it has {self.size} bytes of RAM: {_DAMAGED}")

    def _page(self, address: int, data: bytes) -> None:
        base, length = self._blocks.get(self._block, (-1, 0))
        if address + PAGE_BYTES > length:
            raise PeekError(
                f"it has a page at {address:#x} of a block that ends before: {_DAMAGED}"
            )
        if base < 0:
            return
        there, number = self._there.setdefault(self._block, bytearray()), address // PAGE_BYTES
        if number // 8 >= len(there):
            there.extend(bytes(number // 8 + 1 - len(there)))
        bit = 1 << number % 8
        self._pieces.write(base + address, data, zeros=bool(there[number // 8] & bit))
        there[number // 8] |= bit


def _place(name: bytes) -> list[tuple[int, bytes]]:
    """Orders blocks of NUMA nodes by their numbers: the tenth node comes after the second."""
    return [
        (int(part), b"") if part.isdigit() else (-1, part) for part in re.split(rb"(\d+)", name)
    ]


_PREFIXES = tuple(one.encode() for one in NOT_RAM)


def read_migration(file: BinaryIO, pieces: Pieces) -> dict[str, Any]:
    """Write the machine's RAM as one file without holes, and say how large it is."""
    stream = _Stream(file)
    if stream.take(4) != MAGIC or stream.number(4) != VERSION:
        raise PeekError("it is no migration stream of version 3")
    ram, section = _Ram(stream, pieces), -1
    while True:
        kind = stream.number(1)
        if kind == CONFIGURATION:
            stream.take(min(stream.number(4), limits.STRING_BYTES_MAX))
        elif kind == SUBSECTION:
            _skip_subsection(stream)
        elif kind == COMMAND:
            stream.number(2)
            stream.take(stream.number(2))
        elif kind == FOOTER:
            stream.number(4)
        elif kind == START:
            number, name = stream.number(4), stream.name()
            stream.take(8)  # instance and version
            if name != b"ram":
                raise PeekError(
                    "it has other live state before RAM, as of disks that are migrated as well: "
                    "use `virsh dump --memory-only`"
                )
            section = number
            ram.read()
        elif kind in (PART, LAST) and stream.number(4) == section:
            ram.read()
            if kind == LAST:
                return {"ram": ram.size}
        else:
            raise PeekError(
                f"it has a section of the kind {kind:#x} before its RAM ends: {_DAMAGED}"
            )


def _skip_subsection(stream: _Stream) -> None:
    """A part of the configuration."""
    name = stream.name()
    stream.number(4)
    if name == b"configuration/target-page-bits":
        stream.number(4)
    elif name == b"configuration/capabilities":
        for _ in range(min(stream.number(4), BLOCKS_MAX)):
            stream.name()
    elif name == b"configuration/uuid":
        stream.take(16)
    else:
        raise PeekError(f"its configuration has a part that is not known: {_DAMAGED}")
