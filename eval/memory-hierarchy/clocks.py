# SPDX-License-Identifier: GPL-2.0-only
"""Clocks of a region, modelled: counts times what an event costs on a processor.

clocks = instructions * clocks each
       + reads that miss the first-level cache * a second-level hit
       + second-level misses * a read of memory
       + data-TLB misses * a walk of the page table
       + traps * what a trap and its return cost beyond their instructions.

Nothing overlaps in it: an out-of-order processor hides some of that, so each cost is tried over a
range. Owns the sum; latencies are the processor's (trapless/model/data), what an instruction and a
trap cost is in costs.json. Each figure there has its source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trapless.console import TraplessError
from trapless.measure.experiments import load_module
from trapless.model import processors

HERE = Path(__file__).parent
if TYPE_CHECKING:
    import cells
else:
    cells = load_module(HERE / "cells.py")

OF_PROGRAM = ("instruction", "int", "fast")
"""Costs in costs.json; the others are the processor's."""

OF_PROCESSOR = {
    "l2": ("l2_hit", "a read that misses the L1 cache and hits the L2"),
    "memory": ("memory", "a miss of the L2 cache"),
    "dtlb": ("walk", "a miss of the data TLB"),
}


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


def costs_of(processor: str, path: Path = HERE / "costs.json") -> Mapping[str, Cost]:
    """All costs by event; a TraplessError names what is missing."""
    costs = {}
    for role, told in processors.load(processor).clocks.items():
        if role in OF_PROCESSOR:
            event, text = OF_PROCESSOR[role]
            costs[event] = Cost(event, text, told.low, told.high, told.source)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        for fields in data["costs"]:
            low, high = map(float, fields["clocks"])
            costs[fields["event"]] = Cost(
                fields["event"], fields["text"], low, high, fields["source"]
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraplessError(f"{path}: not a table of costs: {error}") from error
    wanted = {*OF_PROGRAM, *(event for event, _ in OF_PROCESSOR.values())}
    if costs.keys() != wanted or any(not 0 < cost.low <= cost.high for cost in costs.values()):
        raise TraplessError(f"{path}: want {', '.join(sorted(wanted))}, each above 0")
    return costs


def middle(costs: Mapping[str, Cost]) -> Mapping[str, float]:
    """The figures that are used."""
    return {event: cost.middle for event, cost in costs.items()}


def modelled(
    found: cells.Cells, order: str, variant: str, clocks: Mapping[str, float]
) -> cells.Counts:
    """Clocks of each cell in one order, on a processor with the structures of `variant`."""
    events = {
        "instruction": found.both(order, "instructions"),
        "l2_hit": found.misses(order, variant, "l1d", ("read",)),
        "memory": found.misses(order, variant, "l2"),
        "walk": found.misses(order, variant, "dtlb"),
        "int": found.count(order, "crossings.int"),
        "fast": found.count(order, "crossings.sysret"),  # a syscall at level 0 has none
    }
    zero: cells.Counts = 0.0 * events["instruction"]
    return sum((count * clocks[event] for event, count in events.items()), zero)


def ratios(
    found: cells.Cells, order: str, variant: str, clocks: Mapping[str, float]
) -> cells.Counts:
    """Clocks of an order over those of conventional calls, cell by cell."""
    above = modelled(found, order, variant, clocks)
    return cells.ratio(above, modelled(found, "conventional", variant, clocks), 1.0)
