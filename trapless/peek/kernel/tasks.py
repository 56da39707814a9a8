# SPDX-License-Identifier: GPL-2.0-only
"""Reads which threads a target has at this moment, from the kernel's own lists.

Owns the walk of lists that change during the walk: a walk that meets a torn entry keeps the threads
before it, and every walk has a bound. Ten thousand threads take a fraction of a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.name_resolver import Resolver

COMM_BYTES = 16
PF_KTHREAD = 0x00200000
PAGE_BYTES = 2 << 20
"""Kernels map their memory in pages of this size, or larger ones."""
MEMBERS = {
    **dict.fromkeys(("tasks", "thread_node", "signal", "real_parent"), 8),
    **dict.fromkeys(("pid", "tgid", "flags"), 4),
    "comm": COMM_BYTES,
}
"""The members of task_struct that are read, with their sizes in bytes; of lists, the first link."""


@dataclass(frozen=True)
class Task:
    """One thread. `group` is the pid of its process."""

    pid: int
    group: int
    comm: GuestText
    parent: int  # pid of the process that it is a child of
    is_kernel: bool


def threads(target: Resolver) -> dict[int, Task]:
    """All threads by pid, without the idle ones; if an entry is torn, the threads before it."""
    with limits.within(limits.Budget(limits.THREADS)):
        walk = Walk(target)
        return {task.pid: task for task in map(walk.task, walk.entries())}


@dataclass(frozen=True)
class Entry:
    """The values of one read of a task. Pointers are virtual addresses."""

    address: int
    pid: int
    group: int
    flags: int
    comm: bytes
    parent: int
    signal: int
    next_leader: int
    next_thread: int


class Walk:
    """One walk of the lists. Each task is read at once, and translations are kept for the walk."""

    def __init__(self, target: Resolver) -> None:
        self._target = target
        self._pages: dict[int, int] = {}  # physical addresses of large pages
        self._at = {name: target.offset("task_struct", name) for name in MEMBERS}
        self._first = min(self._at.values())
        self._length = max(self._at[name] + size for name, size in MEMBERS.items()) - self._first
        self._head = target.offset("signal_struct", "thread_head")
        self._groups: dict[int, int] = {target.symbol("init_task"): 0}  # by the task's address

    def entries(self) -> list[Entry]:
        """All threads, or those before a torn entry."""
        entries: list[Entry] = []
        try:
            for leader in self._leaders():
                for one in self._threads(leader):
                    entries.append(one)
                    self._groups[one.address] = one.group
                    # Lists that a guest has made up may share their members.
                    if len(entries) >= limits.THREADS_MAX:
                        return entries
        except PeekError:
            pass
        return entries

    def _leaders(self) -> Iterator[Entry]:
        """The first thread of each process, which are a list that begins and ends at init_task."""
        link = self._at["tasks"]
        head = self._target.symbol("init_task") + link
        place, visited = self._u64(head), {head}
        while place not in visited and len(visited) <= limits.THREADS_MAX:
            visited.add(place)
            entry = self._entry(place - link)
            yield entry
            place = entry.next_leader

    def _threads(self, leader: Entry) -> Iterator[Entry]:
        """The threads of a process. The list passes through its signal_struct once."""
        link, head = self._at["thread_node"], leader.signal + self._head
        entry, visited = leader, {leader.address + link}
        while True:
            yield entry
            place = entry.next_thread
            if place == head:
                place = self._u64(head)
            if place in visited or len(visited) > limits.THREADS_MAX:
                return
            visited.add(place)
            entry = self._entry(place - link)

    def _entry(self, task: int) -> Entry:
        data, at, first = self.read(task + self._first, self._length), self._at, self._first

        def number(name: str) -> int:
            place, size = at[name] - first, MEMBERS[name]
            return int.from_bytes(data[place : place + size], "little", signed=size == 4)

        comm = at["comm"] - first
        return Entry(
            task,
            number("pid"),
            number("tgid"),
            number("flags"),
            data[comm : comm + COMM_BYTES],
            number("real_parent"),
            number("signal"),
            number("tasks"),
            number("thread_node"),
        )

    def task(self, one: Entry) -> Task:
        """The thread of an entry."""
        parent = self._groups.get(one.parent)
        if parent is None:  # it came or went during the walk
            with contextlib.suppress(PeekError):
                data = self.read(one.parent + self._at["tgid"], 4)
                parent = int.from_bytes(data, "little", signed=True)
        return Task(
            pid=one.pid,
            group=one.group,
            comm=GuestText(one.comm),
            parent=parent or 0,
            is_kernel=bool(one.flags & PF_KTHREAD),
        )

    def _u64(self, virtual: int) -> int:
        return int.from_bytes(self.read(virtual, 8), "little")

    def read(self, virtual: int, length: int) -> bytes:
        """Bytes at a virtual address, in a page that was translated before where that is large."""
        inside = virtual % PAGE_BYTES
        if inside + length > PAGE_BYTES:
            return self._target.read(virtual, length)
        physical = self._pages.get(virtual - inside)
        if physical is None:
            place, left = self._target.page_tables.physical(virtual)
            if left < PAGE_BYTES - inside:  # a small page
                return self._target.read(virtual, length)
            physical = self._pages[virtual - inside] = place - inside
        return self._target.memory.read(physical + inside, length)
