# SPDX-License-Identifier: GPL-2.0-only
"""From what was counted to what is shown: crossings, footprints, misses, clocks, savings.

All are functions of a Counted (and of the same program's run in supervisor mode), so that saved
counts give the same report again. Owns the arithmetic; words and tables are text.py's.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from trapless.model import clocks, processors
from trapless.model.clocks import ALL
from trapless.model.plan import Plan, Variant
from trapless.model.processors import Cost
from trapless.model.rows import Row
from trapless.stat import costs, run_counts
from trapless.stat.costs import BATCH, Saving
from trapless.stat.run_counts import Counted

MODES = ("user", "kernel")
UNITS = (64, 4096)
SHOWN_ROLES = ("itlb", "dtlb", "dtlb_large", "stlb", "trace_cache", "l1i", "l1d", "l2", "l3")


@dataclass(frozen=True)
class Range:
    """A modelled figure: at the low end of all costs, in the middle, at the high end."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, make: Callable[[Callable[[Cost], float]], float]) -> Range:
        """`make` is given what picks one end of a cost."""
        ends = (make(lambda c: c.low), make(lambda c: c.middle), make(lambda c: c.high))
        return cls(min(ends), ends[1], max(ends))


@dataclass(frozen=True)
class Misses:
    """Of one cache or TLB, by mode. `other`: those that would not be, were it split by mode; it is
    below 0 where each side finds what the other brought in."""

    role: str
    user: int
    kernel: int
    other: int


@dataclass(frozen=True)
class Mechanism:
    """What one would take away: counted or predicted instructions, crossings, modelled clocks."""

    name: str
    instructions: float
    wrong_by: float
    crossings: float
    clocks: Mapping[str, Range]


@dataclass(frozen=True)
class Clocks:
    """Of one processor, all modelled. `direct` and `pollution` are parts of `total`."""

    processor: str
    name: str
    total: Range
    direct: Range
    pollution: Range
    calls_per_second: float | None


