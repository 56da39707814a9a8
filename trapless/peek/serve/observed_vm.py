# SPDX-License-Identifier: GPL-2.0-only
"""Holds what is known and shown of one machine, from when it is found until it is gone.

Owns the machine's state in words, its counts, and the pauses between attempts to read it, so that a
machine that cannot be read, or that is restarted again and again, takes a tenth of a processor at
most. phases.py has what is done with the machine; metrics.py and machines_page.py show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import Protocol

from trapless.peek.diagnosis.opener import Found, Opener
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel.health.hang_causes import Cause
from trapless.peek.sampling.boots import Boots
from trapless.peek.serve.kernel_history import KernelHistory
from trapless.peek.serve.recordings_folder import RecordingsFolder
from trapless.peek.serve.served_kernel import BootingError, ServedKernel
from trapless.peek.serve.tally import Tally
from trapless.peek.serve.workers import Job, Workers

PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 120.0
BOOT_PAUSE_MAX_S = 10.0
"""About the time of a guest's boot, so that a guest that never comes up is seen at more of its
attempts."""
ATTEMPT_SHARE = 10
"""The ratio of a pause to the attempt before it."""
REPLAN_PAUSE_S = 5.0
RELEASES_MAX = 16
"""The most releases of one machine that become labels: a guest may have a new one after each
restart, and each stays a time series for ever in the database that collects them."""
OTHER_RELEASE = GuestText(b"(one of too many)")
NS = 1e9


class State(StrEnum):
    """The state of a machine, as far as it is known."""

    WAITING = "waiting"  # for its turn to be opened
    SAMPLED = "sampled"
    STUCK = "stuck"  # it panicked, or its clock stands still although the emulator works
    UNREADABLE = "unreadable"  # its memory cannot be opened, or sampled
    NO_KERNEL = "no_kernel"  # that could be read
    BOOTING = "booting"
    RESTARTING = "restarting"  # it was reset, and the next kernel is waited for
    ENDED = "ended"


LOG_WORDS = {
    State.WAITING: "waits to be opened",
    State.SAMPLED: "is sampled",
    State.STUCK: "is stuck",
    State.UNREADABLE: "cannot be read",
    State.NO_KERNEL: "shows no kernel",
    State.BOOTING: "is booting",
    State.RESTARTING: "is restarting",
    State.ENDED: "has ended",
}
"""What the log says of a machine that has come into a state."""


class NoKernelError(PeekError):
    """The memory is there, and no kernel in it that can be read."""


@dataclass(frozen=True)
class Settings:
    """The settings for all machines."""

    opener: Opener
    workers: Workers
    lock: Lock  # held while what others show is changed
    interval_ns: int
    cpu: int | None
    names_max: int
    recordings: RecordingsFolder | None
    note: Callable[[str], None]


@dataclass
class Pause:
    """A pause that is twice as long each time, up to a bound. `due_s` is its end."""

    first_s: float
    most_s: float
    due_s: float = 0.0
    _length_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._length_s = self.first_s

    def begin(self, least_s: float = 0.0, most_s: float | None = None) -> None:
        """Begin the next one, of `least_s` at least; `most_s` is a lower bound of the growth."""
        self.due_s = time.monotonic() + max(self._length_s, least_s)
        self._length_s = min(2 * self._length_s, self.most_s if most_s is None else most_s)

    def shorten(self) -> None:
        """The next one is as short as the first."""
        self._length_s = self.first_s


class Phase(Protocol):
    """A phase in the work on a machine. Only the loop's thread calls it."""

    @property
    def boots(self) -> Boots | None:
        """The signs of the kernel's life, where one is open."""

    def step(self) -> Phase:
        """Go on with what is due; the phase that follows, which is mostly this one."""

    def close(self) -> None:
        """Give back what is open."""


