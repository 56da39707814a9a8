# SPDX-License-Identifier: GPL-2.0-only
"""Tier 0: chooses the fields that a stock kernel has without any change, and gives their meaning.

For each CPU: the preempt count (in which handler it is), the current task with its pid, name and
flags (which mark kernel threads), the length of the run queue and its switches; and, where the
kernel tracks contexts (boot parameter nohz_full), whether it is in user mode. Without that, nothing
in memory separates user mode from the kernel, and both are one share. For the whole system: the
numbers of threads and processes. Fields are found by features, never by a version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek.errors import PeekError
from trapless.peek.kernel.kernel_stacks import current_task, preempt_count
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.sampling_plan import Base, Field, Group, Rule

COMM_BYTES = 16
SYSTEM = "system"
"""The group of the fields that belong to no CPU."""
COUNTED_CPUS_MAX = 64
"""With more CPUs, the counts of processes would be most of a row."""

# The preempt count's bits, as include/linux/preempt.h lays them out. They are not an interface, but
# have been the same since 2009.
SOFTIRQ_SERVING = 0x100
HARDIRQ = 0x000F0000
NMI = 0x00F00000

PF_KTHREAD = 0x00200000
"""In a task's flags (include/linux/sched.h): a kernel thread, which has no user mode."""

REARMS_LATE = "__hrtimer_rearm_deferred"
LATE_TIMER = (
    "This kernel sets its next timer on the way out of an interrupt, when its memory no longer "
    "says that there is one: top halves are shown too short (5.3% of the time where registers had "
    "12.3%), and other kernel or user too long."
)

CONTEXT_MASK = 0x3
"""The bits of a context's state (enum ctx_state); higher bits count changes for RCU."""
CONTEXT_USER_NAMES = ("CT_STATE_USER", "CONTEXT_USER")
"""The names of user mode among the states; its number differs between kernels."""


class Part(IntEnum):
    """Where a CPU is, in one sample."""

    USER = 0
    TOP_HALF = 1
    BOTTOM_HALF = 2
    KERNEL = 3  # other kernel
    IDLE = 4
    PROCESS = 5  # user mode or other kernel, where it is not known which


@dataclass(frozen=True)
class Where:
    """The place of a per-CPU word: a per-CPU symbol, and an offset in bytes."""

    symbol: str
    offset: int


def bases(target: Target) -> tuple[Base, ...]:
    """The ranges that pointers to tasks lead into: the map of all memory, and the image."""
    start, end = target.symbol("_text"), target.symbol("_end")
    return (
        Base(target.direct_map, target.memory_end(), 0),
        Base(start, end - start, start + target.image_shift),
    )


def groups(target: Target) -> tuple[Group, ...]:
    """A group of fields for each online CPU (cpu0.preempt_count, cpu0.pid, ...), and one for the
    whole system (system.threads, system.processes.0, ...)."""
    cpus = tuple(
        Group(f"cpu{cpu}", Rule.STABLE, tuple(fields(target, cpu))) for cpu in target.cpus_online
    )
    system = tuple(system_fields(target))
    return (*cpus, Group(SYSTEM, Rule.ONCE, system)) if system else cpus


def system_fields(target: Target) -> Iterator[Field]:
    """The numbers of threads and processes; the latter is a sum over all possible CPUs."""
    if target.has_symbol("nr_threads"):
        yield Field("threads", 4, target.physical(target.symbol("nr_threads")))
    if target.has_symbol("process_counts") and len(target.cpus_possible) <= COUNTED_CPUS_MAX:
        for cpu in target.cpus_possible:
            at = target.physical(target.percpu("process_counts", cpu))
            yield Field(f"processes.{cpu}", 8, at)


