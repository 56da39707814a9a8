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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trapless import __version__, claims, experiments, plot, results, tables, text_report
from trapless.console import Progress, TraplessError
from trapless.figures import Figure, Table
from trapless.results import Claim, Result

HTML_NAME = "report.html"
TEXT_NAME = "report.txt"
META_NAME = "meta.json"
RAW_NAMES = ("raw.jsonl", "raw.jsonl.gz")


@dataclass(frozen=True)
class Section:
    """One experiment of the report."""

    name: str
    question: str
    method: str
    limits: tuple[str, ...]
    result: Result
    figures: tuple[Figure, ...]
    drawn_tables: tuple[Table, ...]
    meta: Mapping[str, Any]
    remarks: tuple[str, ...] = ()  # what the reader must know about the files themselves

    @property
    def pivots(self) -> tuple[tables.Pivot, ...]:
        return tables.pivots(self.result)

    @property
    def checks(self) -> tuple[Mapping[str, Any], ...]:
        """The self-checks that meta.json records."""
        return tuple(row for row in self.meta.get("checks", ()) if isinstance(row, dict))

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        """The self-checks that did not pass."""
        return tuple(check for check in self.checks if not check.get("ok"))

    @property
    def checks_text(self) -> str:
        """One line on the self-checks."""
        if not self.checks:
            return "No self-check is recorded."
        if self.failed:
            return f"{len(self.failed)} of {len(self.checks)} self-checks FAILED."
        return f"All {len(self.checks)} self-checks passed."

    @property
    def repeat(self) -> str:
        """The command line that makes this experiment again."""
        command = self.meta.get("command") or ["trapless", "evaluate", self.name]
        return command if isinstance(command, str) else shlex.join(map(str, command))


@dataclass(frozen=True)
class Report:
    """All that is shown."""

    directory: Path
    sections: tuple[Section, ...]
    incomplete: tuple[str, ...]  # experiments that were begun and have no result

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(claim for section in self.sections for claim in section.result.claims)

    def verdict(self) -> str:
        """One sentence on the papers' claims."""
        held = [claim.holds for claim in self.claims]
        if not held:
            return "No claim of a paper is decided by these experiments."
        return (
            f"Of {len(held)} published claims: {held.count(True)} found to hold, "
            f"{held.count(False)} found not to, {held.count(None)} left open."
        )


def run(directory: Path, *, readme: Path | None, progress: Progress) -> None:
    """The `report` command: make the files again and print the text."""
    report = read(directory, progress)
    write_files(report, progress)
    if readme is not None:
        from trapless import readme as readme_part

        readme_part.rewrite(readme, report)
    progress.done()
    text_report.show(report)


def write(directory: Path, progress: Progress) -> Path:
    """Make DIRECTORY/report.html and report.txt from what is saved there; returns the HTML."""
    return write_files(read(directory, progress), progress)


def write_files(report: Report, progress: Progress) -> Path:
    """Write both files; returns the path of the HTML."""
    progress.step("writing the report")
    path = report.directory / HTML_NAME
    _replace(path, html(report))
    _replace(report.directory / TEXT_NAME, text_report.text(report))
    progress.done()
    return path


def read(directory: Path, progress: Progress) -> Report:
    """Read every experiment saved in `directory`, analysing its raw data again."""
    if not directory.is_dir():
        what = "not a folder" if directory.exists() else "no such folder"
        raise TraplessError(f"{directory}: {what}; `trapless evaluate --out DIR` makes one")
    sections, incomplete = [], []
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        if _has_raw(folder) or (folder / results.FILE_NAME).exists():
            progress.step(f"reading {folder.name}")
            sections.append(_section(folder))
        elif (folder / META_NAME).exists() or folder.name in experiments.names():
            incomplete.append(folder.name)
    if not sections:
        begun = f" (begun and not finished: {', '.join(incomplete)})" if incomplete else ""
        raise TraplessError(
            f"{directory}: holds no results of trapless{begun}; a result is "
            f"NAME/{results.FILE_NAME}, as `trapless evaluate --out {directory}` writes it"
        )
    order = {name: place for place, name in enumerate(experiments.names())}
    sections.sort(key=lambda section: order.get(section.name, len(order)))
    return Report(directory, tuple(sections), tuple(incomplete))


def _section(folder: Path) -> Section:
    known = folder.name in experiments.names()
    remarks: list[str] = []
    drawings: Sequence[Figure | Table] = ()
    if known and _has_raw(folder):
        result = experiments.analyse(folder.name, folder)
        drawings = experiments.figures(folder.name, folder)
        if not _same(folder, result):
            results.save(result, folder)
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
        figures=tuple(item for item in drawings if isinstance(item, Figure)),
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


def html(report: Report) -> str:
    """The page: one file, nothing fetched."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    page = environment.get_template("report.html.j2")
    return page.render(
        report=report,
        version=__version__,
        published=claims.published(),
        papers=claims.papers(),
        number=tables.number,
        spread_text=tables.spread_text,
        unit_text=tables.unit_text,
        others=tables.others,
        flat=flat,
        draw=plot.inline,
    )


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise TraplessError(f"{path}: cannot be written: {error.strerror}") from error
