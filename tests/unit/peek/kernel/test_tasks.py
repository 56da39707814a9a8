# SPDX-License-Identifier: GPL-2.0-only
"""Threads of a target from the kernel's own lists, also where these change under the reader."""

from __future__ import annotations

import struct

import pytest

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel import tasks
from trapless.peek.kernel.tasks import Task, threads

OFFSETS = {
    ("task_struct", "tasks"): 0,
    ("task_struct", "thread_node"): 16,
    ("task_struct", "signal"): 32,
    ("task_struct", "real_parent"): 40,
    ("task_struct", "pid"): 48,
    ("task_struct", "tgid"): 52,
    ("task_struct", "flags"): 56,
    ("task_struct", "comm"): 64,
    ("signal_struct", "thread_head"): 8,
}
INIT, INIT_SIGNAL = 0x1000, 0x1100
SERVER, WORKER, SIGNAL = 0x2000, 0x2100, 0x2200
KTHREAD, KTHREAD_SIGNAL = 0x3000, 0x3100


class Lists:
    """A kernel with init_task, a process of two threads, and a thread of its own."""

    def __init__(self) -> None:
        self.data = bytearray(0x4000)
        self.task(INIT, INIT_SIGNAL, 0, 0, "swapper/0", 0)
        self.task(SERVER, SIGNAL, 6, 6, "server", 0)
        self.task(WORKER, SIGNAL, 7, 6, "worker", 0)
        self.task(KTHREAD, KTHREAD_SIGNAL, 2, 2, "kthreadd", tasks.PF_KTHREAD)
        self.ring(INIT, SERVER, KTHREAD)
        self.ring(SIGNAL + 8, SERVER + 16, WORKER + 16)
        self.ring(KTHREAD_SIGNAL + 8, KTHREAD + 16)

    def task(self, at: int, signal: int, pid: int, group: int, comm: str, flags: int) -> None:
        data = struct.pack("<QQiiI4x16s", signal, INIT, pid, group, flags, comm.encode())
        self.data[at + 32 : at + 32 + len(data)] = data

    def ring(self, *links: int) -> None:
        for place, following in zip(links, (*links[1:], links[0]), strict=True):
            self.data[place : place + 8] = struct.pack("<Q", following)

    def symbol(self, name: str) -> int:
        assert name == "init_task"
        return INIT

    def offset(self, record: str, member: str) -> int:
        return OFFSETS[record, member]

    def read(self, address: int, length: int) -> bytes:
        if address + length > len(self.data):
            raise PeekError(f"nothing is mapped at {address:#x}")
        return bytes(self.data[address : address + length])

    def physical(self, address: int) -> tuple[int, int]:
        return address, 4096 - address % 4096

    @property
    def page_tables(self) -> Lists:
        return self

    @property
    def memory(self) -> Lists:
        return self


def test_all_threads_are_found_with_their_processes():
    assert threads(Lists()) == {
        6: Task(6, 6, GuestText(b"server"), 0, False),
        7: Task(7, 6, GuestText(b"worker"), 0, False),
        2: Task(2, 2, GuestText(b"kthreadd"), 0, True),
    }


def test_thousands_of_threads_take_one_read_each():
    """What is looked up, or translated, for each of ten thousand took ten seconds once."""
    lists, count = Lists(), 2_000
    lists.data += bytes(128 * count)
    places = [0x4000 + 128 * number for number in range(count)]
    for number, place in enumerate(places):
        lists.task(place, SIGNAL, 10 + number, 6, "many", 0)
    lists.ring(SIGNAL + 8, SERVER + 16, *(place + 16 for place in places))
    asked: list[int] = []
    lists.physical = lambda address: (
        asked.append(address) or (address, (2 << 20) - address % (2 << 20))
    )
    read = lists.read
    reads: list[int] = []
    lists.read = lambda address, length: reads.append(address) or read(address, length)
    assert len(threads(lists)) == count + 2
    assert len(reads) < count + 20 and len(asked) < 20


def test_list_that_was_torn_gives_what_came_before():
    lists = Lists()
    lists.ring(INIT, SERVER)
    lists.data[SERVER : SERVER + 8] = struct.pack("<Q", 1 << 60)
    assert set(threads(lists)) == {6, 7}


def test_list_that_goes_in_circles_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "THREADS_MAX", 50)
    lists = Lists()
    lists.ring(SERVER, KTHREAD)
    assert set(threads(lists)) == {2, 6, 7}
