# SPDX-License-Identifier: GPL-2.0-only
"""What is made of the pairs of runs with the model's plugin and without."""

from __future__ import annotations

from pathlib import Path

from eval.memory_hierarchy import part_slowdown as slowdown
from trapless.experiments.experiment import Raw

PAIRS = [(10.0, 11.0), (8.0, 8.0), (10.0, 12.0), (20.0, 21.0)]
RAW = Raw(
    [{"pair": at, "without_s": one, "with_s": two} for at, (one, two) in enumerate(PAIRS)],
    {},
    Path(),
)


def test_the_median_of_the_pairs_is_told():
    (metric,) = slowdown.analyse(RAW).metrics.values()
    assert (metric.value, metric.n, metric.kind) == (1.075, 4, "measured")
    assert metric.spread > 0
    one = slowdown.analyse(Raw(RAW.rows[:1], {}, Path()))
    (metric,) = one.metrics.values()
    assert (metric.value, metric.n, metric.spread) == (1.1, 1, 0)


def test_every_pair_is_shown():
    (table,) = slowdown.tables(RAW)
    assert table.rows[0] == ("10.00", "11.00", "1.100")
    assert len(table.rows) == len(PAIRS)
