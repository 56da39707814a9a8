# SPDX-License-Identifier: GPL-2.0-only
"""Computes the report of a run from its counts: crossings, footprints, misses, clocks, savings.

All figures are functions of a RunCounts (and of those of the same program's runs by turns), so that
saved counts give the same report again. This file owns the arithmetic; stat_text.py owns words and
tables.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from trapless.model import clocks, processors
from trapless.model.clocks import ALL
from trapless.model.model_plan import Plan, Variant
from trapless.model.processors import Cost
from trapless.model.rows import Row
from trapless.stat import costs, run_counts
from trapless.stat.by_call import ByCall, CallCost
from trapless.stat.costs import Saving
from trapless.stat.labels import BATCH
from trapless.stat.run_counts import Loop, RunCounts

MODES = ("user", "kernel")
UNITS = (64, 4096)
CALLS_APART = 0.01
"""The share of its calls by which a run may differ from the other one of its pair, in the number of
calls and in how often threads left the processor in a call. Both depend on how many requests a
server finds at once. Runs that differ by more did different work."""
SHOWN_ROLES = ("itlb", "dtlb", "dtlb_large", "stlb", "trace_cache", "l1i", "l1d", "l2", "l3")


@dataclass(frozen=True)
class Ends:
    """A modelled figure: with all costs at their low end, in the middle, and at their high end."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, make: Callable[[Callable[[Cost], float]], float]) -> Ends:
        """`make` computes the figure; its argument picks one end of a cost."""
        ends = (make(lambda c: c.low), make(lambda c: c.middle), make(lambda c: c.high))
        return cls(min(ends), ends[1], max(ends))


@dataclass(frozen=True)
class Misses:
    """The misses of one cache or TLB, by mode. `other`: those that it would not have if it were
    split by mode; below 0 where each side finds what the other one has loaded."""

    role: str
    user: int
    kernel: int
    other: int


@dataclass(frozen=True)
class Mechanism:
    """The saving of a mechanism: instructions, crossings, and modelled clocks."""

    name: str
    instructions: float
    wrong_by: float
    crossings: float
    clocks: Mapping[str, Ends]


@dataclass(frozen=True)
class Clocks:
    """The modelled clocks on one processor. `direct` and `pollution` are parts of `total`."""

    processor: str
    name: str
    total: Ends
    direct: Ends
    pollution: Ends
    calls_per_second: float | None


