# SPDX-License-Identifier: GPL-2.0-only
"""Draws a Figure or a Map as SVG, by matplotlib.

Two forms of the same drawing: `inline` for a page, whose style sheet gives the colours so that
they follow its light or dark theme; and `standalone`, a file of its own on a white ground. Equal
figures give equal bytes. Series keep their colour and marker in every figure of a report, and
markers tell them apart in print. This file computes nothing that is shown.
"""

from __future__ import annotations

import functools
import io
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trapless.report import heat
from trapless.report.figures import Figure, Map, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN = 7.6
HEIGHT_IN = 3.9
FONTS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
# Colours that stand for a variable of the page's style sheet, and what they are in a file.
INK = "#1f2421"
FAINT = "#d4d8d5"
GROUND = "#fcfcfb"  # over colours
# Colour-blind safe (after Okabe and Ito); c0 is for the plain call, what all is compared with.
PALETTE = ("#5d6663", "#0b6bb3", "#d1600c", "#0a8a63", "#a6478c", "#8a6d00", "#3aa0d8", "#b8323a")
MARKERS = ("s", "o", "^", "D", "v", "P", "X", "*")


SOLID = (0, ())
DASHES = ((0, (4, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (2.5, 2.5)), (0, (8, 3)))


@dataclass(frozen=True)
class Look:
    """How one series is drawn, in every figure."""

    colour: int
    marker: int
    dashes: tuple[float, tuple[float, ...]] = SOLID


# A mechanism's name is FAMILY, FAMILY-VARIANT or, in words, "FAMILY, VARIANT": variants have the
# family's colour, and each a marker and dashes of its own.
FAMILIES = {
    "plain": 0, "batch": 1, "io_uring": 2, "psc": 3, "du": 4, "find": 5, "trap": 0, "supervisor": 3,
    "idle": 0, "user": 1, "other kernel": 2, "bottom half": 3, "top half": 4, "user or kernel": 6,
}  # fmt: skip
VARIANTS = ("int", "plain", "nop", "sqpoll", "nop-sqpoll", "w2", "w4", "plain-w2", "plain-w4")


def look(name: str, position: int) -> Look:
    """The look of a series: by its name if FAMILIES has it, else by its place in the figure."""
    family, _, variant = name.replace(", ", "-").partition("-")
    colour = FAMILIES.get(family)
    if colour is None:
        place = position % len(PALETTE)
        return Look(place, place)
    if not variant:
        return Look(colour, colour)
    place = VARIANTS.index(variant) if variant in VARIANTS else position
    return Look(colour, (colour + 3 + place) % len(MARKERS), DASHES[place % len(DASHES)])


def inline(figure: Figure | Map, anchor: str = "") -> str:
    """SVG for a page that defines the variables --ink, --faint, --ground and --c0 to --c7.

    Its ids begin with `anchor`, which no other part of the page has.
    """
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\1{anchor or figure.id}-", _draw(figure))
    for colour, variable in ((INK, "ink"), (FAINT, "faint"), (GROUND, "ground")):
        svg = svg.replace(colour, f"var(--{variable})")
    for number, colour in enumerate(PALETTE):
        svg = svg.replace(colour, f"var(--c{number})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{_escape(figure.title)}" ', 1)


def standalone(figure: Figure | Map) -> str:
    """SVG for a file of its own, in one line: nobody reads its source."""
    svg = " ".join(_draw(figure).split()) + "\n"
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return re.sub(r"(<svg [^>]*>)", rf"\1{ground}<desc>{_escape(data(figure))}</desc>", svg)


def data(figure: Figure | Map) -> str:
    """The numbers of a figure as text: what a drawing shows, whichever library drew it."""
    if isinstance(figure, Map):
        return heat.data(figure)
    lines = [
        f"{series.name}: "
        + ", ".join(f"{x:g} {y:g}" for x, y in zip(series.x, series.y, strict=True))
        for series in figure.series
    ]
    return "; ".join([f"{figure.title}, {figure.y_label} by {figure.x_label}", *lines])


def shows(svg: str, figure: Figure | Map) -> bool:
    """Whether a standalone drawing shows this figure; its bytes depend on matplotlib's version."""
    return f"<desc>{_escape(data(figure))}</desc>" in svg


@functools.lru_cache(maxsize=64)
def _draw(figure: Figure | Map) -> str:
    """The drawing, once for the page and the file of its own: it takes most of a report's time."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": figure.id,
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": FAINT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        size = heat.SIZE_IN if isinstance(figure, Map) else (WIDTH_IN, HEIGHT_IN)
        drawing, axes = pyplot.subplots(figsize=size, layout="constrained")
        try:
            drawing.patch.set_visible(False)
            axes.patch.set_visible(False)
            if isinstance(figure, Map):
                heat.fill(axes, figure)
            else:
                _fill(axes, figure)
            text = io.StringIO()
            drawing.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        finally:
            pyplot.close(drawing)
    return _clean(text.getvalue())


def _fill(axes: Axes, figure: Figure) -> None:
    from matplotlib.ticker import FuncFormatter

    if figure.names:
        _bars(axes, figure)
    elif figure.stacked:
        _areas(axes, figure)
    else:
        for position, series in enumerate(figure.series):
            _line(axes, series, look(series.name, position), band=not figure.log_y)
    for mark in figure.marks:
        axes.axhline(mark.y, color=INK, linewidth=1, linestyle=(0, (1, 3)), zorder=1)
        axes.annotate(
            mark.label, (1, mark.y), xycoords=("axes fraction", "data"), fontsize=8.5,
            xytext=(-2, 3), textcoords="offset points", ha="right", color=INK,
        )  # fmt: skip
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.grid(axis="y", linewidth=0.8)
    axes.set_axisbelow(True)
    if figure.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:g}"))
        points = sorted({x for series in figure.series for x in series.x if x > 0})
        if len(points) <= 12:
            axes.set_xticks(points, [f"{x:g}" for x in points])
            axes.minorticks_off()
    if figure.names:
        axes.set_xticks(range(len(figure.names)), figure.names)
        axes.tick_params(axis="x", length=0)
    _y_axis(axes, figure)
    _legend(axes, figure)


def _legend(axes: Axes, figure: Figure) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) < 2:
        return
    if figure.names and not figure.stacked:  # the legend stands below: bars need the width
        columns = 3 if sum(map(len, labels[:3])) < 70 else 2
        lines = max(name.count("\n") for name in figure.names) / 2 + 1
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1 * lines), ncols=columns)
        return
    # The legend stands beside the plot, in the order in which the lines end.
    last = [series.y[-1] if series.y else 0.0 for series in figure.series]
    order = sorted(range(len(last)), key=lambda index: -last[index])
    if figure.stacked:  # in the order of the pile
        order = list(reversed(range(len(last))))
    axes.legend(
        [handles[i] for i in order], [labels[i] for i in order],
        loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.2,
    )  # fmt: skip


def _y_axis(axes: Axes, figure: Figure) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    values = [y for series in figure.series for y in series.y if not math.isnan(y)]
    if figure.stacked:
        values = [
            sum(column) for column in zip(*(series.y for series in figure.series), strict=True)
        ]
    values += [mark.y for mark in figure.marks]
    if figure.log_y:
        axes.set_yscale("log")
        few = bool(values) and max(values) < 200 * min(value for value in values if value > 0)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif figure.from_zero and values:
        # The limits follow the lines: the band of a single bad repeat would flatten them all.
        axes.set_ylim(0, max(values) * 1.08 or 1)
    axes.yaxis.set_major_formatter(
        lambda value, _: f"{value:,g}" if value < 1e6 else f"{value:,.0f}"
    )


def _line(axes: Axes, series: Series, style: Look, *, band: bool) -> None:
    colour = PALETTE[style.colour]
    marked = len(series.x) <= MARKED_MAX
    axes.plot(
        series.x, series.y, label=series.name, color=colour,
        marker=MARKERS[style.marker] if marked else None,
        markersize=5.5, linewidth=1.8 if marked else 1.3, linestyle=style.dashes,
    )  # fmt: skip
    if band and series.low and series.high:
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.18, linewidth=0)


def _areas(axes: Axes, figure: Figure) -> None:
    looks = [look(series.name, place) for place, series in enumerate(figure.series)]
    axes.stackplot(
        figure.series[0].x if figure.series else (),
        *(series.y for series in figure.series),
        labels=[series.name for series in figure.series],
        colors=[PALETTE[style.colour] for style in looks],
        linewidth=0,
    )
    axes.margins(x=0)


MARKED_MAX = 64  # from more points on, markers would hide the line
GROUP_WIDTH = 0.86  # of the room that a group of bars has
BAR_FADES = 0.68  # each further bar of a colour is so much lighter
PILE_LABELLED = 0.05  # of a pile: the lowest part that has room for a figure
BARS_FEW = 12  # from more bars on, the figures over them are set smaller


def _piles(axes: Axes, figure: Figure) -> None:
    """A bar a name, made of all series; parts too low for a figure have none."""
    below = [0.0] * len(figure.names)
    total = max(map(sum, zip(*(series.y for series in figure.series), strict=True)))
    for place, series in enumerate(figure.series):
        colour = PALETTE[look(series.name, place).colour]
        drawn = axes.bar(series.x, series.y, 0.6, below, label=series.name, color=colour)
        labels = [f"{y:.0f}" if y > PILE_LABELLED * total else "" for y in series.y]
        axes.bar_label(drawn, labels, label_type="center", fontsize=8.5, color=GROUND)
        below = [low + y for low, y in zip(below, series.y, strict=True)]


def _bars(axes: Axes, figure: Figure) -> None:
    if figure.stacked:
        _piles(axes, figure)
        return
    width = GROUP_WIDTH / len(figure.series)
    colours = [look(series.name, place).colour for place, series in enumerate(figure.series)]
    size = 8.0 if len(figure.names) * len(figure.series) <= BARS_FEW else 7.0
    for place, series in enumerate(figure.series):
        left = (place - (len(figure.series) - 1) / 2) * width
        drawn = axes.bar(
            [x + left for x in series.x], series.y, width * 0.94, label=series.name,
            color=PALETTE[colours[place]],
            alpha=BAR_FADES ** colours[:place].count(colours[place]),
        )  # fmt: skip
        labels = [_short(y) for y in series.y]
        axes.bar_label(drawn, labels, fontsize=size, color=INK, padding=2)


def _short(value: float) -> str:
    """A number beside its bar."""
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _clean(svg: str) -> str:
    """The <svg> element alone, without the ids that nothing refers to: pages hold many drawings."""
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r"<style.*?</style>\s*", "", svg, flags=re.S)  # it would reach the whole page
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.S)
    svg = re.sub(r"font-family: [^;\"]*", f"font-family: {FONTS}", svg)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg)
    head, body = svg.split(">", 1)
    svg = re.sub(r' (?:width|height)="[^"]*"', "", head) + ">" + body
    svg = re.sub(r"<svg ", '<svg stroke-linejoin="round" ', svg, count=1)
    return svg.strip() + "\n"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
