# SPDX-License-Identifier: GPL-2.0-only
"""Records all machines into a folder that stays within a bound of bytes.

Each machine has a folder, and in it a recording for each ten minutes and each boot, which `peek
report` opens. When there are too many bytes, the machine that has the most loses its oldest
recording; machines that have gone count as one. Writing has a thread of its own, since a disk may
take long; a disk that is full is an error that is told, and is tried again later. Owns the folder,
in which nobody else may write: recordings are removed, and perhaps by root.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trapless.peek.errors import PeekError
from trapless.peek.sampling.code_names import Names
from trapless.peek.sampling.recording import META_FILE, Recorder
from trapless.peek.sampling.sample_rows import End, Ending, Flag, Head, Rows

RECORDING_S = 600.0
PARTS = 8
"""A recording ends before it has more than this part of its machine's share of the bound."""
WAITING_MAX = 4096
"""Batches of rows that wait for the disk; more are dropped, and counted."""
AGAIN_S = 30.0
"""The pause after an error."""
BLOCK_BYTES = 512
"""The unit of st_blocks."""
BYTES_MIN = 16 << 20
STAMP = re.compile(r"\d{8}T\d{6}Z(-\d+)?")
"""The names of recordings: nothing else in the folder is ever removed."""
HASH_DIGITS = 12
HASHED = re.compile(rf".*-[0-9a-f]{{{HASH_DIGITS}}}")
GONE = ""
"""The machine that has the recordings of those that have gone."""


@dataclass
class _Open:
    """A recording that is being written."""

    title: str
    head: Head
    first_slot: int
    recorder: Recorder
    began: float
    counts: Counter[str] = field(default_factory=Counter)

    def end(self) -> End:
        names = (flag.name.lower() for flag in Flag if flag.name)
        marks = {name: self.counts[name] for name in names}
        rows, slots = self.counts["rows"], self.counts["slots"]
        return End(
            ending=Ending.SIGNAL,
            rows=rows,
            slots=slots,
            lost=slots - rows,
            retries=self.counts["retries"],
            unwritten=0,
            **marks,
        )


@dataclass(frozen=True)
class Source:
    """The source of a machine's rows: a run of the sampler on one kernel."""

    title: str
    head: Head
    about: Mapping[str, Any]
    names: Names


