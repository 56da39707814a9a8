# SPDX-License-Identifier: GPL-2.0-only
"""What the counts say about the paper's figures: metrics, and claims with what holds and why not.

A ratio is batched to conventional. One whose conventional count is less than one in each iteration
is left out, for it would be a quotient of accidents; where the paper speaks of just those, the
counts themselves are told. Owns the judgement, and no drawing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trapless.measure.experiments import load_module
from trapless.reporting import claims
from trapless.reporting.results import Claim, Metric

HERE = Path(__file__).parent
if TYPE_CHECKING:
    import areas
    import cells
    import clocks
    import variants
else:
    areas, cells, clocks, variants = (
        load_module(HERE / f"{name}.py") for name in ("areas", "cells", "clocks", "variants")
    )

LEAST = cells.ITERATIONS
"""Misses of a conventional region from which a ratio is formed: one in each iteration."""

NEAR = 0.1
"""A ratio that is published as 'about' holds so far to both sides."""

SMALL, LARGE = "pentium-4-1.8", "pentium-4-1.8a"
STRUCTURES = {"dtlb": "dtlb-misses", "l2": "l2-misses"}


def misses_ratio(
    found: cells.Cells, order: str, variant: str, role: str, least: float = LEAST
) -> cells.Counts:
    """Misses of an order over those of conventional calls, cell by cell."""
    above = found.misses(order, variant, role)
    return cells.ratio(above, found.misses("conventional", variant, role), least)


def clock_ratio(found: cells.Cells, order: str, variant: str) -> cells.Counts:
    """Modelled clocks of an order over those of conventional calls, at the middle of all costs."""
    costs = clocks.costs_of(variant.partition("+")[0])
    return clocks.ratios(found, order, variant, clocks.middle(costs))


def _metric(value: float, kind: str, unit: str = "ratio", n: int = 1, spread: float = 0) -> Metric:
    return Metric(round(value, 4), unit, kind, n, round(spread, 4))


def metrics_of_maps(found: cells.Cells) -> Mapping[str, Metric]:
    """Both processors' ratios in the areas that the paper speaks of."""
    made = {}
    for name, short in variants.SHORT.items():
        variant = variants.main(name).id
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
    for name, short in variants.SHORT.items():
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
    for name, short in variants.SHORT.items():
        for order in found.orders[1:]:
            ratios = clock_ratio(found, order, variants.main(name).id)
            told = areas.summary(ratios, areas.range_y(found))
            key = f"clocks.{order}.{short}-fast"
            made[f"{key}_at-0kb.ratio"] = _metric(float(ratios[0, 0]), "modelled")
            made[f"{key}_y-lowest.ratio"] = _metric(told.lowest, "modelled")
    return made


def claims_of(maps: cells.Cells, built: cells.Cells) -> tuple[Claim, ...]:
    """All claims of Fig. 5 to 10."""
    return (
        _claim_x(maps),
        _claim_y(maps, built),
        _claim_dtlb(maps),
        _claim_dtlb_small(maps),
        _claim_l2(maps, built),
        _claim_l2_small(maps),
        _claim_l2_large(maps, built),
    )


def _claim_x(maps: cells.Cells) -> Claim:
    at_0, edges = [], []
    for name in variants.PROCESSORS:
        ratios = clock_ratio(maps, "batched", variants.main(name).id)
        at_0.append(float(ratios[0, 0]))
        edges.append(areas.summary(ratios, areas.range_x(maps)))
    ours = (
        f"{at_0[0]:.2f} at 0 KB, {edges[0].median:.2f} in the middle of range X (median), "
        f"{edges[0].highest:.2f} at most"
    )
    note = (
        "Modelled clocks. The direction holds: the smaller the footprints, the more a batch saves. "
        "How much, and up to which footprint, is a matter of what a call costs beside the trap: "
        "the module's share of a request is smaller than that of the paper's kernel, and a read of "
        "the array dearer beside it, so the ratio falls lower and rises sooner."
    )
    return claims.make("wsc-x", ours, all(abs(value - 0.4) <= NEAR for value in at_0), note)


def _claim_y(maps: cells.Cells, built: cells.Cells) -> Claim:
    told = areas.summary(clock_ratio(maps, "batched", variants.main(SMALL).id), areas.range_y(maps))
    plain = areas.summary(
        clock_ratio(built, "batched", variants.built(SMALL)["no prefetcher"].id),
        areas.range_y(built),
    )
    ours = f"{told.lowest:.2f} at the lowest, median {told.median:.2f}"
    note = (
        "Modelled clocks, with the prefetcher that Intel documents; it hides most of what L2 "
        f"misses would cost. Without it the lowest would be {plain.lowest:.2f}."
    )
    return claims.make("wsc-y", ours, abs(told.lowest - 0.6) <= NEAR, note)


