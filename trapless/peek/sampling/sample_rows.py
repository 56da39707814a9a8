# SPDX-License-Identifier: GPL-2.0-only
"""Decodes the sampler's stream: its head, its blocks of rows, its end.

Owns the form that sampler/row.h declares. The head describes the rows, so a saved stream needs
nothing beside it. A stream may stop anywhere: the blocks that have arrived whole are decoded.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from trapless.peek.errors import PeekError
from trapless.peek.limits import GROUPS_MAX

Rows = npt.NDArray[np.void]
"""Rows as a structured array; the names of its columns are those of `row_type()`."""

STREAM_MAGIC = b"TLPEEK1\n"
BLOCK_MAGIC = 0x534B4C42
END_MAGIC = 0x53444E45
HEAD = struct.Struct("<8sII")
BLOCK = struct.Struct("<II")
END = struct.Struct("<II9Q")
HEAD_BYTES_MAX = 1 << 21
BLOCK_BYTES_MAX = 1 << 20
GROUP = re.compile("cpu[0-9]{1,4}|system")
"""The names of the groups in recordings, which tier0.py gives."""

FIXED = (
    ("slot", "<u8"),  # deadline = first deadline + slot * interval
    ("t_ns", "<u8"),  # CLOCK_MONOTONIC of the observing machine
    ("lag_ns", "<u4"),
    ("cost_ns", "<u4"),
    ("flags", "<u4"),
    ("retries", "<u4"),
    ("torn", "<u8"),  # a bit for each group, in the order of `Head.groups`
    ("absent", "<u8"),
    ("frozen", "<u8"),  # a bit for each thread
)
"""The columns that each row begins with."""


class Flag(IntFlag):
    """The bits in a row's `flags`."""

    LATE = 1  # taken more than half an interval after its deadline
    TORN = 2  # some group changed during each of its readings
    FROZEN = 4  # a runnable virtual processor did not run: the state is an old one
    ABSENT = 8  # some field could not be read and is zero


class Ending(IntEnum):
    """Why sampling ended."""

    DURATION = 0
    SIGNAL = 1
    TARGET = 2
    SOURCE = 3
    OUTPUT = 4


@dataclass(frozen=True)
class End:
    """The counts of a whole run."""

    ending: Ending
    rows: int
    slots: int
    lost: int
    late: int
    torn: int
    frozen: int
    absent: int
    retries: int
    unwritten: int


@dataclass(frozen=True)
class Head:
    """The description of rows and of their times, from the text at the head of a stream."""

    text: str
    interval_ns: int
    monotonic_ns: int
    realtime_ns: int
    groups: tuple[str, ...]
    threads: tuple[int, ...]
    dtype: np.dtype[np.void]


def first_deadline(rows: Rows, interval_ns: int) -> int:
    """The deadline of slot 0, in ns of the observing machine's CLOCK_MONOTONIC."""
    row = rows[np.argmin(rows["lag_ns"])]  # a lag of more than four seconds is cut short
    return int(row["t_ns"]) - int(row["lag_ns"]) - int(row["slot"]) * interval_ns


def are_groups(groups: Any, threads: Any) -> bool:
    """Whether both are lists of a recording's head, which a stranger may have written.

    >>> are_groups(["cpu0", "system"], [7]), are_groups(["cpu0\\n"], []), are_groups(None, [])
    (True, False, False)
    """
    return (
        isinstance(groups, list)
        and isinstance(threads, list)
        and max(len(groups), len(threads)) <= GROUPS_MAX
        and all(isinstance(name, str) and GROUP.fullmatch(name) for name in groups)
        and all(type(thread) is int for thread in threads)
    )


def _column(bytes_: int) -> str:
    if not 0 < bytes_ <= BLOCK_BYTES_MAX:
        raise ValueError(f"a field of {bytes_} bytes")
    return f"<u{bytes_}" if bytes_ in (1, 2, 4, 8) else f"V{bytes_}"


