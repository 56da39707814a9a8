# SPDX-License-Identifier: GPL-2.0-only
"""Looks at a machine once, and judges what hangs in it. It runs in the sandbox.

Owns the order of the reading, and what is said where a part cannot be read: the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.health import (
    devices,
    file_systems,
    last_words,
    network_cards,
    printk_ring,
)
from trapless.peek.kernel.health.blocked import Blocked, Setting
from trapless.peek.kernel.health.guest_cpus import Processors, stalled_grace_period
from trapless.peek.kernel.health.hang_causes import ROOT, Cause, Look, Verdict
from trapless.peek.kernel.health.kernel_structures import Structures
from trapless.peek.kernel.health.printk_ring import Log, Record
from trapless.peek.kernel.health.thread_states import NS, Clocks, Threads
from trapless.peek.kernel.health.waits import Waits
from trapless.peek.kernel.health.work_queues import WorkQueues
from trapless.peek.kernel.target import Target

T = TypeVar("T")
AFTER_OOPS_S = 60.0
"""What hangs because of an oops does so within that time, as a rule."""
SLACK_S = 1.0
"""The difference between the clocks of the log and of threads, at most."""


def look(target: Target, longer_s: float) -> Look:
    """What hangs for longer than some seconds, by one look."""
    with limits.within(limits.Budget(limits.DIAGNOSIS)):
        return _Looking(target, longer_s).look()


class _Looking:
    """One look. What cannot be read becomes a note."""

    def __init__(self, target: Target, longer_s: float) -> None:
        self._longer_s = longer_s
        self._notes: list[str] = []
        self._structures = Structures(target)
        self._clocks = Clocks(self._structures)
        self._threads = Threads(self._structures, target.unwinder)
        self._processors = Processors(self._threads, self._clocks)

    def _part(self, name: str, work: Callable[[], T], otherwise: T) -> T:
        try:
            return work()
        except limits.LimitError:
            raise
        except PeekError as error:
            self._notes.append(f"{name} could not be read: {error}")
            return otherwise

    def look(self) -> Look:
        structures, threads, clocks = self._structures, self._threads, self._clocks
        read = self._part("the log", lambda: printk_ring.read(structures.target), Log([], 0))
        if read.left_out:
            self._notes.append(f"{read.left_out:,} records of the log are older than what is read")
        log = read.records
        found: list[Verdict | None] = [
            self._part(
                "the panic",
                lambda: last_words.panic(structures, log, clocks, self._processors.all),
                None,
            )
        ]
        if found[0] is None:  # all that a panic stops says nothing more
            found += self._living(log)
        verdicts = merged(one for one in found if one is not None)[: limits.VERDICTS_MAX]
        if verdicts:
            self._notes += last_words.notable(log, clocks)
        return Look(
            clocks.uptime_s,
            clocks.jiffies,
            len(threads.all),
            tuple(self._processors.all),
            tuple(verdicts),
            tuple(self._notes),
        )

    def _living(self, log: Sequence[Record]) -> list[Verdict | None]:
        structures, threads, clocks = self._structures, self._threads, self._clocks
        longer_s = self._longer_s
        found: list[Verdict | None] = [
            self._part("its state", lambda: last_words.state(structures, threads, clocks), None),
            self._part("oopses", lambda: last_words.oops(structures, log, clocks), None),
            self._part(
                "RCU",
                lambda: stalled_grace_period(threads, clocks, longer_s),
                None,
            ),
            self._part(
                "memory", lambda: devices.memory(structures, threads, clocks, log, longer_s), None
            ),
        ]
        found += self._part("CPUs", lambda: self._processors.verdicts(longer_s), list[Verdict]())
        disks = self._part(
            "disks",
            lambda: devices.stalled_disks(structures, clocks, longer_s),
            list[devices.Disk](),
        )
        found += self._part(
            "network cards",
            lambda: network_cards.stalled(structures, clocks, longer_s),
            list[Verdict](),
        )
        queues = WorkQueues(threads, clocks)
        found += self._part("work", lambda: queues.verdicts(longer_s), list[Verdict]())
        booting = self._part("its state", lambda: last_words.boots(structures), False)
        if booting and found[0] is None:
            self._notes.append(
                f"it has not finished booting: no program has begun {clocks.uptime_s:.0f} s after "
                "its start"
            )
        oops = next((one for one in found if one is not None and one.cause is Cause.OOPS), None)
        oops_ns = None if oops is None else clocks.time_ns - round((oops.seconds + SLACK_S) * NS)
        kinds = self._part("file systems", self._kinds_of_systems, set[str]())
        setting = Setting(clocks, queues, disks, oops_ns, bool(kinds & file_systems.FUSE))
        blocked = Blocked(threads, Waits(threads, queues.worker_of), setting)
        places = {address: wait.place for address, wait in blocked.waits.items()}
        frozen, notes = self._part(
            "frozen file systems",
            lambda: file_systems.frozen(structures, places, threads, clocks, longer_s),
            (list[Verdict](), list[str]()),
        )
        self._notes += notes
        chains = blocked.verdicts(longer_s)
        self._notes += filter(None, [blocked.shorter(longer_s)])
        return [*found, *frozen, *chains, *map(_silent, disks)]

    def _kinds_of_systems(self) -> set[str]:
        structures = self._structures
        return {file_systems.kind_of(structures, one) for one in file_systems.blocks(structures)}


def _silent(disk: devices.Disk) -> Verdict:
    """The verdict on a disk whose requests nobody answers."""
    text = (
        f"The disk {disk.name} has not answered {disk.requests} "
        f"request{'s' * (disk.requests > 1)} for up to {disk.seconds:.0f} s: its driver, or the "
        "host that provides it, is stuck."
    )
    return Verdict(Cause.STORAGE, text, disk.seconds, f"{ROOT}disk {disk.name}")


def _is_over(one: Verdict, found: Sequence[Verdict]) -> bool:
    """Whether an oops was long before all that hangs, so that it most likely did not cause that."""
    others = [other.seconds for other in found if other.subject != last_words.LOGGED]
    return (
        one.subject == last_words.LOGGED
        and bool(others)
        and (one.seconds > max(others) + AFTER_OOPS_S)
    )


def merged(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts in order. Those that only follow from another one become its evidence."""
    likely = sorted(verdicts, key=lambda one: one.order)
    found = sorted(likely, key=lambda one: _is_over(one, likely))
    roots = {one.cause: one for one in found if one.subject.startswith(ROOT)}
    follow = [one for one in found if one.cause in roots and not one.subject.startswith(ROOT)]
    merged_roots = {}
    for cause, root in roots.items():
        more = [line for one in follow if one.cause is cause for line in (one.text, *one.evidence)][
            : limits.EVIDENCE_MAX
        ]
        merged_roots[cause] = replace(root, evidence=(*root.evidence, *more))
    rest = [one for one in found if one not in follow]
    return [merged_roots[one.cause] if one is roots.get(one.cause) else one for one in rest]
