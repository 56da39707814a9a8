# SPDX-License-Identifier: GPL-2.0-only
"""Runs work that may take seconds beside the daemon's loop: whatever reads a machine's memory.

Owns the threads. They begin with the first work: a thread keeps for ever the rights that its
process had when it began, and so do the processes that it starts. They end with the process,
whatever they wait for, as the threads of concurrent.futures do not.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from trapless.base.console import TraplessError

T = TypeVar("T")


class Job(Generic[T]):
    """Work that was handed over."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = threading.Lock()  # guards the two that follow
        self._is_done = False
        self._last: Callable[[], None] | None = None
        self.value: T | None = None
        self.error: Exception | None = None
        self.seconds = 0.0

    @property
    def done(self) -> bool:
        """Whether it has ended, so that `value`, `error` and `seconds` stay as they are."""
        return self._is_done

    def run(self) -> None:
        """Do the work, in this thread."""
        began_s = time.monotonic()
        try:
            self.value = self._work()
        except (TraplessError, OSError) as error:
            self.error = error
        except Exception as error:  # the error is about one guest: the others go on
            self.error = TraplessError(f"{type(error).__name__}: {error}")
        self.seconds = time.monotonic() - began_s
        with self._lock:
            self._is_done = True
        if self._last is not None:
            with suppress(Exception):  # else this thread would end
                self._last()

    def when_done(self, last: Callable[[], None]) -> None:
        """Have something done at the end of the work: now, if it has ended. To be called once."""
        with self._lock:
            if not self._is_done:
                self._last = last
                return
        last()

    def is_alive(self) -> bool:
        """Whether the work is not done yet; the name is that of a thread's method."""
        return not self._is_done


class Workers:
    """`count` threads that take work in its order, short work first. Any thread may submit."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: queue.PriorityQueue[tuple[bool, int, Job[Any]]] = queue.PriorityQueue()
        self._lock = threading.Lock()  # guards the two that follow
        self._begun = self._submitted = 0

    def submit(self, work: Callable[[], T], *, is_short: bool = False) -> Job[T]:
        """Hand work over. Short work does not wait for that of guests that take long to open."""
        job = Job(work)
        with self._lock:
            self._submitted += 1
            self._waiting.put((not is_short, self._submitted, job))
            if self._begun < self._count:
                self._begun += 1
                threading.Thread(target=self._serve, name="worker", daemon=True).start()
        return job

    def _serve(self) -> None:
        while True:
            self._waiting.get()[2].run()
