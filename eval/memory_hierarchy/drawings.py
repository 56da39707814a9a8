# SPDX-License-Identifier: GPL-2.0-only
"""Draws the maps of the experiment from its counts: Fig. 5 to 10 of the paper, and others beside
them.

This file owns what is drawn and how it is worded; tables are listings.py's, ratios verdicts.py's,
areas areas.py's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from eval.memory_hierarchy import areas, cells, variants, verdicts
from trapless.model import processors
from trapless.report.figures import Map

CLOCKS_CAPTION = "Counts times published costs, at the middle of their ranges."
RANGES_CAPTION = "X and Y: the paper's ranges, U + K up to 64 KB and of 288 to 448 KB."
MISSES_CAPTION = (
    "Grey: the conventional run misses less than once an iteration. Dashed: U + K = 256 KB, what "
    "64 entries of the TLB, and the smaller L2 cache, hold."
)
SCALE = "batched / conventional"
Line = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Marks:
    """The outlines and names that are drawn over a map, and the words about it."""

    caption: str
    lines: tuple[Line, ...] = ()
    names: tuple[tuple[float, float, str], ...] = ()


RANGES = Marks(
    caption=f"{CLOCKS_CAPTION} {RANGES_CAPTION}",
    lines=(
        ((0.0, float(areas.X_MAX_KB)), (float(areas.X_MAX_KB), 0.0)),
        ((32.0, 256.0), (256.0, 32.0)),
        ((192.0, 256.0), (256.0, 192.0)),
    ),
    names=((14.0, 14.0, "X"), (184.0, 184.0, "Y")),
)
REACH = Marks(caption=MISSES_CAPTION, lines=(((0.0, 256.0), (256.0, 0.0)),))


def a_map(
    grid: cells.Cells, ratios: cells.Counts, name: str, title: str, kind: str, marks: Marks,
    scale: str = SCALE,
) -> Map:  # fmt: skip
    """One map; y is the footprint in the kernel."""
    return Map(
        id=name,
        title=title,
        x_label="footprint in user space U, KB",
        y_label="footprint in the kernel K, KB",
        x=tuple(map(float, grid.user_kb)),
        y=tuple(map(float, grid.kernel_kb)),
        cells=tuple(
            tuple(None if math.isnan(cell) else round(float(cell), 4) for cell in row)
            for row in ratios
        ),
        absent="misses less than once an iteration",
        caption=marks.caption,
        kind=kind,
        outlines=marks.lines,
        names=marks.names,
        scale=scale,
    )


def clocks_figure(grid: cells.Cells, number: int, processor: str) -> Map:
    """Fig. 5 or 6: modelled clocks on one of the paper's processors."""
    return a_map(
        grid,
        verdicts.clock_ratio(grid, "batched", variants.main(processor).id),
        f"fig{number}-clocks-{variants.SHORT[processor]}",
        f"Clocks, batched to conventional, {variants.PROCESSORS[processor]} (Fig. {number})",
        "modelled",
        RANGES,
    )


def maps(grid: cells.Cells) -> Iterator[Map]:
    """Fig. 5 to 10. Both processors have the same data TLB, so Fig. 7 and 8 are one."""
    for number, name in enumerate(variants.PROCESSORS, 5):
        yield clocks_figure(grid, number, name)
    ratios = verdicts.misses_ratio(grid, "batched", variants.main(variants.SMALL).id, "dtlb")
    title = "Data-TLB misses, batched to conventional (Fig. 7 and 8)"
    yield a_map(grid, ratios, "fig7-8-dtlb", title, "counted", REACH)
    for number, (name, what) in enumerate(variants.PROCESSORS.items(), 9):
        ratios = verdicts.misses_ratio(grid, "batched", variants.main(name).id, "l2")
        title = f"L2 misses, batched to conventional, {what} (Fig. {number})"
        key = f"fig{number}-l2-{variants.SHORT[name]}"
        yield a_map(grid, ratios, key, title, "counted", REACH)


FINDINGS = {
    "batched": "Batches: as by INT, but the trap saved is cheaper, so range X is smaller.",
    "workers": "Workers: where both footprints fit, handing a request over costs as much as the "
    "trap that it saves; where they do not, it pays as a batch does, for the worker makes its "
    "calls in a row.",
    "supervisor": "Supervisor mode: no trap, but user and kernel take turns as ever, so that no "
    "miss is saved: it pays where footprints are small.",
}


def maps_of_orders(grid: cells.Cells) -> Iterator[Map]:
    """Clocks of the product's mechanisms, by the fast trap, on the smaller processor."""
    for order in grid.orders[1:]:
        marks = replace(RANGES, caption=f"{FINDINGS[order]} {RANGES.caption}")
        ratios = verdicts.clock_ratio(grid, order, variants.main(variants.SMALL).id)
        title = (
            f"Clocks, {order} to conventional, both by the fast trap, "
            f"{variants.PROCESSORS[variants.SMALL]}"
        )
        yield a_map(
            grid, ratios, f"fast-clocks-{order}", title, "modelled", marks,
            f"{order} / conventional",
        )  # fmt: skip


def maps_of_today(grid: cells.Cells) -> Iterator[Map]:
    """The same question on processors of today, with larger footprints for their larger caches."""
    for name, what in variants.CURRENT.items():
        l2_kb = processors.load(name).structures["l2"].size / 1024
        marks = Marks(
            caption=f"{CLOCKS_CAPTION} Dashed: U + K = {l2_kb:g} KB, its L2 cache. What batching "
            "can change at most: the real processor overlaps misses, and prefetches at this "
            "stride of two lines, which the modelled prefetcher does not.",
            lines=(((0.0, l2_kb), (l2_kb, 0.0)),),
        )
        ratios = verdicts.clock_ratio(grid, "batched", variants.main(name).id)
        title = f"Clocks, batched to conventional, {what}"
        key = f"today-clocks-{variants.SHORT[name]}"
        yield a_map(grid, ratios, key, title, "modelled", marks)
