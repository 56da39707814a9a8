# SPDX-License-Identifier: GPL-2.0-only
"""Adds stacks up: for how long threads, and CPUs, were at each, as a recording keeps it.

Owns the sums and their table in a recording, stacks.parquet. stack_watch.py samples the stacks, and
flame.py shows the sums. Times are of the observing machine's clock: a sample stands for the time
since the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from trapless.peek import limits
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.kernel_stacks import CpuStack, ThreadStack
from trapless.peek.kernel.unwinding.frames import NO_STACK, Ending, Stack
from trapless.peek.kernel.user.user_stacks import NO_USER_STACK, UserStack
from trapless.peek.sampling.recording import Recorder, Recording

FILE = "stacks.parquet"
ON_CPU = -1
"""The state of a thread that is on a CPU, in the table."""
NO_CPU = -1
BATCH_ROWS = 1024
"""So many rows at a time become objects."""
OTHER_NAME = GuestText(b"(one of too many names)")
TOTALS = {b"samples": 0, b"time_ns": 0, b"left_out": 0}
"""The sums over all samples, in the table's metadata; left out: stacks beyond what is kept."""

# Bits of a thread's state (include/linux/sched.h), which are no interface, but have long been so.
INTERRUPTIBLE, UNINTERRUPTIBLE, STOPPED, NOLOAD = 0x1, 0x2, 0xC, 0x400


@dataclass(frozen=True, slots=True)
class Key:
    """A thread at a stack. `cpu` is set if a CPU's registers were known."""

    pid: int
    group: int
    comm: GuestText
    state: int
    cpu: int
    stack: Stack
    user: UserStack = NO_USER_STACK

    @property
    def is_cpu(self) -> bool:
        """Whether a CPU's registers have shown it."""
        return self.cpu != NO_CPU

    @property
    def state_text(self) -> str:
        """The thread's state in words."""
        if self.state == ON_CPU:
            return "running"
        if self.state & UNINTERRUPTIBLE:
            return "idle" if self.state & NOLOAD else "uninterruptible"
        if self.state & INTERRUPTIBLE:
            return "sleeping"
        return "stopped" if self.state & STOPPED else "runnable"


class Profile:
    """Sums of stacks. One thread."""

    def __init__(self) -> None:
        self.times: dict[Key, int] = {}
        self.samples = self.time_ns = self.left_out = 0
        self._names: dict[GuestText, GuestText] = {}  # of user mode: each text is kept once
        self._places = 0

    def add(self, threads: list[ThreadStack], cpus: list[CpuStack], time_ns: int) -> None:
        """Add a sample, which stands for `time_ns`. With `cpus`, running threads are theirs."""
        self.samples += 1
        self.time_ns += time_ns
        for cpu in cpus:
            key = Key(cpu.pid, cpu.group, cpu.comm, ON_CPU, cpu.cpu, cpu.stack, cpu.user)
            self._count(key, time_ns)
        for one in threads:
            state = ON_CPU if one.stack is None else one.state
            if one.stack is not None or not cpus:
                stack = one.stack or NO_STACK
                key = Key(one.pid, one.group, one.comm, state, NO_CPU, stack, one.user)
                self._count(key, time_ns)

    def _count(self, key: Key, time_ns: int) -> None:
        if key not in self.times and key.user.names:
            names = tuple(map(self.name, key.user.names))
            key = replace(key, user=replace(key.user, names=names))
        if key in self.times or self._has_room(len(key.stack.addresses) + len(key.user.names)):
            self.times[key] = self.times.get(key, 0) + time_ns
        else:
            self.left_out += 1

    def _has_room(self, places: int) -> bool:
        """Whether one more stack is kept, which counts from now on."""
        has = (
            len(self.times) < limits.STACKS_KEPT_MAX
            and self._places + places <= limits.STACK_PLACES_MAX
        )
        self._places += places if has else 0
        return has

    def name(self, name: GuestText) -> GuestText:
        """The same name, as long as there are not too many."""
        if name in self._names or len(self._names) < limits.NAMES_MAX:
            return self._names.setdefault(name, name)
        return OTHER_NAME

    def merge(self, other: Profile) -> None:
        """Add another's sums to these."""
        self.samples += other.samples
        self.time_ns += other.time_ns
        self.left_out += other.left_out
        for key, time_ns in other.times.items():
            self._count(key, time_ns)

    def addresses(self) -> Iterator[int]:
        """The addresses of all stacks, some more than once."""
        for stack in {key.stack for key in self.times}:
            yield from stack.addresses

    def keep(self, recorder: Recorder) -> None:
        """Store the sums beside the rows, in the place of those that were stored before."""
        keys = list(self.times)
        columns = {
            "pid": pa.array([key.pid for key in keys], pa.int32()),
            "group": pa.array([key.group for key in keys], pa.int32()),
            "comm": pa.array([str(key.comm) for key in keys], pa.string()),
            "state": pa.array([key.state for key in keys], pa.int64()),
            "cpu": pa.array([key.cpu for key in keys], pa.int32()),
            "ending": pa.array([int(key.stack.ending) for key in keys], pa.int8()),
            "stack": pa.array([key.stack.addresses for key in keys], pa.list_(pa.uint64())),
            "user": pa.array(
                [list(map(str, key.user.names)) for key in keys], pa.list_(pa.string())
            ),
            "user_whole": pa.array([key.user.whole for key in keys], pa.bool_()),
            "user_earlier": pa.array([key.user.earlier for key in keys], pa.bool_()),
            "time_ns": pa.array(self.times.values(), pa.int64()),
        }
        totals = {key: str(getattr(self, key.decode())) for key in TOTALS}
        recorder.keep(FILE, pa.table(columns).replace_schema_metadata(totals))


def load(recording: Recording) -> Profile | None:
    """The sums of a recording; None where it has none."""
    table = recording.kept(FILE)
    if table is None:
        return None
    profile = Profile()
    totals = table.schema.metadata or {}
    for key, lack in TOTALS.items():
        setattr(profile, key.decode(), int(totals.get(key, lack)))
    places: dict[int, int] = {}  # each number once
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        for row in batch.to_pylist():
            stack = Stack(
                Ending(row["ending"]), tuple(places.setdefault(one, one) for one in row["stack"])
            )
            comm = GuestText.stored(row["comm"])
            names = tuple(profile.name(GuestText.stored(one)) for one in row["user"])
            user = UserStack(names, row["user_whole"], row["user_earlier"])
            key_ = Key(row["pid"], row["group"], comm, row["state"], row["cpu"], stack, user)
            profile.times[key_] = row["time_ns"]
    return profile
