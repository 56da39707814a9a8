# SPDX-License-Identifier: GPL-2.0-only
"""Clocks of a grid's cells, modelled: trapless/model/clocks.py over arrays.

Nothing overlaps in it, so each cost is tried over a range. Owns which counts of a region are events
that cost clocks; what each costs, and who says so, is the package's.
"""

from __future__ import annotations

from collections.abc import Mapping

from eval.memory_hierarchy import cells
from trapless.model.clocks import TRAPS, costs_of, middle, misses_by_event

__all__ = ["costs_of", "events_of", "middle", "modelled", "ratios"]


def events_of(found: cells.Cells, order: str, variant: str) -> Mapping[str, cells.Counts]:
    """How often each event occurs that costs clocks, cell by cell."""
    return {
        "instruction": found.both(order, "instructions"),
        **misses_by_event(
            variant.partition("+")[0],
            lambda role, kinds: found.misses(order, variant, role, kinds),
        ),
        **{trap: found.count(order, column) for trap, column in TRAPS.items()},
    }


def modelled(
    found: cells.Cells, order: str, variant: str, clocks: Mapping[str, float]
) -> cells.Counts:
    """Clocks of each cell in one order, on a processor with the structures of `variant`."""
    events = events_of(found, order, variant)
    missing = [event for event, count in events.items() if event not in clocks and count.any()]
    if missing:
        raise ValueError(f"{variant}: nobody says what {', '.join(missing)} costs")
    zero: cells.Counts = 0.0 * events["instruction"]
    return sum((count * clocks[event] for event, count in events.items() if event in clocks), zero)


def ratios(
    found: cells.Cells, order: str, variant: str, clocks: Mapping[str, float]
) -> cells.Counts:
    """Clocks of an order over those of conventional calls, cell by cell."""
    above = modelled(found, order, variant, clocks)
    return cells.ratio(above, modelled(found, "conventional", variant, clocks), 1.0)
