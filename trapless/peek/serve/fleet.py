# SPDX-License-Identifier: GPL-2.0-only
"""All machines of this host: found as they come and go, each read in its turn.

Owns the list of machines, their titles, and the loop. One process reads the output of all samplers,
because a process of Python for each would take more memory than all the rest. vm.py has what is
done with one machine; metrics.py and page.py show the list, with the lock held.
"""

from __future__ import annotations

import fnmatch
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trapless.peek.errors import PeekError
from trapless.peek.serve.opener import NAME_CHARS_MAX, Found
from trapless.peek.serve.vm import END_S, Settings, Vm

FIND_S = 2.0
PACE_S = 0.1
"""The sampler hands its rows over as often."""
OWNER_S = 0.3
"""Of processor time, for the machines of one user in one round: what is left has its turn in the
next one, so that who starts many takes none of the others' samples."""
REMEMBER_S = 300.0
"""A machine that has ended is shown as down for so long."""
ENDED_MAX = 100
ALIVE_S = 15.0
"""A loop that has not come round for so long is stuck."""


class Fleet:
    """The machines of this host. `vms` changes with the lock of the settings held.

    `patterns` choose machines by their names, all where there are none; `files` are memories of
    machines that this host may not show as processes.
    """

    def __init__(
        self, settings: Settings, patterns: Sequence[str] = (), files: Sequence[Path] = ()
    ) -> None:
        self.settings = settings
        self.vms: list[Vm] = []
        self.error = ""  # why machines are not looked for
        self._patterns, self._files = tuple(patterns), tuple(files)
        self._found: list[Found] | None = None
        self._taken: list[Found] | None = None
        self._turns: dict[int, int] = {}  # of a user's machines, the one that is the next
        self._looped_s = time.monotonic()
        self._over = threading.Event()

    @property
    def is_alive(self) -> bool:
        """Whether the loop comes round."""
        return time.monotonic() - self._looped_s < ALIVE_S

    def run(self, over: Callable[[], bool]) -> None:
        """Observe until `over`; then end all samplers."""
        finder = threading.Thread(target=self._find, name="finder", daemon=True)
        finder.start()
        try:
            while not over():
                if not self.settings.opener.runs:
                    raise PeekError("the process that opens machines was killed; start again")
                self._looped_s = now = time.monotonic()
                self._take_found(now)
                self._round(now)
                self.settings.workers.tend()
                time.sleep(max(PACE_S - (time.monotonic() - now), PACE_S / 10))
        finally:
            self._over.set()
            for vm in self.vms:
                vm.release_all()
            end_s = time.monotonic() + END_S
            while not all(vm.is_released for vm in self.vms) and time.monotonic() < end_s:
                self.settings.workers.tend()
                time.sleep(PACE_S / 10)

    def _round(self, now: float) -> None:
        """Each user's machines in their turns, as far as that user's time goes."""
        owners: dict[int, list[Vm]] = {}
        for vm in self.vms:
            owners.setdefault(vm.found.owner, []).append(vm)
        for owner, vms in owners.items():
            end_s, first = time.thread_time() + OWNER_S, self._turns.get(owner, 0) % len(vms)
            for vm in vms[first:] + vms[:first]:
                self._step(vm, now)
                first += 1
                if time.thread_time() >= end_s:
                    break
            self._turns[owner] = first % len(vms)

    def _step(self, vm: Vm, now: float) -> None:
        try:
            vm.read()
            vm.tick(now)
        except Exception as error:  # of this machine's data: the others go on
            vm.give_up(error)

    # ---- The list --------------------------------------------------------------------------------

    def _find(self) -> None:
        """In a thread of its own: the opener may be busy."""
        while not self._over.wait(FIND_S if self._found is not None else 0):
            try:
                found = self.settings.opener.running(self._files)
                self._found, self.error = [one for one in found if self._is_wanted(one)], ""
            except Exception as error:  # whatever it is, machines are looked for again
                if not self._over.is_set():
                    self._found, self.error = self._found or [], str(error)

    def _is_wanted(self, found: Found) -> bool:
        patterns = self._patterns
        return (
            found.path != ""
            or not patterns
            or any(fnmatch.fnmatchcase(found.title, one) for one in patterns)
        )

    def _take_found(self, now: float) -> None:
        found = self._found
        if found is None or found is self._taken or self.error:
            return
        self._taken = found
        known = {vm.found for vm in self.vms if vm.ended_s is None}
        for vm in self.vms:
            if vm.ended_s is None and vm.found not in found:
                vm.end()
        new = [one for one in found if one not in known]
        ended = [vm for vm in self.vms if vm.ended_s is not None]
        names = {one.title for one in new}
        forgotten = [
            vm
            for number, vm in enumerate(reversed(ended))
            if vm.is_forgettable
            and (now - (vm.ended_s or now) > REMEMBER_S or number >= ENDED_MAX or vm.title in names)
        ]
        if new or forgotten:
            with self.settings.lock:
                self.vms = [vm for vm in self.vms if vm not in forgotten]
                for one in new:
                    self.vms.append(Vm(one, self._title(one), self.settings))

    def _title(self, found: Found) -> str:
        """A machine's name, and more where another one has it: no two series may have one name.

        Its pid is tried first, then numbers: another machine may be called by both.
        """
        taken = {vm.title for vm in self.vms}
        tails = itertools.chain(("", f"-{found.pid}"), (f"-{n}" for n in itertools.count(2)))
        titles = (f"{found.title[: NAME_CHARS_MAX - len(tail)]}{tail}" for tail in tails)
        return next(title for title in titles if title not in taken)
