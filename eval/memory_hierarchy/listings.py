# SPDX-License-Identifier: GPL-2.0-only
"""Makes the tables of the experiment from its counts: the numbers behind the maps, and each
assumption.

This file owns what is listed and how it is worded. Ratios and areas are verdicts.py's and
areas.py's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eval.memory_hierarchy import areas, cells, published, variants, verdicts
from trapless.model import clocks
from trapless.report.figures import Table


def table_of_areas(grid: cells.Cells) -> Table:
    """The maps as numbers, with the counts that the ratios are made of."""
    places: Mapping[str, areas.Mask] = {
        "U + K up to 64 KB (X)": areas.range_x(grid),
        "U + K up to 256 KB": areas.fits(grid),
        "U, K up to 224, U + K over 256 KB": areas.apart(grid, areas.CLEAR_KB),
        "U + K of 288 to 448 KB (Y)": areas.range_y(grid),
        "K of 192 to 224 KB": areas.upper(grid),
    }
    lines = []
    for name, what in variants.PROCESSORS.items():
        variant = variants.main(name).id
        for place, mask in places.items():
            for role, words in (("dtlb", "data TLB"), ("l2", f"L2, {what}")):
                if role == "dtlb" and name != variants.SMALL:
                    continue
                each = [
                    f"{grid.each(grid.misses(order, variant, role))[mask].mean():,.1f}"
                    for order in ("conventional", "batched")
                ]
                summary = areas.summary(verdicts.misses_ratio(grid, "batched", variant, role), mask)
                span = f"{summary.lowest:.2f} to {summary.highest:.2f}" if summary.cells else "-"
                share = f"{summary.below_half} of {summary.cells}" if summary.cells else "-"
                lines.append((place, words, *each, span, share))
    return Table(
        id="areas",
        title="Misses an iteration, mean over an area, and their ratios",
        columns=("area", "misses of", "conventional", "batched", "ratios", "below 0.5"),
        rows=tuple(sorted(lines, key=lambda line: list(places).index(line[0]))),
        caption="Ratios and their shares are of the cells that miss at least once an iteration.",
        kind="counted",
    )


def _cells_of(grid: cells.Cells, variant: str, values: Mapping[str, float]) -> tuple[str, str, str]:
    ratios = grid.clock_ratios("batched", variant, values)
    inside = areas.summary(ratios, areas.range_y(grid))
    return f"{ratios[0, 0]:.2f}", f"{inside.lowest:.2f}", f"{inside.median:.2f}"


def sensitivity(grids: published.Grids) -> Table:
    """The modelled clocks when one assumption is changed."""
    lines: list[tuple[str, ...]] = []
    names = tuple(variants.PROCESSORS)
    costs = {name: clocks.costs_of(name) for name in names}
    mains = {name: variants.main(name).id for name in names}
    middles = {name: clocks.middle(costs[name]) for name in names}

    def add(words: str, summary: list[tuple[str, str, str]]) -> None:
        lines.append((words, *(part for one in summary for part in one)))

    def add_of(words: str, grid: cells.Cells, variant_of: Mapping[str, str]) -> None:
        add(words, [_cells_of(grid, variant_of[name], middles[name]) for name in names])

    add_of("all costs at the middle", grids.maps, mains)
    for event, cost in costs[names[0]].items():
        if event == "fast":
            continue  # there is none by INT
        for bound in ("low", "high"):
            value = {name: float(getattr(costs[name][event], bound)) for name in names}
            add(
                f"{cost.text}: {value[names[0]]:g} clocks",
                [_cells_of(grids.maps, mains[n], {**middles[n], event: value[n]}) for n in names],
            )
    dear = [published.request(grids.maps, name).ratio_as_published for name in names]
    add("a request as dear as in the paper's Fig. 11", [(f"{one:.2f}", "-", "-") for one in dear])
    add_of("no warm-up (coarser grid)", grids.cold, mains)
    for what in variants.built(names[0]):
        add_of(
            f"{what} (coarser grid)",
            grids.built,
            {name: variants.built(name)[what].id for name in names},
        )
    for place, seed in enumerate(variants.COLOURS):
        add_of(
            f"pages at random, seed {seed} (coarser grid)",
            grids.elsewhere,
            {name: variants.coloured(name)[place].id for name in names},
        )
    return Table(
        id="sensitivity",
        title="Clocks, batched to conventional, under each assumption",
        columns=(
            "assumption",
            *(
                f"{what}: {part}"
                for what in variants.PROCESSORS.values()
                for part in ("at 0 KB", "lowest of Y", "median of Y")
            ),
        ),
        rows=tuple(lines),
        caption="One assumption at a time; all others as documented, at the middle of their costs.",
        kind="modelled",
    )


def table_of_tlb(grids: published.Grids) -> Table:
    """Cell by cell: where the data-TLB ratio is below 0.5, under each replacement."""
    lines = []
    for grid, start in (
        (grids.maps, "warm"),
        (grids.cold, "cold start, coarser grid"),
        (grids.large, "the kernel's image in large pages, coarser grid"),
    ):
        for policy, words in variants.POLICIES.items():
            near, far = (
                published.dtlb_apart(grid, policy, most)
                for most in (areas.CLEAR_KB, areas.REACH_KB)
            )
            lines.append(
                (
                    f"{words}, {start}",
                    f"{near.below_half} of {near.of}",
                    f"{near.median:.2f}",
                    f"{near.highest:.2f}",
                    f"{far.below_half} of {far.of}",
                    f"{published.every_cell_up_to_kb(grid, policy)} KB",
                )
            )
    return Table(
        id="tlb",
        title="Data-TLB misses, batched to conventional, where U + K is over 256 KB",
        columns=(
            "replacement", f"below 0.5, both up to {areas.CLEAR_KB} KB", "median", "highest",
            f"below 0.5, both up to {areas.REACH_KB} KB", "every cell up to",
        ),
        rows=tuple(lines),
        caption="Cells of the grid. Tree PLRU is what the maps show.",
        kind="counted",
    )  # fmt: skip


def table_of_exceptions(grids: published.Grids) -> Table:
    """The cells that are not below 0.5 where both footprints leave room beside them, by rows."""
    grid, lines = grids.maps, []
    mask = areas.apart(grid, areas.CLEAR_KB)
    for policy, words in variants.POLICIES.items():
        variant = variants.tlb(variants.SMALL, policy).id
        ratios = verdicts.misses_ratio(grid, "batched", variant, "dtlb")
        misses = [grid.each(grid.misses(order, variant, "dtlb")) for order in grid.orders]
        for row, kernel_kb in enumerate(grid.kernel_kb):
            at = row, np.flatnonzero(mask[row] & ~(ratios[row] < 0.5))
            if at[1].size:
                users = [str(grid.user_kb[column]) for column in at[1]]
                lines.append(
                    (
                        words,
                        str(kernel_kb),
                        f"{users[0]} to {users[-1]}" if len(users) > 2 else " and ".join(users),
                        str(len(users)),
                        *(f"{each[at].mean():.1f}" for each in misses),
                        f"{ratios[at].min():.3f} to {ratios[at].max():.3f}",
                    )
                )
    return Table(
        id="exceptions",
        title=f"Cells with both footprints up to {areas.CLEAR_KB} KB that are not below 0.5",
        columns=("replacement", "K, KB", "U, KB", "cells", "conventional", "batched", "ratio"),
        rows=tuple(lines) or (("none", *["-"] * 6),),
        caption="Data-TLB misses an iteration, mean of the cells. "
        f"{areas.CLEAR_KB} KB are 56 entries of 64: what the kernel and the ring need beside them "
        "decides.",
        kind="counted",
    )


def table_of_places(grid: cells.Cells) -> Table:
    """The L2 ratios where pages lie at random, a line for each seed."""
    lines = []
    small, large = variants.SMALL, variants.LARGE
    for place, seed in enumerate(("side by side", *variants.COLOURS)):
        one = variants.coloured(small)[place - 1].id if place else variants.main(small).id
        two = variants.coloured(large)[place - 1].id if place else variants.main(large).id
        ratios = verdicts.misses_ratio(grid, "batched", one, "l2")
        summary = areas.summary(ratios, areas.range_y(grid))
        shares = [f"{share:.0f}%" for share in published.band_shares(grid, two)]
        lines.append(
            (
                str(seed) if not place else f"at random, seed {seed}",
                f"{summary.lowest:.2f} to {summary.highest:.2f}",
                f"{summary.median:.2f}",
                f"{summary.below_half} of {summary.of}",
                shares[1],
                shares[0],
                shares[2],
            )
        )
    return Table(
        id="places",
        title="L2 misses, batched to conventional, by where pages lie",
        columns=(
            "pages", "256 KB, range Y", "median", "below 0.5", "512 KB: below 0.5 for K under 192",
            "K of 192 to 224", "K over 224",
        ),
        rows=tuple(lines),
        caption="A coarser grid. The shares are of all its cells, with a ratio or not.",
        kind="counted",
    )  # fmt: skip


def table_of_orders(grid: cells.Cells) -> Table:
    """The product's mechanisms side by side, per iteration."""
    variant, inside = variants.main(variants.SMALL).id, areas.range_y(grid)
    lines = []
    for order in grid.orders:
        ratios = verdicts.clock_ratio(grid, order, variant)
        counts = {
            "instructions": grid.both(order, "instructions"),
            "l2": grid.misses(order, variant, "l2"),
            "dtlb": grid.misses(order, variant, "dtlb"),
        }
        lines.append(
            (
                order,
                f"{grid.each(counts['instructions'])[0, 0]:,.0f}",
                f"{grid.each(grid.count(order, 'crossings.sysret'))[0, 0]:.2f}",
                f"{grid.each(counts['l2'])[inside].mean():,.0f}",
                f"{grid.each(counts['dtlb'])[inside].mean():,.1f}",
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


def table_of_today(grid: cells.Cells) -> Table:
    """The effect of batches and supervisor mode on processors of today, by the footprints' sum."""
    both = grid.user + grid.kernel
    lines = []
    for name, what in variants.CURRENT.items():
        variant = variants.main(name).id
        for first, last in TODAY_KB:
            mask = (both >= first) & (both <= last)
            misses = [
                f"{grid.each(grid.misses(order, variant, role))[mask].mean():,.0f}"
                for role in ("l2", "dtlb")
                for order in ("conventional", "batched")
            ]
            medians = [
                f"{areas.summary(verdicts.clock_ratio(grid, order, variant), mask).median:.2f}"
                for order in grid.orders[1:]
            ]
            lines.append((what, f"{first} to {last}" if last else "0", *misses, *medians))
    return Table(
        id="today",
        title="Processors of today: misses an iteration, and clocks to conventional",
        columns=(
            "processor", "U + K, KB", "L2, conventional", "L2, batched", "data TLB, conventional",
            "data TLB, batched", *(f"clocks, {order}" for order in grid.orders[1:]),
        ),
        rows=tuple(lines),
        caption="All by the fast trap; means and medians over the cells of a row. Misses are "
        "counted, without what a prefetcher by stride would save; clocks, modelled, overlap "
        "nothing.",
        kind="counted",
    )  # fmt: skip


TODAY_KB = ((0, 0), (64, 192), (256, 384), (448, 640), (704, 1024))
"""U + K of the rows of that table."""


def table_of_costs() -> Table:
    """The assumptions of the modelled clocks."""
    lines = [
        (what, cost.text, f"{cost.low:g} to {cost.high:g}", cost.source)
        for name, what in {variants.SMALL: "Pentium 4 1.8 GHz", **variants.CURRENT}.items()
        for cost in clocks.costs_of(name).values()
    ]
    return Table(
        id="costs",
        title="Clocks of an event",
        columns=("processor", "event", "clocks", "source"),
        rows=tuple(lines),
        kind="modelled",
    )
