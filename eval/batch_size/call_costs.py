# SPDX-License-Identifier: GPL-2.0-only
"""Computes what a call costs from rows of the workload: ratios, the terms of equation (1), and from
how many calls on a batch wins.

This file owns the arithmetic that part_calls.py and batch_figures.py share; no judgement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from trapless.experiments import fit, repeated_counts
from trapless.experiments.collection import Row
from trapless.experiments.repeated_counts import Key, Samples
from trapless.experiments.timed_rows import paired

DISK = "read1_disk"
SUBJECTS = ("getpid", "getppid", "read1", "read4k", DISK, "write1", "stat")
EMPTY = "nosys"
"""The call that the kernel does not have: the cost of its trap is A."""
PAIRS = (("plain", "batch"), ("plain-int", "batch-int"))
"""Conventional and wrapped calls by the same trap."""


def per_call(rows: Sequence[Row], kind: str) -> dict[Key, dict[int, list[float]]]:
    """Cost of one call: (call, mechanism) -> N -> repeats, in order."""
    costs: dict[Key, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.get("kind") == kind:
            cost = row["value"] / row["ops"]
            costs[row["call"], row["mechanism"]][row["n"]].append(cost)
    return costs


def ratios(
    measured: Mapping[Key, Samples], call: str, mechanism: str, base: str
) -> dict[int, fit.Summary]:
    """N -> ratio of two mechanisms, paired by round."""
    others = measured.get((call, base), {})
    every = {
        n: paired(values, others.get(n, ()))
        for n, values in measured.get((call, mechanism), {}).items()
    }
    return {n: one for n, one in every.items() if one is not None}


def fits(counted: Mapping[Key, Samples]) -> dict[Key, fit.Equation1]:
    """Equation (1) for each call and each kind of trap: cost of N calls against N."""

    def totals(call: str, mechanism: str) -> dict[int, float]:
        return {n: n * cost for n, cost in repeated_counts.least(counted[call, mechanism]).items()}

    return {
        (call, mechanism): fit.equation1(
            totals(EMPTY, base), totals(call, base), totals(call, mechanism)
        )
        for call in SUBJECTS
        for base, mechanism in PAIRS
        if {(EMPTY, base), (call, base), (call, mechanism)} <= counted.keys()
    }


def off_line(samples: Samples, without: int | None = None) -> dict[int, float]:
    """N -> by which share of itself the cost of N calls is above a straight line over all N, but
    for one that is left out."""
    costs = repeated_counts.least(samples)
    totals = {n: n * cost for n, cost in costs.items() if n != without}
    straight = fit.line(totals)
    return {
        n: (total - straight.intercept - straight.slope * n) / total for n, total in totals.items()
    }


def counted_break_even(
    counted: Mapping[Key, Samples], call: str, base: str, other: str
) -> int | None:
    return fit.observed_break_even(
        repeated_counts.least(counted.get((call, base), {})),
        repeated_counts.least(counted.get((call, other), {})),
    )


def measured_break_even(
    measured: Mapping[Key, Samples], call: str, base: str, other: str
) -> int | None:
    medians = {n: summary.median for n, summary in ratios(measured, call, other, base).items()}
    return fit.observed_break_even(dict.fromkeys(medians, 1.0), medians)


def is_noisy(summary: fit.Summary) -> bool:
    return summary.spread > fit.NOISY * summary.median
