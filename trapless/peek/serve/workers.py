# SPDX-License-Identifier: GPL-2.0-only
"""Runs work that may take seconds beside the daemon's loop: whatever reads a machine's memory.

Owns the threads and their turns. They begin with the first work: a thread keeps for ever the rights
that its process had when it began, and so do the processes that it starts. They end with the
process, whatever they wait for.

Any user may start processes that pretend to be machines, and make their reading long. So work has
an owner, the user who answers for the machine. Who has the least work running, and took least time
of late, is next; and where all threads are kept for long, another one begins for those owners who
keep none. So another owner delays work by LONG_S at most.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from trapless.base.console import TraplessError

T = TypeVar("T")

LONG_S = 20.0
"""Work that has run for so long keeps its thread from the count of those that serve all owners."""
HALF_S = 600.0
"""Of the time that an owner's work took, half is forgotten after so long."""


class Job(Generic[T]):
    """Work that was handed over. `done` is set last."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.done = False
        self.value: T | None = None
        self.error: Exception | None = None
        self.seconds = 0.0
        self.began_s = 0.0

    def run(self) -> None:
        self.began_s = time.monotonic()
        try:
            self.value = self._work()
        except (TraplessError, OSError) as error:
            self.error = error
        except Exception as error:  # of one guest: the others go on
            self.error = TraplessError(f"{type(error).__name__}: {error}")
        self.seconds = time.monotonic() - self.began_s
        self.done = True

    def is_alive(self) -> bool:
        """Whether it is not done, as of a thread."""
        return not self.done


@dataclass(eq=False)
class _Owner:
    waiting: deque[Job[Any]] = field(default_factory=deque)
    running: list[Job[Any]] = field(default_factory=list)
    _took: tuple[float, float] = (0.0, 0.0)  # seconds, and when that was

    def count_long(self, now: float) -> int:
        """How many threads its work has kept for long."""
        return sum(0 < job.began_s < now - LONG_S for job in self.running)

    def took_s(self, now: float) -> float:
        seconds, at = self._took
        return seconds * float(0.5 ** ((now - at) / HALF_S))

    def add(self, seconds: float) -> None:
        """Its work has taken so long."""
        now = time.monotonic()
        self._took = self.took_s(now) + seconds, now


class Workers:
    """`count` threads that take work of all owners in fair turns, and some more for a while."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._changed = threading.Condition()  # guards all that follows
        self._owners: dict[int, _Owner] = {}
        self._threads = self._idle = 0

    def submit(self, owner: int, work: Callable[[], T], *, first: bool = False) -> Job[T]:
        """Hand work over; `first`: it goes before what else waits of this owner."""
        job = Job(work)
        with self._changed:
            waiting = self._owners.setdefault(owner, _Owner()).waiting
            waiting.appendleft(job) if first else waiting.append(job)
            self._changed.notify()
        self.tend()
        return job

    def tend(self) -> None:
        """Begin a thread where one is due. To be called several times a second."""
        with self._changed:
            now, owners = time.monotonic(), self._owners.values()
            room = self._count - self._threads
            if any(one.waiting and not one.running for one in owners):
                room += sum(one.count_long(now) for one in owners)
            if not self._idle and room > 0:
                self._threads += 1
                threading.Thread(target=self._serve, name="worker", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None:
                    if self._threads > self._count:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                owner, job = found
                owner.running.append(job)
            job.run()
            with self._changed:
                owner.running.remove(job)
                owner.add(job.seconds)

    def _next(self) -> tuple[_Owner, Job[Any]] | None:
        """The work whose turn it is."""
        now = time.monotonic()
        owners = [one for one in self._owners.values() if one.waiting]
        if self._threads > self._count:
            owners = [one for one in owners if not one.running]
        if not owners:
            return None
        key = [(one.count_long(now) > 0, len(one.running), one.took_s(now)) for one in owners]
        owner = owners[key.index(min(key))]
        return owner, owner.waiting.popleft()
