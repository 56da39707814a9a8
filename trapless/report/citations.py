# SPDX-License-Identifier: GPL-2.0-only
"""Keeps the figures that documents cite equal to saved results.

In the source of a document a cited figure stands between two comments, which no reader sees. The
first comment names its source:

    <!--= EXPERIMENT METRIC FORM -->0.90<!--/-->         a metric of result.json
    <!--= EXPERIMENT table ID: ROW: COLUMN -->8<!--/-->  a cell of a table of the report, as it is
    <!--= EXPERIMENT table ID --> ... <!--/-->           all of the table, on lines of its own

FOLDER/EXPERIMENT names results in another folder, one of those that `--compare` names.
METRIC may be a pattern with a word before it: `lowest` or `highest` of all metrics that match. FORM
is a row of FORMS. This file owns the text between the comments, and nothing outside them. A test
fills the documents again and compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.report import tables
from trapless.report.document import Report, Section

MARK = re.compile(r"(?P<head><!--= (?P<source>[^<>]+) -->)(?P<text>[^<]*)(?P<end><!--/-->)")
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
    """The text of the document with each cited figure from the reports."""

    def fill(mark: re.Match[str]) -> str:
        try:
            return f"{mark['head']}{cited(mark['source'], reports)}{mark['end']}"
        except LookupError as error:
            raise TraplessError(
                f"{path}: cites '{mark['source']}', but {error.args[0]}; correct the document, or "
                f"evaluate what {reports[0].directory} lacks"
            ) from error

    whole = MARK.sub(fill, text)
    if len(MARK.findall(text)) != text.count(BEGIN):
        raise TraplessError(f"{path}: a cited figure is not written as {Path(__file__).name} says")
    return whole


def cited(source: str, reports: Sequence[Report]) -> str:
    """The text that belongs between two comments; a LookupError says what is missing."""
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
        return f"\n{tables.markdown(table)}"
    row, column = (*place, "")[:2]
    cells = [cells for cells in table.rows if cells[0] == row]
    if len(cells) != 1 or column not in table.columns:
        raise LookupError(f"table {name} has {len(cells)} such rows and columns {table.columns}")
    return cells[0][table.columns.index(column)]
