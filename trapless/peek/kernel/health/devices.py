# SPDX-License-Identifier: GPL-2.0-only
"""Finds disks that do not answer, and memory that has run out.

Owns the way from the kernel's lists to a disk's requests: every disk that is open has an inode in
the file system of block devices, and its driver has a table of the requests that it has given away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.health.guest_cpus import named
from trapless.peek.kernel.health.hang_causes import Cause, Verdict
from trapless.peek.kernel.health.kernel_structures import WORD, Structures
from trapless.peek.kernel.health.printk_ring import Record
from trapless.peek.kernel.health.thread_states import NS, Clocks, Thread, Threads
from trapless.peek.limits import LimitError

IN_FLIGHT = 1
"""The state of a request that its driver has (MQ_RQ_IN_FLIGHT)."""
FREE_PAGES = 0
"""The number of free pages among the counters of memory (NR_FREE_PAGES)."""
KILLED = "Out of memory: Killed process"
KILLED_IN_GROUP = "Memory cgroup out of memory: Killed process"
GROUP = re.compile(r"oom-kill:constraint=CONSTRAINT_MEMCG.*,oom_memcg=([^,]*)")
RECENT_S, LAST_S, REPEATED = 60.0, 15.0, 3
"""Memory has run out when the kernel has killed so many processes in so short a time, the last one
just now."""


@dataclass(frozen=True)
class Disk:
    """A disk whose driver has requests that nobody has answered."""

    name: str
    requests: int
    seconds: float  # of the oldest


def stalled_disks(structures: Structures, clocks: Clocks, longer_s: float) -> list[Disk]:
    """The disks whose oldest request is older than that."""
    found: dict[int, Disk] = {}
    for disk in _disks(structures):
        if disk not in found:
            try:
                ages = list(_ages(structures, clocks, disk))
            except LimitError:
                raise
            except PeekError:  # it comes, or goes
                continue
            name = str(structures.text(disk, "gendisk", "disk_name"))
            found[disk] = Disk(name, len(ages), max(ages, default=0.0))
    return [one for one in found.values() if one.seconds > longer_s]


def _disks(structures: Structures) -> Iterator[int]:
    target = structures.target
    if not target.has_symbol("blockdev_superblock"):
        return
    block = target.read_u64(target.symbol("blockdev_superblock"))
    link = structures.at("inode", "i_sb_list")
    inode, device = (structures.at("bdev_inode", name) for name in ("vfs_inode", "bdev"))
    for place in structures.links(block + structures.at("super_block", "s_inodes")):
        opened = place - link - inode + device
        disk = structures.number(opened, "block_device", "bd_disk")
        if disk:
            yield disk


def _ages(structures: Structures, clocks: Clocks, disk: int) -> Iterator[float]:
    """How long each request of a disk has been with its driver, in seconds."""
    number, target = structures.number, structures.target
    queue = number(disk, "gendisk", "queue")
    tags_of_set = number(queue, "request_queue", "tag_set") if queue else 0
    if not tags_of_set:  # a disk without requests, which passes them on
        return
    tables = number(tags_of_set, "blk_mq_tag_set", "tags")
    count = number(tags_of_set, "blk_mq_tag_set", "nr_hw_queues")
    left = limits.DISK_REQUESTS_MAX
    # Queues may share one table.
    of_queues = (target.read_u64(tables + WORD * at) for at in range(min(count, limits.CPUS_MAX)))
    for tags in filter(None, dict.fromkeys(of_queues)):
        size = min(number(tags, "blk_mq_tags", "nr_tags"), left)
        left -= size
        table = number(tags, "blk_mq_tags", "rqs")
        data = target.read(table, WORD * size)
        for at in range(0, len(data), WORD):
            request = int.from_bytes(data[at : at + WORD], "little")
            if not request or number(request, "request", "q") != queue:
                continue
            if number(request, "request", "state") == IN_FLIGHT:
                started = number(request, "request", "start_time_ns")
                yield max(clocks.time_ns - started, 0) / NS if started else 0.0


def memory(
    structures: Structures,
    threads: Threads,
    clocks: Clocks,
    log: Sequence[Record],
    longer_s: float,
) -> Verdict | None:
    """The verdict on memory that has run out: victims that do not end, and one kill after another.

    One process that was killed is over with that.
    """
    killed = [
        one
        for one in log
        if one.text.startswith((KILLED, KILLED_IN_GROUP))
        and (clocks.now_ns - one.time_ns) / NS < RECENT_S
    ]
    in_groups = [one for one in killed if one.text.startswith(KILLED_IN_GROUP)]
    of_machine = [one for one in killed if one not in in_groups]
    # A group that is at its limit does not concern the others.
    recent = of_machine if len(of_machine) >= len(in_groups) else in_groups
    stuck = [
        one
        for one in threads.all.values()
        if _is_victim(structures, one) and clocks.slept_s(one) > longer_s and one.state
    ]
    continues = recent and (clocks.now_ns - recent[-1].time_ns) / NS < LAST_S
    if not stuck and (len(recent) < REPEATED or not continues):
        return None
    what = "The machine is out of memory"
    if recent and recent is in_groups:
        group = next((m[1] for one in reversed(log) if (m := GROUP.search(one.text))), "")
        what = f"The control group {group or 'of a process'} has reached its memory limit"
    page = structures.target.symbol("vm_zone_stat") + WORD * FREE_PAGES
    free = structures.target.read_u64(page) * 4 >> 10
    evidence = [f"free memory: {free} MiB", *(one.text for one in recent[-REPEATED:])]
    if stuck:
        seconds = max(map(clocks.slept_s, stuck))
        text = (
            f"{what}: the kernel has killed {named(stuck)}, which cannot end "
            f"and has slept for {seconds:.0f} s."
        )
        evidence += [f"{one.title}: {' < '.join(threads.functions(one)[:8])}" for one in stuck[:4]]
    else:
        seconds = max((clocks.now_ns - recent[0].time_ns) / NS, 0.0)
        text = f"{what}: the kernel has killed {len(recent)} processes in {seconds:.0f} s."
    return Verdict(Cause.MEMORY, text, seconds, "memory", tuple(evidence))


def _is_victim(structures: Structures, thread: Thread) -> bool:
    if thread.is_kernel or thread.has_ended:  # perhaps its parent never asks for its status
        return False
    try:
        return bool(structures.number(thread.entry.signal, "signal_struct", "oom_mm"))
    except LimitError:
        raise
    except PeekError:  # it has ended
        return False
