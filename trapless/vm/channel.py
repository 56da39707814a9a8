# SPDX-License-Identifier: GPL-2.0-only
"""The launcher's end of the memory that it shares with the guest's init.

This file owns the mapping and the byte rings; guest/channel.h has the same layout. The memory is an
anonymous file (memfd) without a name, so that nothing is left whatever kills the launcher.

Concurrency: the guest writes while we read. Head and closed flags of a ring belong to its
producer, tail to its consumer. Fields are read and written as aligned machine words (ctypes), so
none is ever seen half-written, and the x86 keeps their order; data is copied after head is read
and before tail is stored.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from enum import IntEnum

CHANNEL_BYTES = 8 << 20
MAGIC = 0x7472706C
ERROR_BYTES = 1024
INPUT_BYTES, ERRORS_BYTES, OUTPUT_BYTES = 1 << 20, 2 << 20, 4 << 20


class Phase(IntEnum):
    """How far the guest has come; enum channel_phase of channel.h."""

    FIRMWARE = 0
    INIT = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4


class _Ring(ctypes.Structure):
    _fields_ = (
        ("head", ctypes.c_uint64),
        ("tail", ctypes.c_uint64),
        ("producer_closed", ctypes.c_uint32),
        ("consumer_closed", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("padding", ctypes.c_uint8 * 32),
    )


class _Header(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("phase", ctypes.c_uint32),
        ("status", ctypes.c_int32),
        ("switch_error", ctypes.c_int32),
        ("calls", ctypes.c_uint64 * 4),
        ("refusal", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 3),
        ("input", _Ring),
        ("output", _Ring),
        ("errors", _Ring),
        ("error", ctypes.c_char * ERROR_BYTES),
    )


class Ring:
    """One direction of bytes. The launcher produces into `input` and consumes the others."""

    def __init__(self, memory: mmap.mmap, fields: _Ring, offset: int, size: int) -> None:
        self._memory, self._fields = memory, fields
        fields.offset, fields.bytes = offset, size
        self._offset, self.size = offset, size  # never read back: the guest could change them

    def waiting(self) -> int:
        """Bytes to be consumed."""
        head, tail = int(self._fields.head), int(self._fields.tail)
        return min((head - tail) % (1 << 64), self.size)

    def space(self) -> int:
        """Bytes that can be produced."""
        return self.size - self.waiting()

    def peek(self, limit: int) -> bytes:
        """Up to `limit` waiting bytes (fewer at the end of the ring); they stay."""
        start = int(self._fields.tail) % self.size
        count = min(self.waiting(), limit, self.size - start)
        return self._memory[self._offset + start : self._offset + start + count]

    def consume(self, count: int) -> None:
        """Release `count` bytes to the producer, after they were read by peek()."""
        self._fields.tail += count

    def produce(self, data: bytes) -> int:
        """Append as much of `data` as fits in one piece; how much that was."""
        start = int(self._fields.head) % self.size
        count = min(len(data), self.space(), self.size - start)
        self._memory[self._offset + start : self._offset + start + count] = data[:count]
        self._fields.head += count
        return count

    def close_producer(self) -> None:
        """Say that nothing follows."""
        self._fields.producer_closed = 1

    def close_consumer(self) -> None:
        """Say that nobody will read any more; waiting bytes are dropped."""
        self._fields.consumer_closed = 1
        self._fields.tail = self._fields.head

    @property
    def consumer_closed(self) -> bool:
        return bool(self._fields.consumer_closed)


class Channel:
    """The shared memory: `file` is the descriptor to hand to QEMU."""

    def __init__(self) -> None:
        self.file = os.memfd_create("trapless-channel", os.MFD_CLOEXEC)
        os.ftruncate(self.file, CHANNEL_BYTES)
        memory = mmap.mmap(self.file, CHANNEL_BYTES)
        self._header = _Header.from_buffer(memory)
        self._header.magic = MAGIC
        self.input = Ring(memory, self._header.input, 1 << 20, INPUT_BYTES)
        self.errors = Ring(memory, self._header.errors, 2 << 20, ERRORS_BYTES)
        self.output = Ring(memory, self._header.output, 4 << 20, OUTPUT_BYTES)

    @property
    def phase(self) -> Phase:
        """The guest's progress. A value that no guest of ours writes counts as failure."""
        try:
            return Phase(self._header.phase)
        except ValueError:
            return Phase.FAILED

    @property
    def status(self) -> int:
        """The command's exit status; valid in Phase.DONE."""
        return int(self._header.status)

    @property
    def switch_error(self) -> int:
        """Why the command was not switched to supervisor mode, as errno; valid in Phase.FAILED."""
        return int(self._header.switch_error)

    @property
    def refusal(self) -> int:
        """The module's reason (enum tl_refusal), with some values of `switch_error`."""
        return int(self._header.refusal)

    @property
    def calls(self) -> tuple[int, ...]:
        """Calls in supervisor mode by path: direct, worked, left, kernel; valid in Phase.DONE."""
        return tuple(self._header.calls)

    @property
    def error(self) -> str:
        """What went wrong in the guest; valid in Phase.FAILED."""
        return bytes(self._header.error).decode(errors="replace")

    def close(self) -> None:
        """Give back the descriptor; the memory goes with the last user of the rings."""
        os.close(self.file)