class ObservedVm:
    """A machine. The loop's thread changes it, with the lock held for what others show."""

    phase: Phase

    def __init__(self, found: Found, title: str, settings: Settings) -> None:
        self.found, self.title, self.settings = found, title, settings
        self.state, self.reason = State.WAITING, ""
        self.cause: Cause | None = None  # why it is stuck, where that is known
        self.release: GuestText | None = None
        self.releases: dict[GuestText, None] = {}  # that may become labels
        self.probes: str | None = None
        self.tally = Tally(settings.names_max)
        self.failures = 0
        self.ended_s: float | None = None
        self.history = KernelHistory()
        self.opening_s = 0.0  # how long the last opening took
        self.way = 0  # the number of the way to read it that is tried next, by a worker
        self.ending: Job[None] | None = None  # of the last sampler
        self.attempts = Pause(PAUSE_MIN_S, PAUSE_MAX_S)
        self.replans = Pause(REPLAN_PAUSE_S, PAUSE_MAX_S)

    @property
    def release_label(self) -> GuestText | None:
        """The release, or the label that stands for those beyond the bound; None before there is
        one."""
        return (
            self.release if self.release is None or self.release in self.releases else OTHER_RELEASE
        )

    @property
    def reboots(self) -> int:
        """How many kernels were seen that are gone."""
        return self.history.gone

    def clock_still_s(self) -> float | None:
        """How long the guest's clock has stood still; None where no kernel is open."""
        boots = self.phase.boots
        return None if boots is None else max(time.monotonic_ns() - boots.alive_ns, 0) / NS

    # ---- What happens to it ----------------------------------------------------------------------

    def say(self, state: State, reason: str = "") -> None:
        """Note a change, once."""
        with self.settings.lock:
            self._say(state, reason)

    def explain(self, cause: Cause | None, reason: str) -> None:
        """Note why it is stuck."""
        with self.settings.lock:
            self._say(State.STUCK, reason)
            self.cause = cause

    def see(self, kernel: ServedKernel) -> None:
        """A kernel was opened."""
        with self.settings.lock:
            self.release = kernel.release
            if len(self.releases) < RELEASES_MAX:
                self.releases[kernel.release] = None
            self.history.see(kernel.identity)

    def begin(self, kernel: ServedKernel) -> None:
        """A sampler samples it from now on."""
        with self.settings.lock:
            self.tally.begin()
            probes = kernel.probe_map
            self.probes = None if probes is None else f"{int(probes.active)}"
            self._say(State.SAMPLED, "")

    def restart(self) -> None:
        """The kernel is gone, and the next one is waited for."""
        with self.settings.lock:
            self.history.lose()
            self._say(State.RESTARTING, "it was restarted; no kernel runs in it yet")

    def fail(self, error: Exception, seconds: float, state: State) -> None:
        """An attempt that took so long has failed; the next one is due after a pause."""
        follows = self.state is State.RESTARTING or not self.history.is_empty
        coming = self.state if follows and self.state in (State.BOOTING, State.RESTARTING) else None
        if isinstance(error, BootingError):
            state = coming or State.BOOTING
        elif isinstance(error, NoKernelError):  # while it restarts, there is none for a while
            state = coming or State.NO_KERNEL
        boots = state in (State.BOOTING, State.RESTARTING)
        self.attempts.begin(ATTEMPT_SHARE * seconds, BOOT_PAUSE_MAX_S if boots else None)
        with self.settings.lock:
            self.failures += not boots
            if isinstance(error, BootingError) and error.identity is not None:
                self.history.see(error.identity)
            self._say(state, str(error))

    def end(self) -> None:
        """The machine has gone."""
        with self.settings.lock:
            self._say(State.ENDED, "")
            self.ended_s = time.monotonic()

    def _say(self, state: State, reason: str) -> None:
        line = visible(reason.split("\n")[0])
        if (state, line) != (self.state, self.reason):
            release = f", Linux {self.release}" if state is State.SAMPLED else ""
            reason = f": {line}" if line else ""
            self.settings.note(f"{self.title} {LOG_WORDS[state]}{release}{reason}")
        self.state, self.reason, self.cause = state, line, None
