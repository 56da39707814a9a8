# SPDX-License-Identifier: GPL-2.0-only
"""Reads the log of a kernel out of printk's ring.

Owns the ring's format: descriptors that each name a record by its number, and the text behind a
number of its own in a ring of bytes. A record that is overwritten meanwhile has another number by
then, and is left out. Of a log that is too long, the newest part is read. Kernels before Linux 5.10
have a buffer instead, in which records follow each other from the oldest to the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
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
    with limits.within(limits.Budget(limits.LOG)):
        if not target.has_symbol("prb"):
            return _newest_of_buffer(target, after)
        ring = target.read_u64(target.symbol("prb"))
        return _Ring(target, ring).newest(after)


def _lines(data: bytes) -> tuple[GuestText, ...]:
    """The lines of a message; one that is too long becomes several."""
    return tuple(
        GuestText(line[start : start + limits.TEXT_CHARS_MAX])
        for line in data.split(b"\n")
        for start in range(0, max(len(line), 1), limits.TEXT_CHARS_MAX)
    )


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
        return _lines(self._texts[at + WORD : at + WORD + length])


# ---- Before Linux 5.10 ---------------------------------------------------------------------------


def _newest_of_buffer(target: Target, after: int) -> Log:
    """The newest records of the buffer, without those that are overwritten meanwhile."""
    if not target.has_symbol("log_first_idx"):
        raise PeekError(f"{target.release} has a log of a form that is not known")
    buffer = _Buffer(target)
    first = max(buffer.number("log_first_seq", WORD), after + 1)
    newest = deque[Record](maxlen=limits.LOG_LINES_MAX)
    count = 0
    for one in buffer.records():
        if one.sequence >= first:
            newest.append(one)
            count += 1
    kept, lines, text_bytes = list[Record](), 0, 0
    for one in reversed(newest):
        lines += max(len(one.lines), 1)
        text_bytes += sum(len(str(line)) for line in one.lines)
        if lines > limits.LOG_LINES_MAX or text_bytes > limits.LOG_TEXT_BYTES_MAX:
            break
        kept.append(one)
    return Log(kept[::-1], count - len(kept))


class _Buffer:
    """One copy of the buffer."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._sequence = self.number("log_first_seq", WORD)
        self._first, self._last = self.number("log_first_idx", 4), self.number("log_next_seq", WORD)
        size = self.number("log_buf_len", 4)
        if size > 1 << limits.LOG_BYTES_BITS:
            raise PeekError("the kernel's log is larger than any kernel's: the image is damaged")
        self._data = target.read(target.read_u64(target.symbol("log_buf")), size)
        names = ("ts_nsec", "len", "text_len", "level")
        self._places = {name: target.place("printk_log", name) for name in names}
        self._header = target.sizeof("printk_log")

    def number(self, name: str, size: int) -> int:
        """A variable of the kernel at this moment."""
        return int.from_bytes(self._target.read(self._target.symbol(name), size), "little")

    def _value(self, at: int, name: str) -> int:
        place = self._places[name]
        start = at + place.offset
        value = int.from_bytes(self._data[start : start + place.size], "little")
        return value >> place.bit & (1 << place.bits) - 1 if place.bits else value

    def records(self) -> Iterator[Record]:
        """All records, the oldest first. A length of zero leads to the beginning of the buffer."""
        at, wraps = self._first, 0
        for sequence in range(self._sequence, self._last):
            length = self._value(at, "len")
            if not length:
                at, wraps = 0, wraps + 1
                length = self._value(at, "len")
            limits.spend(1, length)
            if length < self._header or at + length > len(self._data) or wraps > 1:
                return  # it is overwritten
            start = at + self._header
            text = self._data[start : min(start + self._value(at, "text_len"), at + length)]
            yield Record(
                sequence, self._value(at, "ts_nsec"), self._value(at, "level"), _lines(text)
            )
            at += length
