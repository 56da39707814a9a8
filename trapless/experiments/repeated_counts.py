# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of counts that were repeated: the figure is the least of them, the spread the range
above.

All functions are pure functions of numbers. fit.py has ratios and fits. How often an experiment
repeats is in its spec.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trapless.results.result_file import Metric

Samples = Mapping[int, Sequence[float]]
"""N, the number of calls a crossing -> the cost of one call, in each repeat."""

Key = tuple[str, str]
"""Call, mechanism."""


def least(samples: Samples) -> dict[int, float]:
    """N -> the least of its repeats.

    >>> least({2: [7.0, 6.0]})
    {2: 6.0}
    """
    return {n: min(values) for n, values in samples.items()}


def of_call(counted: Mapping[Key, Samples], call: str) -> dict[str, dict[int, float]]:
    """Mechanism -> N -> the least of the repeats, for one call."""
    return {
        mechanism: least(samples) for (name, mechanism), samples in counted.items() if name == call
    }


def metric(values: Sequence[float], unit: str, digits: int | None = None) -> Metric:
    """The metric of counted repeats, rounded to `digits` decimals where they are given."""
    figure, spread = min(values), max(values) - min(values)
    if digits is not None:
        figure, spread = round(figure, digits), round(spread, digits)
    return Metric(figure, unit, "counted", len(values), spread)


def metrics(counted: Mapping[Key, Samples], unit: str) -> dict[str, Metric]:
    """The metrics of each call, mechanism and N."""
    return {
        f"{call}.{mechanism}.n{n}.{unit}": metric(values, unit, digits=3)
        for (call, mechanism), samples in counted.items()
        for n, values in samples.items()
    }