def fields(target: Target, cpu: int) -> Iterator[Field]:
    """The fields of one CPU."""

    def physical(where: Where) -> int:
        return target.physical(target.percpu(where.symbol, cpu) + where.offset)

    count = preempt_count(target)
    if count is None:
        raise PeekError(f"{target.release} has no preempt count that could be found")
    current = physical(Where(*current_task(target)))
    if count[0]:
        yield Field("preempt_count", 4, physical(Where(*count)))
    else:
        yield Field("preempt_count", 4, current, (count[1],))
    yield Field("current", 8, current)
    yield Field("pid", 4, current, (target.offset("task_struct", "pid"),))
    yield Field("comm", COMM_BYTES, current, (target.offset("task_struct", "comm"),))
    if tells_kernel_threads(target):
        yield Field("task_flags", 4, current, (target.offset("task_struct", "flags"),))
    for name in ("nr_running", "nr_switches"):
        if name == "nr_running" or target.has_member("rq", name):
            place = target.place("rq", name)
            yield Field(name, place.size, physical(Where("runqueues", place.offset)))
    if context_user(target) is not None:
        state = Where("context_tracking", target.offset("context_tracking", "state"))
        active = physical(Where("context_tracking", target.offset("context_tracking", "active")))
        if any(target.memory.read(active, 1)):  # boot parameters set it once
            yield Field("context", 4, physical(state))
            yield Field("context_active", 1, active)


def differences(target: Target) -> tuple[str, ...]:
    """Where this kernel's memory is known to differ from a CPU's registers, in words."""
    return (LATE_TIMER,) if target.has_symbol(REARMS_LATE) else ()


def tells_kernel_threads(target: Target) -> bool:
    """Whether a task's flags mark kernel threads, as those of the first task must."""
    if not target.has_member("task_struct", "flags"):
        return False
    place = target.symbol("init_task") + target.offset("task_struct", "flags")
    return bool(int.from_bytes(target.read(place, 4), "little") & PF_KTHREAD)


def context_user(target: Target) -> int | None:
    """The number of user mode among the context's states; None in a kernel without contexts.

    The field `context_active` says for each CPU whether its context is tracked.
    """
    if not (
        target.has_symbol("context_tracking")
        and target.has_member("context_tracking", "state")
        and target.has_member("context_tracking", "active")
    ):
        return None
    constants = (target.types.enumerator(name) for name in CONTEXT_USER_NAMES)
    return next((constant[1] for constant in constants if constant is not None), None)


def tells_user_mode(columns: Collection[str]) -> bool:
    """Whether every CPU has a context among the columns, so that user mode needs no probe."""
    cpus = {name.partition(".")[0] for name in columns if name.endswith(".preempt_count")}
    return bool(cpus) and all(f"{cpu}.context_active" in columns for cpu in cpus)


def parts(
    preempt_count: npt.NDArray[Any],
    pid: npt.NDArray[Any],
    context: npt.NDArray[Any] | None = None,
    active: npt.NDArray[Any] | None = None,
    task_flags: npt.NDArray[Any] | None = None,
    in_user: int | None = None,
) -> npt.NDArray[np.uint8]:
    """Where a CPU was in each sample, as numbers of Part, from arrays with one element a sample.

    `in_user` is the context's state in user mode, from context_user(). An interrupt in an idle CPU
    or in a softirq is a top half.

    >>> parts(np.array([0x10100, 0x100, 0, 0], "u4"), np.array([0, 0, 0, 7], "u4")).tolist()
    [1, 2, 4, 5]
    """
    part = np.full(len(preempt_count), Part.PROCESS, np.uint8)
    if task_flags is not None:
        part[(task_flags & PF_KTHREAD) != 0] = Part.KERNEL
    if context is not None and active is not None and in_user is not None:
        part[active != 0] = Part.KERNEL
        part[(active != 0) & ((context & CONTEXT_MASK) == in_user)] = Part.USER
    return with_handlers(part, preempt_count, pid)


def with_handlers(
    part: npt.NDArray[np.uint8], preempt_count: npt.NDArray[Any], pid: npt.NDArray[Any]
) -> npt.NDArray[np.uint8]:
    """Replace the part in `part`, in place, where the CPU was idle or in a handler."""
    part[pid == 0] = Part.IDLE
    part[(preempt_count & SOFTIRQ_SERVING) != 0] = Part.BOTTOM_HALF
    part[(preempt_count & (HARDIRQ | NMI)) != 0] = Part.TOP_HALF
    return part


def processes(table: pa.Table) -> npt.NDArray[np.int64] | None:
    """The number of processes in each row; None where the table does not have it.

    Each CPU counts the processes that began and ended on it, so only the sum has a meaning.
    """
    columns = [name for name in table.column_names if name.startswith(f"{SYSTEM}.processes.")]
    if not columns:
        return None
    counts = np.zeros(table.num_rows, np.int64)
    for name in columns:
        counts += table[name].to_numpy().astype(np.int64)  # of 8 bytes, signed
    return counts
