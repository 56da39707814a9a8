# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek trace`: reads events at places in the target's kernel while they happen.

Owns one run of it. The module records events in the target's memory (kmod/probe/event.c); a thread
here reads them, and the main thread puts them into one order, decodes and writes them. A run ends
on request, after its time, with the VM, or when events are switched off; all events until then are
written. The rings of a machine that has stopped still have the last events of each CPU.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from trapless.base.console import Progress
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Machine
from trapless.peek.sampling.boots import Boots
from trapless.peek.sampling.record import ended_by_signals
from trapless.peek.sampling.recording import NO_ROOM
from trapless.peek.trace.event_decoder import Decoder, Event, Names
from trapless.peek.trace.rings import Events, Merger, Rings
from trapless.peek.trace.text_trace import JsonWriter, TextWriter

TEXT, JSONL, PERFETTO = FORMATS = ("text", "jsonl", "perfetto")
POLL_S = 0.002
CHECK_S = 1.0
"""Seconds from one check that the kernel is the same, and that its VM runs, to the next."""
CHUNK_EVENTS = 500
"""The most events that are decoded and written before the reader's events are collected again."""
WAITING_MAX = 4_000_000
"""The most events that wait to be written, 92 bytes each; the reader takes no more."""


class Writer(Protocol):
    """Writes decoded events in one format."""

    def write(self, event: Event) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Outcome:
    """The end of a trace, and the numbers of its events."""

    ending: str
    events: int
    lost: int
    dropped: int
    cpus: int

    def __str__(self) -> str:
        text = f"{self.events:,} events of {self.cpus} CPUs, {self.lost:,} lost"
        if self.dropped:
            text += f", {self.dropped:,} not recorded inside others"
        return f"{text} ({self.ending})"


def trace(
    machine: Machine,
    output: Path | None,
    *,
    format_: str,
    seconds: float | None,
    backlog: bool,
    progress: Progress,
) -> Outcome:
    """Trace into the file `output`, or to standard output where it is None."""
    progress.step(f"resolving the kernel in {machine}")
    with machine.open() as target, ExitStack() as stack:
        target.need_x86_64("trace")
        rings = Rings.open(target)
        emulator = machine.emulator()
        queues = _queue_lengths(target)
        rings.begin(backlog=backlog or emulator is None)
        decoder = Decoder(rings.places, target)
        decoder.names.look()
        writer = _writer(format_, output, decoder.names, target, queues, stack)
        progress.done()
        try:
            return _Run(target, rings, decoder, writer, emulator, progress).run(seconds)
        finally:
            writer.close()


def _queue_lengths(target: Target) -> dict[int, int]:
    """The length of each CPU's run queue at this moment."""
    place = target.place("rq", "nr_running")
    lengths = {}
    for cpu in target.cpus_online:
        data = target.read(target.percpu("runqueues", cpu) + place.offset, place.size)
        lengths[cpu] = int.from_bytes(data, "little")
    return lengths


