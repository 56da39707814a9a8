# SPDX-License-Identifier: GPL-2.0-only
"""What differs between the results of several kernels, as a document.

It puts reports side by side that were read before: what calls take, how many counts differ, which
claims are judged otherwise. It measures nothing, and every figure is one of a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from trapless.report import summary, tables
from trapless.report.document import Report
from trapless.report.figures import Table
from trapless.results import claims
from trapless.results.result_file import Claim

NAME = "kernels.md"
DIFFER = 0.05
"""A count that differs by more than this is said to differ."""
FARTHEST = 5
"""So many of the counts that differ are named, those that differ most."""
COLUMNS = tuple(column for column in summary.COLUMNS[1:-1])


def document(reports: Sequence[Report]) -> str:
    """All of it, in Markdown. The first report is the one that the others are compared with."""
    names = _names(reports)
    found = instructions(reports)
    differ = sorted(
        (name for name in found if difference(found[name]) > DIFFER),
        key=lambda name: -difference(found[name]),
    )
    farthest: dict[str, str] = {}
    for name in differ:
        farthest.setdefault(re.sub(r"\.n\d+\b", "", name), name)
    return (
        "\n".join(
            [
                "# Results by kernel",
                "",
                "Made by `trapless report` with `--compare`, from saved results; do not edit. "
                "They may be of several states of Trapless, which the page of each kernel names.",
                "",
                tables.markdown(made(reports, names)),
                *_claims(reports, names),
                f"What one call takes, in instructions, counted; {summary.AT} calls a crossing by "
                "batch and io_uring. The marks mean what they mean in README.md's table.",
                "",
                tables.markdown(calls(reports, names)),
                f"Of {len(found):,} counts of instructions that all of them have, {len(differ):,} "
                f"differ by more than {DIFFER:.0%}. These differ most, "
                "each at the N where it does:",
                "",
                tables.markdown(
                    Table(
                        "counts",
                        "",
                        ("metric", *names),
                        tuple(
                            (name, *(tables.number(value) for value in found[name]))
                            for name in list(farthest.values())[:FARTHEST]
                        ),
                    )
                ),
            ]
        ).rstrip("\n")
        + "\n"
    )


def _names(reports: Sequence[Report]) -> list[str]:
    """The kernels of each report; with its folder where another report has one of them, too."""
    kernels = [{one.result.kernel for one in each.sections} for each in reports]
    shared = {kernel for own in kernels for kernel in own if sum(kernel in o for o in kernels) > 1}
    return [
        ", ".join(sorted(own)) + (f" ({report.directory})" if own & shared else "")
        for own, report in zip(kernels, reports, strict=True)
    ]


def write(reports: Sequence[Report]) -> list[str]:
    """Write the document beside the first report's results, and for each other processor whose
    kernels several reports are of, one beside the first of these; a line on each."""
    lines = []
    for same in by_processor(reports):
        if len(same) > 1:
            path = same[0].directory / NAME
            path.write_text(document(same), encoding="utf-8")
            differ = judged_otherwise(same)
            verb = "is" if len(differ) == 1 else "are"
            lines.append(
                f"What differs, and why: {path}; of {len(_compared(same))} claims {len(differ)} "
                f"{verb} judged differently{': ' if differ else ''}{', '.join(differ)}"
            )
    return lines


def _compared(reports: Sequence[Report]) -> list[str]:
    """The claims that several reports judge."""
    judged = _judged(reports)
    return [name for name in claims.published() if sum(name in each for each in judged) > 1]


def by_processor(reports: Sequence[Report]) -> list[list[Report]]:
    """The reports of each processor: instructions of several are not the same instructions."""
    found: dict[str, list[Report]] = {}
    for report in reports:
        found.setdefault(report.processor, []).append(report)
    return list(found.values())


def made(reports: Sequence[Report], names: Sequence[str]) -> Table:
    """Which experiments ran on which kernel, how long, and when."""
    rows = []
    for name, report in zip(names, reports, strict=True):
        days = sorted(str(one.meta.get("date", ""))[:10] for one in report.sections)
        long = [one.name for one in report.sections if not one.meta.get("quick")]
        quick = [one.name for one in report.sections if one.meta.get("quick")]
        made_on = " to ".join(dict.fromkeys((days[0], days[-1])))
        rows.append((name, made_on, ", ".join(long) or "–", ", ".join(quick) or "–"))
    return Table("made", "", ("kernel", "made", "full runs", "quick runs"), tuple(rows))


def calls(reports: Sequence[Report], names: Sequence[str]) -> Table:
    """A row for each call and mechanism, a column for each kernel."""
    lines = [{line.name: line for line in summary.calls(report)} for report in reports]
    rows = []
    for name in lines[0]:
        for column in COLUMNS:
            cells = [each[name].text(column) if name in each else summary.ABSENT for each in lines]
            if any(cell != summary.ABSENT for cell in cells):
                rows.append((f"{name}{summary.BYTES.get(name, '')}: {column}", *cells))
    return Table("calls", "", ("call", *names), tuple(rows))


def instructions(reports: Sequence[Report]) -> Mapping[str, tuple[float, ...]]:
    """The counted instructions that all reports have, by experiment and name."""
    found = [dict(_counted(report)) for report in reports]
    return {
        name: tuple(each[name] for each in found)
        for name in found[0]
        if all(name in each for each in found)
    }


def _counted(report: Report) -> Iterator[tuple[str, float]]:
    for section in report.sections:
        for name, metric in section.result.metrics.items():
            if metric.kind == "counted" and metric.unit == "instructions":
                yield f"{section.name} {name}", metric.value


def difference(values: Sequence[float]) -> float:
    """How much the largest is above the smallest, as a share of that.

    >>> difference((100.0, 110.0, 105.0))
    0.1
    """
    low, high = min(values), max(values)
    if low == high:
        return 0.0
    return (high - low) / abs(low) if low else float("inf")


def judged_otherwise(reports: Sequence[Report]) -> list[str]:
    """The claims whose verdicts on two kernels differ."""
    judged = _judged(reports)
    return [
        name
        for name in claims.published()
        if len({each[name].holds for each in judged if name in each}) > 1
    ]


def _judged(reports: Sequence[Report]) -> list[dict[str, Claim]]:
    return [
        {claim.id: claim for claim in report.claims if claim.ours != claims.NOT_RUN}
        for report in reports
    ]


def _claims(reports: Sequence[Report], names: Sequence[str]) -> list[str]:
    """All claims with the verdict on each kernel, and why those that differ do. Claims of related
    works with the same verdicts share a row, since most are open wherever they were run."""
    judged, differ = _judged(reports), judged_otherwise(reports)
    rows: list[tuple[str, ...]] = []
    related: dict[tuple[str, ...], list[str]] = {}
    for name, known in claims.published().items():
        found = [each.get(name) for each in judged]
        verdicts = tuple(claim.verdict if claim else summary.ABSENT for claim in found)
        if set(verdicts) == {summary.ABSENT}:
            continue
        if name not in differ and known.paper not in claims.MADE_REAL:
            related.setdefault(verdicts, []).append(name)
            continue
        rows.append((f"{name}: {known.claim}", *verdicts))
    rows += [(f"Of related works: {', '.join(ids)}", *cells) for cells, ids in related.items()]
    if not rows:
        return []
    table = Table("claims", "", ("claim", *names), tuple(rows))
    return [
        f"The verdict on each claim, by kernel; {summary.ABSENT} where its experiment was not run:",
        "",
        tables.markdown(table),
        *(_why(name, judged, names) for name in differ),
        *(() if differ else ("No claim is judged differently on two kernels.", "")),
    ]


def _why(name: str, judged: Sequence[Mapping[str, Claim]], kernels: Sequence[str]) -> str:
    """What was found of a claim on each kernel, and the reason that goes with it."""
    lines = [
        f"- Linux {kernel}, {claim.verdict}: {claim.ours}. {claim.note}".rstrip()
        for kernel, each in zip(kernels, judged, strict=True)
        if (claim := each.get(name))
    ]
    return "\n".join((f"{name} is judged differently:", "", *lines, ""))
