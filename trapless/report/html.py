# SPDX-License-Identifier: GPL-2.0-only
"""The report as a page: one HTML file that fetches nothing and runs nothing.

It owns the templates' environment. The content is the Report (document.py); plot.py draws its
figures, and text_report.py writes the same report for a terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trapless import __version__
from trapless.report import plot, tables
from trapless.report.document import Report
from trapless.results import claims

if TYPE_CHECKING:
    import jinja2


def flat(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested provenance as rows: 'qemu' 'argv' becomes one line, 'a' inside 'b' becomes 'b.a'."""
    rows: list[tuple[str, str]] = []
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            rows += flat(value, f"{name}.")
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            rows.append((name, shlex.join(value)))
        elif not isinstance(value, list):
            rows.append((name, str(value)))
    return rows


def environment() -> jinja2.Environment:
    """Where pages are made of templates."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    return jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip


def html(report: Report) -> str:
    """The page: one file, nothing fetched."""
    page = environment().get_template("report.html.j2")
    return page.render(
        report=report,
        version=__version__,
        published=claims.published(),
        papers=claims.papers(),
        number=tables.number,
        spread_text=tables.spread_text,
        unit_text=tables.unit_text,
        others=tables.others,
        others_max=tables.OTHERS_MAX,
        flat=flat,
        draw=plot.inline,
    )
