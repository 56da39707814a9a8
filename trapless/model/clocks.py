# SPDX-License-Identifier: GPL-2.0-only
"""Modelled clocks: counts times what an event costs on a processor, added up.

clocks = instructions * clocks each
       + accesses that miss the first-level cache * what a second-level hit takes beyond it
       + misses of each further cache * what the next level takes beyond that
       + data-TLB misses * a second-level hit, where there is one
       + misses of the last TLB * a walk of the page table
       + traps * what a trap and its return cost beyond their instructions.

Nothing overlaps in it: an out-of-order processor hides some of that, so each cost is a range. Owns
what an event costs and the sum; latencies are the processor's (data/NAME.json), what an instruction
and a trap cost is in costs.json. Each figure there has its source. It owns no count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trapless.base.console import TraplessError
from trapless.model import processors

TABLES = Path(__file__).parent / "costs.json"

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

WANTED = {"instruction", "fast", "l2_hit", "memory", "walk"}
"""What every processor must have; an L3, a second TLB or another trap come on top."""

ALL = ("read", "write", "fetch")
Count = TypeVar("Count")


@dataclass(frozen=True)
class Cost:
    """Clocks of one event: from `low` to `high`; and who says so."""

    event: str
    text: str
    low: float
    high: float
    source: str

    @property
    def middle(self) -> float:
        """What is used where nothing else is said."""
        return (self.low + self.high) / 2


def costs_of(processor: str, path: Path = TABLES) -> Mapping[str, Cost]:
    """All costs by event; a TraplessError names what is missing."""
    costs = dict(_latencies(processor))
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        for fields in _table_of(data, processor):
            low, high = map(float, fields["clocks"])
            costs[fields["event"]] = Cost(
                fields["event"], fields["text"], low, high, fields["source"]
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraplessError(f"{path}: not a table of costs: {error}") from error
    if WANTED - costs.keys() or any(not 0 < cost.low <= cost.high for cost in costs.values()):
        raise TraplessError(f"{path}: {processor} wants {', '.join(sorted(WANTED))}, each above 0")
    return costs


def _table_of(data: Mapping[str, Any], processor: str) -> Sequence[Mapping[str, Any]]:
    for table in data["tables"]:
        if processor in table["processors"]:
            costs: Sequence[Mapping[str, Any]] = table["costs"]
            return costs
    raise ValueError(f"none for {processor}")


def _latencies(processor: str) -> Iterator[tuple[str, Cost]]:
    """What the processor's own file says. Those of a processor with an L3 are latencies of the
    whole way: a miss then costs what the next level takes beyond the one that missed."""
    told = processors.load(processor).clocks
    deep, second = "l3" in told, "stlb" in told
    words = {
        "cache": "L3" if deep else "L2",
        "beyond": ", beyond that" if deep else "",
        "tlb": "second" if second else "data",
        "also": ", beyond that" if second else "",
    }
    before = None
    for role, (event, text) in {**CACHES, **TLBS}.items():
        if role not in told:
            continue
        low, high = told[role].low, told[role].high
        if role in CACHES and deep:
            if before is not None:
                low, high = low - before.high, high - before.low
            before = told[role]
        yield event, Cost(event, text.format(**words), low, high, told[role].source)


def middle(costs: Mapping[str, Cost]) -> Mapping[str, float]:
    """The figures that are used."""
    return {event: cost.middle for event, cost in costs.items()}


def misses_by_event(
    processor: str, misses: Callable[[str, tuple[str, ...]], Count]
) -> dict[str, Count]:
    """How often each latency is felt. `misses` gives those of a role and of kinds of accesses, as
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


def total(counts: Mapping[str, float], clocks: Mapping[str, float]) -> float:
    """Clocks of all events that were counted.

    >>> total({"walk": 3, "memory": 2}, {"walk": 20, "memory": 200})
    460
    """
    return sum(count * clocks[event] for event, count in counts.items())
