# SPDX-License-Identifier: GPL-2.0-only
"""Runs work that may take seconds beside the daemon's loop: opening machines, mostly.

Owns the threads, which begin with the first work: a thread keeps for ever the rights that its
process had when it began, and so do the processes that it starts. They are few and end with the
process, whatever they wait for, so that a guest that makes its reader slow delays others by a
bounded time and never the end of the daemon.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from trapless.base.console import TraplessError

T = TypeVar("T")


class Job(Generic[T]):
    """Work that was handed over. `done` is set last."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.done = False
        self.value: T | None = None
        self.error: Exception | None = None
        self.seconds = 0.0

    def run(self) -> None:
        began = time.monotonic()
        try:
            self.value = self._work()
        except (TraplessError, OSError) as error:
            self.error = error
        except Exception as error:  # of one guest: the others go on
            self.error = TraplessError(f"{type(error).__name__}: {error}")
        self.seconds = time.monotonic() - began
        self.done = True


class Workers:
    """`count` threads that take work in its order. One thread hands it over."""

    def __init__(self, count: int) -> None:
        self._queue: queue.SimpleQueue[Job[object]] = queue.SimpleQueue()
        self._waiting = [
            threading.Thread(target=self._serve, name=f"worker-{number}", daemon=True)
            for number in range(count)
        ]

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Hand work over."""
        job = Job(work)
        while self._waiting:
            self._waiting.pop().start()
        self._queue.put(job)  # type: ignore[arg-type]  # what comes back is the caller's
        return job

    def _serve(self) -> None:
        while True:
            self._queue.get().run()
