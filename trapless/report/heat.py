# SPDX-License-Identifier: GPL-2.0-only
"""Draws a Map: its colours, scale and annotations, on axes that plot.py has made.

Steps of colour are equal steps of ratio below 1 and equal factors above, on both sides of 1 away
from white; they differ in lightness, so that they are told apart in print. Cells are one small
picture inside the drawing: 4,225 shapes would make a page slow. This file computes no ratio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trapless.report.figures import Map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_IN = (6.4, 5.0)
BOUNDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1.03, 1.1, 1.25, 1.5, 2.0, 1e9)
# From dark blue over near-white (equal) to dark orange: told apart by the colour-blind, too.
COLOURS = (
    "#08244e", "#0b3c78", "#12569b", "#2270b4", "#3d8cc6", "#64a7d5", "#8dc0e1", "#b3d4ea",
    "#d3e4f0", "#e9eff2", "#f7f5f0", "#fbe3c5", "#f9c890", "#f0a455", "#d97a26", "#a8520c",
)  # fmt: skip
ABSENT = "#9a9f9c"
OVER, CASING = "#10171f", "#ffffff"
"""The colours of lines and words over the map, and of their casing: the same on a dark page,
because the map's colours are."""


def data(figure: Map) -> str:
    """The numbers of a map as text, a row after the other."""
    head = f"{figure.title}, by {figure.x_label} (x) and {figure.y_label} (y)"
    lines = [
        f"{y:g}: " + " ".join("-" if cell is None else f"{cell:.3f}" for cell in row)
        for y, row in zip(figure.y, figure.cells, strict=True)
    ]
    return "; ".join([head, "x " + " ".join(f"{x:g}" for x in figure.x), *lines])


def fill(axes: Axes, figure: Map) -> None:
    """Draw the map, its scale and what is marked on it."""
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    colours = ListedColormap(list(COLOURS)).with_extremes(bad=ABSENT)
    half_x, half_y = (figure.x[1] - figure.x[0]) / 2, (figure.y[1] - figure.y[0]) / 2
    extent = (
        figure.x[0] - half_x, figure.x[-1] + half_x, figure.y[0] - half_y, figure.y[-1] + half_y,
    )  # fmt: skip
    # As high as it is wide, whatever the units are: a map of K over D must not become a stripe.
    square = (extent[1] - extent[0]) / (extent[3] - extent[2])
    cells = [[float("nan") if cell is None else cell for cell in row] for row in figure.cells]
    drawn = axes.imshow(
        cells, cmap=colours, norm=BoundaryNorm(BOUNDS, len(COLOURS)), origin="lower",
        extent=extent, interpolation="none", aspect=square, zorder=0,
    )  # fmt: skip
    _annotate(axes, figure)
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    ticks = BOUNDS[:-1]
    scale = axes.figure.colorbar(drawn, ax=axes, spacing="uniform", ticks=ticks, shrink=0.95)
    scale.ax.set_yticklabels([f"{bound:g}" for bound in ticks])
    scale.ax.tick_params(labelsize=8.5, length=2)
    scale.outline.set_visible(False)
    if figure.scale:
        scale.set_label(figure.scale, fontsize=8.5)
    if any(cell is None for row in figure.cells for cell in row):
        axes.legend(
            handles=[Patch(color=ABSENT, label=figure.absent)], loc="upper center",
            bbox_to_anchor=(0.5, -0.13), fontsize=8.5,
        )  # fmt: skip
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.set_xticks(_ticks(figure.x))
    axes.set_yticks(_ticks(figure.y))


def _annotate(axes: Axes, figure: Map) -> None:
    """Draw outlines and names with a casing, since the cells under them may be light or dark."""
    for line in figure.outlines:
        x, y = zip(*line, strict=True)
        axes.plot(x, y, color=CASING, linewidth=2.6, alpha=0.75)
        axes.plot(x, y, color=OVER, linewidth=1.1, linestyle=(0, (4, 2)))
    for x_at, y_at, word in figure.names:
        ground = {"boxstyle": "round,pad=0.2", "facecolor": CASING, "edgecolor": "none"}
        axes.text(
            x_at, y_at, word, color=OVER, ha="center", va="center", fontweight="bold",
            bbox={**ground, "alpha": 0.75},
        )  # fmt: skip


def _ticks(values: tuple[float, ...]) -> list[float]:
    """About eight ticks, at values of the axis."""
    step = max(1, round((len(values) - 1) / 8))
    return list(values[::step])
