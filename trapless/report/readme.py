# SPDX-License-Identifier: GPL-2.0-only
"""The generated part of README.md: tables and pictures, from saved results.

It owns the text between the two markers, and nothing outside them. A test makes the part again
and compares, so that the README never says what no result says.
"""

from __future__ import annotations

import os
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.report import kernel_comparison, plot, summary, tables
from trapless.report.document import Report
from trapless.report.figures import Figure, Map
from trapless.results import estimate_file

BEGIN = "<!-- results: made by `trapless report DIR --readme README.md`; do not edit -->"
END = "<!-- results end -->"
PICTURE_NAME = "instructions.svg"
# Where wrapping pays beyond the trap: a map of an experiment, and the metric of its lowest cell.
MAP_OF = "memory-hierarchy"
MAP_ID = "fig5-clocks-p4-256kb"
MAP_LOWEST = "clocks.batched.p4-256kb_y-lowest.ratio"
MAP_NAME = "clocks.svg"
ESTIMATED = ("getppid", "write", "pread4k", "stat")
"""The calls of an estimate that are shown."""


def rewrite(readme: Path, report: Report) -> None:
    """Put the table between the markers of `readme`, and the picture beside the results."""
    try:
        text = readme.read_text(encoding="utf-8")
    except OSError as error:
        raise TraplessError(f"{readme}: {error.strerror}") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise TraplessError(f"{readme}: has no place for results; put the lines {BEGIN} and {END}")
    drawing = plot.standalone(picture(report))
    (report.directory / PICTURE_NAME).write_text(drawing, encoding="utf-8")
    if drawn_map := clocks_map(report):
        drawing = plot.standalone(drawn_map)
        (report.directory / MAP_NAME).write_text(drawing, encoding="utf-8")
    part = generated(report, readme.parent)
    readme.write_text(f"{before}{BEGIN}\n{part}{END}{after}", encoding="utf-8")


def generated(report: Report, origin: Path) -> str:
    """The text between the markers; links are relative to the folder `origin`."""
    folder = Path(os.path.relpath(report.directory, origin)).as_posix()
    kernels = ", ".join(sorted({section.result.kernel for section in report.sections}))
    gain = summary.gain(report)
    if gain is None:
        raise TraplessError(f"{report.directory}: holds no result that README.md could show")
    lines = [
        summary.headline(report),
        "",
        tables.markdown(gain),
        f"{gain.caption} The kernel is Linux {kernels}.",
        "",
        *_estimate(report, folder),
        f"![{picture(report).title}]({folder}/{PICTURE_NAME})",
        "",
        f"{report.verdict()} All numbers, and how to make them again: [{folder}]({folder}/)."
        + _kernels(report, folder),
        "",
        *_map(report, folder),
    ]
    return "\n".join(lines)


def _estimate(report: Report, folder: str) -> list[str]:
    """The estimated gain in time of the machine that made the results, if there is an estimate."""
    name = estimate_file.NAME
    found = estimate_file.load(report.directory / name)
    if found is None:
        return []
    calls = [found.calls[call] for call in ESTIMATED if call in found.calls]
    savings = "; ".join(
        f"{title} {plain:.0f} ns, less {saved.ns:.0f} ({saved.ns / plain:.0%})"
        for title, plain, saved in calls
    )
    return [
        f"In time, **an estimate** for the machine that made these results ({found.machine}): a "
        f"trap takes {found.trap.ns:.0f} ns ({found.trap.low:.0f} to {found.trap.high:.0f}). Of "
        f"each call a batch of 32 would take away: {savings}. Plain calls and traps were measured "
        "on its own kernel, and the module's loop in user space (`trapless estimate`); the module "
        f"itself ran in the emulator only. All figures: [{name}]({folder}/{name}).",
        "",
    ]


def _kernels(report: Report, folder: str) -> str:
    """A link to the comparison with other kernels, if somebody has made one."""
    if not (report.directory / kernel_comparison.NAME).exists():
        return ""
    return (
        f" Other kernels beside it: [{kernel_comparison.NAME}]({folder}/{kernel_comparison.NAME})."
    )


def _map(report: Report, folder: str) -> list[str]:
    """The map with what it shows; nothing where that was not evaluated."""
    if not clocks_map(report):
        return []
    lowest = summary.metrics_of(report, MAP_OF)[MAP_LOWEST].value
    return [
        f"![Clocks of wrapped calls to conventional ones]({folder}/{MAP_NAME})",
        "",
        "Clocks of wrapped calls to conventional ones on a Pentium 4, modelled, over what the "
        "program and its calls touch: beyond the trap (X), wrapping takes away up to "
        f"{1 - lowest:.0%} where each side fits the TLB and the cache alone, but not with the "
        "other (Y).",
        "",
    ]


def picture(report: Report) -> Figure:
    """The picture: what each call takes by each mechanism."""
    if figure := summary.gain_figure(report):
        return figure
    raise TraplessError(f"{report.directory}: holds no instructions of calls to draw")


def clocks_map(report: Report) -> Map | None:
    """The map, where its experiment is among the results with its raw data."""
    maps = [
        figure
        for section in report.sections
        for figure in section.figures
        if section.name == MAP_OF and figure.id == MAP_ID and isinstance(figure, Map)
    ]
    return maps[0] if maps else None
