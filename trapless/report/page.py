# SPDX-License-Identifier: GPL-2.0-only
"""A page of figures and tables that belong to no experiment, in the report's form.

It owns the order of the page, which is one file that fetches nothing. The caller gives the content,
and plot.py draws the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trapless import __version__
from trapless.base.files import replace_file
from trapless.report import plot
from trapless.report.figures import Figure, Table
from trapless.report.html import anchored, environment


def html(title: str, lead: Sequence[str], items: Sequence[Figure | Table]) -> str:
    """The page's text: title, a paragraph for each of `lead`, then the items in their order."""
    page = environment().get_template("page.html.j2")
    named = anchored(items, "", {"contents"})
    return page.render(title=title, lead=lead, items=named, version=__version__, draw=plot.inline)


def write(path: Path, title: str, lead: Sequence[str], items: Sequence[Figure | Table]) -> None:
    """Write the page to `path`, in one step."""
    replace_file(path, html(title, lead, items))
