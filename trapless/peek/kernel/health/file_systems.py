# SPDX-License-Identifier: GPL-2.0-only
"""Finds the mounted file systems, their kinds, and those that somebody froze.

Owns the list of super blocks. Who waits for a frozen file system is known by the place of the
semaphore that a thread waits for, which is inside the super block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from trapless.peek.kernel.health.guest_cpus import named
from trapless.peek.kernel.health.hang_causes import ROOT, Cause, Verdict
from trapless.peek.kernel.health.kernel_structures import Structures
from trapless.peek.kernel.health.thread_states import Clocks, Threads

FROZEN = 4
"""The last step of freezing a file system (SB_FREEZE_COMPLETE)."""
FUSE = frozenset({"fuse", "fuseblk", "virtiofs"})
SERVED = FUSE | {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs"}
"""Kinds of file systems whose pages come from a program or from another machine."""


def blocks(structures: Structures) -> list[int]:
    """The super blocks of all mounted file systems, by address."""
    link = structures.at("super_block", "s_list")
    head = structures.target.symbol("super_blocks")
    return sorted(place - link for place in structures.links(head))


def kind_of(structures: Structures, block: int) -> str:
    """The kind of a file system, like "ext4"."""
    kind = structures.number(block, "super_block", "s_type")
    name = structures.number(kind, "file_system_type", "name")
    return str(structures.target.read_string(name))


def title_of(structures: Structures, block: int) -> str:
    """A file system for people, like "vda1 (ext4)"."""
    return f"{structures.text(block, 'super_block', 's_id')} ({kind_of(structures, block)})"


def with_semaphore(structures: Structures, place: int, systems: Sequence[int]) -> int | None:
    """The file system whose semaphores of writers, which freezing takes, include a place.

    `systems` are the super blocks, by address.
    """
    member = structures.target.place("super_block", "s_writers")
    number = bisect_right(systems, place - member.offset)
    if number and place - member.offset - systems[number - 1] < member.size:
        return systems[number - 1]
    return None


def frozen(
    structures: Structures,
    places: Mapping[int, int],
    threads: Threads,
    clocks: Clocks,
    longer_s: float,
) -> tuple[list[Verdict], list[str]]:
    """Verdicts on frozen file systems for which threads have waited long, and notes on the others.

    `places` has the place of what each thread waits for, by the thread's address.
    """
    systems = blocks(structures)
    waited: dict[int, list[int]] = {}
    for address, place in places.items():
        block = with_semaphore(structures, place, systems)
        if block is not None:
            waited.setdefault(block, []).append(address)
    verdicts, notes = [], []
    for block in systems:
        if structures.number(block, "super_block", "s_writers.frozen") != FROZEN:
            continue
        text = f"The file system on {title_of(structures, block)}"
        writers = [threads.all[one] for one in waited.get(block, ())]
        seconds = max(map(clocks.slept_s, writers), default=0.0)
        if seconds <= longer_s:
            notes.append(f"{text} is frozen (fsfreeze); nobody has waited long for it.")
            continue
        sentence = (
            f"{text} is frozen (fsfreeze), and {named(writers)} ha"
            f"{'s' if len(writers) == 1 else 've'} waited for {seconds:.0f} s to write; "
            f"`fsfreeze --unfreeze` lets it go on."
        )
        verdicts.append(Verdict(Cause.FROZEN, sentence, seconds, f"{ROOT}{block:#x}"))
    return verdicts, notes
