# SPDX-License-Identifier: GPL-2.0-only
"""The report as a page: one HTML file that fetches nothing and runs nothing.

It owns the templates' environment. The content is the Report (document.py); plot.py draws its
figures, and text_report.py writes the same report for a terminal.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trapless import __version__
from trapless.report import plot, summary, tables
from trapless.report.document import Report, Section
from trapless.report.figures import Figure, Map, Table
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


@cache
def environment() -> jinja2.Environment:
    """The environment that makes pages of templates; each is read and compiled once."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    return jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip


FIRST = {
    "gain": "What a user gains", "seen": "What peek saw", "claims": "What the papers claim",
}  # fmt: skip
"""The parts of the first screen: the anchor of each, and its heading."""

Item = Figure | Map | Table | tables.Pivot


def anchored(items: Iterable[Item], prefix: str, taken: set[str]) -> list[tuple[str, Item]]:
    """Each item with an anchor made of its title, which becomes one of those that are taken."""
    found = []
    for item in items:
        words = f"{prefix} {item.title} {item.kind if isinstance(item, tables.Pivot) else ''}"
        anchor = base = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
        for number in itertools.count(2):
            if anchor not in taken:
                break
            anchor = f"{base}-{number}"
        taken.add(anchor)
        found.append((anchor, item))
    return found


def checks(section: Section) -> list[tuple[str, str]]:
    """The self-checks as rows; those that failed stand first."""
    rows = sorted(section.checks, key=lambda check: bool(check.get("ok")))
    return [
        (
            str(check.get("name", "")),
            f"{'passed' if check.get('ok') else 'FAILED'}. {check.get('detail', '')}",
        )
        for check in rows
    ]


def html(report: Report) -> str:
    """The page: one file, nothing fetched."""
    page = environment().get_template("report.html.j2")
    shown = {
        "gain": summary.gain(report), "seen": summary.seen(report), "claims": report.claims,
    }  # fmt: skip
    taken = {*FIRST, "contents", "reading", *(claim.id for claim in report.claims)}
    taken |= {section.name for section in report.sections}
    return page.render(
        report=report,
        version=__version__,
        what=summary.WHAT,
        settings=summary.settings(report),
        headline=summary.headline(report),
        first=[(anchor, text) for anchor, text in FIRST.items() if shown[anchor]],
        time=summary.time(report),
        gain=shown["gain"],
        gain_figure=summary.gain_figure(report),
        seen=shown["seen"],
        papers=summary.papers_table(report),
        by_paper=summary.by_paper(report),
        sentence=summary.sentence,
        sections=[
            (section, anchored((*section.drawings, *section.pivots), section.name, taken))
            for section in report.sections
        ],
        checks=checks,
        numbers=tables.of_bars,
        published=claims.published(),
        reason=claims.reason,
        number=tables.number,
        spread_text=tables.spread_text,
        others=tables.others,
        others_max=tables.OTHERS_MAX,
        flat=flat,
        draw=plot.inline,
    )
