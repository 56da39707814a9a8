# SPDX-License-Identifier: GPL-2.0-only
"""Samples the stacks of a running kernel, in a thread of its own beside a recording.

Owns when stacks are sampled, and what is done with a kernel that is gone: samples count only once
the kernel's clock has moved after them. kernel/kernel_stacks.py reads the stacks, in the sandbox.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from trapless.base.console import Progress, TraplessError
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.kernel_stacks import CpuStack
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.boots import clock
from trapless.peek.sampling.code_names import Names
from trapless.peek.sampling.recording import Recorder
from trapless.peek.stacks.profile import Profile
from trapless.peek.stacks.stops import Stops, opened


class StackWatch:
    """Samples stacks `rate` times a second while it is entered. It belongs to one boot.

    With `monitor`, the machine, which `emulator` runs, is stopped at each sample, and what its CPUs
    do is sampled as well.
    """

    def __init__(
        self,
        target: Target,
        names: Names,
        rate: float,
        monitor: Path | None = None,
        emulator: Emulator | None = None,
    ) -> None:
        self._target, self._names = target, names
        self._monitor, self._emulator = monitor, emulator
        self._period_ns = round(1e9 / rate)
        self._lock = threading.Lock()  # of the sums
        self._sums, self._pending = Profile(), Profile()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._clock = clock(target)
        self.problem: str | None = None

    def __enter__(self) -> StackWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        try:
            self._target.check_same()
        except PeekError:  # the last samples may show a kernel that is gone
            return
        self._sums.merge(self._pending)
        self._pending = Profile()

    def keep(self, recorder: Recorder) -> None:
        """Store the sums beside a recording's rows."""
        with self._lock:
            if self._sums.samples:
                self._sums.keep(recorder)

    def tell(self, progress: Progress) -> None:
        """Say how it went."""
        if self.problem is not None:
            progress.note(f"stacks: {self.problem}")
        seconds = self._sums.time_ns / 1e9
        rate = self._sums.samples / seconds if seconds else 0.0
        progress.note(f"stacks: {self._sums.samples:,} samples, {rate:.3g} a second")

    def _run(self) -> None:
        try:
            with opened(self._monitor, self._emulator, self._target.memory) as stops:
                self._sample(stops)
        except TraplessError as error:
            self.problem = str(error)

    def _sample(self, stops: Stops | None) -> None:
        last = time.monotonic_ns()
        due = last + self._period_ns
        while not self._over.wait(max(due - time.monotonic_ns(), 0) / 1e9):
            now = time.monotonic_ns()
            try:
                self._sample_once(stops, now - last)
            except PeekError as error:  # the kernel is gone, or this moment could not be read
                self.problem = str(error)
            last = now
            # Moments that have passed are skipped: a sample stands for the time since the one
            # before.
            due = max(due + self._period_ns, time.monotonic_ns())

    def _sample_once(self, stops: Stops | None, time_ns: int) -> None:
        cpus: list[CpuStack] = []
        if stops is not None:
            with stops.stopped() as registers:
                cpus = self._target.cpu_stacks(registers)
        threads = self._target.thread_stacks()
        self._pending.add(threads, cpus, time_ns)
        for address in self._pending.addresses():
            self._names.name(address)
        now = clock(self._target)
        if now != self._clock:
            self._clock = now
            with self._lock:
                self._sums.merge(self._pending)
            self._pending = Profile()
