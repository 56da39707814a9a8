# SPDX-License-Identifier: GPL-2.0-only
"""Unpacks dumps in the kdump-compressed format by libkdumpfile, which drgn's wheel brings along.

Owns the library's declarations, as far as they are needed, and the notes in the dump's header with
the CPUs' registers. The library reads what strangers made, so it runs in the unpacker's jail. Pages
that makedumpfile has left out read as zeros: it leaves out free pages, caches, and pages of user
mode, as far as it was told to, and pages of zeros.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trapless.peek import errors, limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.elf_core import registers
from trapless.peek.kernel.memories.pieces import CHUNK_BYTES, Pieces
from trapless.peek.kernel.memory import GIB

MACHINE_ADDRESS = 1
"""KDUMP_MACHPHYSADDR"""
BLOCK_BYTES_AT, SUB_HEADER, NOTE_AT = 428, struct.Struct("<2Q"), 48
"""In struct disk_dump_header, and in struct kdump_sub_header: the place and length of the notes."""
HEADER_VERSION_AT, NOTES_SINCE = 8, 4
PAGES_BYTES = (1 << 12, 1 << 14, 1 << 16)


def library_path() -> str:
    """The library that drgn's wheel brings, or the system's; PeekError says how to get it."""
    found = importlib.util.find_spec("drgn")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parents[1] / "drgn.libs"
        for path in sorted(folder.glob("libkdumpfile-*.so*")):
            return str(path)
    system = ctypes.util.find_library("kdumpfile")
    if system is None:
        raise PeekError(errors.NO_LIBKDUMPFILE.text())
    return system


class _Attribute(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("value", ctypes.c_uint64))


class Library:
    """libkdumpfile, loaded."""

    def __init__(self, path: str) -> None:
        self._lib = ctypes.CDLL(path)
        self._lib.kdump_new.restype = ctypes.c_void_p
        self._lib.kdump_get_err.restype = ctypes.c_char_p
        self._lib.kdump_get_err.argtypes = [ctypes.c_void_p]
        for name in ("kdump_bmp_find_set", "kdump_bmp_find_clear"):
            getattr(self._lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._context = ctypes.c_void_p(self._lib.kdump_new())
        self._buffer = ctypes.create_string_buffer(CHUNK_BYTES)

    def unpack(self, descriptor: int, pieces: Pieces) -> dict[str, Any]:
        """Write the dump's pages, each at its physical address."""
        files = (ctypes.c_int * 1)(descriptor)
        self._check(self._lib.kdump_open_fdset(self._context, ctypes.c_uint(1), files))
        page_bytes = self._attribute("arch.page_size")  # of arm64 QEMU takes the largest
        if page_bytes not in PAGES_BYTES:
            raise PeekError(f"its pages have {page_bytes} bytes: it is damaged")
        size = self._attribute("max_pfn") * page_bytes
        if not 0 < size <= limits.UNPACKED_BYTES_MAX:
            raise PeekError(f"it has pages up to {size:#x}: it is damaged")
        start = size
        for at, end in self._runs(size, page_bytes):
            start = min(start, at - at % GIB)  # where RAM begins, on arm64 mostly not at 0
            self._copy(at, end, pieces)
        found = list(registers(_notes(descriptor)))
        return {"regions": [(start, size - start, start)], "size": size, "registers": found}

    def _runs(self, size: int, page_bytes: int) -> Iterator[tuple[int, int]]:
        """The begin and the end of each part of memory that the dump has."""
        pages = ctypes.c_void_p(self._attribute("file.pagemap"))
        place, end = ctypes.c_uint64(0), 0
        while end < size and self._lib.kdump_bmp_find_set(pages, ctypes.byref(place)) == 0:
            begin = place.value * page_bytes
            if self._lib.kdump_bmp_find_clear(pages, ctypes.byref(place)) != 0:
                place.value = size // page_bytes
            if begin < end or place.value * page_bytes <= begin:
                raise PeekError("its map of pages is damaged")
            end = min(place.value * page_bytes, size)
            yield begin, end

    def _copy(self, at: int, end: int, pieces: Pieces) -> None:
        while at < end:
            length = ctypes.c_size_t(min(CHUNK_BYTES, end - at))
            address, buffer = ctypes.c_uint64(at), self._buffer
            read = self._lib.kdump_read
            self._check(read(self._context, MACHINE_ADDRESS, address, buffer, ctypes.byref(length)))
            pieces.write(at, buffer.raw[: length.value])
            at += length.value

    def _attribute(self, name: str) -> int:
        attribute = _Attribute()
        self._check(self._lib.kdump_get_attr(self._context, name.encode(), ctypes.byref(attribute)))
        return int(attribute.value)

    def _check(self, status: int) -> None:
        if status != 0:
            text = self._lib.kdump_get_err(self._context) or b"no reason"
            raise PeekError(f"libkdumpfile cannot read it: {text.decode(errors='replace')}")


def _notes(descriptor: int) -> bytes:
    """The notes of a dump; empty where its header has none."""
    head = os.pread(descriptor, BLOCK_BYTES_AT + 8, 0)
    if len(head) < BLOCK_BYTES_AT + 8:
        return b""
    version, block = (
        int.from_bytes(head[at : at + 4], "little") for at in (HEADER_VERSION_AT, BLOCK_BYTES_AT)
    )
    place = os.pread(descriptor, SUB_HEADER.size, block + NOTE_AT)
    if version < NOTES_SINCE or len(place) < SUB_HEADER.size:
        return b""
    offset, length = SUB_HEADER.unpack(place)
    if offset >= 1 << 62:
        return b""
    return os.pread(descriptor, min(length, limits.CORE_NOTES_BYTES_MAX), offset)
