# SPDX-License-Identifier: GPL-2.0-only
"""Bounds a share from a number of samples: the values that the share may have, given the counts.

Owns the arithmetic alone. The bounds are Chernoff's, for independent samples: they hold for any
number of samples, and are a little wider than the exact ones of Clopper and Pearson.
"""

from __future__ import annotations

import math

STEPS = 60
"""Halvings of the interval in which a bound is sought: down to what a float can tell."""


def bounds(count: int, samples: int, doubt: float) -> tuple[float, float]:
    """The least and the greatest share that explain `count` of `samples`.

    Each of the two is wrong with a probability of `doubt` at most.

    >>> low, high = bounds(0, 300, 0.05)
    >>> low, round(high, 4)
    (0.0, 0.0099)
    """
    if not samples:
        return 0.0, 1.0
    seen, limit = count / samples, -math.log(doubt) / samples
    return _farthest(seen, 0.0, limit), _farthest(seen, 1.0, limit)


def _farthest(seen: float, end: float, limit: float) -> float:
    """The share between `seen` and `end` that is as far from `seen` as the divergence `limit`."""
    if seen == end:
        return end
    near, far = seen, end
    for _ in range(STEPS):
        middle = (near + far) / 2
        if _divergence(seen, middle) < limit:
            near = middle
        else:
            far = middle
    return far


def _divergence(seen: float, share: float) -> float:
    """The Kullback-Leibler divergence from `share` to `seen`, for one sample that is true or
    false."""
    first = seen * math.log(seen / share) if seen else 0.0
    return first + ((1 - seen) * math.log((1 - seen) / (1 - share)) if seen < 1 else 0.0)
