# SPDX-License-Identifier: GPL-2.0-only
"""Notices that a machine was restarted, and finds the kernel that runs in it afterwards.

Owns the signs: another kernel's identity (canary, note, direct map), a clock that runs backwards,
and a clock that stands still while the emulator works. The last one takes a search: a kernel placed
elsewhere may leave all of the old one as it was, and an idle kernel may stop its clock as well.
Others run the search, in a thread, so that sampling goes on meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target

STILL_S = 1.5
"""How long a kernel's clock may stand still before the kernel may be gone."""
BUSY_SHARE = 0.2
"""An emulator that wants more of a processor while a clock stands still runs something else."""
IDLE_SHARE = 0.02
"""An emulator that gets less of one runs no CPU: no clock would move then."""
AGAIN_S = 1.0
"""The pause between two searches, at first."""
ALIVE_S = 5.0
"""A kernel that is found must move its clock within this time: older ones stay in memory, too."""
ALIVE_STEP_S = 0.05
PATIENCE_S = 20.0
"""A kernel whose reading fails shows within this time that it runs, or that it is gone."""
UNSEEN_S = 120.0
"""How long the next kernel is awaited if it is not known which process runs the machine."""


class Search(Protocol):
    """A search that was begun."""

    def is_alive(self) -> bool: ...


def in_a_thread(search: Callable[[], None]) -> Search:
    """Run a search in a thread of its own."""
    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    return thread


def has_booted(target: Target) -> bool:
    """Whether all CPUs are there and the first program has been started."""
    running = target.types.enumerator("SYSTEM_RUNNING")
    if running is None:
        return True
    state = target.read(target.symbol("system_state"), 4)
    return int.from_bytes(state, "little") >= running[1]


def clock(target: Target) -> int:
    """The kernel's clock, in ticks."""
    return target.read_u64(target.symbol("jiffies_64"))


class Boots:
    """Watches one kernel until it is gone, and finds the next one. One thread uses it.

    `alive_ns` is the time, of this machine's CLOCK_MONOTONIC, at which the kernel was last known to
    run. The pauses between searches that find nothing grow to `pause_max_s`. `begin` runs one.
    """

    def __init__(
        self,
        target: Target,
        emulator: Emulator | None,
        pause_max_s: float = AGAIN_S,
        begin: Callable[[Callable[[], None]], Search] = in_a_thread,
    ) -> None:
        self._target, self._begin = target, begin
        self._pause_s, self._pause_max_s = AGAIN_S, pause_max_s
        self._stat = None if emulator is None else Path(f"/proc/{emulator.pid}/stat")
        self.alive_ns = time.monotonic_ns()
        self._clock = clock(target)
        self._work_s = self._worked_s()
        self._searched_s = 0.0
        self._search: Search | None = None
        self._successor: Target | None = None

    def look(self) -> bool:
        """Whether the kernel runs still, as far as is known. To be called about once a second.

        A memory that is gone, with its machine, is no restart: the sampler notices that.
        """
        try:
            self._target.check_same()
            now = clock(self._target)
        except PeekError:
            return self.is_gone()
        if now < self._clock:
            return False
        if now > self._clock:
            self._clock, self.alive_ns = now, time.monotonic_ns()
            self._work_s, self._pause_s = self._worked_s(), AGAIN_S
        elif self.is_suspect():
            self._begin_search()
        return self._successor is None

    @property
    def still_s(self) -> float:
        """How long the kernel's clock has stood still, as far as looks have shown, in seconds."""
        return max(time.monotonic_ns() - self.alive_ns, 0) / 1e9

    def is_suspect(self) -> bool:
        """Whether the clock stands still while the emulator works: the kernel may be gone."""
        still_s = self.still_s
        if still_s < STILL_S:
            return False
        ran, waited = (now - was for was, now in zip(self._work_s, self._worked_s(), strict=True))
        return ran >= IDLE_SHARE * still_s and ran + waited >= BUSY_SHARE * still_s

    @contextmanager
    def passing_errors(self) -> Iterator[None]:
        """A block that reads the kernel. If it fails because the kernel is gone, execution
        continues behind the block.

        A kernel that is gone is overwritten piece by piece, so what is read of it fails before the
        signs of a restart are there: they are waited for, or for a sign of life.
        """
        try:
            yield
        except PeekError:
            if not self._is_over():
                raise

    def _is_over(self) -> bool:
        began_ns, end = time.monotonic_ns(), time.monotonic() + PATIENCE_S
        while self.alive_ns < began_ns and time.monotonic() < end:
            if not self.look() or self.is_gone():
                return True
            time.sleep(ALIVE_STEP_S)
        return False

    def next(self, over: Callable[[], bool]) -> Target | None:
        """The kernel that runs after this one; None where there was none until `over`."""
        began = time.monotonic()
        while self._successor is None and not over() and self._may_come(time.monotonic() - began):
            if self.is_gone():
                return None
            self._begin_search()
            time.sleep(ALIVE_STEP_S)
        return self._successor

    def is_gone(self) -> bool:
        """Whether the memory itself cannot be read any more."""
        try:
            self._target.check_memory()
        except PeekError:
            return True
        return False

    def _may_come(self, waited_s: float) -> bool:
        return waited_s < UNSEEN_S if self._stat is None else self._stat.exists()

    def _worked_s(self) -> tuple[float, float]:
        """How long the emulator has run, and its threads have waited for a processor, in seconds.

        On a busy host, a CPU that never rests waits most of the time.
        """
        if self._stat is None:
            return 0.0, 0.0
        waited_ns = 0
        try:
            words = self._stat.read_text(errors="replace").rpartition(")")[2].split()
            for thread in self._stat.with_name("task").iterdir():
                with suppress(OSError, IndexError):  # it ends, or the kernel does not count
                    waited_ns += int((thread / "schedstat").read_text().split()[1])
        except OSError:
            return 0.0, 0.0
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), waited_ns / 1e9

    def _begin_search(self) -> None:
        running = self._search is not None and self._search.is_alive()
        early = time.monotonic() - self._searched_s < self._pause_s
        if running or self._successor is not None or early:
            return
        if self._searched_s:
            self._pause_s = min(2 * self._pause_s, self._pause_max_s)
        self._search = self._begin(self._look_for_another)

    def _look_for_another(self) -> None:
        try:
            self._successor = successor(self._target)
        finally:
            self._searched_s = time.monotonic()


def successor(target: Target) -> Target | None:
    """The kernel that runs in a memory whose kernel `target` does not run any more, or None."""
    try:
        other = target.again()
    except (PeekError, OSError):  # OSError: the target was closed meanwhile
        return None
    try:
        if other.identity != target.identity and has_booted(other) and _moves(other):
            return other
    except PeekError:
        pass
    other.close()
    return None


def _moves(target: Target) -> bool:
    before, end = clock(target), time.monotonic() + ALIVE_S
    while time.monotonic() < end:
        time.sleep(ALIVE_STEP_S)
        if clock(target) != before:
            return True
    return False
