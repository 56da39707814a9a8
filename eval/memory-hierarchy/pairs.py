# SPDX-License-Identifier: GPL-2.0-only
"""All pairs of footprints: what is run, and which part of it says what.

Owns the grids: how fine, in which orders, on which modelled processors. How one is run is
sweep.py's, what the papers' figures become of it verdicts.py's, how it is shown drawings.py's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trapless.measure.collect import Collection
from trapless.measure.experiments import Findings, Part, Raw, load_module
from trapless.model.plan import Variant
from trapless.reporting.figures import Figure, Map, Table

HERE = Path(__file__).parent
if TYPE_CHECKING:
    import cells
    import drawings
    import sweep
    import variants
    import verdicts
else:
    cells, drawings, sweep, variants, verdicts = (
        load_module(HERE / f"{name}.py")
        for name in ("cells", "drawings", "sweep", "variants", "verdicts")
    )

PAPER = ("conventional", "batched")
PRODUCT = ("conventional", "batched", "workers", "supervisor")


def sweeps(quick: bool) -> tuple[sweep.Sweep, ...]:
    """The paper's maps; the same, coarser, on processors built otherwise; and other orders."""
    fine, coarse, coarsest, vms = (16, 32, 64, 1) if quick else (4, 16, 32, 2)
    mains = tuple(variants.main(name) for name in variants.PROCESSORS)
    others: tuple[Variant, ...] = tuple(
        variant for name in variants.PROCESSORS for variant in variants.others(name)
    )
    return (
        sweep.Sweep("maps", cells.Axis(fine), PAPER, "int", mains, 2 if quick else 8),
        sweep.Sweep("built-otherwise", cells.Axis(coarsest), PAPER, "int", (*mains, *others), vms),
        sweep.Sweep("orders", cells.Axis(coarse), PRODUCT, "fast", mains, vms),
    )


def collect(run: Collection) -> None:
    sweep.collect(run, sweeps(run.quick))


def analyse(raw: Raw) -> Findings:
    maps, built = cells.load(raw, "maps"), cells.load(raw, "built-otherwise")
    orders = cells.load(raw, "orders")
    metrics = {
        **verdicts.metrics_of_maps(maps),
        **verdicts.metrics_of_colours(built),
        **verdicts.metrics_of_orders(orders),
    }
    return Findings(metrics, verdicts.claims_of(maps, built))


def figures(raw: Raw) -> tuple[Figure | Map | Table, ...]:
    maps, built = cells.load(raw, "maps"), cells.load(raw, "built-otherwise")
    orders = cells.load(raw, "orders")
    return (
        *drawings.maps(maps),
        *drawings.maps_of_orders(orders),
        drawings.table_of_areas(maps),
        drawings.sensitivity(maps, built),
        drawings.table_of_orders(orders),
        drawings.table_of_costs(),
    )


PART = Part(name="pairs", collect=collect, analyse=analyse, figures=figures)
