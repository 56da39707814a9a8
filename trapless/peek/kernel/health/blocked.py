# SPDX-License-Identifier: GPL-2.0-only
"""Follows blocked threads to the root of what they wait for, and says it in words.

Owns the graph of who waits for whom: its circles are deadlocks, and every other chain ends at a
thread that does not wait for another one. What such a thread does is read from its stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.kernel.health.devices import Disk
from trapless.peek.kernel.health.guest_cpus import named
from trapless.peek.kernel.health.hang_causes import Cause, Verdict
from trapless.peek.kernel.health.thread_states import SLEEPS, Clocks, Thread, Threads
from trapless.peek.kernel.health.waits import (
    BLOCKERS,
    FREEZE,
    LOCK,
    PAGE,
    SERVED_PAGE,
    VFORK,
    WORK,
    Waits,
)
from trapless.peek.kernel.health.work_queues import WorkQueues

ON_PURPOSE = (
    "__refrigerator",
    "ptrace_stop",
    "do_signal_stop",
    "coredump_task_exit",
    "exit_mm",
    "do_exit",
)
"""Functions in which a thread sleeps until somebody else lets it go on. In the last three it waits
for the end of a core dump of its process, in exit_mm() or do_exit() on older kernels."""
NOT_BEGUN = "kthread"
"""The function in which a new kernel thread sleeps until somebody wakes it for the first time."""
TIMERS = ("msleep", "ssleep", "usleep_range", "schedule_timeout_killable", "fsleep", "cgroup_enter")
"""Functions that end a sleep by themselves, and sleeps that somebody asked for."""
FUSE_WAIT, FUSE_LOCKS = "request_wait_answer", ("fuse_setlk", "fuse_file_lock", "fuse_file_flock")
"""Where a thread waits for an answer of a FUSE program, and questions that may take for ever."""
OF_WAIT = {PAGE: Cause.STORAGE, SERVED_PAGE: Cause.SERVER, FREEZE: Cause.FROZEN}
REASONS: tuple[tuple[tuple[str, ...], Cause, str], ...] = (
    ((FUSE_WAIT, "fuse_"), Cause.SERVER, "for the program of a FUSE file system to answer"),
    (
        ("rpc_wait", "nfs_", "nfs4_", "cifs_", "smb2_", "ceph_", "afs_"),
        Cause.SERVER,
        "for a file server to answer",
    ),
    (("p9_client_rpc", "p9_virtio"), Cause.SERVER, "for the server of a 9p file system to answer"),
    (("autofs_",), Cause.SERVER, "for the automount program to mount a file system"),
    (("fanotify_",), Cause.SERVER, "for a program to allow an access to a file (fanotify)"),
    (("handle_userfault",), Cause.SERVER, "for a program to provide a page (userfaultfd)"),
    (("call_usermodehelper",), Cause.SERVER, "for a program to end that the kernel has started"),
    (
        ("mem_cgroup_oom_synchronize", "mem_cgroup_handle_over_high"),
        Cause.MEMORY,
        "for memory in its control group, which has reached its limit",
    ),
    (("kvm_async_pf",), Cause.STORAGE, "for the host to bring back a page of its memory"),
    (
        ("blk_mq_get_tag", "submit_bio_wait", "blk_execute_rq", "blkdev_", "blk_mq_freeze", "bio_"),
        Cause.STORAGE,
        "for a disk",
    ),
    (
        (
            "folio_wait",
            "__folio_lock",
            "wait_on_page",
            "__lock_page",
            "wait_on_buffer",
            "__wait_on_buffer",
            "filemap_",
            "__filemap_",
            "balance_dirty_pages",
            "bit_wait_io",
        ),
        Cause.STORAGE,
        "for a page that is being read or written",
    ),
    (
        ("jbd2_", "wait_transaction", "start_this_handle", "xfs_log", "xlog_", "btrfs_"),
        Cause.STORAGE,
        "for the journal of its file system",
    ),
    (("wb_wait_for_completion", "sync_inodes_sb"), Cause.STORAGE, "for data to be written back"),
    (
        (
            "synchronize_rcu",
            "__wait_rcu_gp",
            "rcu_barrier",
            "synchronize_srcu",
            "__synchronize_srcu",
        ),
        Cause.RCU,
        "for RCU readers to end",
    ),
    (
        ("__flush_work", "flush_work", "__flush_workqueue", "drain_workqueue"),
        Cause.WORK,
        "for queued work to end",
    ),
    (("kthread_stop",), Cause.BLOCKED, "for another kernel thread to end"),
    (
        ("wait_for_completion", "__wait_for_common", "do_wait_for_common"),
        Cause.BLOCKED,
        "for an event that has not come (a completion)",
    ),
    (
        ("percpu_rwsem_wait", "__percpu_down_read", "percpu_down_write"),
        Cause.LOCK,
        "for a per-CPU semaphore",
    ),
    (("try_to_free_pages", "throttle_direct_reclaim", "shrink_"), Cause.MEMORY, "for free memory"),
)
WHILE_S = 2.0
"""A thread that is blocked for less has most likely just asked a disk for something."""
SEARCHED = 8
"""The innermost functions that show what a thread waits for."""


@dataclass(frozen=True)
class Setting:
    """What else was found, by which chains may end."""

    clocks: Clocks
    queues: WorkQueues
    disks: Sequence[Disk]
    oops_ns: int | None  # when the kernel's own code failed, if it did
    has_fuse: bool  # whether a FUSE file system is mounted


class Blocked:
    """The blocked threads of one moment."""

    def __init__(self, threads: Threads, waits: Waits, setting: Setting) -> None:
        self._threads, self._setting, self._clocks = threads, setting, setting.clocks
        self.all = [one for one in threads.all.values() if self._counts(one)]
        self.waits = {one.address: wait for one in self.all if (wait := waits.of(one)) is not None}

    def _counts(self, thread: Thread) -> bool:
        """Whether a thread sleeps so that a long sleep is a hang."""
        functions = self._threads.functions
        if thread.is_blocked or (thread.state and self._has_record(thread)):
            stack = functions(thread)
            return stack[:1] != (NOT_BEGUN,) and not _starts(stack[:2], ON_PURPOSE)
        if not self._setting.has_fuse or thread.is_kernel or not thread.state & SLEEPS:
            return False
        # A signal does not end this sleep, though its state says so.
        stack = functions(thread)
        return _starts(stack[:4], (FUSE_WAIT,)) and not _starts(stack, FUSE_LOCKS)

    def _has_record(self, thread: Thread) -> bool:
        """Whether a thread has a record of a lock that it waits for. Drivers wait for events at
        semaphores, in a sleep that a signal may end."""
        blocker = thread.values.get("blocker", 0)
        is_lock = blocker and BLOCKERS[blocker & 3] != "semaphore"
        return bool(is_lock or thread.values.get("pi"))

    def verdicts(self, longer_s: float) -> list[Verdict]:
        """One verdict for each circle, and for each root that keeps threads waiting for long."""
        groups: dict[str, list[Thread]] = {}
        circles: dict[str, list[Thread]] = {}
        for thread in self.all:
            if self._clocks.slept_s(thread) <= longer_s:
                continue
            chain, circle = self._chain(thread)
            if circle:
                key = "circle " + " ".join(f"{one:x}" for one in sorted(circle))
                circles[key] = [self._threads.all[one] for one in circle]
                groups.setdefault(key, []).append(thread)
                continue
            key = self._root_key(chain)
            if key:
                groups.setdefault(key, []).append(thread)
        found = [self._circle(key, circles[key], groups[key]) for key in circles]
        found += [self._root(key, group) for key, group in groups.items() if key not in circles]
        return found

    def shorter(self, longer_s: float) -> str:
        """Says how many threads have been blocked for a while, but not for long; or nothing."""
        slept = [self._clocks.slept_s(one) for one in self.all if self._root_key([one.address])]
        found = [one for one in slept if WHILE_S <= one <= longer_s]
        if not found:
            return ""
        have = "s have" if len(found) > 1 else " has"
        return (
            f"{len(found)} thread{have} been blocked for up to {max(found):.0f} s, which does not "
            f"count yet: --longer-than is {longer_s:g}"
        )

    # ---- Chains ----------------------------------------------------------------------------------

    def _chain(self, thread: Thread) -> tuple[list[int], list[int]]:
        """From a thread to the root of its wait, and the circle that it ends in, if it does.

        Whoever took a lock last may have given it back, which is no circle.
        """
        chain, at = [thread.address], thread.address
        while (wait := self.waits.get(at)) is not None and wait.owner:
            if wait.kind == LOCK and not wait.note and self._is_successor(wait.owner):
                return [*chain, 0], []
            at = wait.owner
            if at in chain:
                circle = chain[chain.index(at) :]
                return chain, [] if any(self.waits[one].note for one in circle) else circle
            chain.append(at)
            if len(chain) > limits.FRAMES_MAX:
                break
        return chain, []

    def _is_successor(self, owner: int) -> bool:
        """Whether an owner began after an oops: it has the place of a thread that the oops ended.

        Where an oops ends a thread, its locks stay locked, and its memory becomes another thread's.
        """
        thread, oops_ns = self._threads.all.get(owner), self._setting.oops_ns
        return oops_ns is not None and thread is not None and thread.values["began"] > oops_ns

    def _root_key(self, chain: Sequence[int]) -> str:
        """What tells the root of a chain from others; empty where it is no hang."""
        last = self._threads.all.get(chain[-1])
        if last is None or len(chain) > 1:
            return f"owner {chain[-1]:x}"
        wait = self.waits.get(last.address)
        if wait is not None:
            return f"place {wait.place:x}"
        functions = self._threads.functions(last)
        if not functions or _starts(functions[:2], TIMERS):
            return ""
        return "stack " + " ".join(functions[:SEARCHED])

    # ---- Words -----------------------------------------------------------------------------------

    def _circle(self, key: str, circle: Sequence[Thread], group: Sequence[Thread]) -> Verdict:
        seconds = min(map(self._clocks.slept_s, circle))
        also = [one for one in group if one not in circle]
        if len(circle) == 1:
            wait = self.waits[circle[0].address]
            itself = ": it waits for itself" if wait.kind == WORK else " that it holds itself"
            text = f"{circle[0].title} waits for {wait.what}{itself}, and so for ever"
        else:
            text = (
                f"{named(circle)} wait for each other for ever: each holds a lock that another one "
                "wants"
            )
        more = f"; {len(also)} more wait behind" if also else ""
        evidence = [self._line(one) for one in circle] + [self._line(one) for one in also]
        evidence += [self._stack(one) for one in circle]
        return Verdict(
            Cause.DEADLOCK,
            f"{text} (deadlock, for {seconds:.0f} s){more}.",
            seconds,
            key,
            tuple(evidence[: limits.EVIDENCE_MAX]),
        )

    def _root(self, key: str, group: Sequence[Thread]) -> Verdict:
        group = sorted(group, key=self._clocks.slept_s, reverse=True)
        seconds = self._clocks.slept_s(group[0])
        chain, _ = self._chain(group[0])
        evidence = [self._line(one) for one in group[: limits.NAMED_MAX]]
        evidence += [
            self._line(self._threads.all[one])
            for one in chain[1:]
            if one in self.waits and self._threads.all[one] not in group
        ]
        if key.startswith("owner"):
            cause, text, lines = self._owned(group, chain[-1], seconds)
        else:
            cause, text, lines = self._unowned(group, seconds)
        evidence += [*lines, *(self._stack(one) for one in group[: limits.NAMED_MAX])]
        return Verdict(
            cause, text, seconds, key, tuple(dict.fromkeys(evidence))[: limits.EVIDENCE_MAX]
        )

    def _owned(
        self, group: Sequence[Thread], owner: int, seconds: float
    ) -> tuple[Cause, str, list[str]]:
        """The verdict on threads that wait for what one thread has."""
        root = self._threads.all.get(owner)
        nearest = self.waits[group[0].address]
        who = named(group)
        verb = "waits" if len(group) == 1 else "wait"
        if root is None:
            has_died = self._setting.oops_ns is not None
            cause = Cause.OOPS if has_died else Cause.LOCK
            by = ", most likely by the oops" if has_died else ""
            text = (
                f"{who} {verb} for ever for {nearest.what}: the thread that held it has ended "
                f"without giving it back{by}."
            )
            return cause, text, []
        other, does = self._activity(root)
        have = f"{who} {'has' if len(group) == 1 else 'have'} waited for {seconds:.0f} s"
        if nearest.note and nearest.owner == owner:
            last = "whose last owner"
            if nearest.is_read:
                last = "which others read; the last reader that is known"
            text = f"{have} for {nearest.what}, {last} is {root.title}, which {does}."
            return Cause.LOCK, text, [self._stack(root)]
        if nearest.kind == VFORK:
            text = f"{have} for {nearest.what}: {root.title} {does}."
            return other or Cause.BLOCKED, text, [self._stack(root)]
        if nearest.kind == WORK:
            text = f"{have} for {nearest.what}; it is done by {root.title}, which {does}."
        else:
            text = f"{root.title} holds a lock for which {have}, and {does}."
        return other or Cause.LOCK, text, [self._stack(root)]

    def _unowned(self, group: Sequence[Thread], seconds: float) -> tuple[Cause, str, list[str]]:
        """The verdict on threads that wait for what has no known owner."""
        first = group[0]
        wait = self.waits.get(first.address)
        who, one = named(group), len(group) == 1
        have = f"{who} {'has' if one else 'have'} waited for {seconds:.0f} s"
        if wait is not None and wait.is_lost:
            text = (
                f"{have} for {wait.what}, which nobody holds: a wake-up was lost, so "
                f"{'it sleeps' if one else 'they sleep'} on."
            )
            return Cause.LOST_WAKEUP, text, []
        worker = self._setting.queues.workers.get(first.address)
        if worker is not None and worker.function:
            behind = self._setting.queues.behind(worker.pool_of_queue)
            plural = behind != 1
            more = f"; {behind} more piece{'s' * plural} of work wait{'s' * (not plural)} behind it"
            _, why, _ = self._reason(first)
            text = (
                f"The work {worker.function} of the kernel's queue {worker.queue} does not end: "
                f"{first.title} has waited for {seconds:.0f} s {why}{more if behind else ''}."
            )
            return Cause.WORK, text, []
        cause, why, lines = self._reason(first)
        if wait is not None:
            why = f"for {wait.what}" + (f" ({wait.note})" if wait.note else "")
            cause = OF_WAIT.get(wait.kind, Cause.LOCK)
        return cause, f"{have} {why}.", lines

    def _reason(self, thread: Thread) -> tuple[Cause, str, list[str]]:
        """What a thread without a known owner waits for, by the functions on its stack."""
        functions = self._threads.functions(thread)
        for beginnings, cause, words in REASONS:
            if _starts(functions[:SEARCHED], beginnings):
                disks = [
                    f"disk {one.name} has not answered {one.requests} "
                    f"request{'s' * (one.requests > 1)}, the oldest for {one.seconds:.0f} s"
                    for one in self._setting.disks
                ]
                return cause, words, disks if cause is Cause.STORAGE else []
        inside = functions[0] if functions else "a place that its stack does not show"
        return Cause.BLOCKED, f"in {inside}, and nothing shows who would wake it", []

    def _activity(self, thread: Thread) -> tuple[Cause | None, str]:
        """What a thread that others wait for does, in words, and the cause if that is another."""
        if thread.values["on_cpu"]:
            return None, f"runs on CPU {thread.cpu}"
        if not thread.state:
            seconds = self._clocks.waited_s(thread)
            return Cause.CPU_STARVED, f"wants to run, but has got no CPU for {seconds:.0f} s"
        seconds = self._clocks.slept_s(thread)
        functions = self._threads.functions(thread)
        place = f"sleeps for {seconds:.0f} s in {' < '.join(functions[:3]) or 'an unknown place'}"
        if thread.is_blocked:
            cause, why, _ = self._reason(thread)
            if cause is not Cause.BLOCKED:
                return cause, f"waits {why} itself: it {place}"
        return None, place

    def _line(self, thread: Thread) -> str:
        wait = self.waits.get(thread.address)
        seconds = self._clocks.slept_s(thread)
        if wait is None:
            return f"{thread.title} sleeps for {seconds:.0f} s"
        text = f"{thread.title} waits for {seconds:.0f} s for {wait.what}"
        if wait.note:
            return f"{text}; {wait.note}"
        by = "which is" if wait.kind == VFORK else "held by"
        return f"{text}, {by} {self._threads.title(wait.owner)}" if wait.owner else text

    def _stack(self, thread: Thread) -> str:
        names = " < ".join(self._threads.functions(thread)[:10])
        return f"{thread.title}: {names or 'on a CPU, whose stack is not in memory'}"


def _starts(functions: Sequence[str], beginnings: tuple[str, ...]) -> bool:
    """Whether one of some functions begins so; a whole name is compared with a whole one."""
    return any(one.split(".")[0].startswith(beginnings) for one in functions)
