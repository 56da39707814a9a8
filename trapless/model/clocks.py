# SPDX-License-Identifier: GPL-2.0-only
"""Models the clocks of counted work: counts times what an event costs on a processor, added up.

clocks = instructions * clocks of an instruction
       + accesses that miss the first-level cache * what a second-level hit takes beyond it
       + misses of each further cache * what the next level takes beyond that
       + misses of the first data TLB * a second-level hit, where there is a second level
       + misses of the last TLB * a walk of the page table
       + traps * what a trap and its return cost beyond their instructions.

Nothing overlaps in this sum. An out-of-order processor hides some of these clocks, so each cost is
a range. This file owns how counts become events, and the sum; each figure is in the processor's
file (processors.py). trap_clocks.py models single calls, whose misses nobody counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from trapless.model import processors
from trapless.model.processors import Cost, Processor

CACHES = {
    "l2": ("l2_hit", "a read that misses the L1 cache and hits the L2"),
    "l3": ("l3_hit", "a miss of the L2 cache that hits the L3, beyond that"),
    "memory": ("memory", "a miss of the {cache} cache{beyond}"),
}
TLBS = {
    "stlb": ("stlb_hit", "a miss of the first data TLB that hits the second"),
    "dtlb": ("walk", "a miss of the {tlb} TLB{also}"),
}
"""By role in a processor's file: the event, and its name in tables."""

TRAPS = {"int": "crossings.int", "fast": "crossings.sysret"}
"""Traps and where they are counted; a syscall at level 0 has no sysret."""

ALL = ("read", "write", "fetch")
Count = TypeVar("Count")


def costs_of(name: str) -> Mapping[str, Cost]:
    """All costs of a processor, by event."""
    processor = processors.load(name)
    return {**dict(_latencies(processor)), **processor.costs}


def _latencies(processor: Processor) -> Iterator[tuple[str, Cost]]:
    """The cost of an access that misses a level. The latencies of a processor with an L3 are those
    of the whole way: a miss then costs the next level's latency less that of the level that
    missed."""
    latencies = processor.latencies
    deep, second = "l3" in latencies, "stlb" in latencies
    words = {
        "cache": "L3" if deep else "L2",
        "beyond": ", beyond that" if deep else "",
        "tlb": "second" if second else "data",
        "also": ", beyond that" if second else "",
    }
    before = None
    for role, (event, text) in {**CACHES, **TLBS}.items():
        if role not in latencies:
            continue
        whole = latencies[role]
        low, high = whole.low, whole.high
        if role in CACHES and deep:
            if before is not None:
                low, high = low - before.high, high - before.low
            before = whole
        yield event, Cost(low, high, whole.source, text.format(**words))


def middle(costs: Mapping[str, Cost]) -> Mapping[str, float]:
    """The middle of each cost's range."""
    return {event: cost.middle for event, cost in costs.items()}


def misses_by_event(
    processor: str, misses: Callable[[str, tuple[str, ...]], Count]
) -> dict[str, Count]:
    """How often each latency is paid. `misses` gives the misses of a role by kinds of accesses, as
    numbers or as arrays."""
    roles = processors.load(processor).structures
    last = "l3" if "l3" in roles else "l2"
    events = {"l2_hit": misses("l1d", ("read",)), "memory": misses(last, ALL)}
    if last == "l3":
        events["l3_hit"] = misses("l2", ALL)
    first: Any = misses("dtlb", ALL)
    if "dtlb_large" in roles:
        first = first + misses("dtlb_large", ALL)
    if "stlb" in roles:
        events["stlb_hit"], events["walk"] = first, misses("stlb", ALL)
    else:
        events["walk"] = first
    return events


def total(counts: Mapping[str, Count], clocks: Mapping[str, float]) -> Count:
    """The clocks of all events that were counted, as a number or, for arrays of counts, an array.

    A ValueError names events that occurred and whose cost nobody published.

    >>> total({"walk": 3, "memory": 2}, {"walk": 20, "memory": 200})
    460
    """
    numbers: Mapping[str, Any] = counts
    missing = [event for event, count in numbers.items() if event not in clocks and _occurs(count)]
    if missing:
        raise ValueError(f"nobody says what {', '.join(missing)} costs")
    terms = (count * clocks[event] for event, count in numbers.items() if event in clocks)
    return cast(Count, sum(terms))


def _occurs(count: Any) -> bool:
    """Whether a number is not zero, or any of an array, which alone takes numpy."""
    return bool(count.any()) if hasattr(count, "any") else bool(count)
