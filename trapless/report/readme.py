# SPDX-License-Identifier: GPL-2.0-only
"""The generated part of README.md: tables and pictures, from saved results.

It owns the text between the two markers, and nothing outside them. A test makes the part again
and compares, so that the README never says what no result says.
"""

from __future__ import annotations

import os
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.report import plot, tables
from trapless.report.document import Report, Section
from trapless.report.figures import Figure, Map

BEGIN = "<!-- results: made by `trapless report DIR --readme README.md`; do not edit -->"
END = "<!-- results end -->"
AT = 32  # the batch size that the paper evaluates
EXPERIMENT = "batch-size"
OURS = "batch"
# Columns, and for each the mechanisms to look for; io_uring has no getpid, its NOP stands in.
COLUMNS = {
    "plain call": ("plain",),
    "batch": ("batch",),
    "io_uring": ("io_uring", "io_uring-nop"),
}
# A real program on a real tree: rows, and the metrics they are made of.
PROGRAMS = {
    "walk.batch": "[examples/walk](examples/), wrapped calls",
    "walk.plain": "the same, plain calls",
    "du.plain": "`du`",
    "walk-find.batch": "[examples/walk](examples/) `--find`, wrapped calls",
    "find.plain": "`find`",
}
# Calls in both modes, by the C library's function in a static program.
MODES = "mode-switch"
MODE_CALLS = {
    "getpid": "getpid",
    "sbrk": "sbrk",
    "read1": "read of 1 B, cached",
    "write1": "write of 1 B, cached",
}
PICTURE_OF = "getppid"
PICTURE_NAME = "instructions.svg"
# Where wrapping pays beyond the trap: a map of an experiment, and the metric of its lowest cell.
MAP_OF = "memory-hierarchy"
MAP_ID = "fig5-clocks-p4-256kb"
MAP_LOWEST = "clocks.batched.p4-256kb_y-lowest.ratio"
MAP_NAME = "clocks.svg"


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


def generated(report: Report, beside: Path) -> str:
    """The text between the markers; links are relative to the folder `beside`."""
    folder = Path(os.path.relpath(report.directory, beside)).as_posix()
    kernels = sorted({section.result.kernel for section in report.sections})
    lines = [
        f"Instructions a call at {AT} calls a crossing, counted; Linux {', '.join(kernels)}:",
        "",
        "| call | " + " | ".join(COLUMNS) + " | a batch wins from |",
        "|---|" + "---:|" * (len(COLUMNS) + 1),
        *_rows(report),
        "",
        *_programs(report),
        *_modes(report),
        f"{report.verdict()} All numbers, and how to make them again: [{folder}]({folder}/).",
        "",
        f"![Instructions a call against calls a crossing]({folder}/{PICTURE_NAME})",
        "",
        *_map(report, folder),
    ]
    return "\n".join(lines)


def _rows(report: Report) -> list[str]:
    section = _section(report, EXPERIMENT)
    rows = []
    for pivot in section.pivots:
        counted = (pivot.unit, pivot.kind) == ("instructions", "counted")
        if not counted or AT not in pivot.cells.get(OURS, {}):
            continue
        cells = [_cell(pivot, names) for names in COLUMNS.values()]
        even = section.result.metrics.get(f"{pivot.subject}.{OURS}.break_even.n")
        cells.append(f"N = {tables.number(even.value)}" if even else "–")
        rows.append(f"| {tables.subject_text(pivot.subject)} | " + " | ".join(cells) + " |")
    if not rows:
        raise TraplessError(f"{report.directory}: holds no counted instructions at N = {AT}")
    return rows


def _programs(report: Report) -> list[str]:
    """The table of whole programs; none where the tree was not walked."""
    metrics = _section(report, EXPERIMENT).result.metrics
    lines = []
    for name, text in PROGRAMS.items():
        crossings = metrics.get(f"{name}.crossings.count")
        instructions = metrics.get(f"{name}.total.instructions")
        if crossings and instructions:
            millions = f"{instructions.value / 1e6:.1f} M"
            lines.append(f"| {text} | {tables.number(crossings.value)} | {millions} |")
    head = [
        "| a walk of one tree, from exec to exit | crossings | instructions |",
        "|---|---:|---:|",
    ]
    return [*head, *lines, ""] if lines else []


def _modes(report: Report) -> list[str]:
    """The table of calls in supervisor mode; none where that was not evaluated or not offered."""
    if MODES not in [section.name for section in report.sections]:
        return []
    metrics = _section(report, MODES).result.metrics
    lines = []
    for call, text in MODE_CALLS.items():
        trap = metrics.get(f"{call}.trap.static.instructions")
        inside = metrics.get(f"{call}.supervisor.static.instructions")
        if trap and inside:
            share = f"{inside.value / trap.value:.0%}"
            cells = (text, tables.number(trap.value), tables.number(inside.value), share)
            lines.append("| " + " | ".join(cells) + " |")
    head = [
        "| one call, unmodified program | by trap | in supervisor mode | |",
        "|---|---:|---:|---:|",
    ]
    return [*head, *lines, ""] if lines else []


def _map(report: Report, folder: str) -> list[str]:
    """The map with what it shows; nothing where that was not evaluated."""
    if not clocks_map(report):
        return []
    lowest = _section(report, MAP_OF).result.metrics[MAP_LOWEST].value
    return [
        f"![Clocks of wrapped calls to conventional ones]({folder}/{MAP_NAME})",
        "",
        "Clocks of wrapped calls to conventional ones on a Pentium 4, modelled, over what the "
        "program and its calls touch: beyond the trap (X), wrapping takes away up to "
        f"{1 - lowest:.0%} where each side fits the TLB and the cache alone, but not with the "
        "other (Y).",
        "",
    ]


def _cell(pivot: tables.Pivot, names: tuple[str, ...]) -> str:
    for name in names:
        metric = pivot.cells.get(name, {}).get(AT)
        if metric is not None:
            note = " (NOP)" if name.endswith("-nop") else ""
            return tables.number(metric.value) + note
    return "–"


def _section(report: Report, name: str) -> Section:
    for section in report.sections:
        if section.name == name:
            return section
    raise TraplessError(f"{report.directory}: holds no result of {name}")


def picture(report: Report) -> Figure:
    """The picture: instructions a call over N, of the call that does least."""
    for pivot in _section(report, EXPERIMENT).pivots:
        wanted = (pivot.subject, pivot.unit, pivot.kind)
        if wanted == (PICTURE_OF, "instructions", "counted") and (figure := pivot.figure()):
            return figure
    raise TraplessError(f"{report.directory}: holds no {PICTURE_OF} to draw")


def clocks_map(report: Report) -> Map | None:
    """The map, where its experiment is among the results with its raw data."""
    maps = [
        figure
        for section in report.sections
        for figure in section.figures
        if section.name == MAP_OF and figure.id == MAP_ID and isinstance(figure, Map)
    ]
    return maps[0] if maps else None
