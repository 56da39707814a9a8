# SPDX-License-Identifier: GPL-2.0-only
"""Repeats of what was counted: of equal work the least is the figure, and how far others lie above
it the spread.

Pure functions of numbers, shared by experiments. Ratios and fits of repeats are fit.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trapless.results.result_file import Metric

Samples = Mapping[int, Sequence[float]]
"""N, calls a crossing -> repeats, each for one call."""

Key = tuple[str, str]
"""Call, mechanism."""


def least(samples: Samples) -> dict[int, float]:
    """N -> the least of its repeats.

    >>> least({2: [7.0, 6.0]})
    {2: 6.0}
    """
    return {n: min(values) for n, values in samples.items()}


def of_call(counted: Mapping[Key, Samples], call: str) -> dict[str, dict[int, float]]:
    """Mechanism -> N -> the least, of one call."""
    return {
        mechanism: least(samples) for (name, mechanism), samples in counted.items() if name == call
    }


def metric(values: Sequence[float], unit: str, digits: int | None = None) -> Metric:
    """Of counted repeats; with `digits` as many are kept behind the point."""
    figure, spread = min(values), max(values) - min(values)
    if digits is not None:
        figure, spread = round(figure, digits), round(spread, digits)
    return Metric(figure, unit, "counted", len(values), spread)


def metrics(counted: Mapping[Key, Samples], unit: str) -> dict[str, Metric]:
    """One for each call, mechanism and N."""
    return {
        f"{call}.{mechanism}.n{n}.{unit}": metric(values, unit, digits=3)
        for (call, mechanism), samples in counted.items()
        for n, values in samples.items()
    }
