# SPDX-License-Identifier: GPL-2.0-only
"""Counts the kernels of a machine that were seen and are gone, and notices one that is stuck.

Owns what is known of a machine over its restarts. A guest whose kernel dies at each boot has no
kernel that can be sampled. But each look that finds a new kernel shows that the last one is gone.
Those that came and went between two looks are not counted.
"""

from __future__ import annotations

from trapless.peek.sampling.boots import Boots

Identity = tuple[str, bytes, bytes]

SEEN_MAX = 256
"""Kernels of one machine that are remembered: memory keeps what is left of old ones."""
STUCK_S = 30.0
"""How long a kernel may be idle without a tick while its emulator works."""
STUCK = "its clock stands still while its emulator works: it hangs, or restarts again and again"
PANICKED = "its kernel has panicked"


class KernelHistory:
    """The kernels of one machine. `gone` counts. One thread calls."""

    def __init__(self) -> None:
        self.gone = 0
        self._seen: dict[Identity, None] = {}  # the oldest first
        self._is_counted = True  # whether the end of the last one is, or there was none

    @property
    def is_empty(self) -> bool:
        """Whether no kernel was seen yet."""
        return not self._seen

    def see(self, identity: Identity) -> None:
        """A kernel runs, or boots."""
        if identity not in self._seen:
            self.lose()
            self._seen[identity] = None
            if len(self._seen) > SEEN_MAX:
                del self._seen[next(iter(self._seen))]
        self._is_counted = False

    def has_seen(self, identity: Identity) -> bool:
        """Whether it ran here before, as far as is remembered."""
        return identity in self._seen

    def lose(self) -> None:
        """The last kernel is gone."""
        self.gone += not self._is_counted
        self._is_counted = True


def is_stuck(boots: Boots) -> bool:
    """Whether a kernel's clock has stood still for long although the emulator works."""
    return boots.still_s >= STUCK_S and boots.is_suspect()
