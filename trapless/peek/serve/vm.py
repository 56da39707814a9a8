# SPDX-License-Identifier: GPL-2.0-only
"""One machine, from when it was found until it is gone: opened, sampled, followed over reboots.

Owns the states and the pauses between attempts, so that a machine that cannot be read, or that is
restarted again and again, takes a tenth of a processor at most. The fleet's loop calls all methods,
and none of them reads the machine: a process may keep waiting whoever reads its memory, so workers
do that. tally.py adds up, and ring.py records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from trapless.base.console import TraplessError
from trapless.peek import limits
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.sampling.boots import Boots, successor
from trapless.peek.sampling.names import CODE, Names
from trapless.peek.sampling.record import source_of
from trapless.peek.sampling.rows import Ending, Rows
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.serve.kernel import BootingError, ServedKernel
from trapless.peek.serve.lives import STUCK, Lives, is_stuck
from trapless.peek.serve.opener import EndedError, Found, Opener
from trapless.peek.serve.ring import Ring, Source
from trapless.peek.serve.tally import Tally
from trapless.peek.serve.workers import Job, Workers

LOOK_S = 1.0
"""How often a kernel is looked at: whether it is the same, and what was sampled is added up."""
PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 120.0
BOOT_PAUSE_MAX_S = 10.0
"""As long as a guest boots: one that never comes up is seen at more of its attempts."""
ATTEMPT_SHARE = 10
"""A pause is so many times as long as the attempt before it."""
ATTEMPT_S = 60.0
"""After so long no other way to read a machine is tried in the same attempt."""
STABLE_S = 60.0
"""After so long without an error, the pauses are short again."""
REPLAN_PAUSE_S = 5.0
END_S = 5.0
"""For a sampler that was told to end."""
PIECES_MAX = 32
"""Of output, read from one sampler before the next one has its turn."""
UNNAMED_MAX = 4096
RELEASES_MAX = 16
"""Of one machine, that become labels: a guest may have another one after each restart, and each is
a time series for ever in the database of whoever asks."""
OTHER_RELEASE = GuestText(b"(one of too many)")
NS = 1e9


class State(StrEnum):
    """What is known of a machine."""

    WAITING = "waiting"  # for its turn to be opened
    SAMPLED = "sampled"
    STUCK = "stuck"  # sampled, and its clock stands still although the emulator works
    UNREADABLE = "unreadable"  # its memory cannot be opened, or sampled
    NO_KERNEL = "no_kernel"  # that could be read
    BOOTING = "booting"
    RESTARTING = "restarting"  # it was reset, and the next kernel is waited for
    ENDED = "ended"


class NoKernelError(PeekError):
    """The memory is there, and no kernel in it that can be read."""


@dataclass(frozen=True)
class Settings:
    """What holds for all machines."""

    opener: Opener
    workers: Workers
    lock: Lock  # held while what others show is changed
    interval_ns: int
    cpu: int | None
    names_max: int
    ring: Ring | None
    note: Callable[[str], None]


@dataclass(frozen=True)
class Opened:
    """A kernel that was opened, and what was read of it then."""

    kernel: ServedKernel
    emulator: Emulator | None
    boots: Boots
    signs: bytes


class Vm:
    """A machine. Others may read, with the lock held, what has no underscore."""

    def __init__(self, found: Found, title: str, settings: Settings) -> None:
        self.found, self.title = found, title
        self.state, self.reason = State.WAITING, ""
        self.release: GuestText | None = None
        self.releases: dict[GuestText, None] = {}  # that may become labels
        self.probes: str | None = None
        self.tally = Tally(settings.names_max)
        self.failures = 0
        self.ended_s: float | None = None
        self._settings = settings
        self._job: Job[Any] | None = None
        self._ending: Job[None] | None = None  # of the last sampler
        self._then: Callable[[Any], None] = self._adopt
        self._pause_s, self._next_s = PAUSE_MIN_S, 0.0
        self._kernel: ServedKernel | None = None
        self._emulator: Emulator | None = None
        self._boots: Boots | None = None
        self._lives = Lives()
        self._run: Sampler | None = None
        self._stopping_s: float | None = None
        self._began_s = self._looked_s = self._added_s = 0.0
        self._opening_s = 0.0  # how long the last one took
        self._way = 0  # the number of the one that is tried next
        self._window: list[Rows] = []
        self._host: dict[int, tuple[int, int]] = {}
        self._signs, self._replan_s, self._replan_pause_s = b"", 0.0, REPLAN_PAUSE_S
        self._source: Source | None = None
        self._unnamed: set[int] = set()

    @property
    def release_label(self) -> GuestText | None:
        """The release, or what stands for those beyond the bound; None before there is one."""
        return (
            self.release if self.release is None or self.release in self.releases else OTHER_RELEASE
        )

    @property
    def reboots(self) -> int:
        """How many kernels were seen that are gone."""
        return self._lives.gone

    def clock_still_s(self) -> float | None:
        """How long the guest's clock has stood still; None where it is not sampled."""
        boots = self._boots
        return None if boots is None else max(time.monotonic_ns() - boots.alive_ns, 0) / NS

    # ---- The loop's calls ------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Go on with whatever is due. To be called several times a second."""
        if self._run is not None and now - self._added_s >= LOOK_S:
            self._added_s = now
            self._add_window()
            self._add_host()
        if self._job is not None:
            if self._job.done:
                self._finish_job(self._job)
            return
        if self._run is not None:
            if self._stopping_s is not None:
                if now - self._stopping_s > END_S:
                    self._run.kill()
            elif now - self._looked_s >= LOOK_S:
                self._looked_s = now
                self._look(now)
        elif self.state is not State.ENDED and now >= self._next_s:
            self._try()

    def read(self) -> None:
        """Take what the sampler has written."""
        for _ in range(PIECES_MAX):
            if self._run is None:
                return
            try:
                batches = self._run.arrived()
            except BlockingIOError:
                return
            if batches is None:
                self._sampled_to_the_end(self._run)
                return
            self._window += batches

    def end(self) -> None:
        """The machine has gone: give everything back."""
        self.release_all()
        with self._settings.lock:
            self._say(State.ENDED, "")
            self.ended_s = time.monotonic()

    def release_all(self) -> None:
        """End the sampler, and close what is open."""
        with suppress(Exception):  # its last rows may be nothing that can be
            self._add_window()
        self._forget_run()
        self._close()

    def give_up(self, error: Exception) -> None:
        """What was read is nothing that can be: begin again later."""
        self._window = []
        self._forget_run()
        self._failed(PeekError(f"{type(error).__name__}: {error}"), 0.0)

    @property
    def is_released(self) -> bool:
        """Whether its sampler has ended."""
        return self._run is None and (self._ending is None or self._ending.done)

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing goes on for it any more."""
        return self._job is None

    # ---- Opening ---------------------------------------------------------------------------------

    def _try(self) -> None:
        work: Callable[[], Any]
        if self.state is State.RESTARTING and self._kernel is not None:
            work = self._next_kernel
        else:
            self._close()
            work = self._open
        self._then = self._adopt
        self._job = self._settings.workers.submit(self.found.owner, work)

    def _open(self) -> Opened:
        """In a worker: the kernel that runs in the machine."""
        opener, first, began_s = self._settings.opener, None, time.monotonic()
        emulator = opener.emulator(self.found)
        for layouts in opener.ways(self.found, self._way):
            try:
                kernel = ServedKernel.of(layouts)
                assert isinstance(kernel, ServedKernel)
                return self._watched(kernel, emulator)
            except BootingError:
                raise
            except PeekError as error:
                first = first or error
            self._way += 1
            if time.monotonic() - began_s >= ATTEMPT_S:  # the next attempt begins with the next way
                raise NoKernelError(str(first))
        tried, self._way = self._way, 0
        if tried and first is None:  # the last attempt has tried the last way
            return self._open()
        raise NoKernelError(str(first or "nothing in it is large enough to be RAM"))

    def _watched(self, kernel: ServedKernel, emulator: Emulator | None) -> Opened:
        """In a worker: a kernel, and all that is read of it before it is sampled."""

        def begin(search: Callable[[], None]) -> Job[None]:
            return self._settings.workers.submit(self.found.owner, search)

        try:
            boots = Boots(kernel, emulator, PAUSE_MAX_S, begin)
            return Opened(kernel, emulator, boots, kernel.signs())
        except BaseException:
            kernel.close()
            raise

    def _next_kernel(self) -> Opened:
        """In a worker: the kernel after a restart."""
        assert self._kernel is not None and self._boots is not None
        if self._boots.is_gone():
            return self._open()
        before = self._kernel
        kernel = self._boots.next(lambda: True) or successor(before)
        if kernel is None:
            raise BootingError("it was restarted; no kernel runs in it yet", before.booting)
        assert isinstance(kernel, ServedKernel)
        return self._watched(kernel, self._emulator)

    def _finish_job(self, job: Job[Any]) -> None:
        self._job = None
        if job.error is None:
            if isinstance(job.value, Opened):
                self._opening_s = job.seconds
            self._then(job.value)
        elif self._run is None:  # else sampling goes on as before, and it is asked again later
            self._failed(job.error, job.seconds)

    def _adopt(self, opened: Opened) -> None:
        kernel = opened.kernel
        if self.state is State.ENDED:
            kernel.close()
            return
        self._close()
        self._kernel, self._emulator = kernel, opened.emulator
        with self._settings.lock:
            self.release = kernel.release
            if len(self.releases) < RELEASES_MAX:
                self.releases[kernel.release] = None
            self._lives.see(kernel.identity)
        self._boots, self._signs = opened.boots, opened.signs
        self._sample()

    def _sample(self) -> None:
        """Start the sampler."""
        kernel, settings = self._kernel, self._settings
        assert kernel is not None
        plan = kernel.plan(settings.interval_ns, settings.cpu, self._emulator)
        try:
            run = Sampler(source_of(kernel), plan)
            run.__enter__()
        except (TraplessError, OSError) as error:
            self._failed(error, 0.0)
            return
        os.set_blocking(run.output, False)
        self._run, self._source, self._stopping_s = run, None, None
        self._began_s = self._looked_s = self._added_s = time.monotonic()
        self._host.clear()
        with settings.lock:
            self.tally.begin()
            probes = kernel.probe_map
            self.probes = None if probes is None else f"{int(probes.active)}"
            self._say(State.SAMPLED, "")

    # ---- Sampling --------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        if now - self._began_s >= STABLE_S:
            self._pause_s = PAUSE_MIN_S
        kernel, boots = self._kernel, self._boots
        assert kernel is not None and boots is not None

        def look() -> tuple[bool, bool, bytes]:
            """In a worker: whether the kernel is the same, whether it is stuck, and its signs."""
            same, signs = boots.look(), self._signs
            with suppress(PeekError):  # the next look says why
                signs = kernel.signs()
            return same, is_stuck(boots), signs

        self._then = self._looked
        self._job = self._settings.workers.submit(self.found.owner, look, first=True)

    def _looked(self, seen: tuple[bool, bool, bytes]) -> None:
        (same, stuck, signs), kernel, now = seen, self._kernel, time.monotonic()
        if kernel is None or self._run is None or self._stopping_s is not None:
            return
        other = kernel.booting if stuck else None
        if not same or (other is not None and not self._lives.has_seen(other)):
            with self._settings.lock:
                self._lives.lose()
            self._stop(State.RESTARTING, "it was restarted; no kernel runs in it yet")
            return
        with self._settings.lock:
            self._say(*((State.STUCK, STUCK) if stuck else (State.SAMPLED, "")))
        changed = signs != self._signs
        if now >= self._replan_s and (changed or self._unnamed):
            self._replan_s = now + self._replan_pause_s
            self._replan_pause_s = min(2 * self._replan_pause_s, PAUSE_MAX_S)
            self._then = self._replanned
            self._job = self._settings.workers.submit(
                self.found.owner, lambda: self._ask_again(kernel, changed)
            )
        elif now - self._replan_s >= STABLE_S:
            self._replan_pause_s = REPLAN_PAUSE_S

    def _ask_again(self, kernel: ServedKernel, changed: bool) -> bool:
        """In a worker: name new addresses; whether the plan must be another one."""
        if self._unnamed and self._source is not None:
            unnamed, self._unnamed = self._unnamed, set()
            with kernel.awake():
                names = {address: kernel.name_of(address) for address in sorted(unnamed)}
            self._source.names.known = {**self._source.names.known, **names}
        if not changed:
            return False
        signs, other_plan = kernel.signs(), kernel.plan_has_changed()
        self._signs = signs
        return other_plan

    def _replanned(self, other_plan: bool) -> None:
        if other_plan and self._run is not None:
            self._stop(State.WAITING, "its modules or CPUs have changed")

    def _add_window(self) -> None:
        window, self._window = self._window, []
        run, kernel, ring = self._run, self._kernel, self._settings.ring
        if not window or run is None or kernel is None:
            return
        with self._settings.lock:
            self.tally.add(run.head, window, kernel.context_user)
        if ring is None:
            return
        if self._source is None:
            threads = self._emulator.threads if self._emulator is not None else ()
            about = {**kernel.about, "vcpus": threads}
            names = Names(kernel)
            self._source = Source(self.title, run.head, about, names, self.found.owner)
        for rows in window:
            ring.add(self._source, rows)
            self._collect_names(rows, self._source.names)

    def _collect_names(self, rows: Rows, names: Names) -> None:
        for column in rows.dtype.names or ():
            if column.endswith(".state"):
                places = set(np.unique(rows[column]).tolist()) - names.known.keys()
                room = min(UNNAMED_MAX, limits.NAMES_MAX - len(names.known)) - len(self._unnamed)
                self._unnamed.update([one for one in places if one >= CODE][: max(room, 0)])

    def _add_host(self) -> None:
        """How long each virtual processor ran, and waited for a processor of the host."""
        for number, thread in enumerate(self._emulator.threads if self._emulator else ()):
            with suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{thread}/schedstat").read_text().split()
                run, wait = int(words[0]), int(words[1])
                before = self._host.get(number)
                self._host[number] = run, wait
                if before is not None:
                    with self._settings.lock:
                        steps = (max(run - before[0], 0) / NS, max(wait - before[1], 0) / NS)
                        self.tally.add_host(number, *steps)

    # ---- The ends --------------------------------------------------------------------------------

    def _stop(self, state: State, reason: str) -> None:
        """End the sampler; tick() goes on from the state once it has ended."""
        assert self._run is not None
        self._stopping_s = time.monotonic()
        self._run.stop()
        with self._settings.lock:
            self._say(state, reason)

    def _sampled_to_the_end(self, run: Sampler) -> None:
        wanted = self._stopping_s is not None
        try:
            self._add_window()
            run.check_ending()
            ending = run.end.ending if run.end is not None else None
        except PeekError as error:
            self._forget_run()
            self._failed(error, 0.0)
            return
        self._forget_run()
        if wanted and self.state is State.WAITING:
            self._sample()
        elif wanted:  # a guest that is restarted again and again waits as one that is not readable
            pause_s = min(ATTEMPT_SHARE * self._opening_s, PAUSE_MAX_S)
            self._next_s = max(self._began_s + pause_s, time.monotonic())
        elif ending in (Ending.TARGET, Ending.SOURCE):  # the next attempt says whether it has ended
            self._failed(PeekError("its memory went away"), 0.0, State.WAITING)
        else:
            self._failed(PeekError("the sampler was killed"), 0.0)

    def _forget_run(self) -> None:
        """The sampler has ended: so has its recording."""
        ring, alive = self._settings.ring, None
        if self._boots is not None and self.state is State.RESTARTING:
            alive = self._boots.alive_ns
        if ring is not None and self._source is not None:
            ring.end(self._source, alive)
        if (run := self._run) is not None:
            run.kill()  # where it has not ended; who reads a process may not end before that does
            self._ending = self._settings.workers.submit(
                self.found.owner, lambda: run.__exit__(None, None, None), first=True
            )
        self._run, self._source, self._window = None, None, []
        self._unnamed.clear()

    def _failed(self, error: Exception, seconds: float, state: State = State.UNREADABLE) -> None:
        """Say why, and try again later."""
        if self.state is State.ENDED:
            return
        if isinstance(error, EndedError):
            self.end()
            return
        coming = self.state if self.state in (State.BOOTING, State.RESTARTING) else None
        if isinstance(error, BootingError):
            state = coming or State.BOOTING
        elif isinstance(error, NoKernelError):  # while it restarts, there is none for a while
            state = coming or State.NO_KERNEL
        self._next_s = time.monotonic() + max(self._pause_s, ATTEMPT_SHARE * seconds)
        boots = state in (State.BOOTING, State.RESTARTING)
        self._pause_s = min(2 * self._pause_s, BOOT_PAUSE_MAX_S if boots else PAUSE_MAX_S)
        with self._settings.lock:
            self.failures += 1
            if isinstance(error, BootingError) and error.identity is not None:
                self._lives.see(error.identity)
            self._say(state, str(error))

    def _say(self, state: State, reason: str) -> None:
        """Note a change, once."""
        line = visible(reason.split("\n")[0])
        if (state, line) != (self.state, self.reason):
            release = f" {self.release}" if state is State.SAMPLED else ""
            self._settings.note(f"{self.title}: {state}{release}{f': {line}' if line else ''}")
        self.state, self.reason = state, line

    def _close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
        with self._settings.lock:
            self._kernel, self._boots = None, None
