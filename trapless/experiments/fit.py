# SPDX-License-Identifier: GPL-2.0-only
"""Arithmetic of experiments: equation (1) of the wrapped-call paper, break-even points, ratios.

All functions are pure functions of numbers.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Line:
    """y = intercept + slope * x by least squares; `residual` is the largest |error| / y."""

    slope: float
    intercept: float
    residual: float


def line(points: Mapping[int, float]) -> Line:
    """Least squares over x -> y; at least two different x."""
    if len(points) < 2:
        raise ValueError("a line needs two points")
    mean_x = statistics.fmean(points)
    mean_y = statistics.fmean(points.values())
    square = sum((x - mean_x) ** 2 for x in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points.items()) / square
    intercept = mean_y - slope * mean_x
    residual = max(abs(intercept + slope * x - y) / abs(y) for x, y in points.items())
    return Line(slope, intercept, residual)


@dataclass(frozen=True)
class Equation1:
    """T1 = O1 + N*A and T2 = O2 + N*S + A, both of N calls.

    `a` is the cost of a trap that asks for nothing, `work` that of the call itself, `s` that of a
    request beyond this work. The paper's O is what is left: o1 + N*work, o2 + N*work. `fixed` is
    what a batch costs once, o2 + a. `break_even` is the N from which T2 < T1, None where that never
    happens.
    """

    a: float
    s: float
    work: float
    o1: float
    o2: float
    residual: float
    break_even: float | None

    @property
    def fixed(self) -> float:
        return self.o2 + self.a

    @property
    def saving(self) -> float:
        """A - S: what one more call in the batch saves."""
        return self.a - self.s


def equation1(
    empty: Mapping[int, float], plain: Mapping[int, float], batch: Mapping[int, float]
) -> Equation1:
    """Fit the paper's equation to the cost of N calls, N -> cost.

    `empty`: N traps that ask for nothing; `plain`: N calls by a trap each; `batch`: the same N
    calls as one batch.
    """
    trap, conventional, wrapped = line(empty), line(plain), line(batch)
    work = conventional.slope - trap.slope
    saving = conventional.slope - wrapped.slope
    extra = wrapped.intercept - conventional.intercept
    break_even = None
    if saving > 0:
        break_even = max(extra / saving, 0.0)
    elif extra < 0 and saving == 0:
        break_even = 0.0
    return Equation1(
        a=trap.slope,
        s=wrapped.slope - work,
        work=work,
        o1=conventional.intercept,
        o2=wrapped.intercept - trap.slope,
        residual=max(trap.residual, conventional.residual, wrapped.residual),
        break_even=break_even,
    )


def observed_break_even(plain: Mapping[int, float], other: Mapping[int, float]) -> int | None:
    """Smallest N from which `other` costs less than `plain` at every N that both were run with."""
    common = sorted(plain.keys() & other.keys())
    winner: int | None = None
    for n in reversed(common):
        if other[n] >= plain[n]:
            break
        winner = n
    return winner


def paired_ratios(other: Mapping[Any, float], base: Mapping[Any, float]) -> tuple[float, ...]:
    """other / base for each round that has both: a drift between rounds cancels out."""
    return tuple(other[key] / base[key] for key in other if key in base and base[key] > 0)


@dataclass(frozen=True)
class Summary:
    """Median of samples, and the quartiles around it."""

    median: float
    low: float
    high: float
    n: int

    @property
    def spread(self) -> float:
        """The interquartile range: half of all samples lie in it."""
        return self.high - self.low


NOISY = 0.5
"""Samples disagree when the middle half of them is wider than this share of the median."""


def percent(ratio: Summary) -> str:
    """A ratio for a sentence, with its quartiles where the samples disagree.

    >>> percent(Summary(0.5, 0.48, 0.52, 9))
    '50%'
    >>> percent(Summary(0.5, 0.4, 0.8, 9))
    '50% (40 to 80%)'
    """
    text = f"{ratio.median:.0%}"
    if ratio.spread > NOISY * ratio.median:
        text += f" ({100 * ratio.low:.0f} to {ratio.high:.0%})"
    return text


def summary(samples: Sequence[float]) -> Summary:
    """Median and quartiles; one sample is its own quartiles."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    return Summary(
        median=statistics.median(ordered),
        low=_quantile(ordered, 0.25),
        high=_quantile(ordered, 0.75),
        n=len(ordered),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the closest ranks."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True)
class Interval:
    """The median of samples, and its confidence interval at 95%."""

    median: float
    low: float
    high: float
    n: int

    @property
    def width(self) -> float:
        return self.high - self.low


RESAMPLES = 2000
CONFIDENCE = 0.95
SAMPLES_MIN = 3
"""Fewer samples have no confidence interval."""


def confidence(samples: Sequence[float]) -> Interval:
    """The median with its confidence interval by bootstrap.

    The random draws are seeded, so that equal samples give an equal interval.
    """
    return _confidence(tuple(samples))


@cache
def _confidence(samples: tuple[float, ...]) -> Interval:
    if len(samples) < SAMPLES_MIN:
        raise ValueError(f"{len(samples)} samples have no confidence interval")
    draw = random.Random(0)
    medians = sorted(
        statistics.median(draw.choices(samples, k=len(samples))) for _ in range(RESAMPLES)
    )
    outside = (1 - CONFIDENCE) / 2
    return Interval(
        median=statistics.median(samples),
        low=_quantile(medians, outside),
        high=_quantile(medians, 1 - outside),
        n=len(samples),
    )
