# SPDX-License-Identifier: GPL-2.0-only
"""All machines of this host: found as they come and go, and served in turn.

Owns the list of machines, their titles, and the loop. One process reads the output of all samplers,
because a process of Python for each would take more memory than all the rest. phases.py has what is
done with one machine; metrics.py and machines_page.py show the list, with the lock held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trapless.peek.diagnosis.opener import Found
from trapless.peek.errors import PeekError
from trapless.peek.serve import phases
from trapless.peek.serve.observed_vm import ObservedVm, Settings

FIND_S = 2.0
PACE_S = 0.1
"""The sampler hands its rows over at the same rate."""
REMEMBER_S = 300.0
"""How long a machine that has ended is shown as down."""
ENDED_MAX = 100
"""Machines that have ended and are shown, the last ones."""
ALIVE_S = 15.0
"""How long a round of the loop may take before the loop counts as stuck."""


class Inventory:
    """The machines of this host. `vms` changes with the lock of the settings held.

    `patterns` choose machines by their names, all where there are none; `files` are memories of
    machines that this host may not show as processes.
    """

    def __init__(
        self, settings: Settings, patterns: Sequence[str] = (), files: Sequence[Path] = ()
    ) -> None:
        self.settings = settings
        self.vms: list[ObservedVm] = []
        self.error = ""  # why machines are not looked for
        self._patterns, self._files = tuple(patterns), tuple(files)
        self._latest: list[Found] | None = None
        self._taken: list[Found] | None = None
        self._looped_s = time.monotonic()
        self._over = threading.Event()

    @property
    def is_alive(self) -> bool:
        """Whether the loop finishes its rounds."""
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
                self._take_latest(now)
                for vm in self.vms:
                    phases.step(vm)
                time.sleep(max(PACE_S - (time.monotonic() - now), PACE_S / 10))
        finally:
            self._over.set()
            for vm in self.vms:
                vm.phase.close()
            end_s = time.monotonic() + phases.END_S
            endings = [vm.ending for vm in self.vms if vm.ending is not None]
            while not all(one.done for one in endings) and time.monotonic() < end_s:
                time.sleep(PACE_S / 10)

    # ---- The list --------------------------------------------------------------------------------

    def _find(self) -> None:
        """In a thread of its own: the opener may be busy."""
        while not self._over.wait(FIND_S if self._latest is not None else 0):
            try:
                found = self.settings.opener.running(self._files)
                self._latest, self.error = [one for one in found if self._is_wanted(one)], ""
            except Exception as error:  # whatever the error is, machines are looked for again
                if not self._over.is_set():
                    self._latest, self.error = self._latest or [], str(error)

    def _is_wanted(self, found: Found) -> bool:
        return found.path != "" or found.fits(self._patterns)

    def _take_latest(self, now: float) -> None:
        found = self._latest
        if found is None or found is self._taken or self.error:
            return
        self._taken = found
        known, here = {vm.found for vm in self.vms if vm.ended_s is None}, set(found)
        for vm in self.vms:
            if vm.ended_s is None and vm.found not in here:
                phases.end(vm)
        kept = {vm.title: vm for vm in self._remembered(now)}
        # No two series may have one name; the name of a machine that has ended is free again.
        taken = {vm.title for vm in kept.values() if vm.ended_s is None}
        for one in found:
            if one not in known:
                title = one.free_title(taken)
                taken.add(title)
                kept.pop(title, None)
                kept[title] = vm = ObservedVm(one, title, self.settings)
                vm.phase = phases.Away(vm)
        with self.settings.lock:
            self.vms = list(kept.values())

    def _remembered(self, now: float) -> list[ObservedVm]:
        """The machines that are shown further, in their order."""
        ended = [vm for vm in self.vms if vm.ended_s is not None]
        kept = [vm for vm in ended[-ENDED_MAX:] if now - (vm.ended_s or 0.0) <= REMEMBER_S]
        return [vm for vm in self.vms if vm.ended_s is None or vm in kept]
