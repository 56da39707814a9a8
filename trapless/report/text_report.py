# SPDX-License-Identifier: GPL-2.0-only
"""The report as text: in colour on a terminal, plain in pipes and in report.txt.

It formats the Report (document.py), and owns no number, no wording of a finding and no file.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from trapless.base.console import colours, output_columns
from trapless.report import summary, tables
from trapless.report.document import Report, Section
from trapless.report.figures import Table
from trapless.results import claims
from trapless.results.result_file import FILE_NAME, Claim, Metric

FILE_COLUMNS = 100
GAP = 2  # between two columns of a table
EDGE = 2  # before the first column and behind the last
STYLES = {True: "green", False: "red", None: "yellow"}
"""The style of each verdict."""


def show(report: Report) -> None:
    """Print the first screen to standard output, as wide as the terminal; plain where it is none.

    The rest is in the file, which is a hundred times as long.
    """
    _first_screen(_console(), report)


def show_tables(tables: Iterable[Table]) -> None:
    """Print tables that belong to no report, in the same form."""
    console = _console()
    for table in tables:
        console.print(block_of(table, console.width))


def _console() -> Console:
    return Console(
        width=output_columns(sys.stdout, FILE_COLUMNS),
        color_system=colours(),
        highlight=False,
        markup=False,
        emoji=False,
    )


def text(report: Report) -> str:
    """The report without colour, for a file."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=FILE_COLUMNS,
        force_terminal=False,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    _print(console, report)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _print(console: Console, report: Report) -> None:
    _first_screen(console, report)
    if report.claims:
        console.print(Text("\nThe claims of the papers, with reasons", style="bold"))
    for claim in report.claims:
        _claim(console, claim, report.estimated.get(claim.id))
    for section in report.sections:
        _section(console, section)


def _first_screen(console: Console, report: Report) -> None:
    """The page's first screen, with tables in place of figures."""
    console.print(Text("Trapless: results", style="bold"))
    for words in (summary.WHAT, *summary.settings(report)):
        console.print(Text(words))
    for one in report.unfinished:
        state = f"\n{one.name} {one.state}\n  to go on with it: {one.go_on}"
        console.print(Text(state, style="yellow"))
    words = summary.headline(report)
    console.print(Text(f"\n{words}\n" if words else ""))
    if time := summary.time(report):
        console.print(block_of(time, console.width))
    if gain := summary.gain(report):
        console.print(block_of(gain, console.width))
    if seen := summary.seen(report):
        table = replace(tables.of_bars(seen), caption=seen.caption)
        console.print(block_of(table, console.width))
    console.print(Text(report.verdict(), style="bold"))
    if papers := summary.papers_table(report):
        console.print()
        console.print(block_of(papers, console.width))
    for paper, findings in summary.by_paper(report):
        grid = Grid.grid(padding=(0, 2, 0, 0))
        estimated = [report.estimated.get(claim.id) for claim in findings]
        if any(estimated):
            grid.add_row("verdict", "by estimate", style="dim")
        for claim, other in zip(findings, estimated, strict=True):
            row = [_verdict(claim), *([_verdict(other)] if any(estimated) else [])]
            grid.add_row(*row, Text(claim.id, style="bold"), Text(summary.sentence(claim)))
        console.print("\n", Text(paper), "\n", Padding(grid, (0, 0, 0, 2)), sep="", end="")


