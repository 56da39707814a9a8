# SPDX-License-Identifier: GPL-2.0-only
"""The page of published results, in Markdown, for people who browse them without a command.

It stands beside the raw data as README.md, and says how to make the rest. It has the first screen
of the report, the claims, and the tables of each experiment. What is to be cited has a digest of
each result.json: so the page shows any change in the results of the same raw data, also in metrics
that are in no table. It measures nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trapless.report import summary, tables
from trapless.report.document import Report, Section
from trapless.report.figures import Table
from trapless.results.claims import MADE_REAL, papers, published, reason
from trapless.results.result_file import Claim

NAME = "README.md"
CLAIMS = "Claims of the papers"


def write(report: Report, root: Path) -> None:
    """Write the page beside the results, whose folder it names as seen from `root`."""
    path = report.directory / NAME
    path.write_text(document(report, root), encoding="utf-8")


def document(report: Report, root: Path) -> str:
    """All of the page."""
    folder = report.directory.resolve().relative_to(root.resolve()).as_posix()
    kernels = ", ".join(sorted({section.result.kernel for section in report.sections}))
    lines = [
        f"# Results on Linux {kernels}",
        "",
        "Made by `trapless report`; do not edit. This folder keeps the raw data, packed by `xz`: "
        "`raw.jsonl` has what was measured, `meta.json` how. The rest is made of them in seconds:",
        "",
        "```sh",
        f"bin/trapless report {folder}   # report.html, report.txt, and result.json of each "
        "experiment; git ignores them",
        "```",
        "",
        "Contents: " + ", ".join(_links(report)) + ".",
        "",
        *(line for words in summary.settings(report) for line in (words, "")),
        *_paragraph(summary.headline(report)),
        *_tables(_first(report)),
        f"## {CLAIMS}",
        "",
        report.verdict(),
        "",
        *_by_paper(report, root),
        *_claims(report),
        *(
            line
            for section in report.sections
            for line in _section(section, report.directory, root)
        ),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _links(report: Report) -> Iterator[str]:
    for heading in (CLAIMS, *(section.name for section in report.sections)):
        yield f"[{heading}](#{heading.lower().replace(' ', '-')})"


def _paragraph(text: str) -> list[str]:
    return [text, ""] if text else []


def _first(report: Report) -> Iterator[Table]:
    if time := summary.time(report):
        yield time
    if gain := summary.gain(report):
        yield gain
    if seen := summary.seen(report):
        yield replace(tables.of_bars(seen), caption=seen.caption)


def _by_paper(report: Report, root: Path) -> Iterator[str]:
    """The table of papers, each with a link to what it is, and where to look up its terms."""
    table = summary.papers_table(report)
    if table is None:
        return
    eval_, terms = (
        Path(os.path.relpath(root / path, report.directory.resolve())).as_posix()
        for path in ("eval/README.md", "docs/glossary.md")
    )
    rows = tuple((f"[{row[0]}]({eval_}#the-four-papers)", *row[1:]) for row in table.rows)
    yield from (
        tables.markdown(replace(table, rows=rows)),
        f"The papers' terms: [glossary.md]({terms}).",
        "",
    )


def _claims(report: Report) -> Iterator[str]:
    for paper, found in _groups(report):
        shared, found = _shared(found)
        if shared:
            yield from (f"This is said of each claim of the next table. {shared}", "")
        columns: tuple[str, ...] = ("verdict", "claim", "published", "here")
        rows = [_row(claim) for claim in found]
        estimated = [report.estimated.get(claim.id) for claim in found]
        if any(estimated):
            columns = (columns[0], "by estimate", *columns[1:])
            rows = [
                (row[0], _estimate(one), *row[1:]) for row, one in zip(rows, estimated, strict=True)
            ]
        yield from _tables([Table("claims", paper, columns, tuple(rows))])


def _groups(report: Report) -> Iterator[tuple[str, list[Claim]]]:
    """The tables of claims: one of each of the four papers, and one of the related works that an
    experiment tests."""
    related: dict[str, list[Claim]] = {}
    for paper, found in summary.by_paper(report):
        known = published().get(found[0].id)
        if known is None or found[0].paper in MADE_REAL:
            yield paper, found
        else:
            related.setdefault(known.experiment, []).extend(found)
    for experiment, found in related.items():
        names = dict.fromkeys(claim.paper for claim in found)
        settings = dict.fromkeys(papers()[name].setting for name in names)
        yield f"Related works, by {experiment}: {', '.join(names)} ({'; '.join(settings)})", found


def _shared(found: list[Claim]) -> tuple[str, list[Claim]]:
    """The sentences that stand in the reasons of all of several claims, and the claims without
    them."""
    notes = [re.split(r"(?<=\.) (?=[A-Z])", claim.note) for claim in found]
    shared = [words for words in notes[0] if all(words in note for note in notes)]
    if len(found) == 1 or not shared:
        return "", found
    rest = [" ".join(words for words in note if words not in shared) for note in notes]
    return " ".join(shared), [
        replace(claim, note=note) for claim, note in zip(found, rest, strict=True)
    ]


def _row(claim: Claim) -> tuple[str, ...]:
    """The verdict, the claim and both values in short; the rest and the reason are folded."""
    known = published().get(claim.id)
    stated = f"{claim.id}: {known.claim}" if known else claim.id
    ours, more = _parted(claim.ours)
    rest = " ".join(filter(None, (f"Also: {more}." if more else "", reason(claim))))
    return claim.verdict, stated, claim.published, _folded(ours, rest)


def _parted(text: str) -> tuple[str, str]:
    """A text before and after its first semicolon that is in no parentheses."""
    for at in (match.start() for match in re.finditer("; ", text)):
        if text.count("(", 0, at) == text.count(")", 0, at):
            return text[:at], text[at + 2 :]
    return text, ""


def _estimate(claim: Claim | None) -> str:
    if claim is None:
        return summary.ABSENT
    return _folded(claim.verdict, summary.estimated_text(claim).removeprefix(f"{claim.verdict}: "))


def _folded(short: str, rest: str) -> str:
    """A cell whose rest a click unfolds."""
    return f"{short}<details><summary>why</summary>{rest}</details>" if rest else short


def _section(section: Section, folder: Path, root: Path) -> Iterator[str]:
    yield from (f"## {section.name}", "", *_paragraph(section.question))
    about = root / "eval" / section.name.replace("-", "_") / NAME
    if about.exists():
        link = Path(os.path.relpath(about, folder)).as_posix()
        yield from _paragraph(f"[Method and limits]({link})")
    yield from _paragraph(f"{section.checks_text} To cite: {section.citation}")
    yield from _tables(section.drawn_tables)


def _tables(shown: Sequence[Table] | Iterator[Table]) -> Iterator[str]:
    for table in shown:
        kind = f" ({table.kind})" if table.kind else ""
        yield from (f"**{table.title}{kind}**", "", tables.markdown(_escaped(table)))
        yield from _paragraph(table.caption)


def _escaped(table: Table) -> Table:
    """The same, with no cell that would end a column."""
    rows = tuple(tuple(cell.replace("|", "\\|") for cell in row) for row in table.rows)
    return replace(table, rows=rows)
