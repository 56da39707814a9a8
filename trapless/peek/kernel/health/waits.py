# SPDX-License-Identifier: GPL-2.0-only
"""Finds the lock, the page or the work that a sleeping thread waits for, and who has it.

A thread that waits for a lock has a record of that on its own stack, with its own address in it;
the record is in the lock's list, which leads to the lock, and the lock names its owner. Newer
kernels note the lock in the thread. Owns these records. Readers of a semaphore for readers and
writers are only counted by the kernel, and a semaphore that counts has no owner: a wait says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from trapless.peek.errors import PeekError
from trapless.peek.kernel.health import file_systems
from trapless.peek.kernel.health.kernel_structures import WORD
from trapless.peek.kernel.health.thread_states import Thread, Threads
from trapless.peek.limits import LimitError

LOCK, PAGE, SERVED_PAGE, FREEZE, WORK = "lock", "page", "served page", "freeze", "work"
VFORK = "vfork"
"""Kinds of waits. A served page comes from a program or another machine. The owner of a work is the
thread that does it, and is known by its queue. That of a vfork is the child."""
FLAGS = 7
"""The lowest bits of an owner, which are flags."""
READ_HELD, READERS_SHIFT = 1, 8
BLOCKERS = ("mutex", "semaphore", "rw_semaphore", "rw_semaphore")
"""The kinds of locks by the lowest bits of task_struct.blocker; the last two to read, to write."""
ENTRIES = {
    "mutex": ("__mutex_lock", "mutex_lock"),
    "rw_semaphore": ("rwsem_down_", "__down_read", "down_read", "__down_write", "down_write"),
    "semaphore": ("__down_common", "___down_common", "__down", "down"),
}
"""How the functions begin that wait for a lock of a kind."""
WAITERS = {"mutex": "mutex_waiter", "rw_semaphore": "rwsem_waiter", "semaphore": "semaphore_waiter"}
PER_CPU = ("percpu_rwsem_wait", "__percpu_down_read", "percpu_down_read")
PAGES = ("folio_wait_bit", "__folio_lock", "wait_on_page_bit", "__lock_page", "__wait_on_page")
FLUSHES = ("__flush_work", "flush_work", "__cancel_work", "cancel_work_sync", "__cancel_work_sync")
ANONYMOUS = 3
"""The lowest bits of a page's mapping, which is of no file where one of them is set."""


@dataclass(frozen=True)
class Wait:
    """What a thread waits for. `owner` is the address of a thread, and 0 where none is known."""

    what: str  # like "the mutex hang_mutex"
    place: int  # its address
    owner: int = 0  # with a note: the last one that took it, and has perhaps given it back
    note: str = ""  # what is known of whoever has it, where that is not one owner
    is_read: bool = False  # readers have it
    is_lost: bool = False  # it is free, so somebody should have woken the thread
    kind: str = LOCK


