# SPDX-License-Identifier: GPL-2.0-only
"""The three phases of a machine: away, being opened, sampled. Each gives the one that follows.

Owns what is done with one machine, and how it is followed over reboots. The daemon's loop makes all
steps, and none of them reads the machine: a guest may make its reader slow, so workers read.
tally.py adds up what was sampled, and recordings_folder.py records it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trapless.base.console import TraplessError
from trapless.peek import errors, limits
from trapless.peek.diagnosis.opener import EndedError
from trapless.peek.diagnosis.two_looks import stuck_verdict
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.health.hang_causes import Cause, Verdict
from trapless.peek.kernel.health.last_words import BOOT_S, panicked_on
from trapless.peek.sampling.boots import Boots, successor
from trapless.peek.sampling.code_names import CODE, Names
from trapless.peek.sampling.record import source_of
from trapless.peek.sampling.sample_rows import Ending, Rows
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.serve import observed_vm
from trapless.peek.serve.kernel_history import PANICKED, STUCK, is_stuck
from trapless.peek.serve.observed_vm import NS, NoKernelError, ObservedVm, Phase, State
from trapless.peek.serve.recordings_folder import Source
from trapless.peek.serve.served_kernel import BootingError, ServedKernel
from trapless.peek.serve.workers import Job

LOOK_S = 1.0
"""How often a kernel is looked at: whether it is the same, and what was sampled is added up."""
ATTEMPT_S = 60.0
"""How long an attempt may take before no other way to read the machine is tried in it."""
STABLE_S = 60.0
"""How long after the last error the pauses are short again."""
END_S = 5.0
"""The time for a sampler to end that was told to."""
PIECES_MAX = 32
"""The most output that is read from one sampler before the next one has its turn."""
UNNAMED_MAX = 4096


@dataclass(frozen=True)
class Opened:
    """A kernel that was opened, and what was read of it then."""

    kernel: ServedKernel
    emulator: Emulator | None
    boots: Boots
    signs: bytes


def step(vm: ObservedVm) -> None:
    """Go on with whatever is due. To be called several times a second."""
    try:
        vm.phase = vm.phase.step()
    except Exception as error:  # of this machine's data: the others go on
        vm.phase.close()
        vm.phase = _failed(vm, PeekError(f"{type(error).__name__}: {error}"))


def end(vm: ObservedVm) -> None:
    """The machine has gone: give everything back."""
    vm.phase.close()
    vm.phase = Away(vm, math.inf)
    vm.end()


def _failed(
    vm: ObservedVm,
    error: Exception,
    seconds: float = 0.0,
    state: State = State.UNREADABLE,
    opened: Opened | None = None,
) -> Phase:
    """Try again later. If a kernel that is open was reset, its successor is looked for."""
    has_ended = isinstance(error, EndedError)
    if has_ended:
        vm.end()
    else:
        vm.fail(error, seconds, state)
    if opened is not None and vm.state is not State.RESTARTING:
        opened.kernel.close()
        opened = None
    return Away(vm, math.inf if has_ended else vm.attempts.due_s, opened)


class Away:
    """Nothing of the machine is sampled until the next attempt, or for ever where it has ended.

    `opened` is the kernel that ran before it was reset.
    """

    def __init__(self, vm: ObservedVm, due_s: float = 0.0, opened: Opened | None = None) -> None:
        self._vm, self._due_s, self._opened = vm, due_s, opened

    @property
    def boots(self) -> Boots | None:
        return None if self._opened is None else self._opened.boots

    def step(self) -> Phase:
        return self if time.monotonic() < self._due_s else BeingOpened(self._vm, self._opened)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.kernel.close()


class BeingOpened:
    """A worker looks for the kernel that runs in the machine; after a reset, for the next
    kernel."""

    def __init__(self, vm: ObservedVm, before: Opened | None) -> None:
        self._vm, self._before = vm, before
        work = self._open if before is None else self._next_kernel
        self._job = vm.settings.workers.submit(work)

    @property
    def boots(self) -> Boots | None:
        return None if self._before is None else self._before.boots

    def step(self) -> Phase:
        job, vm = self._job, self._vm
        if not job.done:
            return self
        if job.error is not None:
            return _failed(vm, job.error, job.seconds, opened=self._before)
        assert job.value is not None
        if self._before is not None:
            self._before.kernel.close()
        vm.opening_s = job.seconds
        vm.see(job.value.kernel)
        return _sampled(vm, job.value)

    def close(self) -> None:
        self._job.when_done(self._close_all)

    def _close_all(self) -> None:
        for one in (self._before, self._job.value):
            if one is not None:
                one.kernel.close()

    # ---- In a worker -----------------------------------------------------------------------------

    def _open(self) -> Opened:
        """The kernel that runs in the machine."""
        vm, first, began_s = self._vm, None, time.monotonic()
        emulator = vm.settings.opener.emulator(vm.found)
        for layouts in vm.settings.opener.ways(vm.found, vm.way):
            try:
                kernel = ServedKernel.of(layouts)
                assert isinstance(kernel, ServedKernel)
                return self._watched(kernel, emulator)
            except BootingError:
                raise
            except PeekError as error:
                first = first or error
            vm.way += 1
            if time.monotonic() - began_s >= ATTEMPT_S:  # the next attempt begins with the next way
                raise self._lack(first)
        tried, vm.way = vm.way, 0
        if tried and first is None:  # the last attempt has tried the last way
            return self._open()
        raise self._lack(first)

    def _lack(self, first: PeekError | None) -> PeekError:
        """What a machine without a kernel is called: a young one may be booting."""
        if isinstance(first, errors.BootingError) and self._vm.found.age_s() < BOOT_S:
            return BootingError("no kernel shows in it yet", None)
        return NoKernelError(str(first or "nothing in it is large enough to be RAM"))

    def _watched(self, kernel: ServedKernel, emulator: Emulator | None) -> Opened:
        """A kernel, and all that is read of it before it is sampled."""
        begin = self._vm.settings.workers.submit
        try:
            boots = Boots(kernel, emulator, observed_vm.PAUSE_MAX_S, begin)
            return Opened(kernel, emulator, boots, kernel.signs())
        except BaseException:
            kernel.close()
            raise

    def _next_kernel(self) -> Opened:
        """The kernel after a restart."""
        before = self._before
        assert before is not None
        if before.boots.is_gone():
            return self._open()
        kernel = before.boots.next(lambda: True) or successor(before.kernel)
        if kernel is None:
            text = "it was restarted; no kernel runs in it yet"
            raise BootingError(text, before.kernel.booting)
        assert isinstance(kernel, ServedKernel)
        return self._watched(kernel, before.emulator)


def _sampled(vm: ObservedVm, opened: Opened) -> Phase:
    try:
        return Sampled(vm, opened)
    except (TraplessError, OSError) as error:
        return _failed(vm, error, opened=opened)


class Sampled:
    """A sampler samples the machine's kernel, which is looked at once a second."""

    def __init__(self, vm: ObservedVm, opened: Opened) -> None:
        settings, kernel = vm.settings, opened.kernel
        plan = kernel.plan(settings.interval_ns, settings.cpu, opened.emulator)
        run = Sampler(source_of(kernel), plan)
        run.__enter__()
        os.set_blocking(run.output, False)
        self._vm, self._opened, self._run = vm, opened, run
        self._signs = opened.signs
        self._job: Job[Any] | None = None
        self._then: Callable[[Any], None] = self._looked
        self._stopped_s: float | None = None
        self._began_s = self._looked_s = self._added_s = time.monotonic()
        self._window: list[Rows] = []
        self._host: dict[int, tuple[int, int]] = {}
        self._source: Source | None = None  # of what is recorded
        self._unnamed: set[int] = set()
        self._explained = ""  # the sign that the kernel is stuck, for which causes were looked for
        vm.begin(kernel)

    @property
    def boots(self) -> Boots | None:
        return self._opened.boots

    def step(self) -> Phase:
        if self._take_rows():
            return self._next_phase()
        now = time.monotonic()
        if now - self._added_s >= LOOK_S:
            self._added_s = now
            self._add_window()
            self._add_host()
        if self._job is not None:
            if self._job.done:
                job, self._job = self._job, None
                if job.error is None and self._stopped_s is None:  # else it is asked again later
                    self._then(job.value)
        elif self._stopped_s is not None:
            if now - self._stopped_s > END_S:
                self._run.kill()
        elif now - self._looked_s >= LOOK_S:
            self._looked_s = now
            self._look(now)
        return self

    def close(self) -> None:
        with suppress(Exception):  # its last rows may hold impossible values
            self._add_window()
        self._end_run()
        self._close_kernel()

    # ---- Looks at the kernel ---------------------------------------------------------------------

    def _submit(
        self, work: Callable[[], Any], then: Callable[[Any], None], *, is_short: bool = False
    ) -> None:
        self._job = self._vm.settings.workers.submit(work, is_short=is_short)
        self._then = then

    def _look(self, now: float) -> None:
        if now - self._began_s >= STABLE_S:
            self._vm.attempts.shorten()
        opened = self._opened

        def look() -> tuple[bool, str, bytes]:
            """In a worker: whether the kernel is the same, by what it is stuck, and its signs."""
            same, signs = opened.boots.look(), self._signs
            stuck = STUCK if is_stuck(opened.boots) else ""
            with suppress(PeekError):  # the next look says why
                stuck = stuck if panicked_on(opened.kernel) is None else PANICKED
                signs = opened.kernel.signs()
            return same, stuck, signs

        self._submit(look, self._looked, is_short=True)

    def _looked(self, seen: tuple[bool, str, bytes]) -> None:
        (same, stuck, signs), vm, now = seen, self._vm, time.monotonic()
        other = self._opened.kernel.booting if stuck else None
        if not same or (other is not None and not vm.history.has_seen(other)):
            vm.restart()
            self._stop()
            return
        if not stuck:
            self._explained = ""
            vm.say(State.SAMPLED)
        elif stuck != self._explained:
            self._explained = stuck
            vm.explain(Cause.PANIC if stuck == PANICKED else None, stuck)
            self._submit(self._explain, self._say_cause)
            return
        changed = signs != self._signs and stuck != PANICKED  # which takes CPUs off line
        if now >= vm.replans.due_s and (changed or self._unnamed):
            vm.replans.begin()
            self._submit(lambda: self._ask_again(changed), self._replanned)
        elif now - vm.replans.due_s >= STABLE_S:
            vm.replans.shorten()

    def _explain(self) -> Verdict | None:
        """In a worker: what hangs in a kernel that is stuck, as far as its memory shows."""
        opened = self._opened
        with opened.kernel.awake():
            return stuck_verdict(opened.kernel, opened.boots.still_s)

    def _say_cause(self, verdict: Verdict | None) -> None:
        if verdict is not None:
            self._vm.explain(verdict.cause, verdict.text)

    def _ask_again(self, changed: bool) -> bool:
        """In a worker: name new addresses; whether the plan must be another one."""
        kernel = self._opened.kernel
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
        if other_plan:
            self._vm.say(State.WAITING, "its modules or CPUs have changed")
            self._stop()

    # ---- Rows ------------------------------------------------------------------------------------

    def _take_rows(self) -> bool:
        """Take what the sampler has written; whether it has ended."""
        for _ in range(PIECES_MAX):
            try:
                batches = self._run.arrived()
            except BlockingIOError:
                return False
            if batches is None:
                return True
            self._window += batches
        return False

    def _add_window(self) -> None:
        window, self._window = self._window, []
        vm, opened = self._vm, self._opened
        if not window:
            return
        with vm.settings.lock:
            vm.tally.add(self._run.head, window, opened.kernel.context_user)
        recordings = vm.settings.recordings
        if recordings is None:
            return
        if self._source is None:
            threads = opened.emulator.threads if opened.emulator is not None else ()
            about = {**opened.kernel.about, "vcpus": threads}
            self._source = Source(vm.title, self._run.head, about, Names(opened.kernel))
        for rows in window:
            recordings.add(self._source, rows)
            self._collect_names(rows, self._source.names)

    def _collect_names(self, rows: Rows, names: Names) -> None:
        for column in rows.dtype.names or ():
            if column.endswith(".state"):
                places = set(np.unique(rows[column]).tolist()) - names.known.keys()
                room = min(UNNAMED_MAX, limits.NAMES_MAX - len(names.known)) - len(self._unnamed)
                self._unnamed.update([one for one in places if one >= CODE][: max(room, 0)])

    def _add_host(self) -> None:
        """How long each virtual processor ran, and waited for a processor of the host."""
        emulator = self._opened.emulator
        for number, thread in enumerate(emulator.threads if emulator is not None else ()):
            with suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{thread}/schedstat").read_text().split()
                run, wait = int(words[0]), int(words[1])
                before = self._host.get(number)
                self._host[number] = run, wait
                if before is not None:
                    with self._vm.settings.lock:
                        steps = (max(run - before[0], 0) / NS, max(wait - before[1], 0) / NS)
                        self._vm.tally.add_host(number, *steps)

    # ---- The end ---------------------------------------------------------------------------------

    def _stop(self) -> None:
        """End the sampler; the machine's state says what follows."""
        self._stopped_s = time.monotonic()
        self._run.stop()

    def _end_run(self) -> None:
        """The sampler has ended: so has its recording."""
        vm, run, alive_ns = self._vm, self._run, None
        if vm.state is State.RESTARTING:
            alive_ns = self._opened.boots.alive_ns
        if vm.settings.recordings is not None and self._source is not None:
            vm.settings.recordings.end(self._source, alive_ns)
        run.kill()  # a sampler that reads a process may end only when that process does
        leave = partial(run.__exit__, None, None, None)
        vm.ending = vm.settings.workers.submit(leave, is_short=True)

    def _close_kernel(self) -> None:
        if self._job is None:
            self._opened.kernel.close()
        else:  # which reads the kernel
            self._job.when_done(self._opened.kernel.close)

    def _next_phase(self) -> Phase:
        """The phase that follows the last row."""
        vm, error, state = self._vm, None, State.UNREADABLE
        try:
            self._add_window()
            self._run.check_ending()
        except PeekError as found:
            error = found
        ended = self._run.end
        self._end_run()
        if error is None and self._stopped_s is not None:
            opened = replace(self._opened, signs=self._signs)
            if vm.state is State.WAITING:
                return _sampled(vm, opened)
            # A guest that is restarted again and again waits like one that cannot be read.
            pause_s = min(observed_vm.ATTEMPT_SHARE * vm.opening_s, observed_vm.PAUSE_MAX_S)
            return Away(vm, self._began_s + pause_s, opened)
        self._close_kernel()
        if error is None and ended is not None and ended.ending in (Ending.TARGET, Ending.SOURCE):
            # The next attempt says whether the machine has ended.
            error, state = PeekError("its memory went away"), State.WAITING
        return _failed(vm, error or PeekError("the sampler was killed"), state=state)
