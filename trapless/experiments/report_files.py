# SPDX-License-Identifier: GPL-2.0-only
"""Makes report.html and report.txt of a folder of saved experiments.

This file owns which files are read, and the messages for missing or damaged ones. Every number
comes from DIR/NAME/result.json, which is made again where the raw data is there; nothing is
measured. trapless/report owns the form of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trapless.base.console import Progress, TraplessError
from trapless.base.files import replace_file
from trapless.experiments import experiment, open_claims
from trapless.experiments.collection import BOOTS, Row
from trapless.experiments.raw_files import META_FILE, RAW_FILE, is_saved
from trapless.report import html, plot, text_report
from trapless.report.document import Report, Section, Unfinished
from trapless.report.figures import Figure, Map, Table
from trapless.results import estimate_file, result_file
from trapless.results.result_file import Result

HTML_NAME = "report.html"
TEXT_NAME = "report.txt"


def write(directory: Path, progress: Progress, *, page: bool = True) -> Report:
    """Make report.html, report.txt and each result.json from what is saved in `directory`; without
    `page` the text alone, which takes no packages for drawing."""
    report = read(directory, progress)
    progress.step("writing the report")
    for section in report.sections:
        if not _same(directory / section.name, section.result):
            result_file.save(section.result, directory / section.name)
        for figure in section.figures:
            if page and isinstance(figure, Map):  # too large to be read well on the page alone
                path = directory / section.name / f"{figure.id}.svg"
                replace_file(path, plot.standalone(figure))
    if page:
        replace_file(directory / HTML_NAME, html.html(report))
    replace_file(directory / TEXT_NAME, text_report.text(report))
    progress.done()
    return report


def read(directory: Path, progress: Progress) -> Report:
    """Read every experiment saved in `directory`, analysing its raw data again; write nothing."""
    if not directory.is_dir():
        what = "not a folder" if directory.exists() else "no such folder"
        raise TraplessError(f"{directory}: {what}; `trapless evaluate --out DIR` makes one")
    sections: list[Section] = []
    unfinished: list[Unfinished] = []
    for folder in _folders(directory):
        reason, command = experiment.load_failure(folder) or ("", "")
        if reason:
            unfinished.append(Unfinished(folder.name, reason, command))
        elif is_saved(folder / RAW_FILE) or (folder / result_file.FILE_NAME).exists():
            progress.step(f"reading {folder.name}")
            sections.append(_section(folder))
        elif command or is_saved(folder / META_FILE) or folder.name in experiment.names():
            unfinished.append(Unfinished(folder.name, command=command, place=_place(folder)))
    if not sections and not any(one.reason for one in unfinished):
        names = ", ".join(one.name for one in unfinished)
        begun = f" (begun and not finished: {names})" if names else ""
        raise TraplessError(
            f"{directory}: holds no results of trapless{begun}; a result is "
            f"NAME/{result_file.FILE_NAME}, as `trapless evaluate --out {directory}` writes it"
        )
    order = {name: place for place, name in enumerate(experiment.names())}
    sections.sort(key=lambda section: order.get(section.name, len(order)))
    return Report(
        directory,
        tuple(sections),
        tuple(unfinished),
        open_claims.decided(directory),
        estimate_file.load(directory / estimate_file.NAME),
    )


def _folders(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_dir())
    except OSError as error:
        raise TraplessError(f"{directory}: cannot be read: {error.strerror}") from error


def _section(folder: Path) -> Section:
    known = folder.name in experiment.names()
    remarks: list[str] = []
    drawings: Sequence[Figure | Map | Table] = ()
    if known and is_saved(folder / RAW_FILE):
        result = experiment.analyse(folder.name, folder)
        drawings = experiment.figures(folder.name, folder)
    else:
        result = result_file.load(folder)
        remarks.append(
            "The raw data is not here: numbers are those saved in result.json, and figures that "
            "need the raw data are missing."
            if known
            else "This version of trapless does not know the experiment: numbers are those saved."
        )
    if result.experiment != folder.name:
        raise TraplessError(
            f"{folder / result_file.FILE_NAME}: is the result of '{result.experiment}', not of "
            f"'{folder.name}'; folders carry their experiment's name"
        )
    meta = _meta(folder)
    spec = experiment.spec_of(folder.name, meta) if known else None
    return Section(
        name=folder.name,
        question=spec.question if spec else "",
        method=spec.method if spec else "",
        limits=tuple(spec.limits) if spec else (),
        result=result,
        figures=tuple(item for item in drawings if isinstance(item, Figure | Map)),
        drawn_tables=tuple(item for item in drawings if isinstance(item, Table)),
        meta=meta,
        remarks=tuple(remarks),
    )


def _place(folder: Path) -> str:
    """Where a run was interrupted that left neither a result nor a failure, judged by its files;
    may be empty."""
    boots = folder / BOOTS
    running = [f"during boot {path.stem}" for path in sorted(boots.glob("*.part"))]
    count = len(list(boots.glob("*.jsonl")))
    many = "one boot that is" if count == 1 else f"{count} boots that are"
    logs = [f"after a failure, of which {path} is the log" for path in sorted(folder.glob("*.log"))]
    words = [*running, *([f"after {many} saved"] if count else []), *logs]
    return f": it was interrupted {', '.join(words)}" if words else ""


def _same(folder: Path, result: Result) -> bool:
    try:
        return (folder / result_file.FILE_NAME).read_text(encoding="utf-8") == result.to_json()
    except (OSError, ValueError):
        return False


def _meta(folder: Path) -> Row:
    return experiment.load_meta(folder) if is_saved(folder / META_FILE) else {}