class Waits:
    """The waits of the threads of one moment. `workers` gives the thread that a work waits for."""

    def __init__(
        self, threads: Threads, worker_of: Callable[[int], tuple[int, str] | None]
    ) -> None:
        self._threads, self._worker_of = threads, worker_of
        self._structures, self._target = threads.structures, threads.structures.target

    @cached_property
    def _systems(self) -> list[int]:
        return file_systems.blocks(self._structures)

    @cached_property
    def _vforks(self) -> list[tuple[int, int]]:
        """The events that children of vfork note, each with the child."""
        threads = self._threads.all.values()
        return [(place, one.address) for one in threads if (place := one.values.get("vfork", 0))]

    def of(self, thread: Thread) -> Wait | None:
        """What a thread waits for; None where its stack shows nothing that is known."""
        try:
            return self._of(thread)
        except LimitError:
            raise
        except PeekError:  # the record has changed meanwhile
            return None

    def _of(self, thread: Thread) -> Wait | None:
        if thread.values.get("pi"):
            return self._rt_mutex(thread.values["pi"])
        blocker = thread.values.get("blocker", 0)
        if blocker:
            number = blocker & 3
            return self._lock(BLOCKERS[number], blocker & ~3, number == 2)
        functions = self._threads.functions(thread)[:4]
        for kind, beginnings in ENTRIES.items():
            if any(one.startswith(beginnings) for one in functions):
                return self._by_stack(kind, thread)
        if any(one.startswith(PER_CPU) for one in functions):
            return self._percpu(thread)
        if any(one.startswith(PAGES) for one in functions):
            return self._page(thread)
        if any(one.startswith(FLUSHES) for one in functions):
            return self._work(thread)
        return self._vfork(thread)

    def _vfork(self, thread: Thread) -> Wait | None:
        """The wait for a child, which notes where its parent's stack has the event."""
        for place, child in self._vforks:
            if self._threads.on_stack(place, thread.address):
                what = "its child to run a program or to end (vfork)"
                return Wait(what, place, child, kind=VFORK)
        return None

    # ---- Locks -----------------------------------------------------------------------------------

    def _records(self, record: str, member: str, thread: Thread) -> Iterator[int]:
        """Where a thread's stack may have a record that names the thread in a member."""
        at = self._structures.at(record, member)
        start, words = self._threads.words(thread)
        for number, word in enumerate(words):
            if word == thread.address:
                yield start + WORD * number - at

    def _by_stack(self, kind: str, thread: Thread) -> Wait | None:
        structures, record = self._structures, WAITERS[kind]
        link = structures.at(record, "list")
        for waiter in self._records(record, "task", thread):
            try:
                lock = self._lock_of(kind, waiter + link, thread)
                if lock is not None:
                    reads = kind == "rw_semaphore" and self._reads(waiter)
                    return self._lock(kind, lock, reads)
            except LimitError:
                raise
            except PeekError:  # no record, but a word that looks so
                continue
        return None

    def _reads(self, waiter: int) -> bool:
        reading = self._target.types.enumerator("RWSEM_WAITING_FOR_READ")
        value = self._structures.number(waiter, "rwsem_waiter", "type")
        return reading is not None and value == reading[1]

    def _lock_of(self, kind: str, link: int, thread: Thread) -> int | None:
        """The lock in whose list of waiters a record is."""
        target, structures, record = self._target, self._structures, WAITERS[kind]
        if target.read_u64(target.read_u64(link) + WORD) != link:
            return None
        inner = structures.at(record, "task") - structures.at(record, "list")
        ring = [link]
        for place in structures.links(link):
            task = target.read_u64(place + inner)
            if not self._threads.on_stack(place, task):
                return place - structures.at(kind, "wait_list")  # the list's head, in the lock
            ring.append(place)
        first = structures.at(kind, "first_waiter")  # waiters without a head
        waiters = {place - structures.at(record, "list") for place in ring}
        for word in dict.fromkeys(self._threads.words(thread)[1]):
            if word >> 63 and not word % WORD and not self._threads.on_stack(word, thread.address):
                try:
                    if target.read_u64(word + first) in waiters:
                        return word
                except PeekError:  # no address
                    continue
        return None

    def _lock(self, kind: str, lock: int, reads: bool) -> Wait:
        number, name = self._structures.number, self._name(lock)
        if kind == "semaphore":
            owner, note = 0, "a semaphore does not note its owner"
            if self._structures.has(kind, "last_holder"):
                owner = number(lock, kind, "last_holder")
            if owner:
                last = self._threads.title(owner)
                note = f"the last that took it is {last}, and any thread may give it back"
            return Wait(f"the semaphore {name}", lock, self._if_there(owner), note)
        owner = number(lock, kind, "owner")
        if kind == "mutex":
            return Wait(f"the mutex {name}", lock, owner & ~FLAGS, is_lost=not owner & ~FLAGS)
        what = f"the read-write semaphore {name}, to {'read' if reads else 'write'} it"
        count = number(lock, kind, "count", signed=True)
        readers = max(count >> READERS_SHIFT, 0)
        if not owner & READ_HELD:
            held = owner & ~FLAGS
            return Wait(what, lock, held, is_lost=not held and not count & 1 and not readers)
        owner &= ~FLAGS
        if not readers:
            return Wait(what, lock, note="nobody reads or writes it now", is_lost=not count & 1)
        plural = "s have" if readers > 1 else " has"
        who = "the kernel does not note which"
        if owner:
            last = self._threads.title(owner)
            who = f"the kernel notes only the last that took it, {last}, and not whether it has it"
        note = f"{readers} reader{plural} it; {who}"
        return Wait(what, lock, self._if_there(owner), note, is_read=True)

    def _if_there(self, owner: int) -> int:
        """A noted owner that may have given the lock back; 0 where it has ended since."""
        return owner if owner in self._threads.all else 0

    def _rt_mutex(self, waiter: int) -> Wait:
        number = self._structures.number
        lock = number(waiter, "rt_mutex_waiter", "lock")
        # The part that is locked was a structure of its own from Linux 5.15 on.
        record = "rt_mutex_base" if self._structures.has("rt_mutex_base", "owner") else "rt_mutex"
        owner = number(lock, record, "owner") & ~1
        return Wait(f"the rt_mutex {self._name(lock)}", lock, owner, is_lost=not owner)

    def _percpu(self, thread: Thread) -> Wait | None:
        """The semaphore with a count on each CPU in whose queue a thread waits."""
        at, target = self._structures.at, self._target
        link, private, function = (
            at("wait_queue_entry", name) for name in ("entry", "private", "func")
        )
        for record in self._records("wait_queue_entry", "private", thread):
            try:
                if not self._is_woken_by(record + function, "percpu_rwsem_wake_function"):
                    continue
                for place in self._structures.links(record + link):
                    task = target.read_u64(place - link + private)
                    if not self._threads.on_stack(place, task):  # the head, in the semaphore
                        return self._of_percpu(place - at("percpu_rw_semaphore", "waiters.head"))
            except LimitError:
                raise
            except PeekError:
                continue
        return None

    def _of_percpu(self, lock: int) -> Wait:
        block = file_systems.with_semaphore(self._structures, lock, self._systems)
        if block is not None:
            title = file_systems.title_of(self._structures, block)
            return Wait(f"the permission to write to the file system on {title}", lock, kind=FREEZE)
        note = "the kernel does not note who has it"
        return Wait(f"the per-CPU semaphore {self._name(lock)}", lock, note=note)

    def _name(self, lock: int) -> str:
        name = str(self._target.name_of(lock))
        if not name.startswith("0x"):
            return name
        if self._structures.has("mm_struct", "mmap_lock"):
            mm = lock - self._structures.at("mm_struct", "mmap_lock")
            for thread in self._threads.all.values():
                if thread.values["mm"] == mm:
                    return f"of the memory map of {thread.title}"
        return f"at {name}"

    # ---- Pages and work --------------------------------------------------------------------------

    def _page(self, thread: Thread) -> Wait | None:
        structures = self._structures
        member = structures.member("wait_page_queue", "folio", "page")
        private, function = (
            structures.at("wait_page_queue", "wait") + structures.at("wait_queue_entry", name)
            for name in ("private", "func")
        )
        start, words = self._threads.words(thread)
        for number, word in enumerate(words):
            record = start + WORD * number - private
            if word != thread.address or not self._threads.on_stack(record, thread.address):
                continue
            try:
                if not self._is_woken_by(record + function, "wake_page_function"):
                    continue
                page = structures.number(record, "wait_page_queue", member)
                bit = structures.number(record, "wait_page_queue", "bit_nr")
                written = self._target.types.enumerator("PG_writeback")
                verb = "is being written" if written and bit == written[1] else "is locked"
                name, kind = self._page_name(page)
                return Wait(f"{name}, which {verb}", page, kind=kind)
            except LimitError:
                raise
            except PeekError:
                continue
        return None

    def _is_woken_by(self, place: int, name: str) -> bool:
        """Whether a word is the address of a function."""
        known = self._target.has_symbol(name)
        return not known or self._target.read_u64(place) == self._target.symbol(name)

    def _page_name(self, page: int) -> tuple[str, str]:
        """A page for people, and the kind of a wait for it."""
        structures = self._structures
        mapping = structures.number(page, "page", "mapping")
        inode = 0
        if mapping and not mapping & ANONYMOUS:
            inode = structures.number(mapping, "address_space", "host")
        if not inode:
            return "a page of memory", PAGE
        number = structures.number(inode, "inode", "i_ino")
        block = structures.number(inode, "inode", "i_sb")
        if structures.text(block, "super_block", "s_id").says("bdev"):
            return "a page of a disk", PAGE
        is_served = file_systems.kind_of(structures, block) in file_systems.SERVED
        title = file_systems.title_of(structures, block)
        text = f"a page of the file with inode number {number} on {title}"
        return text, SERVED_PAGE if is_served else PAGE

    def _work(self, thread: Thread) -> Wait | None:
        """The work whose end a thread waits for: a record on its stack is queued behind it."""
        entry = self._structures.at("wq_barrier", "work") + self._structures.at(
            "work_struct", "entry"
        )
        for record in self._records("wq_barrier", "task", thread):
            try:
                found = self._worker_of(record + entry)
            except LimitError:
                raise
            except PeekError:
                continue
            if found is not None:
                owner, name = found
                return Wait(f"the end of the work {name}", record, owner, kind=WORK)
        return None


def is_lock_function(function: str) -> bool:
    """Whether a function is one of those that take locks."""
    beginnings: Sequence[tuple[str, ...]] = (*ENTRIES.values(), ("rt_mutex", "__rt_mutex"))
    return function.startswith(tuple(one for group in beginnings for one in group))