class Report:
    """The figures of one run. `real`: the counts of the same command's runs in both modes."""

    def __init__(self, counts: RunCounts, real: RunCounts | None = None) -> None:
        self.counts, self.real = counts, real
        self.plan: Plan = run_counts.plan_of(counts.processors, elsewhere=counts.has_elsewhere)
        self.row: Row = counts.row

    @cached_property
    def crossings(self) -> Mapping[str, int]:
        """The ledger of the program."""
        return self.row.crossings()

    @property
    def entries(self) -> int:
        """How often user mode was left."""
        return self.crossings["to_kernel"]

    def footprint(self, mode: str, unit: int) -> int:
        """Bytes that the mode touched in the whole run, in lines or pages."""
        return self.plan.footprint_bytes(self.row, mode, unit)

    def visit(self, mode: str, unit: int) -> float | None:
        """Bytes that the mode touches between two crossings, on average."""
        mean = self.plan.visit_bytes(self.row, mode, unit)
        return None if math.isnan(mean) else mean

    def misses(self, processor: str) -> tuple[Misses, ...]:
        """The misses of each of its caches and TLBs."""
        roles = processors.load(processor).structures
        split = Variant(processor, split=True).id
        misses = []
        for role in sorted(roles, key=_place_of_role):
            user, kernel = (self.plan.misses(self.row, mode, processor, role) for mode in MODES)
            apart = sum(self.plan.misses(self.row, mode, split, role) for mode in MODES)
            misses.append(Misses(role, user, kernel, user + kernel - apart))
        return tuple(misses)

    def clocks(self, processor: str) -> Clocks:
        """The clocks of the run on that processor, and the part of them that crossings cost."""
        shared = self._latencies(processor, processor)
        split = self._latencies(processor, Variant(processor, split=True).id)
        total = self._sum_of(processor, self._work | shared)
        name = processors.load(processor).name
        frequency = _hertz(name)
        return Clocks(
            processor,
            name,
            total,
            direct=self._sum_of(processor, self._direct),
            pollution=self._sum_of(
                processor, {event: number - split[event] for event, number in shared.items()}
            ),
            calls_per_second=(
                self.crossings["syscall"] * frequency / total.middle
                if frequency and total.middle
                else None
            ),
        )

    def clocks_elsewhere(self, processor: str) -> Ends:
        """The clocks of both processors if another one did the kernel's work, where the run was
        modelled so."""
        away = self._latencies(processor, Variant(processor, elsewhere=True).id)
        return self._sum_of(processor, self._work | away)

    def clocks_of_work(self, processor: str) -> Ends:
        """The part that no cache changes: instructions and traps."""
        return self._sum_of(processor, self._work)

    @property
    def _work(self) -> dict[str, float]:
        return {"instruction": float(self.counts.instructions), "fast": float(self.entries)}

    def _sum_of(self, processor: str, events: Mapping[str, float]) -> Ends:
        table = clocks.costs_of(processor)
        return Ends.of(
            lambda end: clocks.total(events, {event: end(cost) for event, cost in table.items()})
        )

    @cached_property
    def _direct(self) -> Mapping[str, float]:
        """The direct cost of crossings: traps, and the instructions that only calls by trap
        execute, if the calibration has counted them."""
        saved = {term.name: term.saved for term in costs.supervisor_terms(self.counts)}
        calls = self.crossings["syscall"]
        return {"fast": float(self.entries), "instruction": calls * saved.get("calls", 0.0)}

    def _latencies(self, processor: str, variant: str) -> dict[str, float]:
        """How often each latency is paid, in both modes, by data and by instructions."""
        roles = processors.load(processor).structures

        def misses(role: str, kinds: tuple[str, ...] = ALL) -> float:
            name = self.plan.names[variant, role]
            return sum(
                self.row.of(mode, name, f"{kind}_misses") for mode in MODES for kind in kinds
            )

        events = clocks.misses_by_event(processor, misses)
        if "l1i" in roles:
            events["l2_hit"] += misses("l1i")
        return events

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The predictions for those that this kernel offers; batches, a bound, come last."""
        mechanisms = []
        supervisor = costs.supervisor_saving(self.counts)
        if supervisor is not None:
            if len(self.saved_each) > 1:
                supervisor = replace(supervisor, wrong_by=self._pairs_apart)
            mechanisms.append(self._mechanism("supervisor mode", supervisor, 0.0))
        batch = costs.batch_saving(self.counts)
        if batch is not None:
            calls = self.crossings["syscall"]
            share = (1 - 1 / BATCH) * calls / max(self.entries, 1)
            mechanisms.append(self._mechanism(f"batches of {BATCH}", batch, share))
        return tuple(mechanisms)

    def _mechanism(self, name: str, saving: Saving, pollution_share: float) -> Mechanism:
        saved = {}
        for processor in self.counts.processors:
            direct = _clocks_of(saving, clocks.costs_of(processor))
            pollution = self.clocks(processor).pollution
            saved[processor] = Ends(
                direct.low + pollution_share * pollution.low,
                direct.middle + pollution_share * pollution.middle,
                direct.high + pollution_share * pollution.high,
            )
        return Mechanism(name, saving.instructions, saving.wrong_by, saving.crossings, saved)

    @cached_property
    def saved_each(self) -> tuple[int, ...]:
        """The counted instructions that supervisor mode saved in each pair of runs."""
        return tuple(one.instructions - other.instructions for one, other in self._pairs)

    @property
    def _pairs(self) -> tuple[tuple[Loop, Loop], ...]:
        """The runs in both modes, by turns."""
        if self.real is None:
            return ()
        user, supervisor = (self.real.repeats[mode] for mode in run_counts.MODES)
        return tuple(zip(user, supervisor, strict=True))

    @cached_property
    def calls_apart(self) -> float:
        """The share by which a run in supervisor mode made more calls than the run in user mode of
        its pair, for the pair that differs most."""
        shares = [calls_apart(*pair) for pair in self._pairs]
        return max(shares, key=lambda share: abs(share), default=0.0)

    @property
    def did_the_same(self) -> bool:
        """Whether most pairs of runs did the same work, as far as calls show."""
        alike = [did_the_same(*pair) for pair in self._pairs]
        return 2 * sum(alike) > len(alike) or not alike

    @property
    def really_saved(self) -> float | None:
        """The median of all pairs, which an event in one run alone does not decide."""
        return statistics.median(self.saved_each) if self.saved_each else None

    @property
    def _pairs_apart(self) -> float:
        """The distance of the farthest pair from the median: no pair that was run lies outside."""
        return max((abs(one - (self.really_saved or 0.0)) for one in self.saved_each), default=0.0)

    @property
    def own_runs_apart(self) -> float:
        """By how much the program's runs in one mode differ: those that were counted, or as
        programs were observed to."""
        runs = self.real.repeats.values() if self.real is not None else ()
        if not any(len(mode) > 1 for mode in runs):
            return costs.uncertainty(self.counts)
        ends = [[one.instructions for one in mode] for mode in runs]
        return float(max(max(each) - min(each) for each in ends))

    @property
    def is_predictable(self) -> bool:
        """Whether supervisor mode saves more than the program's own runs differ by."""
        saved = self.really_saved
        if saved is None and self.predicted is not None:
            saved = self.predicted.instructions
        return saved is not None and abs(saved) > self.own_runs_apart

    @property
    def wrong_by(self) -> float:
        """Half of the distance between the lowest and the highest pair. For a single pair it is the
        uncertainty of two runs, and the calls that slept in only one of them because an answer came
        later."""
        if len(self.saved_each) > 1:
            return (max(self.saved_each) - min(self.saved_each)) / 2
        if self.real is None:
            return costs.uncertainty(self.counts)
        slept = [self.real.repeats[mode][0].features["slept_out"] for mode in run_counts.MODES]
        wait = (slept[0] - slept[1]) * costs.sleeping(self.counts)
        return math.hypot(costs.uncertainty(self.counts), wait)

    @property
    def predicted(self) -> Mechanism | None:
        """The prediction for supervisor mode, where that is offered."""
        return next((one for one in self.mechanisms if one.name == "supervisor mode"), None)

    @property
    def prediction_error(self) -> float | None:
        """By how much the prediction of supervisor mode's saving is above the counted one."""
        return self._above(self.really_saved)

    @property
    def prediction_error_range(self) -> tuple[float, float] | None:
        """The error against the highest and the lowest pair; None where a pair saved nothing."""
        if not self.saved_each:
            return None
        low, high = (self._above(end(self.saved_each)) for end in (max, min))
        return None if low is None or high is None else (low, high)

    def _above(self, saved: float | None) -> float | None:
        if saved is None or saved <= 0 or self.predicted is None:
            return None
        return self.predicted.instructions / saved - 1

    @cached_property
    def by_call(self) -> ByCall:
        """Each system call, where they were told apart."""
        return ByCall(self.counts)

    def as_json(self) -> dict[str, Any]:
        """All figures, and the counts that they are made of."""
        calls: dict[str, Any] = {"calls": [_call_json(one) for one in self.by_call.calls]}
        if "names" in self.counts.events:
            calls["scan"] = asdict(self.by_call.scan)
        return {
            **(calls if self.counts.calls_made else {}),
            "format": "trapless-stat",
            "version": 1,
            "kernel": self.counts.release,
            "status": self.counts.status,
            "crossings": dict(self.crossings),
            "events": dict(self.counts.events),
            "footprints": [
                {
                    "mode": mode,
                    "unit_bytes": unit,
                    "run_bytes": self.footprint(mode, unit),
                    "visit_bytes": self.visit(mode, unit),
                }
                for mode in MODES
                for unit in UNITS
                if self.counts.processors
            ],
            "processors": [
                {**asdict(self.clocks(one)), "misses": [asdict(m) for m in self.misses(one)]}
                for one in self.counts.processors
            ],
            "mechanisms": [asdict(one) for one in self.mechanisms],
            "terms": [asdict(one) for one in costs.supervisor_terms(self.counts)],
            "really_saved_instructions": self.really_saved,
            "really_saved_wrong_by": self.wrong_by,
            "really_saved_each_instructions": self.saved_each,
            "own_runs_apart_instructions": self.own_runs_apart,
            "calls_apart": self.calls_apart,
            "same_work": self.did_the_same,
            "predictable": self.is_predictable,
            "prediction_error": self.prediction_error,
            "prediction_error_range": self.prediction_error_range,
            "counted": self.counts.as_json(),
            "counted_by_turns": self.real.as_json() if self.real else None,
        }


