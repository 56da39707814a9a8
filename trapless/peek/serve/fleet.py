# SPDX-License-Identifier: GPL-2.0-only
"""All machines of this host: found as they come and go, each read in its turn.

Owns the list of machines, and the loop. One process reads the output of all samplers, because a
process of Python for each would take more memory than all the rest. vm.py has what is done with one
machine, titles.py its title; metrics.py and page.py show the list, with the lock held.
"""

from __future__ import annotations

import fnmatch
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from trapless.peek.errors import PeekError
from trapless.peek.serve.opener import Found
from trapless.peek.serve.titles import Notes, Titles
from trapless.peek.serve.vm import END_S, Settings, Vm

FIND_S = 2.0
PACE_S = 0.1
"""The sampler hands its rows over as often."""
OWNER_S = 0.3
"""Of processor time, for the machines of one user in one round: what is left has its turn in the
next one, so that who starts many takes none of the others' samples."""
REMEMBER_S = 300.0
"""A machine that has ended is shown as down for so long, and its title is its user's."""
ENDED_MAX = 100
"""Of one user, the last ones."""
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
        self._titles = Titles()
        self._of_users: dict[int, Settings] = {}  # with a user's own budget of notes
        self._forgotten: list[Vm] = []  # for which something goes on still
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
        for vm in self._forgotten:
            self._step(vm, now)

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
        known, here = {vm.found for vm in self.vms if vm.ended_s is None}, set(found)
        for vm in self.vms:
            if vm.ended_s is None and vm.found not in here:
                vm.end()
        new = [one for one in found if one not in known]
        kept = {vm.title: vm for vm in self._remembered(now)}
        for one in new:

            def is_free(title: str, owner: int = one.owner) -> bool:
                vm = kept.get(title)
                return vm is None or (vm.ended_s is not None and vm.found.owner == owner)

            title = self._titles.give(one, is_free)
            kept.pop(title, None)
            kept[title] = Vm(one, title, self._settings_for(one.owner))
        forgotten = set(self.vms) - set(kept.values())
        self._forgotten = [vm for vm in (*self._forgotten, *forgotten) if not vm.is_forgettable]
        if new or forgotten:
            with self.settings.lock:
                self.vms = list(kept.values())

    def _remembered(self, now: float) -> list[Vm]:
        """The machines that are shown further, in their order."""
        ended: Counter[int] = Counter()
        kept = []
        for vm in reversed(self.vms):
            if vm.ended_s is not None:
                ended[vm.found.owner] += 1
                if now - vm.ended_s > REMEMBER_S or ended[vm.found.owner] > ENDED_MAX:
                    continue
            kept.append(vm)
        return kept[::-1]

    def _settings_for(self, owner: int) -> Settings:
        if owner not in self._of_users:
            notes = Notes(self.settings.note, owner)
            self._of_users[owner] = replace(self.settings, note=notes)
        return self._of_users[owner]
