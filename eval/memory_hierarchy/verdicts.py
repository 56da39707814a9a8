# SPDX-License-Identifier: GPL-2.0-only
"""What the counts say: ratios, and metrics of the areas that the paper speaks of.

A ratio is batched to conventional. One whose conventional count is less than one in each iteration
is left out, for it would be a quotient of accidents; where the paper speaks of just those, the
counts themselves are told. What becomes of the paper's claims is published.py's, drawing
drawings.py's.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from eval.memory_hierarchy import areas, cells, variants
from trapless.model import clocks
from trapless.results.result_file import Metric

STRUCTURES = {"dtlb": "dtlb-misses", "l2": "l2-misses"}


def misses_ratio(
    found: cells.Cells, order: str, variant: str, role: str, least: float | None = None
) -> cells.Counts:
    """Misses of an order over those of conventional calls, cell by cell.

    Where those are less than `least`, one in each iteration unless told, there is no ratio.
    """
    above = found.misses(order, variant, role)
    least = found.iterations if least is None else least
    return cells.ratio(above, found.misses("conventional", variant, role), least)


def clock_ratio(found: cells.Cells, order: str, variant: str) -> cells.Counts:
    """Modelled clocks of an order over those of conventional calls, at the middle of all costs."""
    costs = clocks.costs_of(variant.partition("+")[0])
    return found.clock_ratios(order, variant, clocks.middle(costs))


def _metric(value: float, kind: str, unit: str = "ratio", n: int = 1, spread: float = 0) -> Metric:
    return Metric(round(value, 4), unit, kind, n, round(spread, 4))


def metrics_of_maps(found: cells.Cells) -> Mapping[str, Metric]:
    """Both processors' ratios in the areas that the paper speaks of."""
    made = {}
    for name in variants.PROCESSORS:
        short, variant = variants.SHORT[name], variants.main(name).id
        ratios = clock_ratio(found, "batched", variant)
        inside = areas.summary(ratios, areas.range_y(found))
        made[f"clocks.batched.{short}_at-0kb.ratio"] = _metric(float(ratios[0, 0]), "modelled")
        made[f"clocks.batched.{short}_y-lowest.ratio"] = _metric(inside.lowest, "modelled")
        made[f"clocks.batched.{short}_y-median.ratio"] = _metric(inside.median, "modelled")
        for role, subject in STRUCTURES.items():
            ratios = misses_ratio(found, "batched", variant, role)
            for area, mask in (
                ("y", areas.range_y(found)),
                ("apart", areas.apart(found, areas.CLEAR_KB)),
            ):
                told = areas.summary(ratios, mask)
                if told.cells:
                    key = f"{subject}.batched.{short}_{area}"
                    made[f"{key}-median.ratio"] = _metric(told.median, "counted")
                    made[f"{key}-highest.ratio"] = _metric(told.highest, "counted")
                    share = 100 * told.half_share
                    made[f"{key}-below-half.percent"] = _metric(share, "counted", "percent")
    return made


def over_colours(found: cells.Cells, processor: str, mask: areas.Mask) -> Sequence[areas.Summary]:
    """L2 ratios of an area, one summary a seed of page colours."""
    return [
        areas.summary(misses_ratio(found, "batched", variant.id, "l2"), mask)
        for variant in variants.coloured(processor)
    ]


def metrics_of_colours(found: cells.Cells) -> Mapping[str, Metric]:
    """How far the L2's ratios depend on where pages lie."""
    made = {}
    for name in variants.PROCESSORS:
        short = variants.SHORT[name]
        told = over_colours(found, name, areas.range_y(found))
        for what, values in (
            ("y-median.ratio", [one.median for one in told if one.cells]),
            ("y-below-half.percent", [100 * one.half_share for one in told if one.cells]),
        ):
            if values:
                made[f"l2-misses.batched.{short}_colours-{what}"] = _metric(
                    statistics.median(values), "counted", what.rpartition(".")[2], len(values),
                    max(values) - min(values),
                )  # fmt: skip
    return made


def metrics_of_orders(found: cells.Cells) -> Mapping[str, Metric]:
    """The other orders by the fast trap, against conventional calls by the fast trap."""
    made = {}
    for name in variants.PROCESSORS:
        for order in found.orders[1:]:
            ratios = clock_ratio(found, order, variants.main(name).id)
            told = areas.summary(ratios, areas.range_y(found))
            key = f"clocks.{order}.{variants.SHORT[name]}-fast"
            made[f"{key}_at-0kb.ratio"] = _metric(float(ratios[0, 0]), "modelled")
            made[f"{key}_y-lowest.ratio"] = _metric(told.lowest, "modelled")
    return made


def metrics_of_tlb(found: cells.Cells) -> Mapping[str, Metric]:
    """Cell by cell, under each replacement: how many there are, and how many are below 0.5."""
    made = {}
    for policy in variants.POLICIES:
        ratios = misses_ratio(found, "batched", variants.tlb(variants.SMALL, policy).id, "dtlb")
        told = areas.summary(ratios, areas.apart(found, areas.CLEAR_KB))
        key = f"dtlb-misses.batched.apart-{policy}"
        made[f"{key}.cells"] = _metric(told.of, "counted", "cells")
        made[f"{key}-below-half.cells"] = _metric(told.below_half, "counted", "cells")
        made[f"{key}-highest.ratio"] = _metric(told.highest, "counted")
    return made


def metrics_of_today(found: cells.Cells) -> Mapping[str, Metric]:
    """Processors of today, by the fast trap."""
    made = {}
    for name in variants.CURRENT:
        for order in found.orders[1:]:
            ratios = clock_ratio(found, order, variants.main(name).id)
            told = areas.summary(ratios, np.full(found.shape, True))
            key = f"clocks.{order}.{variants.SHORT[name]}"
            made[f"{key}_at-0kb.ratio"] = _metric(float(ratios[0, 0]), "modelled")
            made[f"{key}_median.ratio"] = _metric(told.median, "modelled")
    return made
