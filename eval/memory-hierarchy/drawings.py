# SPDX-License-Identifier: GPL-2.0-only
"""Maps and tables of the experiment, from its counts: Fig. 5 to 10 of the paper, and beyond.

Owns what is shown and how it is worded. Ratios and areas are verdicts.py's and areas.py's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trapless.measure.experiments import load_module
from trapless.reporting.figures import Map, Table

HERE = Path(__file__).parent
if TYPE_CHECKING:
    import areas
    import cells
    import clocks
    import variants
    import verdicts
else:
    areas, cells, clocks, variants, verdicts = (
        load_module(HERE / f"{name}.py")
        for name in ("areas", "cells", "clocks", "variants", "verdicts")
    )

CLOCKS_CAPTION = (
    "Counts times published costs, at the middle of their ranges. Dashed: U + K = 288 and 448 KB, "
    "the paper's range Y."
)
MISSES_CAPTION = (
    "Cells whose conventional runs miss less than once an iteration are left out. Dashed: U + K = "
    "256 KB."
)
RANGE_Y = (
    ((32.0, 256.0), (256.0, 32.0)),
    ((192.0, 256.0), (256.0, 192.0)),
)
REACH = (((0.0, 256.0), (256.0, 0.0)),)


def a_map(
    found: cells.Cells, ratios: cells.Counts, name: str, title: str, caption: str, kind: str,
    outlines: tuple[tuple[tuple[float, float], ...], ...],
) -> Map:  # fmt: skip
    """One map; y is the footprint in the kernel."""
    return Map(
        id=name,
        title=title,
        x_label="footprint in user space U, KB",
        y_label="footprint in the kernel K, KB",
        x=tuple(map(float, found.user_kb)),
        y=tuple(map(float, found.kernel_kb)),
        cells=tuple(
            tuple(None if math.isnan(cell) else round(float(cell), 4) for cell in row)
            for row in ratios
        ),
        absent="misses less than once an iteration",
        caption=caption,
        kind=kind,
        outlines=outlines,
    )


def maps(found: cells.Cells) -> Iterator[Map]:
    """Fig. 5 to 10. Both processors have the same data TLB, so Fig. 7 and 8 are one."""
    for number, (name, what) in enumerate(variants.PROCESSORS.items(), 5):
        ratios = verdicts.clock_ratio(found, "batched", variants.main(name).id)
        yield a_map(
            found, ratios, f"fig{number}-clocks-{variants.SHORT[name]}",
            f"Clocks, batched to conventional, {what} (Fig. {number})", CLOCKS_CAPTION,
            "modelled", RANGE_Y,
        )  # fmt: skip
    ratios = verdicts.misses_ratio(found, "batched", variants.main(verdicts.SMALL).id, "dtlb")
    yield a_map(
        found, ratios, "fig7-8-dtlb", "Data-TLB misses, batched to conventional (Fig. 7 and 8)",
        MISSES_CAPTION, "counted", REACH,
    )  # fmt: skip
    for number, (name, what) in enumerate(variants.PROCESSORS.items(), 9):
        ratios = verdicts.misses_ratio(found, "batched", variants.main(name).id, "l2")
        yield a_map(
            found, ratios, f"fig{number}-l2-{variants.SHORT[name]}",
            f"L2 misses, batched to conventional, {what} (Fig. {number})", MISSES_CAPTION,
            "counted", REACH,
        )  # fmt: skip


def maps_of_orders(found: cells.Cells) -> Iterator[Map]:
    """Clocks of the product's mechanisms, by the fast trap, on the smaller processor."""
    for order in found.orders[1:]:
        ratios = verdicts.clock_ratio(found, order, variants.main(verdicts.SMALL).id)
        yield a_map(
            found, ratios, f"fast-clocks-{order}",
            f"Clocks, {order} to conventional, both by the fast trap, "
            f"{variants.PROCESSORS[verdicts.SMALL]}", CLOCKS_CAPTION, "modelled", RANGE_Y,
        )  # fmt: skip


def table_of_areas(found: cells.Cells) -> Table:
    """What the maps show, in numbers, with the counts that the ratios are made of."""
    places: Mapping[str, areas.Mask] = {
        "U + K up to 64 KB (X)": areas.range_x(found),
        "U + K up to 256 KB": areas.fits(found),
        "U, K up to 224, U + K over 256 KB": areas.apart(found, areas.CLEAR_KB),
        "U + K of 288 to 448 KB (Y)": areas.range_y(found),
        "K of 192 to 224 KB": areas.upper(found),
    }
    lines = []
    for name, what in variants.PROCESSORS.items():
        variant = variants.main(name).id
        for place, mask in places.items():
            for role, words in (("dtlb", "data TLB"), ("l2", f"L2, {what}")):
                if role == "dtlb" and name != verdicts.SMALL:
                    continue
                each = [
                    f"{found.misses(order, variant, role)[mask].mean() / cells.ITERATIONS:,.1f}"
                    for order in ("conventional", "batched")
                ]
                told = areas.summary(verdicts.misses_ratio(found, "batched", variant, role), mask)
                span = f"{told.lowest:.2f} to {told.highest:.2f}" if told.cells else "-"
                share = f"{told.below_half} of {told.cells}" if told.cells else "-"
                lines.append((place, words, *each, span, share))
    return Table(
        id="areas",
        title="Misses an iteration, mean over an area, and their ratios",
        columns=("area", "misses of", "conventional", "batched", "ratios", "below 0.5"),
        rows=tuple(sorted(lines, key=lambda line: list(places).index(line[0]))),
        caption="Ratios and their shares are of the cells that miss at least once an iteration.",
        kind="counted",
    )


