# SPDX-License-Identifier: GPL-2.0-only
"""Keeps the figures that documents cite equal to saved results.

In the source of a document a comment with a number, which no reader sees, stands behind each cited
figure: `It takes 160<!--1--> instructions`. A comment at the document's end has the sources:

    <!-- cited figures, by trapless/report/citations.py
    1 = EXPERIMENT METRIC FORM          a metric of result.json
    2 = EXPERIMENT table ID: ROW: COLUMN  a cell of a table of the report, as it is
    -->

All of a table stands on lines of its own, between `<!--= EXPERIMENT table ID -->` and `<!--/-->`.
FOLDER/EXPERIMENT names results in another folder, one of those that `--compare` names.
METRIC may be a pattern with a word before it: `lowest` or `highest` of all metrics that match. FORM
is a row of FORMS. This file owns the figures and these tables, and nothing else of a document. A
test fills the documents again and compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.report import tables
from trapless.report.document import Report, Section

FIGURE = re.compile(r"[-+\d.,%?]*(?P<mark><!--(?P<number>\d+)-->)")
SOURCES = re.compile(r"<!-- cited figures, by \S+\n(?P<lines>(?:.+\n)*?)-->\n")
SOURCE = re.compile(r"(?P<number>\d+) = (?P<source>.+)")
TABLE = re.compile(r"(?P<head>^<!--= (?P<source>[^<>]+) -->\n)[^<]*(?P<end>^<!--/-->$)", re.M)
BEGIN = "<!--="
DOCUMENTS = (
    "README.md", "docs/*.md", "eval/**/README.md", "examples/*.md", "lib/bindings/*/README.md",
)  # fmt: skip

FORMS: Mapping[str, Callable[[float], str]] = {
    "number": tables.number,
    "tenth": "{:.1f}".format,
    "ratio": "{:.2f}".format,
    "%": "{:.0%}".format,
    "+%": "{:+.0%}".format,
    "0.1%": "{:.1%}".format,
    "whole": "{:,.0f}".format,
    "tens": lambda value: f"{round(value, -1):,.0f}",
    "KB": lambda value: f"{value / 1024:.0f}",
}
"""How a metric's value is written; a percent is of a share."""

OF_MANY: Mapping[str, Callable[[list[float]], float]] = {"lowest": min, "highest": max}


def rewrite(root: Path, reports: Sequence[Report]) -> None:
    """Fill all documents below `root`, or none of them if one cites what the reports lack. The
    first report is the one that citations without a folder are of."""
    texts = {path: path.read_text(encoding="utf-8") for path in documents(root)}
    for path, text in {path: filled(path, text, reports) for path, text in texts.items()}.items():
        if text != texts[path]:
            path.write_text(text, encoding="utf-8")


def documents(root: Path) -> list[Path]:
    """The documents that may cite figures."""
    return [path for pattern in DOCUMENTS for path in sorted(root.glob(pattern))]


def filled(path: Path, text: str, reports: Sequence[Report]) -> str:
    """The text of the document with each cited figure and table from the reports."""

    def say(source: str) -> str:
        try:
            return cited(source, reports)
        except LookupError as error:
            raise TraplessError(
                f"{path}: cites '{source}', but {error.args[0]}; correct the document, or "
                f"evaluate what {reports[0].directory} lacks"
            ) from error

    if len(TABLE.findall(text)) != text.count(BEGIN):
        raise TraplessError(f"{path}: a cited table is not written as {Path(__file__).name} says")
    text = TABLE.sub(lambda mark: f"{mark['head']}{say(mark['source'])}{mark['end']}", text)
    sources = _sources(path, text)
    figures = {number: say(source) for number, source in sources.items()}
    for number, figure in figures.items():
        if not FIGURE.fullmatch(f"{figure}<!--{number}-->"):
            raise TraplessError(f"{path}: '{sources[number]}' is '{figure}', and no number")
    return FIGURE.sub(lambda one: f"{figures[one['number']]}{one['mark']}", text)


def _sources(path: Path, text: str) -> dict[str, str]:
    """The source of each figure that the document cites, by its number."""
    blocks = SOURCES.findall(text)
    lines = blocks[0].splitlines() if len(blocks) == 1 else []
    found = [one for one in map(SOURCE.fullmatch, lines) if one]
    sources = {one["number"]: one["source"] for one in found}
    used = {one["number"] for one in FIGURE.finditer(text)}
    if len(blocks) > 1 or not len(found) == len(lines) == len(sources):
        raise TraplessError(f"{path}: its sources are not written as {Path(__file__).name} says")
    if lost := used ^ sources.keys():
        numbers = ", ".join(sorted(lost, key=int))
        raise TraplessError(f"{path}: {numbers}: a cited figure needs a source, and a source one")
    return sources


def cited(source: str, reports: Sequence[Report]) -> str:
    """The figure or the table; a LookupError says what is missing."""
    experiment, _, rest = source.partition(" ")
    folder, _, name = experiment.rpartition("/")
    report = next((one for one in reports if folder in ("", one.directory.name)), None)
    if report is None:
        raise LookupError(f"no results in a folder {folder} were given by --compare")
    section = next((one for one in report.sections if one.name == name), None)
    if section is None:
        raise LookupError(f"there is no result of {name}")
    first, _, cell = rest.partition(" ")
    return _table(section, cell) if first == "table" else _metric(section, rest.split())


def _metric(section: Section, words: list[str]) -> str:
    of_many = OF_MANY.get(words[0])
    words = words[1:] if of_many else words
    if len(words) != 2:
        raise LookupError("that names no metric and form")
    pattern, form = words
    metrics = section.result.metrics
    values = [metric.value for name, metric in metrics.items() if fnmatchcase(name, pattern)]
    if not values or (len(values) > 1 and not of_many):
        raise LookupError(f"{len(values)} metrics are called so")
    if form not in FORMS:
        raise LookupError(f"no form is called {form}; there are {', '.join(FORMS)}")
    return FORMS[form](of_many(values) if of_many else values[0])


def _table(section: Section, source: str) -> str:
    name, *place = source.split(": ", 2)
    table = next((one for one in section.drawn_tables if one.id == name), None)
    if table is None:
        raise LookupError(f"no table is called {name}")
    if not place:
        return tables.markdown(table)
    row, column = (*place, "")[:2]
    cells = [cells for cells in table.rows if cells[0] == row]
    if len(cells) != 1 or column not in table.columns:
        raise LookupError(f"table {name} has {len(cells)} such rows and columns {table.columns}")
    return cells[0][table.columns.index(column)]
