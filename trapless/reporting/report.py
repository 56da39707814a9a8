# SPDX-License-Identifier: GPL-2.0-only
"""The report: from a folder of saved experiments to report.html and report.txt.

It owns which files are read, how what is missing or damaged is said, and the HTML. Every number
comes from DIR/NAME/result.json, which is itself made again from the raw data where that is
there; nothing is measured. The same text for a terminal is text_report.py's, drawing is plot.py's.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trapless import __version__
from trapless.console import Progress, TraplessError
from trapless.measure import experiments
from trapless.reporting import claims, plot, results, tables, text_report
from trapless.reporting.document import Report, Section, Unfinished
from trapless.reporting.figures import Figure, Map, Table
from trapless.reporting.results import Result

if TYPE_CHECKING:
    import jinja2

HTML_NAME = "report.html"
TEXT_NAME = "report.txt"
META_NAME = "meta.json"
RAW_NAMES = ("raw.jsonl", "raw.jsonl.gz")


def write(directory: Path, progress: Progress) -> Report:
    """Make report.html, report.txt and each result.json from what is saved in `directory`."""
    report = read(directory, progress)
    progress.step("writing the report")
    for section in report.sections:
        if not _same(directory / section.name, section.result):
            results.save(section.result, directory / section.name)
        for figure in section.figures:
            if isinstance(figure, Map):  # too large to be read well on the page alone
                path = directory / section.name / f"{figure.id}.svg"
                replace_file(path, plot.standalone(figure))
    replace_file(directory / HTML_NAME, html(report))
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
        if failure := experiments.load_failure(folder):
            unfinished.append(Unfinished(folder.name, *failure))
        elif _has_raw(folder) or (folder / results.FILE_NAME).exists():
            progress.step(f"reading {folder.name}")
            sections.append(_section(folder))
        elif (folder / META_NAME).exists() or folder.name in experiments.names():
            unfinished.append(Unfinished(folder.name))
    if not sections and not any(one.reason for one in unfinished):
        names = ", ".join(one.name for one in unfinished)
        begun = f" (begun and not finished: {names})" if names else ""
        raise TraplessError(
            f"{directory}: holds no results of trapless{begun}; a result is "
            f"NAME/{results.FILE_NAME}, as `trapless evaluate --out {directory}` writes it"
        )
    order = {name: place for place, name in enumerate(experiments.names())}
    sections.sort(key=lambda section: order.get(section.name, len(order)))
    return Report(directory, tuple(sections), tuple(unfinished))


def _folders(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_dir())
    except OSError as error:
        raise TraplessError(f"{directory}: cannot be read: {error.strerror}") from error


def _section(folder: Path) -> Section:
    known = folder.name in experiments.names()
    remarks: list[str] = []
    drawings: Sequence[Figure | Map | Table] = ()
    if known and _has_raw(folder):
        result = experiments.analyse(folder.name, folder)
        drawings = experiments.figures(folder.name, folder)
    else:
        result = results.load(folder)
        remarks.append(
            "The raw data is not here: numbers are those saved in result.json, and figures that "
            "need the raw data are missing."
            if known
            else "This version of trapless does not know the experiment: numbers are those saved."
        )
    if result.experiment != folder.name:
        raise TraplessError(
            f"{folder / results.FILE_NAME}: is the result of '{result.experiment}', not of "
            f"'{folder.name}'; folders carry their experiment's name"
        )
    spec = experiments.get(folder.name) if known else None
    return Section(
        name=folder.name,
        question=spec.question if spec else "",
        method=spec.method if spec else "",
        limits=tuple(spec.limits) if spec else (),
        result=result,
        figures=tuple(item for item in drawings if isinstance(item, Figure | Map)),
        drawn_tables=tuple(item for item in drawings if isinstance(item, Table)),
        meta=_meta(folder),
        remarks=tuple(remarks),
    )


def _has_raw(folder: Path) -> bool:
    return any((folder / name).exists() for name in RAW_NAMES)


def _same(folder: Path, result: Result) -> bool:
    try:
        return (folder / results.FILE_NAME).read_text(encoding="utf-8") == result.to_json()
    except (OSError, ValueError):
        return False


def _meta(folder: Path) -> Mapping[str, Any]:
    path = folder / META_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TraplessError(f"{path}: damaged ({error}); run the experiment again") from error
    if not isinstance(data, dict):
        raise TraplessError(f"{path}: not an object; run the experiment again")
    return data


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


def replace_file(path: Path, text: str) -> None:
    """Write a file that is there whole, or as it was before."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise TraplessError(f"{path}: cannot be written: {error.strerror}") from error
