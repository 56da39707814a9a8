# SPDX-License-Identifier: GPL-2.0-only
"""The report as text: in colour on a terminal, plain in pipes and in report.txt.

It sets what report.py has read and owns no number, no wording of a finding and no file.
"""

from __future__ import annotations

import io
import sys

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from trapless.reporting import claims, tables
from trapless.reporting.document import Report, Section
from trapless.reporting.figures import Table
from trapless.reporting.results import FILE_NAME, Claim

FILE_COLUMNS = 100
VERDICTS = {True: ("holds", "green"), False: ("does not hold", "red"), None: ("open", "yellow")}


def show(report: Report) -> None:
    """Print to standard output, as wide as the terminal; plain where it is none."""
    columns = None if sys.stdout.isatty() else FILE_COLUMNS
    _print(Console(width=columns, highlight=False), report)


def summary(report: Report) -> str:
    """The verdict and a line a claim: what a person wants to see at the end of a long run."""
    lines = [report.verdict()]
    for claim in report.claims:
        lines.append(f"  {claim.id:<16} {VERDICTS[claim.holds][0]:<14} {claim.ours}")
    return "\n".join(lines)


def text(report: Report) -> str:
    """The same without colour, for a file."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=FILE_COLUMNS, force_terminal=False, color_system=None, highlight=False
    )
    _print(console, report)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _print(console: Console, report: Report) -> None:
    console.print(Text("Trapless: results", style="bold"))
    console.print(report.verdict())
    for claim in report.claims:
        _claim(console, claim)
    for name in report.incomplete:
        console.print(Text(f"{name}: begun and not finished; run it again", style="yellow"))
    for section in report.sections:
        _section(console, section)


def _grid(title: str) -> Grid:
    return Grid(
        title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD,
        pad_edge=False, padding=(0, 1),
    )  # fmt: skip


def _claim(console: Console, claim: Claim) -> None:
    known = claims.published().get(claim.id)
    word, style = VERDICTS[claim.holds]
    head = Text("\n").append(claim.id, style="bold").append("  ").append(word, style=style)
    console.print(head)
    rows = [("claim", known.claim if known else ""), ("published", claim.published)]
    rows += [("here", claim.ours), ("why", claim.note)]
    grid = Grid.grid(padding=(0, 2))
    for label, text in rows:
        if text:
            grid.add_row(Text(label, style="dim"), Text(text))
    console.print(Padding(grid, (0, 0, 0, 2)))


def _section(console: Console, section: Section) -> None:
    result = section.result
    console.print()
    console.rule(Text(section.name, style="bold"), align="left")
    if section.question:
        console.print(Text(section.question))
    console.print(
        Text(f"Kernel {result.kernel}, {result.accelerator}, {result.machine}", style="dim")
    )
    for remark in section.remarks:
        console.print(Text(remark, style="yellow"))
    for grid in (*map(_table, section.drawn_tables), *map(_pivot, section.pivots)):
        console.print()
        console.print(grid)
    _others(console, section)
    console.print(Text(section.checks_text, style="red" if section.failed else "green"))
    for check in section.failed:
        console.print(Text(f"  {check.get('name', '')}: {check.get('detail', '')}", style="red"))
    for limit in section.limits:
        console.print(Text(f"Limit: {limit}", style="dim"))
    console.print(Padding(Text("again: ").append(section.repeat, style="bold"), (1, 0, 0, 0)))


def _others(console: Console, section: Section) -> None:
    rows = tables.others(section.result)
    console.print()
    if len(rows) > tables.OTHERS_MAX:
        console.print(f"{len(rows)} further metrics are in {section.name}/{FILE_NAME}.")
    elif rows:
        grid = _grid("Other figures")
        for column in ("metric", "value", "unit", "kind", "repeats"):
            grid.add_column(column, justify="right" if column == "value" else "left")
        for name, metric in rows:
            value = tables.number(metric.value)
            grid.add_row(name, value, metric.unit, metric.kind, tables.spread_text(metric))
        console.print(grid)


def _pivot(pivot: tables.Pivot) -> Grid:
    grid = _grid(f"{pivot.title} ({pivot.kind})")
    grid.add_column("N")
    for count in pivot.counts:
        grid.add_column(str(count), justify="right")
    for mechanism, row in pivot.cells.items():
        cells = []
        for count in pivot.counts:
            if count not in row:
                cells.append(Text("-", style="dim"))
                continue
            best = pivot.is_best(row[count], count)
            cells.append(Text(tables.number(row[count].value), style="bold" if best else ""))
        grid.add_row(mechanism, *cells)
    return grid


def _table(table: Table) -> Grid:
    grid = _grid(f"{table.title} ({table.kind})" if table.kind else table.title)
    if table.caption:
        grid.caption, grid.caption_justify = Text(table.caption), "left"
    for number, column in enumerate(table.columns):
        grid.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    for row in table.rows:
        grid.add_row(*row)
    return grid
