# SPDX-License-Identifier: GPL-2.0-only
"""Writes what an unpacker has unpacked to its pipe: pieces of a file, each with its place.

Owns the form of a piece, and how a pipe is read whose writer is not trusted. Zeros are left out, so
the file has holes there, except where they take the place of earlier data.
"""

from __future__ import annotations

import os
import select
import struct
import time

from trapless.peek.errors import PeekError

PIECE = struct.Struct("<QQ")
"""The place in the file and the number of bytes that follow."""
END = (1 << 64) - 1
"""The place of the last message, which is JSON."""
CHUNK_BYTES = 1 << 20
PAGE_BYTES = 4096
ZEROS = bytes(PAGE_BYTES)
OUTPUT = 1
POLL_S_MAX = 86_400


class SilentError(PeekError):
    """The other side has ended, or says nothing for too long."""


class Pieces:
    """The pieces of a file, in any order."""

    def __init__(self) -> None:
        self._place, self._data = 0, bytearray()

    def write(self, place: int, data: bytes, *, zeros: bool = False) -> None:
        """Write data to a place; pages of zeros only with `zeros`, as what was there before."""
        if zeros:
            self._add(place, data)
            return
        begin = None  # of the pages with data that follow one another
        for at in range(0, len(data), PAGE_BYTES):
            if ZEROS.startswith(data[at : at + PAGE_BYTES]):
                if begin is not None:
                    self._add(place + begin, data[begin:at])
                begin = None
            elif begin is None:
                begin = at
        if begin is not None:
            self._add(place + begin, data[begin:])

    def _add(self, place: int, data: bytes) -> None:
        if self._place + len(self._data) != place or len(self._data) >= CHUNK_BYTES:
            self.flush()
            self._place = place
        self._data += data

    def flush(self) -> None:
        """Write what is still kept."""
        if self._data:
            data = memoryview(PIECE.pack(self._place, len(self._data)) + self._data)
            while data:
                data = data[os.write(OUTPUT, data) :]
            self._data = bytearray()


def wait_for(descriptor: int, event: int, end_s: float) -> None:
    """Wait until a pipe has data, or room; SilentError where it has none at a time."""
    poll = select.poll()  # select() takes no descriptor from 1024 on
    poll.register(descriptor, event)
    left_s = min(max(end_s - time.monotonic(), 0), POLL_S_MAX)
    if not poll.poll(1000 * left_s):
        raise SilentError("no answer in time")


def exactly(descriptor: int, length: int, end_s: float | None) -> bytes:
    """That many bytes of a pipe; SilentError where they do not come until a time."""
    pieces = []
    while length:
        if end_s is not None:
            wait_for(descriptor, select.POLLIN, end_s)
        piece = os.read(descriptor, min(length, CHUNK_BYTES))
        if not piece:
            raise SilentError("the other side has ended")
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