class Report:
    """The figures about one run; `real` has the same command's runs in both modes, by turns."""

    def __init__(self, found: Counted, real: Counted | None = None) -> None:
        self.found, self.real = found, real
        self.plan: Plan = run_counts.plan_of(found.processors)
        self.row: Row = found.row

    @cached_property
    def crossings(self) -> Mapping[str, int]:
        """The ledger of the program."""
        return self.row.crossings()

    @property
    def entries(self) -> int:
        """Times that user mode was left."""
        return self.crossings["to_kernel"]

    def footprint(self, mode: str, unit: int) -> int:
        """Bytes that the mode touched in the whole run, in lines or pages."""
        return self.plan.footprint_bytes(self.row, mode, unit)

    def visit(self, mode: str, unit: int) -> float | None:
        """Bytes that it touches between two crossings, on average."""
        found = self.plan.visit_bytes(self.row, mode, unit)
        return None if math.isnan(found) else found

    def misses(self, processor: str) -> tuple[Misses, ...]:
        """Of each of its caches and TLBs."""
        roles = processors.load(processor).structures
        split = Variant(processor, split=True).id
        found = []
        for role in sorted(roles, key=_place_of_role):
            user, kernel = (self.plan.misses(self.row, mode, processor, role) for mode in MODES)
            apart = sum(self.plan.misses(self.row, mode, split, role) for mode in MODES)
            found.append(Misses(role, user, kernel, user + kernel - apart))
        return tuple(found)

    def clocks(self, processor: str) -> Clocks:
        """What the run takes on that processor, and what of it crossings cost."""
        table = clocks.costs_of(processor)
        shared = self._latencies(processor, processor)
        split = self._latencies(processor, Variant(processor, split=True).id)
        counts = {"instruction": float(self.found.instructions), "fast": float(self.entries)}

        def sum_of(events: Mapping[str, float], end: Callable[[Cost], float]) -> float:
            return clocks.total(events, {event: end(cost) for event, cost in table.items()})

        total = Range.of(lambda end: sum_of({**counts, **shared}, end))
        name = processors.load(processor).name
        frequency = _hertz(name)
        return Clocks(
            processor,
            name,
            total,
            direct=Range.of(lambda end: sum_of(self._direct, end)),
            pollution=Range.of(lambda end: sum_of(shared, end) - sum_of(split, end)),
            calls_per_second=(
                self.crossings["syscall"] * frequency / total.middle
                if frequency and total.middle
                else None
            ),
        )

    @cached_property
    def _direct(self) -> Mapping[str, float]:
        """What crossings cost by themselves: traps, and the instructions that only calls by trap
        execute, as far as they were calibrated."""
        saved = {term.name: term.saved for term in costs.supervisor_terms(self.found)}
        calls = self.crossings["syscall"]
        return {"fast": float(self.entries), "instruction": calls * saved.get("calls", 0.0)}

    def _latencies(self, processor: str, variant: str) -> dict[str, float]:
        """How often each latency is felt, in both modes; instructions that miss count, too."""
        roles = processors.load(processor).structures

        def misses(role: str, kinds: tuple[str, ...] = ALL) -> float:
            name = self.plan.names[variant, role]
            return sum(
                self.row.of(mode, name, f"{kind}_misses") for mode in MODES for kind in kinds
            )

        found = clocks.misses_by_event(processor, misses)
        if "l1i" in roles:
            found["l2_hit"] += misses("l1i")
        return found

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What is predicted of each that this kernel offers; bounds behind predictions."""
        found = []
        supervisor = costs.supervisor_saving(self.found)
        if supervisor is not None:
            found.append(self._mechanism("supervisor mode", supervisor, 0.0))
        batch = costs.batch_saving(self.found)
        if batch is not None:
            calls = self.crossings["syscall"]
            share = (1 - 1 / BATCH) * calls / max(self.entries, 1)
            found.append(self._mechanism(f"batches of {BATCH}", batch, share))
        return tuple(found)

    def _mechanism(self, name: str, saving: Saving, pollution_share: float) -> Mechanism:
        made = {}
        for processor in self.found.processors:
            kept = _clocks_of(saving, clocks.costs_of(processor))
            lost = self.clocks(processor).pollution
            made[processor] = Range(
                kept.low + pollution_share * lost.low,
                kept.middle + pollution_share * lost.middle,
                kept.high + pollution_share * lost.high,
            )
        return Mechanism(name, saving.instructions, saving.wrong_by, saving.crossings, made)

    @cached_property
    def saved_each(self) -> tuple[int, ...]:
        """Instructions that supervisor mode saved, counted: of each pair of runs, one a mode."""
        if self.real is None:
            return ()
        user, supervisor = (self.real.repeats[mode] for mode in run_counts.MODES)
        return tuple(
            one.instructions - other.instructions
            for one, other in zip(user, supervisor, strict=True)
        )

    @property
    def really_saved(self) -> float | None:
        """The median of all pairs: what falls into one run alone does not decide it."""
        return statistics.median(self.saved_each) if self.saved_each else None

    @property
    def wrong_by(self) -> float:
        """Half of the distance between the lowest and the highest pair; of a single pair what two
        runs may differ by, and calls that slept in only one of them, because somebody answered
        later."""
        if len(self.saved_each) > 1:
            return (max(self.saved_each) - min(self.saved_each)) / 2
        if self.real is None:
            return costs.uncertainty(self.found)
        slept = [self.real.repeats[mode][0].features["slept_out"] for mode in run_counts.MODES]
        wait = (slept[0] - slept[1]) * costs.sleeping(self.found)
        return math.hypot(costs.uncertainty(self.found), wait)

    @property
    def predicted(self) -> Mechanism | None:
        """Supervisor mode, where it is offered."""
        return next((one for one in self.mechanisms if one.name == "supervisor mode"), None)

    @property
    def prediction_error(self) -> float | None:
        """Of supervisor mode's saving: by how much the prediction is above what was counted."""
        return self._above(self.really_saved)

    @property
    def prediction_error_range(self) -> tuple[float, float] | None:
        """The same against the highest and the lowest pair; None where nothing was saved there."""
        if not self.saved_each:
            return None
        low, high = (self._above(end(self.saved_each)) for end in (max, min))
        return None if low is None or high is None else (low, high)

    def _above(self, saved: float | None) -> float | None:
        if saved is None or saved <= 0 or self.predicted is None:
            return None
        return self.predicted.instructions / saved - 1

    def as_json(self) -> dict[str, Any]:
        """All figures, and what they were made of."""
        return {
            "format": "trapless-stat",
            "version": 1,
            "kernel": self.found.release,
            "status": self.found.status,
            "crossings": dict(self.crossings),
            "events": dict(self.found.events),
            "footprints": [
                {
                    "mode": mode,
                    "unit_bytes": unit,
                    "run_bytes": self.footprint(mode, unit),
                    "visit_bytes": self.visit(mode, unit),
                }
                for mode in MODES
                for unit in UNITS
            ],
            "processors": [
                {**asdict(self.clocks(one)), "misses": [asdict(m) for m in self.misses(one)]}
                for one in self.found.processors
            ],
            "mechanisms": [asdict(one) for one in self.mechanisms],
            "terms": [asdict(one) for one in costs.supervisor_terms(self.found)],
            "really_saved_instructions": self.really_saved,
            "really_saved_wrong_by": self.wrong_by,
            "really_saved_each_instructions": self.saved_each,
            "prediction_error": self.prediction_error,
            "prediction_error_range": self.prediction_error_range,
            "counted": self.found.as_json(),
            "counted_by_turns": self.real.as_json() if self.real else None,
        }


def _clocks_of(saving: Saving, table: Mapping[str, Cost]) -> Range:
    """Of the instructions and the traps that would not be."""
    instruction, trap = table["instruction"], table["fast"]
    return Range.of(
        lambda end: saving.instructions * end(instruction) + saving.crossings * end(trap)
    )


def _place_of_role(role: str) -> int:
    return SHOWN_ROLES.index(role) if role in SHOWN_ROLES else len(SHOWN_ROLES)


def _hertz(name: str) -> float | None:
    """The clock frequency that a processor's name tells.

    >>> _hertz("Core i7-9700K 3.6 GHz"), _hertz("Pentium 4 1.8A GHz, 512 KB L2")
    (3600000000.0, 1800000000.0)
    """
    match = re.search(r"([\d.]+)A? GHz", name)
    return float(match[1]) * 1e9 if match else None