class RecordingsFolder:
    """Recordings within `bytes_max`. Use it as a context manager. One thread gives rows.

    `error` is the reason why nothing is recorded at the moment; empty where all is well.
    """

    def __init__(self, folder: Path, bytes_max: int, note: Callable[[str], None]) -> None:
        self.folder, self.bytes_max = folder, bytes_max
        self.error, self.errors, self.dropped, self.bytes = "", 0, 0, 0
        self._note = note
        self._queue: queue.Queue[tuple[Source, Rows | None, int | None] | None] = queue.Queue(
            WAITING_MAX
        )
        self._sizes: dict[Path, int] = {}  # of each recording, the oldest first
        self._opened: dict[str, _Open] = {}
        self._live: set[str] = set()  # the titles of machines that are recorded
        self._again_s = 0.0
        self._segment_max = 0
        self._thread = threading.Thread(target=self._write, name="recordings")

    def __enter__(self) -> RecordingsFolder:
        try:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            _check_owner(self.folder)
            for recording in sorted(_recordings(self.folder), key=_age):
                self._sizes[recording] = _size(recording)
        except OSError as error:
            raise PeekError(f"{self.folder}: {error.strerror}") from error
        self._prune()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def add(self, source: Source, rows: Rows) -> None:
        """Record rows; they are dropped and counted where the disk is too slow."""
        try:
            self._queue.put_nowait((source, rows, None))
        except queue.Full:
            self.dropped += len(rows)

    def end(self, source: Source, alive_ns: int | None) -> None:
        """End a machine's recording; `alive_ns` as for Recorder.close()."""
        with suppress(queue.Full):  # the next rows end it, too
            self._queue.put_nowait((source, None, alive_ns))

    # ---- The thread ------------------------------------------------------------------------------

    def _write(self) -> None:
        while (work := self._queue.get()) is not None:
            source, rows, alive_ns = work
            try:
                if rows is not None:
                    self._add(source, rows)
                else:
                    self._live.discard(source.title)
                    self._close(source.title, source, alive_ns)
            except Exception as error:  # of one machine's data, perhaps: the others go on
                self._failed(source.title, error)
        for title in list(self._opened):
            try:
                self._close(title, None, None)
            except Exception as error:
                self._failed(title, error)

    def _failed(self, title: str, error: Exception) -> None:
        opened = self._opened.pop(title, None)
        if opened is not None:
            self._measure(opened.recorder.folder)
        self.errors += 1
        self._again_s = time.monotonic() + AGAIN_S
        text = str(error) if isinstance(error, PeekError | OSError) else repr(error)
        if not self.error:
            self._note(f"recording pauses: {text}")
        self.error = text

    def _add(self, source: Source, rows: Rows) -> None:
        opened = self._opened.get(source.title)
        if opened is not None and (opened.head is not source.head or self._is_full(opened)):
            self._close(source.title, source, None)
            opened = None
        if opened is None:
            if time.monotonic() < self._again_s:
                self.dropped += len(rows)
                return
            self._prune()
            opened = self._open(source, int(rows["slot"][0]))
        rows = rows.copy()
        rows["slot"] -= opened.first_slot
        before = opened.recorder.segments
        opened.recorder.add(rows)
        _count(opened.counts, rows)
        if opened.recorder.segments != before:
            source.names.keep(opened.recorder)
            self._written(opened)

    def _is_full(self, opened: _Open) -> bool:
        share = self.bytes_max / len(self._opened) / PARTS
        size = self._sizes.get(opened.recorder.folder, 0)
        return time.monotonic() - opened.began >= RECORDING_S or size >= share

    def _open(self, source: Source, slot: int) -> _Open:
        shift_ns = slot * source.head.interval_ns
        head = replace(
            source.head,
            monotonic_ns=source.head.monotonic_ns + shift_ns,
            realtime_ns=source.head.realtime_ns + shift_ns,
        )
        parent = self.folder / safe_name(source.title)
        self._live.add(source.title)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(head.realtime_ns / 1e9))
        number, folder = 1, parent / stamp
        while folder.exists():
            number += 1
            folder = parent / f"{stamp}-{number}"
        recorder = Recorder(folder, head, source.about)
        recorder.__enter__()
        opened = _Open(source.title, source.head, slot, recorder, time.monotonic())
        self._opened[source.title] = opened
        self._measure(folder)
        return opened

    def _close(self, title: str, source: Source | None, alive_ns: int | None) -> None:
        opened = self._opened.get(title)
        if opened is not None:
            self._end(opened, source, alive_ns)
            self._written(opened)

    def _end(self, opened: _Open, source: Source | None, alive_ns: int | None) -> None:
        del self._opened[opened.title]
        try:
            opened.recorder.close(opened.end(), alive_ns)
            if source is not None:
                source.names.keep(opened.recorder)
        finally:
            self._measure(opened.recorder.folder)

    def _written(self, opened: _Open) -> None:
        before = self._sizes.get(opened.recorder.folder, 0)
        self._measure(opened.recorder.folder)
        grown = self._sizes.get(opened.recorder.folder, 0) - before
        self._segment_max = max(self._segment_max, grown)
        if self.error:
            self.error = ""
            self._note("recording goes on")
        self._prune()

    def _measure(self, folder: Path) -> None:
        self._sizes[folder] = _size(folder)
        self.bytes = sum(self._sizes.values())

    def _prune(self) -> None:
        """Remove recordings until there is room for one more segment."""
        self.bytes = sum(self._sizes.values())
        while self.bytes + self._segment_max > self.bytes_max and self._sizes:
            live = {safe_name(title) for title in self._live}
            machines = {
                one: one.parent.name if one.parent.name in live else GONE for one in self._sizes
            }
            sizes: Counter[str] = Counter()
            for folder, size in self._sizes.items():
                sizes[machines[folder]] += size
            open_ = {one.recorder.folder: one for one in self._opened.values()}
            closed = [one for one in self._sizes if one not in open_]
            if not closed:  # then the largest one that is being written is removed
                largest = max(self._sizes, key=self._sizes.__getitem__)
                self._end(open_[largest], None, None)
                closed = [largest]
            # The first recording of a machine is its oldest.
            self._remove(max(closed, key=lambda one: sizes[machines[one]]))

    def _remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            self._measure(folder)
            raise PeekError(f"{folder} cannot be removed, and there is no more room")
        with suppress(OSError):  # others are in it
            folder.parent.rmdir()
        del self._sizes[folder]
        self.bytes = sum(self._sizes.values())


def safe_name(title: str) -> str:
    """The name of a machine's folder, which no other machine's has.

    >>> safe_name("web-1"), safe_name("web/1 ü"), safe_name("..")
    ('web-1', 'web_1__-978b881c57c4', '_.-5ec1f7e700f3')
    """
    name = re.sub(r"^\.|[^A-Za-z0-9._-]", "_", title)
    if name == title and not HASHED.fullmatch(title):
        return name
    return f"{name}-{hashlib.sha256(title.encode()).hexdigest()[:HASH_DIGITS]}"


def _count(counts: Counter[str], rows: Rows) -> None:
    counts["rows"] += len(rows)
    counts["slots"] = int(rows["slot"][-1]) + 1
    counts["retries"] += int(rows["retries"].sum())
    for flag in Flag:
        if flag.name:
            counts[flag.name.lower()] += int(np.count_nonzero(rows["flags"] & flag))


def _size(folder: Path) -> int:
    """The disk space of a recording, with its folder and blocks, which are most of a short
    recording."""
    size = 0
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            status = path.stat()
            size += max(status.st_blocks * BLOCK_BYTES, status.st_size)
    return size


def _check_owner(folder: Path) -> None:
    """PeekError if anybody else may write into the folder, or replace it."""
    way = folder.resolve()
    for place in (way, *way.parents):
        status = place.stat()
        shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if place != way and status.st_mode & stat.S_ISVTX:  # like /tmp, each entry has its owner
            shared = 0
        if status.st_uid not in (0, os.geteuid()) or shared:
            raise PeekError(
                f"{folder}: another user can write in {place}, and could make links by which other "
                "files are written and removed; name a folder of your own"
            )


def _recordings(folder: Path) -> Iterator[Path]:
    """The recordings from before, by their names."""
    for meta in folder.glob(f"*/*/{META_FILE}"):
        if STAMP.fullmatch(meta.parent.name):
            yield meta.parent


def _age(recording: Path) -> float:
    try:
        return (recording / META_FILE).stat().st_mtime
    except OSError:
        return 0.0
