# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek trace`: events at places in the target's kernel, read while they happen.

The module records them in the target's memory (kmod/probe/event.c); here they are read in time,
put into one order, understood and written. Ends on request, with the time, with the VM, or when
events are switched off; what has come by then is written. Of a machine that does not run any more,
its rings still have the last events of each CPU.
"""

from __future__ import annotations

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
from trapless.peek.emulator import emulator_of
from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.record import ended_by_signals, is_same
from trapless.peek.trace.events import Decoder, Event, Names
from trapless.peek.trace.rings import Events, Merger, Rings
from trapless.peek.trace.text import JsonWriter, TextWriter

TEXT, JSONL, PERFETTO = FORMATS = ("text", "jsonl", "perfetto")
POLL_S = 0.002
CHECK_S = 1.0
"""How often it is looked whether it is still the same kernel, and whether its VM runs."""
CHUNK_EVENTS = 500
"""Understood and written at a time, before the rings are looked at again."""
WAITING_MAX = 4_000_000
"""Events that were read and are not written yet, 92 bytes each; more are not taken."""


class Writer(Protocol):
    """A format."""

    def write(self, event: Event) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Outcome:
    """How tracing ended, and what came."""

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
    ram: Path,
    hole: int | None,
    output: Path | None,
    *,
    format_: str,
    seconds: float | None,
    backlog: bool,
    progress: Progress,
) -> Outcome:
    """Trace into `output`, or to standard output where it is None."""
    progress.step(f"resolving the kernel in {ram}")
    with Target.open(ram, hole) as target, ExitStack() as stack:
        rings = Rings.open(target)
        emulator = emulator_of(ram)
        runs = emulator.pid if emulator is not None else None
        queues = _queue_lengths(target)
        rings.begin(backlog=backlog or runs is None)
        decoder = Decoder(rings.places, target)
        decoder.names.look(0)
        writer = _writer(format_, output, decoder.names, target, queues, stack)
        progress.done()
        try:
            return _Run(target, rings, decoder, writer, runs, progress).run(seconds)
        finally:
            writer.close()


def _queue_lengths(target: Target) -> dict[int, int]:
    """Of each CPU, at this moment."""
    place = target.place("rq", "nr_running")
    found = {}
    for cpu in target.cpus_online:
        data = target.read(target.percpu("runqueues", cpu) + place.offset, place.size)
        found[cpu] = int.from_bytes(data, "little")
    return found


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
    """A new file, as text; its `buffer` takes bytes."""
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise PeekError(f"{path}: {error.strerror}") from error
    with file:
        yield file


class _Reader(threading.Thread):
    """Takes what is new from the rings, all the time, while others understand and write it.

    It sleeps most of the time, so a busy host lets it run when it wants to. Ends by stop(), or by
    itself when rings are gone; `error` is why it could not go on.
    """

    def __init__(self, rings: Rings) -> None:
        super().__init__(name="rings", daemon=True)
        self._rings = rings
        self._batches: deque[tuple[float, list[Events]]] = deque()
        self._over = threading.Event()
        self.room = True  # for more events: else they stay in the rings, which go over
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
        """(when it was read, a CPU at a time) of all that came since."""
        return [self._batches.popleft() for _ in range(len(self._batches))]


class _Run:
    """One run from the first event to the last."""

    def __init__(
        self,
        target: Target,
        rings: Rings,
        decoder: Decoder,
        writer: Writer,
        vm: int | None,
        progress: Progress,
    ) -> None:
        self._target, self._rings, self._decoder = target, rings, decoder
        self._writer, self._vm, self._progress = writer, vm, progress
        self._reader = _Reader(rings)
        self._merger = Merger()
        self._ready: deque[Events] = deque()
        self._waiting = 0  # events in _ready
        self._written = 0
        self._ending = ""

    def run(self, seconds: float | None) -> Outcome:
        with ended_by_signals(lambda: self._stop("ended on request")):
            if self._vm is None:
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
        """What was read since, unless too much waits to be written."""
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
        """Write a little; False where there was nothing to write."""
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
        if not is_same(self._target, self._progress):
            self._stop("the target was restarted")
        if self._vm is not None and not os.path.exists(f"/proc/{self._vm}"):
            self._stop("the VM has ended")

    def _finish(self) -> None:
        self._queue(self._merger.rest())
        left, began = self._waiting, time.monotonic()
        if left > CHUNK_EVENTS:
            self._progress.step(f"writing {left:,} events that were read")
        while self._write_some():
            if time.monotonic() - began > 1:
                self._progress.advance(left - self._waiting, left)
        self._progress.done()
