# SPDX-License-Identifier: GPL-2.0-only
"""The process in a jail that unpacks an image: packed files, AVML, kdump, migration streams.

It gets the open image and a pipe, gives up all else (base/jail.py), and writes what it unpacks as
pieces with their places; the parent (unpacking.py) puts them into a file. Owns the order of the
pieces and the last message, which says what the file is. kdump.py and migration.py read formats.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from trapless.base import jail
from trapless.base.console import TraplessError
from trapless.base.damage import is_of_data
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.formats import Kind
from trapless.peek.kernel.memories.kdump import Library
from trapless.peek.kernel.memories.migration import read_migration
from trapless.peek.kernel.memories.pieces import CHUNK_BYTES, END, PIECE, Pieces

AVML_HEADER = struct.Struct("<IIQQ8x")
AVML_MAGIC, AVML_VERSION = 0x4C4D5641, 2
SNAPPY_RAW, SNAPPY_PACKED, SNAPPY_NAME = 0x01, 0x00, 0xFF
SNAPPY_CHUNK_MAX = 1 << 16
"""The most bytes that one chunk of a snappy stream unpacks to."""
FLAT_HEADER_BYTES, FLAT_PART = 4096, struct.Struct(">qq")
SAVED_HEADER = struct.Struct("<16sIIIII")
SAVED_HEADER_BYTES = 92
SAVED_PACKED = {1: Kind.GZIP, 2: Kind.BZIP2, 3: Kind.XZ, 5: Kind.ZSTD}


class _File(io.RawIOBase):
    """The image from a place on, read in its order."""

    def __init__(self, descriptor: int, place: int = 0) -> None:
        self._descriptor, self._place = descriptor, place

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._descriptor, len(buffer), self._place)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def opened(descriptor: int, place: int = 0) -> BinaryIO:
    """The image as a file of Python's."""
    return io.BufferedReader(_File(descriptor, place), CHUNK_BYTES)


def exactly(file: BinaryIO, length: int) -> bytes:
    """That many bytes; PeekError where the image ends before."""
    data = file.read(length)
    if len(data) != length:
        raise PeekError("it ends in the middle: it was truncated")
    return data


def unpacked(file: BinaryIO, kind: Kind) -> BinaryIO:
    """What a compressed file unpacks to."""
    if kind is Kind.GZIP:
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if kind is Kind.BZIP2:
        return bz2.BZ2File(file)  # type: ignore[return-value]
    if kind is Kind.XZ:
        return lzma.LZMAFile(file)  # type: ignore[return-value]
    import pyarrow as pa

    stream: BinaryIO = pa.CompressedInputStream(pa.PythonFile(file), kind.value)
    return stream


def _compressed(descriptor: int, kind: Kind, pieces: Pieces) -> dict[str, Any]:
    file, place = unpacked(opened(descriptor), kind), 0
    while data := file.read(CHUNK_BYTES):
        pieces.write(place, data)
        place += len(data)
    return {"file": place}


def _flat(descriptor: int, _kind: Kind, pieces: Pieces) -> dict[str, Any]:
    """The file whose parts lie in any order in the form that makedumpfile and QEMU write to pipes.

    The libkdumpfile of Debian 12 does not read that form, newer ones do.
    """
    file, size = opened(descriptor, FLAT_HEADER_BYTES), 0
    while True:
        place, length = FLAT_PART.unpack(exactly(file, FLAT_PART.size))
        if place < 0:
            return {"file": size}
        if not 0 < length <= limits.UNPACKED_BYTES_MAX - place:
            raise PeekError(f"it has a part of {length} bytes at {place:#x}: it is damaged")
        size = max(size, place + length)
        while length:
            data = exactly(file, min(length, CHUNK_BYTES))
            pieces.write(place, data, zeros=True)  # it may take the place of an earlier part
            place, length = place + len(data), length - len(data)


def _avml(descriptor: int, _kind: Kind, pieces: Pieces) -> dict[str, Any]:
    import pyarrow as pa

    file, regions, place = opened(descriptor), list[tuple[int, int, int]](), 0
    while head := file.read(AVML_HEADER.size):
        if len(head) < AVML_HEADER.size:
            raise PeekError("it ends in the middle: it was truncated")
        magic, version, first, last = AVML_HEADER.unpack(head)
        if (magic, version) != (AVML_MAGIC, AVML_VERSION) or last < first:
            raise PeekError("a block of it has no header of AVML: it is damaged")
        length, done = last + 1 - first, 0
        regions.append((first, length, place))
        if len(regions) > limits.CORE_SEGMENTS_MAX:
            raise PeekError("it has too many blocks")
        while done < length:
            data = _snappy_chunk(file, pa)
            pieces.write(place + done, data)
            done += len(data)
        if done != length:
            raise PeekError("a block of it unpacks to more than it should: it is damaged")
        place += length
        exactly(file, 8)  # the length of the stream
    return {"regions": regions, "size": place}


