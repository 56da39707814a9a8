# SPDX-License-Identifier: GPL-2.0-only
"""Reads the log of a kernel out of printk's ring.

Owns the ring's format: descriptors that each name a record by its number, and the text behind a
number of its own in a ring of bytes. A record that is overwritten meanwhile has another number by
then, and is left out. Of a log that is too long, the newest part is read. The ring came with Linux
5.10; older kernels have another log.
"""

from __future__ import annotations

from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.target import Target

WORD = 8
STATE_SHIFT = 62
COMMITTED, FINAL = 1, 2
NUMBER = (1 << STATE_SHIFT) - 1
NO_TEXT = 1
"""The lowest bit of a place that has no text."""


@dataclass(frozen=True)
class Record:
    """One message. `time_ns` is the kernel's clock, and `level` is as in the kernel: 3 an error."""

    sequence: int
    time_ns: int
    level: int
    lines: tuple[GuestText, ...]

    @property
    def text(self) -> str:
        """The first line."""
        return str(self.lines[0]) if self.lines else ""


@dataclass(frozen=True)
class Log:
    """The newest records, oldest first, and how many older ones the ring may have as well."""

    records: list[Record]
    left_out: int


def read(target: Target, after: int = -1) -> Log:
    """The records that the ring has after the one with that sequence number."""
    if not target.has_symbol("prb"):
        raise PeekError(f"{target.release} has a log of before Linux 5.10, which is not read")
    with limits.within(limits.Budget(limits.LOG)):
        ring = target.read_u64(target.symbol("prb"))
        return _Ring(target, ring).newest(after)


class _Ring:
    """One copy of the ring."""

    def __init__(self, target: Target, ring: int) -> None:
        self._target = target
        descriptors = ring + target.offset("printk_ringbuffer", "desc_ring")
        data = ring + target.offset("printk_ringbuffer", "text_data_ring")
        bits = self._number(descriptors, "prb_desc_ring", "count_bits", 4)
        self._size_bits = self._number(data, "prb_data_ring", "size_bits", 4)
        if bits > limits.LOG_RECORDS_BITS or self._size_bits > limits.LOG_BYTES_BITS:
            raise PeekError("the kernel's log is larger than any kernel's: the image is damaged")
        self._count = 1 << bits
        self._first = self._number(descriptors, "prb_desc_ring", "tail_id")
        self._last = self._number(descriptors, "prb_desc_ring", "head_id")
        self._desc, self._info = target.sizeof("prb_desc"), target.sizeof("printk_info")
        self._infos = self._array(descriptors, "infos", self._info)
        self._texts = target.read(self._number(data, "prb_data_ring", "data"), 1 << self._size_bits)
        # The numbers are read last: what was overwritten before has another one by now.
        self._descs = self._array(descriptors, "descs", self._desc)
        self._at = {
            name: target.offset("printk_info", name)
            for name in ("seq", "ts_nsec", "text_len", "facility")
        }
        self._state = target.offset("prb_desc", "state_var")
        self._place = target.offset("prb_desc", "text_blk_lpos")

    def _number(self, address: int, record: str, path: str, size: int = WORD) -> int:
        data = self._target.read(address + self._target.offset(record, path), size)
        return int.from_bytes(data, "little")

    def _array(self, ring: int, name: str, size: int) -> bytes:
        if size > limits.LOG_RECORD_BYTES_MAX:
            raise PeekError("the kernel's log has records larger than any kernel's")
        return self._target.read(self._number(ring, "prb_desc_ring", name), size * self._count)

    def newest(self, after: int) -> Log:
        found, lines, text_bytes = list[Record](), 0, 0
        for step in range(self._count):
            number = (self._last - step) & NUMBER
            older = (number - self._first) & NUMBER
            record = self._record(number)
            if record is not None:
                if record.sequence <= after:
                    break
                lines += max(len(record.lines), 1)
                text_bytes += self._value(number, "text_len", 2)
                if lines > limits.LOG_LINES_MAX or text_bytes > limits.LOG_TEXT_BYTES_MAX:
                    return Log(found[::-1], min(older + 1, self._count - step))
                found.append(record)
            if not older:
                break
        return Log(found[::-1], 0)

    def _value(self, number: int, name: str, size: int) -> int:
        at = number % self._count * self._info + self._at[name]
        return int.from_bytes(self._infos[at : at + size], "little")

    def _record(self, number: int) -> Record | None:
        index = number % self._count
        at = index * self._desc + self._state
        state = int.from_bytes(self._descs[at : at + WORD], "little")
        if state & NUMBER != number or state >> STATE_SHIFT not in (COMMITTED, FINAL):
            return None
        place = index * self._desc + self._place
        begin, end = (
            int.from_bytes(self._descs[place + part : place + part + WORD], "little")
            for part in (0, WORD)
        )
        text = self._text(begin, end, self._value(number, "text_len", 2), number)
        # The level is the upper three bits of the byte behind the facility.
        level = self._value(number, "facility", 2) >> 13
        sequence, time_ns = (self._value(number, name, WORD) for name in ("seq", "ts_nsec"))
        return Record(sequence, time_ns, level, text)

    def _text(self, begin: int, end: int, length: int, number: int) -> tuple[GuestText, ...]:
        if begin & NO_TEXT:
            return ()
        size = 1 << self._size_bits
        at = begin % size
        if (begin >> self._size_bits) + 1 == end >> self._size_bits and end % size:
            at = 0  # a block that would cross the end begins at the beginning
        if int.from_bytes(self._texts[at : at + WORD], "little") & NUMBER != number:
            return ()
        lines = self._texts[at + WORD : at + WORD + length].split(b"\n")
        return tuple(
            GuestText(line[start : start + limits.TEXT_CHARS_MAX])
            for line in lines
            for start in range(0, max(len(line), 1), limits.TEXT_CHARS_MAX)
        )