def parse_head(text: str, row_bytes: int) -> Head:
    """The head of a stream from its text; PeekError where it does not fit `row_bytes`."""
    numbers: dict[str, int] = {}
    groups: list[str] = []
    threads: list[int] = []
    fields: list[tuple[str, str]] = []
    for line in text.splitlines():
        words = line.removeprefix("# ").split()
        match words:
            case [("interval-ns" | "monotonic-ns" | "realtime-ns" | "row-bytes") as key, value]:
                numbers[key] = int(value)
            case ["thread", thread]:
                threads.append(int(thread))
            case ["group", name, *_]:
                groups.append(name)
            case ["field", name, size, *_] if groups:
                fields.append((f"{groups[-1]}.{name}", _column(int(size, 0))))
            case _:
                pass
    columns = [*FIXED, *((f"run_ns.{thread}", "<u8") for thread in threads), *fields]
    names = [name for name, _ in columns]
    formats = [np.dtype(format_) for _, format_ in columns]
    *offsets, needed = itertools.accumulate((part.itemsize for part in formats), initial=0)
    if not needed <= row_bytes < needed + 8 or len(set(names)) != len(names):
        raise PeekError("the head of the samples does not describe their rows; it is damaged")
    return Head(
        text=text,
        interval_ns=numbers["interval-ns"],
        monotonic_ns=numbers["monotonic-ns"],
        realtime_ns=numbers["realtime-ns"],
        groups=tuple(groups),
        threads=tuple(threads),
        dtype=np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": row_bytes}
        ),
    )


class Stream:
    """Decodes a stream that arrives in pieces, which may be cut anywhere. One thread."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.end: End | None = None
        self._rest = b""

    def feed(self, piece: bytes) -> Sequence[Rows]:
        """The rows of all blocks that are whole by now; PeekError where this is no such stream."""
        self._rest += piece
        batches: list[Rows] = []
        if self.head is None and not self._take_head():
            return batches
        place = 0
        while (rows := self._take_block(place)) is not None:
            array, place = rows
            batches.append(array)
        self._rest = self._rest[place:]
        if self.end is not None and len(self._rest) > END.size:
            raise PeekError("the samples are damaged: something follows their end")
        return batches

    def _take_head(self) -> bool:
        if not STREAM_MAGIC.startswith(self._rest[: len(STREAM_MAGIC)]):
            raise PeekError("this is not a stream of samples")
        if len(self._rest) < HEAD.size:
            return False
        _, head_bytes, row_bytes = HEAD.unpack_from(self._rest)
        if head_bytes > HEAD_BYTES_MAX:
            raise PeekError("the head of the samples is damaged")
        end = HEAD.size + head_bytes
        if len(self._rest) < end:
            return False
        try:
            self.head = parse_head(self._rest[HEAD.size : end].decode(), row_bytes)
        except (ValueError, KeyError) as error:
            raise PeekError(f"the head of the samples is damaged: {error}") from error
        self._rest = self._rest[end:]
        return True

    def _take_block(self, place: int) -> tuple[Rows, int] | None:
        assert self.head is not None
        if self.end is not None or len(self._rest) < place + BLOCK.size:
            return None
        magic, count = BLOCK.unpack_from(self._rest, place)
        if magic == END_MAGIC:
            self._take_end(place)
            return None
        bytes_ = count * self.head.dtype.itemsize
        if magic != BLOCK_MAGIC or not 0 < bytes_ <= BLOCK_BYTES_MAX:
            raise PeekError("the samples are damaged: a block does not begin where it should")
        start = place + BLOCK.size
        if len(self._rest) < start + bytes_:
            return None
        return np.frombuffer(self._rest, self.head.dtype, count, start), start + bytes_

    def _take_end(self, place: int) -> None:
        if len(self._rest) < place + END.size:
            return
        _, ending, *counts = END.unpack_from(self._rest, place)
        try:
            self.end = End(Ending(ending), *counts)
        except ValueError as error:
            raise PeekError(f"the end of the samples is damaged: {error}") from error
