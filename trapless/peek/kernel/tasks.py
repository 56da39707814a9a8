# SPDX-License-Identifier: GPL-2.0-only
"""Reads which threads a target has at this moment, from the kernel's own lists.

Owns the walk of lists that change during the walk: a walk that meets a torn entry keeps the threads
before it, and every walk has a bound.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.resolver import Resolver

COMM_BYTES = 16
PF_KTHREAD = 0x00200000


@dataclass(frozen=True)
class Task:
    """One thread. `group` is the pid of its process."""

    pid: int
    group: int
    comm: GuestText
    parent: int  # pid of the process that it is a child of
    is_kernel: bool


def threads(target: Resolver) -> dict[int, Task]:
    """All threads by pid, without the idle ones; those before a torn entry, where there is one."""
    tasks: dict[int, Task] = {}
    steps = 0
    try:
        with limits.within(limits.Budget(limits.THREADS)):
            for leader in _leaders(target):
                for task in _group(target, leader):
                    one = _read(target, task)
                    tasks[one.pid] = one
                    steps += 1
                    if steps >= limits.THREADS_MAX:  # made-up lists may share their members
                        return tasks
    except PeekError:
        pass
    return tasks


def _list(target: Resolver, head: int, link: int) -> Iterator[int]:
    """The members of a list, each once; the link of each is `link` bytes into it."""
    place, visited = target.read_u64(head), {head}
    while place not in visited and len(visited) <= limits.THREADS_MAX:
        visited.add(place)
        yield place - link
        place = target.read_u64(place)


def _leaders(target: Resolver) -> Iterator[int]:
    link = target.offset("task_struct", "tasks")
    yield from _list(target, target.symbol("init_task") + link, link)


def _group(target: Resolver, leader: int) -> Iterator[int]:
    signal = target.read_u64(leader + target.offset("task_struct", "signal"))
    head = signal + target.offset("signal_struct", "thread_head")
    yield from _list(target, head, target.offset("task_struct", "thread_node"))


def _read(target: Resolver, task: int) -> Task:
    def number(member: str, of: int = task) -> int:
        return int(
            struct.unpack("<i", target.read(of + target.offset("task_struct", member), 4))[0]
        )

    parent = target.read_u64(task + target.offset("task_struct", "real_parent"))
    comm = target.read(task + target.offset("task_struct", "comm"), COMM_BYTES)
    return Task(
        pid=number("pid"),
        group=number("tgid"),
        comm=GuestText(comm),
        parent=number("tgid", parent),
        is_kernel=bool(number("flags") & PF_KTHREAD),
    )
