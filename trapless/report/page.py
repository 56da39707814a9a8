# SPDX-License-Identifier: GPL-2.0-only
"""A page of figures and tables that belong to no experiment, in the report's form.

It owns the page's order and how it is written: one file, nothing fetched. What is shown is the
caller's, drawing is plot.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trapless import __version__
from trapless.report import plot
from trapless.report.figures import Figure, Table
from trapless.report.html import environment, replace_file


def html(title: str, lead: Sequence[str], items: Sequence[Figure | Table]) -> str:
    """The page's text: title, a paragraph for each of `lead`, then the items in their order."""
    page = environment().get_template("page.html.j2")
    return page.render(title=title, lead=lead, items=items, version=__version__, draw=plot.inline)


def write(path: Path, title: str, lead: Sequence[str], items: Sequence[Figure | Table]) -> None:
    """Write the page; the file is there whole, or as it was before."""
    replace_file(path, html(title, lead, items))