def _grid(title: str) -> Grid:
    return Grid(
        title=Text(title, style="bold") if title else None, title_justify="left",
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip


def _verdict(claim: Claim | None) -> Text:
    return Text(claim.verdict, style=STYLES[claim.holds]) if claim else Text(summary.ABSENT)


def _claim(console: Console, claim: Claim, estimated: Claim | None) -> None:
    published = claims.published().get(claim.id)
    head = Text("\n").append(claim.id, style="bold").append("  ")
    head.append(claim.verdict, style=STYLES[claim.holds])
    console.print(head)
    rows = [("claim", published.claim if published else ""), ("published", claim.published)]
    rows += [("here", claim.ours), ("why", claims.reason(claim))]
    if estimated:
        rows.append(("by estimate", f"{estimated.verdict}: {estimated.ours}. {estimated.note}"))
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
    grids = [grid_of(table, console.width) for table in section.drawn_tables]
    for pivot in section.pivots:
        grids += _pivot(pivot, console.width)
    for grid in grids:
        console.print()
        console.print(grid)
    _others(console, section)
    console.print(Text(section.checks_text, style="red" if section.failed else "green"))
    for check in section.failed:
        console.print(Text(f"  {check.get('name', '')}: {check.get('detail', '')}", style="red"))
    for limit in section.limits:
        console.print(Text(f"Limit: {limit}", style="dim"))
    console.print(Padding(Text("again: ").append(section.repeat, style="bold"), (1, 0, 0, 0)))
    console.print(Text(f"to cite: {section.citation}"))


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


def _pivot(pivot: tables.Pivot, width: int) -> list[Grid]:
    """A row a mechanism and a column an N; several tables where the columns are too many."""
    cells = {
        count: [_cell(pivot, row, count) for row in pivot.cells.values()] for count in pivot.counts
    }
    grids: list[tuple[Grid, list[Text]]] = []
    room = 0
    for count, column in cells.items():
        needed = GAP + max(len(str(count)), *map(len, column))
        if not grids or needed > room:
            grid = _grid("" if grids else f"{pivot.title} ({pivot.kind})")
            names = Text("\n").join(map(Text, pivot.cells))
            grid.add_column("N", no_wrap=True)
            grids.append((grid, [names]))
            room = width - GAP - max(map(len, pivot.cells))
        grids[-1][0].add_column(str(count), justify="right", no_wrap=True)
        grids[-1][1].append(Text("\n").join(column))
        room -= needed
    for grid, columns in grids:
        grid.add_row(*columns)
    return [grid for grid, _ in grids]


def _cell(pivot: tables.Pivot, row: Mapping[int, Metric], count: int) -> Text:
    if count not in row:
        return Text("-", style="dim")
    best = pivot.is_best(row[count], count)
    return Text(tables.number(row[count].value), style="bold" if best else "")


def _widths(table: Table, width: int) -> list[int] | list[None]:
    """The width of each column, so that words are broken only where that cannot be avoided.

    Each column has at least the width of its longest word; the first columns that need more get the
    remaining width. If not even the words fit, rich chooses the widths.
    """
    cells = list(zip(table.columns, *table.rows, strict=True))
    widths = [max(len(word) for text in cell for word in text.split() or [""]) for cell in cells]
    room = width - EDGE - GAP * len(widths) - sum(widths)
    if room < 0:
        return [None] * len(widths)
    for number, cell in enumerate(cells):
        more = min(room, max(map(len, cell)) - widths[number])
        widths[number] += more
        room -= more
    return widths


def block_of(table: Table, width: int) -> Group:
    """A table with title and caption as wide as the terminal, however narrow its columns are."""
    grid = grid_of(replace(table, title="", caption="", kind=""), width)
    title = Text(f"{table.title} ({table.kind})" if table.kind else table.title, style="bold")
    if not table.caption:
        return Group(title, grid)
    return Group(title, grid, Text(table.caption, style="italic dim"), Text())


def grid_of(table: Table, width: int) -> Grid:
    """A table for a terminal of `width` columns."""
    widths = _widths(table, width)
    grid = _grid(f"{table.title} ({table.kind})" if table.kind else table.title)
    grid.show_header = any(table.columns)
    if table.caption:
        grid.caption, grid.caption_justify = Text(table.caption), "left"
    for number, column in enumerate(table.columns):
        grid.add_column(
            Text(column),
            justify="right" if number and grid.show_header else "left",
            overflow="fold",
            width=widths[number],
        )
    for row in table.rows:
        grid.add_row(*map(Text, row))  # what looks like markup is text
    return grid
