# SPDX-License-Identifier: GPL-2.0-only
"""Declares what a diagnosis says: its verdicts, their causes in order, and what it cannot know.

single_look.py and what it asks judge; two_looks.py judges where a machine lives.

Owns the fixed set of causes, which scripts and metrics rest on. A cause that explains others comes
first: an interrupt that is off for long stops timers, grace periods and work as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Cause(StrEnum):
    """What keeps a machine from going on, the one that explains most first."""

    PANIC = "panic"
    HALTED = "halted"
    STOPPED = "stopped"  # the monitor, or the host, does not run its CPUs
    BOOT = "boot"  # it ended before the first program
    INTERRUPTS_OFF = "interrupts_off"
    CPU_HELD = "cpu_held"  # a CPU does not schedule: a soft lockup
    DEADLOCK = "deadlock"
    OOPS = "oops"
    CPU_STARVED = "cpu_starved"
    MEMORY = "memory"
    STORAGE = "storage"
    NETWORK = "network"  # a card sends nothing
    FROZEN = "frozen"  # a file system
    RCU = "rcu"
    LOST_WAKEUP = "lost_wakeup"
    LOCK = "lock"
    WORK = "work"
    SERVER = "server"  # of a network or user-space file system
    BLOCKED = "blocked"  # it sleeps, and nothing shows who would wake it


ROOT = "root: "
"""How the subject begins of a verdict from which others of its cause follow."""
RANK = {cause: number for number, cause in enumerate(Cause)}


@dataclass(frozen=True)
class Verdict:
    """One thing that hangs. `subject` tells it from others of the same cause."""

    cause: Cause
    text: str  # a sentence
    seconds: float  # for how long
    subject: str
    evidence: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()  # whose registers would show more

    @property
    def order(self) -> tuple[int, float]:
        """The likeliest cause first, and of one cause the one that lasts longest."""
        return RANK[self.cause], -self.seconds


@dataclass(frozen=True)
class Processor:
    """One CPU at the moment of a look. `clock_ns` is the kernel's own."""

    number: int
    is_online: bool
    is_idle: bool
    pid: int
    comm: str
    clock_ns: int
    runnable: int
    held_s: float  # since its thread was given the CPU
    next_event: int  # when its timer is due, in ns; it stands still where no interrupt comes
    due_s: float = 0.0  # since then, where that is long ago
    context: str = ""  # "a softirq" or "an interrupt handler", where it is inside one


@dataclass(frozen=True)
class Look:
    """What one look at a machine has found."""

    uptime_s: float
    jiffies: int
    threads: int
    processors: tuple[Processor, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = field(default=())  # what could not be known, or may explain more