def calls_apart(user: Loop, supervisor: Loop) -> float:
    """The share by which a run in supervisor mode made more calls than one in user mode."""
    calls = user.features["syscall"]
    return supervisor.features["syscall"] / calls - 1 if calls else 0.0


LEAVING = ("slept_out", "slept_within", "preempted", "preempted_within")


def did_the_same(user: Loop, supervisor: Loop) -> bool:
    """Whether two runs did the same work, as far as calls and turns on the processor show."""
    left = [sum(run.features.get(name, 0) for name in LEAVING) for run in (user, supervisor)]
    turns_apart = abs(left[0] - left[1]) / max(user.features["syscall"], 1)
    return max(abs(calls_apart(user, supervisor)), turns_apart) <= CALLS_APART


def _call_json(one: CallCost) -> dict[str, Any]:
    data = asdict(one)
    return data | {"wrapped": one.wrapped.value if one.wrapped else None}


def _clocks_of(saving: Saving, table: Mapping[str, Cost]) -> Ends:
    """The clocks of the instructions and the traps that the mechanism would save."""
    instruction, trap = table["instruction"], table["fast"]
    return Ends.of(
        lambda end: saving.instructions * end(instruction) + saving.crossings * end(trap)
    )


def _place_of_role(role: str) -> int:
    return SHOWN_ROLES.index(role) if role in SHOWN_ROLES else len(SHOWN_ROLES)


def _hertz(name: str) -> float | None:
    """The clock frequency in a processor's name.

    >>> _hertz("Core i7-9700K 3.6 GHz"), _hertz("Pentium 4 1.8A GHz, 512 KB L2")
    (3600000000.0, 1800000000.0)
    """
    match = re.search(r"([\d.]+)A? GHz", name)
    return float(match[1]) * 1e9 if match else None