def _writer(
    format_: str,
    output: Path | None,
    names: Names,
    target: Target,
    queues: dict[int, int],
    stack: ExitStack,
) -> Writer:
    if format_ == PERFETTO:
        from trapless.peek.trace.perfetto import PerfettoWriter

        if output is None:
            raise PeekError("a Perfetto trace goes into a file: -o FILE", status=2)
        return PerfettoWriter(
            stack.enter_context(open_output(output)).buffer,
            names,
            target.release,
            target.banner,
            queues,
        )
    file = sys.stdout if output is None else stack.enter_context(open_output(output))
    return TextWriter(file, names) if format_ == TEXT else JsonWriter(file, names)


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open a new file for text; its `buffer` takes bytes."""
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise PeekError(f"{path}: {error.strerror}") from error
    try:
        with file:
            yield file
    except OSError as error:
        if error.errno not in NO_ROOM:  # it may be another file's
            raise
        with contextlib.suppress(OSError):
            if path.is_file() and not path.stat().st_size:
                path.unlink()
        raise PeekError(f"{path}: {error.strerror}") from error


class _Reader(threading.Thread):
    """Reads new events from the rings every POLL_S, while the main thread decodes and writes.

    It sleeps most of the time, so a busy host runs it as soon as it wakes. It ends by stop(), or by
    itself when the rings are gone, or with `error`.
    """

    def __init__(self, rings: Rings) -> None:
        super().__init__(name="rings", daemon=True)
        self._rings = rings
        self._batches: deque[tuple[float, list[Events]]] = deque()
        self._over = threading.Event()
        self.room = True  # without room, events stay in the rings, which overwrite them
        self.error: PeekError | None = None
        self.gone = False

    def run(self) -> None:
        try:
            while not self._over.is_set() and not self.gone:
                self.gone = self._rings.gone()
                if self.room and not self.gone:
                    batches = self._rings.poll()
                    self._batches.append((time.monotonic(), batches))
                self._over.wait(POLL_S)
        except PeekError as error:
            self.error = error

    def stop(self) -> None:
        self._over.set()
        self.join()

    def take(self) -> list[tuple[float, list[Events]]]:
        """(time of reading in s, events of each CPU) of all that was read since the last call."""
        return [self._batches.popleft() for _ in range(len(self._batches))]


class _Run:
    """One run, from the first event to the last."""

    def __init__(
        self,
        target: Target,
        rings: Rings,
        decoder: Decoder,
        writer: Writer,
        emulator: Emulator | None,
        progress: Progress,
    ) -> None:
        self._rings, self._decoder = rings, decoder
        self._writer, self._emulator, self._progress = writer, emulator, progress
        self._boots = Boots(target, emulator)
        self._reader = _Reader(rings)
        self._merger = Merger()
        self._ready: deque[Events] = deque()
        self._waiting = 0  # events in _ready
        self._written = 0
        self._ending = ""

    def run(self, seconds: float | None) -> Outcome:
        with ended_by_signals(lambda: self._stop("ended on request")):
            if self._emulator is None:
                self._stop("the machine does not run")
                self._merger.add(self._rings.poll(), 0.0)
            else:
                self._follow(seconds)
            self._finish()
        rings = self._rings
        return Outcome(self._ending, self._written, rings.lost, rings.dropped, len(rings.rings))

    def _follow(self, seconds: float | None) -> None:
        checked = began = time.monotonic()
        self._reader.start()
        try:
            while not self._ending:
                now = time.monotonic()
                self._collect(now)
                if now - checked >= CHECK_S:
                    checked = now
                    self._check()
                if seconds is not None and now - began >= seconds:
                    self._stop("the time is over")
                if not self._write_some():
                    time.sleep(POLL_S)
        finally:
            self._reader.stop()
        if self._reader.room and self._reader.error is None:
            self._merger.add(self._rings.poll(), time.monotonic())
        self._collect(time.monotonic())

    def _stop(self, ending: str) -> None:
        self._ending = self._ending or ending

    def _collect(self, now: float) -> None:
        """Collect the reader's events, and stop the reader's polls while too many wait."""
        for when, batches in self._reader.take():
            self._merger.add(batches, when)
        self._queue(self._merger.take(now))
        self._reader.room = self._waiting + self._merger.count < WAITING_MAX
        if self._reader.error is not None:
            raise self._reader.error
        if self._reader.gone:
            self._stop("events were switched off")

    def _queue(self, events: Events) -> None:
        if len(events):
            self._ready.append(events)
            self._waiting += len(events)

    def _write_some(self) -> bool:
        """Write one chunk; return whether there was one."""
        if not self._ready:
            self._writer.flush()
            return False
        events = self._ready.popleft()
        if len(events) > CHUNK_EVENTS:
            self._ready.appendleft(events[CHUNK_EVENTS:])
            events = events[:CHUNK_EVENTS]
        for event in self._decoder.decode(events):
            self._writer.write(event)
        self._waiting -= len(events)
        self._written += len(events)
        return True

    def _check(self) -> None:
        if self._emulator is not None and not os.path.exists(f"/proc/{self._emulator.pid}"):
            self._stop("the VM has ended")
        if not self._boots.look():
            self._stop("the target was restarted")

    def _finish(self) -> None:
        self._queue(self._merger.rest())
        left, began = self._waiting, time.monotonic()
        if left > CHUNK_EVENTS:
            self._progress.step(f"writing {left:,} events that were read")
        while self._write_some():
            if time.monotonic() - began > 1:
                self._progress.advance(left - self._waiting, left)
        self._progress.done()
