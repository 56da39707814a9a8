# SPDX-License-Identifier: GPL-2.0-only
"""Computes ratios from the counts, and the metrics of the areas that the paper names.

A ratio is batched to conventional. A ratio is left out if its conventional count is less than one
in each iteration, because it would be a quotient of accidents; where the paper speaks of these
cells, the counts themselves are reported. published.py owns the verdicts on the paper's claims,
drawings.py the drawing.
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
    grid: cells.Cells, order: str, variant: str, role: str, least: float | None = None
) -> cells.Counts:
    """Misses of an order over those of conventional calls, cell by cell.

    Where those are less than `least`, one in each iteration unless told, there is no ratio.
    """
    above = grid.misses(order, variant, role)
    least = grid.iterations if least is None else least
    return cells.ratio(above, grid.misses("conventional", variant, role), least)


def clock_ratio(grid: cells.Cells, order: str, variant: str) -> cells.Counts:
    """Modelled clocks of an order over those of conventional calls, at the middle of all costs."""
    costs = clocks.costs_of(variant.partition("+")[0])
    return grid.clock_ratios(order, variant, clocks.middle(costs))


def _metric(value: float, kind: str, unit: str = "ratio", n: int = 1, spread: float = 0) -> Metric:
    return Metric(round(value, 4), unit, kind, n, round(spread, 4))


def metrics_of_maps(grid: cells.Cells) -> Mapping[str, Metric]:
    """Both processors' ratios in the areas that the paper speaks of."""
    metrics = {}
    for name in variants.PROCESSORS:
        short, variant = variants.SHORT[name], variants.main(name).id
        ratios = clock_ratio(grid, "batched", variant)
        inside = areas.summary(ratios, areas.range_y(grid))
        metrics[f"clocks.batched.{short}_at-0kb.ratio"] = _metric(float(ratios[0, 0]), "modelled")
        metrics[f"clocks.batched.{short}_y-lowest.ratio"] = _metric(inside.lowest, "modelled")
        metrics[f"clocks.batched.{short}_y-median.ratio"] = _metric(inside.median, "modelled")
        for role, subject in STRUCTURES.items():
            ratios = misses_ratio(grid, "batched", variant, role)
            for area, mask in (
                ("y", areas.range_y(grid)),
                ("apart", areas.apart(grid, areas.CLEAR_KB)),
            ):
                summary = areas.summary(ratios, mask)
                if summary.cells:
                    key = f"{subject}.batched.{short}_{area}"
                    metrics[f"{key}-median.ratio"] = _metric(summary.median, "counted")
                    metrics[f"{key}-highest.ratio"] = _metric(summary.highest, "counted")
                    share = 100 * summary.half_share
                    metrics[f"{key}-below-half.percent"] = _metric(share, "counted", "percent")
    return metrics


def over_colours(grid: cells.Cells, processor: str, mask: areas.Mask) -> Sequence[areas.Summary]:
    """L2 ratios of an area, one summary a seed of page colours."""
    return [
        areas.summary(misses_ratio(grid, "batched", variant.id, "l2"), mask)
        for variant in variants.coloured(processor)
    ]


def metrics_of_colours(grid: cells.Cells) -> Mapping[str, Metric]:
    """How far the L2's ratios depend on where pages lie."""
    metrics = {}
    for name in variants.PROCESSORS:
        short = variants.SHORT[name]
        summaries = over_colours(grid, name, areas.range_y(grid))
        for what, values in (
            ("y-median.ratio", [one.median for one in summaries if one.cells]),
            ("y-below-half.percent", [100 * one.half_share for one in summaries if one.cells]),
        ):
            if values:
                metrics[f"l2-misses.batched.{short}_colours-{what}"] = _metric(
                    statistics.median(values), "counted", what.rpartition(".")[2], len(values),
                    max(values) - min(values),
                )  # fmt: skip
    return metrics


def metrics_of_orders(grid: cells.Cells) -> Mapping[str, Metric]:
    """The other orders by the fast trap, against conventional calls by the fast trap."""
    metrics = {}
    for name in variants.PROCESSORS:
        for order in grid.orders[1:]:
            ratios = clock_ratio(grid, order, variants.main(name).id)
            summary = areas.summary(ratios, areas.range_y(grid))
            key = f"clocks.{order}.{variants.SHORT[name]}-fast"
            metrics[f"{key}_at-0kb.ratio"] = _metric(float(ratios[0, 0]), "modelled")
            metrics[f"{key}_y-lowest.ratio"] = _metric(summary.lowest, "modelled")
    return metrics


def metrics_of_tlb(grid: cells.Cells) -> Mapping[str, Metric]:
    """Cell by cell, under each replacement: how many there are, and how many are below 0.5."""
    metrics = {}
    for policy in variants.POLICIES:
        ratios = misses_ratio(grid, "batched", variants.tlb(variants.SMALL, policy).id, "dtlb")
        summary = areas.summary(ratios, areas.apart(grid, areas.CLEAR_KB))
        key = f"dtlb-misses.batched.apart-{policy}"
        metrics[f"{key}.cells"] = _metric(summary.of, "counted", "cells")
        metrics[f"{key}-below-half.cells"] = _metric(summary.below_half, "counted", "cells")
        metrics[f"{key}-highest.ratio"] = _metric(summary.highest, "counted")
    return metrics


def metrics_of_today(grid: cells.Cells) -> Mapping[str, Metric]:
    """Processors of today, by the fast trap."""
    metrics = {}
    for name in variants.CURRENT:
        for order in grid.orders[1:]:
            ratios = clock_ratio(grid, order, variants.main(name).id)
            summary = areas.summary(ratios, np.full(grid.shape, True))
            key = f"clocks.{order}.{variants.SHORT[name]}"
            metrics[f"{key}_at-0kb.ratio"] = _metric(float(ratios[0, 0]), "modelled")
            metrics[f"{key}_median.ratio"] = _metric(summary.median, "modelled")
    return metrics
