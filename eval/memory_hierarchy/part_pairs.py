# SPDX-License-Identifier: GPL-2.0-only
"""Runs all pairs of footprints, and names the files that judge and show them.

This file owns the grids: how fine, in which orders, on which modelled processors. footprint_grid.py
owns how a grid is run, published.py the verdicts on the paper's claims, drawings.py and listings.py
how a grid is shown.
"""

from __future__ import annotations

from functools import partial

from eval.memory_hierarchy import (
    cells,
    drawings,
    footprint_grid,
    listings,
    published,
    spec,
    variants,
    verdicts,
)
from trapless.experiments.collection import Collection
from trapless.experiments.experiment import Findings, Raw
from trapless.report.figures import Figure, Map, Table

PAPER = ("conventional", "batched")
PRODUCT = ("conventional", "batched", "workers", "supervisor")
TODAY = ("conventional", "batched", "supervisor")
LARGE_PAGES = "rodata=off"
"""Leaves the kernel's image in pages of 2 MB. Every kernel of today protects the image's parts,
which splits these pages at the borders; the paper's kernel did not."""

TODAY_KB = 512
"""The largest footprint on processors of today, whose caches are larger."""

ENOUGH = 128
"""Iterations of the coarser grids: once the caches are warm, all are alike. The paper's maps have
its 512, and also a cold start, whose cost is shared by all iterations."""


def sweeps(quick: bool) -> tuple[footprint_grid.Sweep, ...]:
    """The paper's maps; today's; the same, coarser, under other assumptions; and other orders.

    The longest first, so that the last VMs end together.
    """
    fine, middle, coarse, coarsest = spec.MAP_STEPS_KB.quick if quick else spec.MAP_STEPS_KB.full
    small, large = variants.SMALL, variants.LARGE
    mains = tuple(variants.main(name) for name in variants.PROCESSORS)
    policies = tuple(variants.tlb(small, policy) for policy in variants.POLICIES)
    built = tuple(one for name in (small, large) for one in variants.built(name).values())
    places = tuple(one for name in (small, large) for one in variants.coloured(name))
    today = tuple(variants.main(name) for name in variants.CURRENT)
    part = partial(footprint_grid.Sweep, trap="int", orders=PAPER, vms=1, iterations=ENOUGH)
    return (
        footprint_grid.Sweep(
            "maps", cells.Axis(fine), PAPER, "int", (*mains, *policies), 2 if quick else 8
        ),
        part(
            "today", cells.Axis(2 * coarse, TODAY_KB), variants=today, orders=TODAY, trap="fast"
        ),
        part(
            "cold", cells.Axis(coarse), variants=(*mains, *policies), warm=0,
            iterations=cells.ITERATIONS,
        ),
        part("pages-elsewhere", cells.Axis(coarse), variants=(*mains, *places)),
        part("orders", cells.Axis(middle), variants=mains, orders=PRODUCT, trap="fast"),
        part("large-pages", cells.Axis(middle), variants=policies, kernel_words=LARGE_PAGES),
        part("built-otherwise", cells.Axis(coarsest), variants=(*mains, *built)),
    )  # fmt: skip


def collect(run: Collection) -> None:
    footprint_grid.collect(run, sweeps(run.quick))


def read(raw: Raw) -> published.Grids:
    """The grids that the paper's claims are about."""
    names = ("maps", "built-otherwise", "pages-elsewhere", "cold", "large-pages")
    return published.Grids(*(cells.load(raw, name) for name in names))


def analyse(raw: Raw) -> Findings:
    grids, orders, today = read(raw), cells.load(raw, "orders"), cells.load(raw, "today")
    metrics = {
        **verdicts.metrics_of_maps(grids.maps),
        **verdicts.metrics_of_tlb(grids.maps),
        **verdicts.metrics_of_colours(grids.elsewhere),
        **verdicts.metrics_of_orders(orders),
        **verdicts.metrics_of_today(today),
        **footprint_grid.metrics_of_time(raw.meta, "maps"),
    }
    return Findings(metrics, published.claims_of(grids))


def figures(raw: Raw) -> tuple[Figure | Map | Table, ...]:
    grids, orders, today = read(raw), cells.load(raw, "orders"), cells.load(raw, "today")
    return (
        *drawings.maps(grids.maps),
        *drawings.maps_of_orders(orders),
        *drawings.maps_of_today(today),
        listings.table_of_areas(grids.maps),
        listings.table_of_tlb(grids),
        listings.table_of_exceptions(grids),
        listings.table_of_places(grids.elsewhere),
        listings.sensitivity(grids),
        listings.table_of_orders(orders),
        listings.table_of_today(today),
        listings.table_of_costs(),
    )
