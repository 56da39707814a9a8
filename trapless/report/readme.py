# SPDX-License-Identifier: GPL-2.0-only
"""The generated part of README.md: headlines, a picture and a table, from saved results.

It owns the text between the two markers, and nothing outside them. A test makes the part again
and compares, so that the README never says what no result says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.report import kernel_comparison, plot, summary, tables
from trapless.report.document import Report
from trapless.report.figures import Figure, Map, Table
from trapless.results import estimate_file

BEGIN = "<!-- results: made by `trapless report DIR --readme README.md`; do not edit -->"
END = "<!-- results end -->"
NATIVE_BEGIN = "<!-- native: made by `trapless report DIR --readme README.md`; do not edit -->"
NATIVE_END = "<!-- native end -->"
FILES = "files"
"""The experiment that measures programs on this machine, without the module."""
PORTED = {
    "Python, `libtrapless.aio.Files`": {
        "asyncio.to_thread": ("python-stat.files-plain", "python-read.files-plain", "pool"),
        "aiofiles": ("python-stat.files-plain", "python-read.files-plain", "aiofiles"),
    },
    "Node, `trapless/promises`": {"fs.promises": ("node-stat.files", "node-read.files", "pool")},
    "Rust, `trapless-tokio`": {
        "tokio::fs": ("rust-stat.files", "rust-read.files", "pool"),
        "tokio::fs::File": ("", "rust-open-read.files", "pool"),
    },
}
"""Where a program gets its functions, and those that they replace: the metrics' work and way."""
PICTURE_NAME = "instructions.svg"
# Where wrapping pays beyond the trap: a map of an experiment, on whose page it is shown.
MAP_OF = "memory-hierarchy"
MAP_ID = "fig5-clocks-p4-256kb"
MAP_NAME = "clocks.svg"


def rewrite(readme: Path, report: Report, others: Sequence[Report] = ()) -> None:
    """Put the results between the markers of `readme`, and the picture beside them."""
    try:
        text = readme.read_text(encoding="utf-8")
    except OSError as error:
        raise TraplessError(f"{readme}: {error.strerror}") from error
    if BEGIN not in text or END not in text:
        raise TraplessError(f"{readme}: has no place for results; put the lines {BEGIN} and {END}")
    drawing = plot.standalone(picture(report))
    (report.directory / PICTURE_NAME).write_text(drawing, encoding="utf-8")
    if drawn_map := clocks_map(report):
        drawing = plot.standalone(drawn_map)
        (report.directory / MAP_NAME).write_text(drawing, encoding="utf-8")
    text = filled(text, BEGIN, END, generated(report, readme.parent, others))
    if NATIVE_BEGIN in text:
        text = filled(text, NATIVE_BEGIN, NATIVE_END, native(report))
    readme.write_text(text, encoding="utf-8")


def filled(text: str, begin: str, end: str, part: str) -> str:
    """The text with the part between two marks."""
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{part}{end}{rest.partition(end)[2]}"


def native(report: Report) -> str:
    """The text about programs that run without root: ratios of CPU time, measured natively."""
    section = next((one for one in report.sections if one.name == FILES), None)
    if section is None:
        raise TraplessError(f"{report.directory}: holds no result of the experiment {FILES}")
    metrics = section.result.metrics

    def share(way: str, base: str) -> str:
        metric = metrics.get(f"native.{way}.cpu_ratio_to_{base}")
        return f"{metric.value:.0%}" if metric else summary.ABSENT

    rows = [
        (name, f"`{other}`", share(stat, base), share(read, base))
        for name, others in PORTED.items()
        for other, (stat, read, base) in others.items()
    ]
    table = Table(
        id=FILES,
        title="",
        columns=("in", "takes the place of", "attributes", "read whole"),
        rows=tuple(row for row in rows if set(row[2:]) != {summary.ABSENT}),
    )
    return (
        f"{tables.markdown(table)}\n"
        "CPU time, 100% is that of the functions they replace: 64 tasks, 5,000 cached files, "
        f"**native** on {section.result.machine}, medians of alternating rounds.\n"
        f"{_in_c(share)}"
    )


def _in_c(share: Callable[[str, str], str]) -> str:
    """How a program in C compares, which gains less than the others, or nothing."""
    beside = {
        other: " and ".join(
            f"{share(f'{work}.files-plain', base)} ({name})"
            for work, name in (("stat", "attributes"), ("read", "read whole"))
        )
        for base, other in (("pool", "a pool of threads with a hop a file"), ("uring", "io_uring"))
    }
    listed = ", and ".join(f"{text} of what {other} takes" for other, text in beside.items())
    return "" if summary.ABSENT in listed else f"\nThe same in C, by `tl_files`, takes {listed}.\n"


def generated(report: Report, origin: Path, others: Sequence[Report] = ()) -> str:
    """The text between the markers; links are relative to the folder `origin`. The others are of
    other kernels."""
    folder = Path(os.path.relpath(report.directory, origin)).as_posix()
    lines = [
        *_headlines(report, folder),
        f"![{picture(report).title}]({folder}/{PICTURE_NAME})",
        "",
        f"{_kernels(report, others, folder)} {report.verdict(is_short=True)} "
        f"All numbers, and how to make them again: [{folder}]({folder}/).",
        "",
    ]
    return "\n".join(lines)


def _headlines(report: Report, folder: str) -> list[str]:
    """The gain in words: an item for the estimate, if there is one, and one for what was found."""
    name, items = estimate_file.NAME, [summary.gain_headline(report)]
    if report.estimate and (words := summary.time_headline(report)):
        made = f"The machine: {report.estimate.machine} ([{name}]({folder}/{name}))."
        items.insert(0, f"{words} {made}")
    return [*(f"- {item}" for item in items), ""]


def _kernels(report: Report, others: Sequence[Report], folder: str) -> str:
    """On which kernel the claims are judged; and which are judged otherwise on others, with a link
    to that comparison, if somebody has made one."""
    here = f"**Claims on Linux {_series([report])}**"
    if not (report.directory / kernel_comparison.NAME).exists():
        return f"{here}."
    same = kernel_comparison.by_processor([report, *others])[0]
    link = f"[{_series(same[1:]) or 'other kernels'}]({folder}/{kernel_comparison.NAME})"
    differ = kernel_comparison.judged_otherwise(same)
    return f"{here} (judged otherwise on {link}: {', '.join(differ) or 'none'})."


def _series(reports: Sequence[Report]) -> str:
    """The kernels by their first two numbers."""
    kernels = [one.result.kernel for report in reports for one in report.sections]
    return ", ".join(dict.fromkeys(".".join(kernel.split(".")[:2]) for kernel in kernels))


def picture(report: Report) -> Figure:
    """The picture: what each call takes by each mechanism."""
    if figure := summary.gain_figure(report):
        return figure
    raise TraplessError(f"{report.directory}: holds no instructions of calls to draw")


def clocks_map(report: Report) -> Map | None:
    """The map, where its experiment is among the results with its raw data."""
    maps = [
        figure
        for section in report.sections
        for figure in section.figures
        if section.name == MAP_OF and figure.id == MAP_ID and isinstance(figure, Map)
    ]
    return maps[0] if maps else None
