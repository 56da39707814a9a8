# SPDX-License-Identifier: GPL-2.0-only
"""Tells threads that sleep from threads that run: a thread that is asleep changes its mode when it
wakes.

Owns what /proc says of a process's threads. The module counts the threads that have changed, but
not which they are; what follows from the two together is worked out here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FIELDS = re.compile(
    r"^State:\t(\S)|^voluntary_ctxt_switches:\t(\d+)|^nonvoluntary_ctxt_switches:\t(\d+)", re.M
)
RUNNING = "R"
ENDED = "ZXx"


@dataclass(frozen=True)
class Threads:
    """The threads of one process at one moment, by their IDs."""

    switches: dict[
        int, tuple[int, ...]
    ]  # of those that sleep or are stopped: left the CPU how often
    running: frozenset[int]

    def asleep_since(self, before: Threads) -> int:
        """How many have slept since `before` without a pause."""
        common = self.switches.keys() & before.switches.keys()
        return sum(self.switches[thread] == before.switches[thread] for thread in common)

    def running_at_most(self, before: Threads, unchanged: int) -> int:
        """The most threads that can have run since `before` without the end of a system call.

        `unchanged` threads are yet to change. A thread that has slept since before the switch is
        one of them; of the others, none that sleeps in a call now can be one.
        """
        return max(0, min(unchanged - self.asleep_since(before), len(self.running)))


def look(pid: int, proc: Path) -> Threads:
    """The threads of process `pid`; none where it has ended."""
    switches: dict[int, tuple[int, ...]] = {}
    running: set[int] = set()
    try:
        tasks = list((proc / str(pid) / "task").iterdir())
    except OSError:
        tasks = []
    for task in tasks:
        try:
            # read_text() would take a carriage return in a thread's name for the end of a line.
            text = (task / "status").read_bytes().decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        state, *counts = ("".join(groups) for groups in FIELDS.findall(text))
        if state == RUNNING:
            running.add(int(task.name))
        elif state not in ENDED:
            switches[int(task.name)] = tuple(map(int, counts))
    return Threads(switches, frozenset(running))