def _claim_dtlb(maps: cells.Cells) -> Claim:
    ratios = misses_ratio(maps, "batched", variants.main(SMALL).id, "dtlb")
    clear = areas.summary(ratios, areas.apart(maps, areas.CLEAR_KB))
    whole = areas.summary(ratios, areas.apart(maps, areas.REACH_KB))
    ours = (
        f"{clear.below_half} of {clear.of} cells below 0.5 where both are up to "
        f"{areas.CLEAR_KB} KB (highest {clear.highest:.2f}); {whole.below_half} of {whole.of} "
        f"where both are up to {areas.REACH_KB} KB"
    )
    note = (
        "64 entries hold 256 KB, but the stack, the ring and the kernel's own data need some of "
        "them: a footprint near 256 KB misses by itself, wrapped or not."
    )
    return claims.make("wsc-dtlb", ours, clear.of == clear.below_half, note)


def _claim_dtlb_small(maps: cells.Cells) -> Claim:
    variant = variants.main(SMALL).id
    ratios = misses_ratio(maps, "batched", variant, "dtlb", 1)
    inside = areas.fits(maps)
    told = areas.summary(ratios, inside)
    above = told.cells - told.below_one
    most = [
        float(maps.misses(order, variant, "dtlb")[areas.clear(maps)].max()) / cells.ITERATIONS
        for order in ("conventional", "batched")
    ]
    ours = (
        f"above or equal in {above} of {told.cells} cells that miss at all (median "
        f"{told.median:.2f}); where U + K is up to {areas.ROOM_KB} KB no cell misses more "
        f"than {max(most):.2f} times an iteration, wrapped or not"
    )
    note = (
        "The rates are tiny, as published, and the map leaves them out. Where U + K comes near "
        "256 KB a current kernel's own data already makes conventional calls miss at every turn, "
        "and wrapped ones not: the ratio is below 1 there."
    )
    return claims.make("wsc-dtlb-small", ours, above > told.below_one, note)


def _claim_l2(maps: cells.Cells, built: cells.Cells) -> Claim:
    inside = areas.range_y(maps)
    told = areas.summary(misses_ratio(maps, "batched", variants.main(SMALL).id, "l2"), inside)
    seeds = over_colours(built, SMALL, areas.range_y(built))
    medians = [one.median for one in seeds]
    shares = [100 * one.half_share for one in seeds]
    ours = (
        f"{told.below_half} of {told.of} cells of range Y below 0.5 (median {told.median:.2f}, "
        f"highest {told.highest:.2f}); with pages elsewhere, {len(seeds)} seeds: medians "
        f"{min(medians):.2f} to {max(medians):.2f}, {min(shares):.0f} to {max(shares):.0f}% of "
        "cells below"
    )
    note = (
        "Counted in the model. The guest's pages lie side by side, so that a footprint spreads "
        "evenly over the sets; where they lie at random, one side alone overfills some, wrapped or "
        "not."
    )
    return claims.make("wsc-l2", ours, told.highest < 0.5 and max(medians) < 0.5, note)


def _claim_l2_small(maps: cells.Cells) -> Claim:
    inside = areas.fits(maps)
    told = areas.summary(misses_ratio(maps, "batched", variants.main(SMALL).id, "l2"), inside)
    ours = (
        f"below 1 in {told.below_one} of {told.cells} cells that miss at least once an iteration "
        f"(median {told.median:.2f}); {told.of - told.cells} cells miss less"
    )
    note = "Counted in the model: lines of both sides share sets before the cache is full."
    return claims.make("wsc-l2-small", ours, told.one_share > 0.5, note)


def _claim_l2_large(maps: cells.Cells, built: cells.Cells) -> Claim:
    ratios = misses_ratio(maps, "batched", variants.main(LARGE).id, "l2")
    band = areas.upper(maps)
    inside, outside = areas.summary(ratios, band), areas.summary(ratios, ~band)
    seeds = over_colours(built, LARGE, areas.upper(built))
    shares = [100 * one.below_half / one.of for one in seeds]
    ours = (
        f"for K of 192 to 224 KB {inside.below_half} of {inside.of} cells below 0.5, "
        f"{inside.of - inside.cells} miss less than once an iteration; elsewhere "
        f"{outside.below_half} of {outside.of}; with pages elsewhere {min(shares):.0f} to "
        f"{max(shares):.0f}% of the cells for K of 192 to 224 KB"
    )
    note = (
        "U + K of at most 512 KB fits this cache, so only lines that share a set miss, and which "
        "do is a matter of where pages lie. Here that grows with U + K towards the upper right; "
        "the paper's band is what its machine's pages made of it."
    )
    holds = inside.below_half > 0.5 * inside.of and outside.below_half < 0.1 * outside.of
    return claims.make("wsc-l2-512", ours, holds, note)