def _snappy_chunk(file: BinaryIO, pa: Any) -> bytes:
    """What the next chunk of a snappy stream unpacks to; chunks without data are empty."""
    head = exactly(file, 4)
    kind, data = head[0], exactly(file, int.from_bytes(head[1:], "little"))
    if kind == SNAPPY_RAW and len(data) >= 4:
        return data[4:]
    if kind != SNAPPY_PACKED:
        if kind < 0x80:
            raise PeekError(f"its snappy stream has a chunk of the kind {kind:#x}: it is damaged")
        return b""
    size = shift = 0
    for byte in data[4:9]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if not 0 < size <= SNAPPY_CHUNK_MAX:
        raise PeekError(f"its snappy stream has a chunk of {size} bytes: it is damaged")
    plain: bytes = pa.decompress(data[4:], size, codec="snappy", asbytes=True)
    return plain


def _saved(descriptor: int, _kind: Kind, pieces: Pieces) -> dict[str, Any]:
    head = os.pread(descriptor, SAVED_HEADER.size, 0)
    if len(head) < SAVED_HEADER.size:
        raise PeekError("it ends inside its header: it was truncated")
    _, version, length, _, packed, _ = SAVED_HEADER.unpack(head)
    if not 0 < version <= 2 or packed not in (0, *SAVED_PACKED):
        raise PeekError(
            f"it has version {version} and the compression {packed}, which are not read: set "
            'save_image_format = "raw" in qemu.conf, or use `virsh dump --memory-only`'
        )
    file = opened(descriptor, SAVED_HEADER_BYTES + length)
    return read_migration(unpacked(file, SAVED_PACKED[packed]) if packed else file, pieces)


def _kdump(library: Library) -> Callable[[int, Kind, Pieces], dict[str, Any]]:
    return lambda descriptor, _, pieces: library.unpack(descriptor, pieces)


READERS: dict[Kind, Callable[[int, Kind, Pieces], dict[str, Any]]] = {
    **dict.fromkeys((Kind.GZIP, Kind.BZIP2, Kind.XZ, Kind.ZSTD, Kind.LZ4), _compressed),
    Kind.AVML: _avml,
    Kind.FLAT: _flat,
    Kind.SAVED: _saved,
    Kind.MIGRATION: lambda descriptor, _, pieces: read_migration(opened(descriptor), pieces),
}


def main(number: str, name: str, library: str) -> None:
    """Unpack the image with that descriptor, of the kind of that name."""
    descriptor, kind = int(number), Kind(name)
    said: dict[str, Any]
    try:
        reader = _kdump(Library(library)) if kind is Kind.KDUMP else READERS[kind]
        if kind in (Kind.ZSTD, Kind.LZ4, Kind.AVML, Kind.SAVED):
            _load_pyarrow()
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        jail.enter(own + limits.UNPACKER_MEMORY_BYTES)
        pieces = Pieces()
        said = reader(descriptor, kind, pieces)
        pieces.flush()
    except TraplessError as error:
        said = {"error": str(error)}
    except MemoryError:
        said = {"error": f"it takes more than {limits.UNPACKER_MEMORY_BYTES >> 20} MiB to unpack"}
    except BrokenPipeError:  # the parent wants no more
        return
    except Exception as error:  # a stranger's file may cause any error
        text = f"an error of Trapless itself, please report it: {type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.errno:  # of this host
            text = str(error)
        elif is_of_image(error):
            text = f"it is cut off or damaged ({error}); copy it again"
        said = {"error": text[: limits.TEXT_CHARS_MAX]}
    answer = json.dumps(said).encode()
    try:
        with open(1, "wb", closefd=False) as output:
            output.write(PIECE.pack(END, len(answer)) + answer)
    except BrokenPipeError:
        return


def is_of_image(error: Exception) -> bool:
    """Whether an error comes from what the image has."""
    return isinstance(
        error, (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError)
    ) or is_of_data(error)


def _load_pyarrow() -> None:
    """Load its libraries while they may be opened."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    for codec in ("zstd", "lz4", "snappy"):
        data = pa.compress(bytes(64), codec="lz4_raw" if codec == "lz4" else codec, asbytes=True)
        pa.decompress(data, 64, codec="lz4_raw" if codec == "lz4" else codec)
    pa.CompressedInputStream(pa.BufferReader(pa.compress(b"a", codec="zstd")), "zstd").read()