def _told(found: cells.Cells, variant: str, values: Mapping[str, float]) -> tuple[str, str, str]:
    ratios = clocks.ratios(found, "batched", variant, values)
    inside = areas.summary(ratios, areas.range_y(found))
    return f"{ratios[0, 0]:.2f}", f"{inside.lowest:.2f}", f"{inside.median:.2f}"


def sensitivity(found: cells.Cells, built: cells.Cells) -> Table:
    """What becomes of the modelled clocks when one assumption is another."""
    lines: list[tuple[str, ...]] = []

    def add(words: str, told: list[tuple[str, str, str]]) -> None:
        lines.append((words, *(part for one in told for part in one)))

    names = tuple(variants.PROCESSORS)
    costs = {name: clocks.costs_of(name) for name in names}
    mains = {name: variants.main(name).id for name in names}
    middles = {name: clocks.middle(costs[name]) for name in names}
    add("all costs at the middle", [_told(found, mains[n], middles[n]) for n in names])
    for event, cost in costs[names[0]].items():
        if event == "fast":
            continue  # there is none by INT
        for bound in ("low", "high"):
            value = {name: float(getattr(costs[name][event], bound)) for name in names}
            add(
                f"{cost.text}: {value[names[0]]:g} clocks",
                [_told(found, mains[n], {**middles[n], event: value[n]}) for n in names],
            )
    for what in variants.built(names[0]):
        told = [_told(built, variants.built(n)[what].id, middles[n]) for n in names]
        add(f"{what} (coarser grid)", told)
    for seed, _ in enumerate(variants.COLOURS):
        told = [_told(built, variants.coloured(n)[seed].id, middles[n]) for n in names]
        add(f"pages elsewhere, seed {variants.COLOURS[seed]} (coarser grid)", told)
    return Table(
        id="sensitivity",
        title="Clocks, batched to conventional, under each assumption",
        columns=(
            "assumption",
            *(f"{what}: {part}" for what in variants.PROCESSORS.values()
              for part in ("at 0 KB", "lowest of Y", "median of Y")),
        ),
        rows=tuple(lines),
        caption="One assumption at a time; all others as documented, at the middle of their costs.",
        kind="modelled",
    )  # fmt: skip


def table_of_orders(found: cells.Cells) -> Table:
    """The product's mechanisms side by side, per iteration."""
    variant, inside = variants.main(verdicts.SMALL).id, areas.range_y(found)
    lines = []
    for order in found.orders:
        ratios = verdicts.clock_ratio(found, order, variant)
        counts = {
            "instructions": found.both(order, "instructions"),
            "l2": found.misses(order, variant, "l2"),
            "dtlb": found.misses(order, variant, "dtlb"),
        }
        lines.append(
            (
                order,
                f"{counts['instructions'][0, 0] / cells.ITERATIONS:,.0f}",
                f"{found.count(order, 'crossings.sysret')[0, 0] / cells.ITERATIONS:.2f}",
                f"{counts['l2'][inside].mean() / cells.ITERATIONS:,.0f}",
                f"{counts['dtlb'][inside].mean() / cells.ITERATIONS:,.1f}",
                f"{ratios[0, 0]:.2f}",
                f"{areas.summary(ratios, inside).median:.2f}",
            )
        )
    return Table(
        id="orders",
        title="Orders by the fast trap: an iteration, 256 KB L2",
        columns=(
            "order", "instructions at 0 KB", "sysret", "L2 misses in Y", "data-TLB misses in Y",
            "clocks at 0 KB", "clocks in Y, median",
        ),
        rows=tuple(lines),
        caption="Clocks are modelled, conventional by the fast trap = 1. In supervisor mode the "
        "order of accesses is the conventional one: it saves the trap and no miss.",
        kind="counted",
    )  # fmt: skip


def table_of_costs() -> Table:
    """What the modelled clocks assume."""
    lines = [
        (cost.text, f"{cost.low:g} to {cost.high:g}", cost.source)
        for cost in clocks.costs_of(verdicts.SMALL).values()
    ]
    return Table(
        id="costs",
        title="Clocks of an event, Pentium 4 1.8 GHz",
        columns=("event", "clocks", "source"),
        rows=tuple(lines),
        kind="modelled",
    )
