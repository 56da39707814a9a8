# SPDX-License-Identifier: GPL-2.0-only
"""Watches a target's probes during an observation, and counts how often each site runs.

Owns the check, about once a second, whether probes came, changed or went. It does not touch what is
sampled: each row has the probes that were on (tier1.py).
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
    """Checks a target's probes and reports changes to `note`. One thread."""

    def __init__(self, target: Target, note: Callable[[str], None]) -> None:
        self._target, self._note = target, note
        self.first = probes.find(target, again=True)
        self._now = self.first
        self._came = False  # a module was loaded too late for this plan
        self._book = SiteBook()
        self._look_at_sites()

    def sites(self) -> Sites:
        """The patched places, with their runs so far."""
        return self._book.sites()

    @property
    def now(self) -> ProbeMap | None:
        """The probes at the last check."""
        return self._now

    @property
    def gone(self) -> bool:
        """Whether the probes that a plan was made for have left the target."""
        return self.first is not None and self._now is None

    @property
    def came(self) -> bool:
        """Whether probes came that were not there at first."""
        return self._came

    def look_last(self) -> None:
        """Read the last counts, without a note about probes that are gone."""
        if self._now is not None:
            self._look_at_sites()

    def look(self) -> None:
        """Check the probes, and note changes. To be called about once a second."""
        if self._now is None:
            if not self._came and (probe_map := probes.find(self._target, again=True)):
                self._came = True
                self._note(
                    f"{MODULE} was loaded into the target (at {probe_map.address:#x}) after this "
                    "began; a new recording will have its probes"
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
            with suppress(PeekError):  # the target is ending: the next check says so
                self._book.look(self._target, self._now)
