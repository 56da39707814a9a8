# SPDX-License-Identifier: GPL-2.0-only
"""Notices while a kernel is observed that its probes come, change or go, and how often each site
ran meanwhile. Owns the looking, about once a second; what is sampled is not touched by it: each row
says itself whether probes were on (tier1.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import probes
from trapless.peek.sampling.probes import MODULE, ProbeMap, mode_text
from trapless.peek.sampling.sites import SiteBook, Sites


class Watch:
    """Looks at a target's probes now and then, and tells what became of them. One thread."""

    def __init__(self, target: Target, note: Callable[[str], None]) -> None:
        self._target, self._note = target, note
        self.first = probes.find(target, again=True)
        self._now = self.first
        self._told = False  # of a module that came too late for this plan
        self._book = SiteBook()
        self._look_at_sites()

    def sites(self) -> Sites:
        """The patched places, with what was counted so far."""
        return self._book.sites()

    @property
    def now(self) -> ProbeMap | None:
        """The probes as they were last looked at."""
        return self._now

    @property
    def gone(self) -> bool:
        """Whether what a plan was made of has left the target."""
        return self.first is not None and self._now is None

    @property
    def came(self) -> bool:
        """Whether there are probes that were not there at first."""
        return self._told

    def look_last(self) -> None:
        """Take the last counts; who is gone by now is not worth a word."""
        if self._now is not None:
            self._look_at_sites()

    def look(self) -> None:
        """Notice what has changed. To be called about once a second."""
        if self._now is None:
            if not self._told and (found := probes.find(self._target, again=True)) is not None:
                self._told = True
                self._note(
                    f"{MODULE} was loaded into the target (at {found.address:#x}) after this "
                    "began; its probes are seen by what is begun from now on"
                )
            return
        before, self._now = self._now, probes.read(self._target, self._now.address)
        if self._now is None:
            self._note(f"{MODULE} was unloaded from the target: what follows is tier 0")
            return
        if self._now.active != before.active:
            self._note(f"the target's probes were turned to: {mode_text(self._now.active)}")
        self._look_at_sites()

    def _look_at_sites(self) -> None:
        if self._now is not None:
            with suppress(PeekError):  # the target is going: the next look says so
                self._book.look(self._target, self._now)
