# SPDX-License-Identifier: GPL-2.0-only
"""What a stock kernel shows without any change to it: the fields to sample, and what they mean.

For each CPU: the preempt count (in which handler it is), the current task with its pid and name,
the length of the run queue; and where the kernel tracks contexts (boot parameter nohz_full),
whether it is in user mode. Without that, nothing in memory tells user mode from the kernel, and
shares say so. Fields are found by features, never by a version. This file owns no sampling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from trapless.peek.errors import PeekError
from trapless.peek.plan import Base, Field, Group, Rule
from trapless.peek.target import Target

COMM_BYTES = 16

# The preempt count's bits, as include/linux/preempt.h lays them out: an interface to nobody, but
# the same since 2009, and checked against the types where they are there.
SOFTIRQ_SERVING = 0x100
HARDIRQ = 0x000F0000
NMI = 0x00F00000

# Context tracking's states (enum ctx_state); higher bits count changes for RCU.
CONTEXT_MASK = 0x3
CONTEXT_USER = 1


class Part(IntEnum):
    """Where a CPU is, in one sample."""

    USER = 0
    TOP_HALF = 1
    BOTTOM_HALF = 2
    KERNEL = 3  # other kernel
    IDLE = 4
    PROCESS = 5  # user mode or other kernel: which of them is not known


@dataclass(frozen=True)
class Where:
    """Where per-CPU words are in this kernel: a per-CPU symbol, and an offset."""

    symbol: str
    offset: int


def _percpu_word(target: Target, names: tuple[str, ...], member: str) -> Where:
    """A variable of its own, or a member of the structure of hot ones."""
    for name in names:
        if target.has_symbol(name):
            return Where(name, 0)
    if target.has_symbol("pcpu_hot") and target.has_member("pcpu_hot", member):
        return Where("pcpu_hot", target.offset("pcpu_hot", member))
    raise PeekError(f"{target.release} has no per-CPU {names[0]} that could be found")


def bases(target: Target) -> tuple[Base, ...]:
    """Where pointers to tasks may lead: the map of all memory, and the image (init_task)."""
    start, end = target.symbol("_text"), target.symbol("_end")
    return (
        Base(target.direct_map, target.memory_end(), 0),
        Base(start, end - start, start + target.image_shift),
    )


def groups(target: Target) -> tuple[Group, ...]:
    """A group of fields for each CPU that is online: cpu0.preempt_count, cpu0.pid, ..."""
    return tuple(
        Group(f"cpu{cpu}", Rule.STABLE, tuple(_fields(target, cpu))) for cpu in target.cpus_online
    )


def _fields(target: Target, cpu: int) -> Iterator[Field]:
    def physical(where: Where) -> int:
        return target.physical(target.percpu(where.symbol, cpu) + where.offset)

    preempt = _percpu_word(target, ("__preempt_count",), "preempt_count")
    current = physical(_percpu_word(target, ("current_task",), "current_task"))
    yield Field("preempt_count", 4, physical(preempt))
    yield Field("current", 8, current)
    yield Field("pid", 4, current, (target.offset("task_struct", "pid"),))
    yield Field("comm", COMM_BYTES, current, (target.offset("task_struct", "comm"),))
    queue = Where("runqueues", target.offset("rq", "nr_running"))
    yield Field("nr_running", target.place("rq", "nr_running").size, physical(queue))
    if tracks_contexts(target):
        state = Where("context_tracking", target.offset("context_tracking", "state"))
        active = Where("context_tracking", target.offset("context_tracking", "active"))
        yield Field("context", 4, physical(state))
        yield Field("context_active", 1, physical(active))


def tracks_contexts(target: Target) -> bool:
    """Whether this kernel could say if it is in user mode; on each CPU a field says if it does."""
    return (
        target.has_symbol("context_tracking")
        and target.has_member("context_tracking", "state")
        and target.has_member("context_tracking", "active")
    )


def parts(
    preempt_count: npt.NDArray[Any],
    pid: npt.NDArray[Any],
    context: npt.NDArray[Any] | None = None,
    active: npt.NDArray[Any] | None = None,
) -> npt.NDArray[np.uint8]:
    """Where a CPU was in each sample, as numbers of Part.

    An interrupt of an idle CPU is a top half; a softirq that an interrupt interrupts is one, too.

    >>> parts(np.array([0x10100, 0x100, 0, 0], "u4"), np.array([0, 0, 0, 7], "u4")).tolist()
    [1, 2, 4, 5]
    """
    found = np.full(len(preempt_count), Part.PROCESS, np.uint8)
    if context is not None and active is not None:
        in_user = (context & CONTEXT_MASK) == CONTEXT_USER
        found[active != 0] = Part.KERNEL
        found[(active != 0) & in_user] = Part.USER
    found[pid == 0] = Part.IDLE
    found[(preempt_count & SOFTIRQ_SERVING) != 0] = Part.BOTTOM_HALF
    found[(preempt_count & (HARDIRQ | NMI)) != 0] = Part.TOP_HALF
    return found


def shares(found: npt.NDArray[np.uint8]) -> dict[Part, float]:
    """The share of each part among samples; parts that did not occur have 0."""
    counts = np.bincount(found, minlength=len(Part))
    return {part: float(counts[part]) / max(len(found), 1) for part in Part}
