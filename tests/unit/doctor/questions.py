# SPDX-License-Identifier: GPL-2.0-only
"""The tables of docs/questions.md, made from the rows that `trapless doctor` and messages show.

`python -m tests.unit.doctor.questions` writes them anew; test_questions.py finds them unchanged.
This file owns the text between the comments of that document, and nothing outside them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from tests.unit.house.test_tidy import ROOT
from trapless import calls
from trapless.base import os_errors
from trapless.peek import errors
from trapless.peek.kernel.memories import formats
from trapless.stock import packages
from trapless.supervisor import refusals

DOCUMENT = ROOT / "docs/questions.md"
FIELD = re.compile(r"\{(\w+)\}")


def refused_switches() -> str:
    """Why a machine or a process is refused supervisor mode, and what helps."""
    lines = ["| word | about | why | what helps |", "|---|---|---|---|"]
    for row in refusals.table().values():
        about = f"the machine: {row.title}" if row.of_machine else f"the process: {row.title}"
        lines.append(f"| `{row.name}` | {about} | {row.reason} | {row.remedy} |")
    return "\n".join(lines)


def refused_calls() -> str:
    """Why a call may not be wrapped, with all calls of each reason."""
    names: dict[str, list[str]] = {}
    for call in calls.load():
        if call.allowed is calls.CallClass.REFUSED:
            names.setdefault(call.reason, []).append(f"`{call.name}`")
    lines = ["| calls | why |", "|---|---|"]
    return "\n".join([*lines, *(f"| {' '.join(all_)} | {why} |" for why, all_ in names.items())])


def refused_machines() -> str:
    """Why `trapless peek` cannot read a machine or an image; a field's value is its name."""
    lines = ["| why | what helps |", "|---|---|"]
    for row in errors.REFUSALS:
        why, helps = (FIELD.sub(lambda m: m[1].upper(), part) for part in row)
        lines.append(f"| {why} | {helps} |")
    return "\n".join(lines)


def other_formats() -> str:
    """Files that `trapless peek` knows and does not read, with all files of each remedy."""
    names: dict[str, dict[str, None]] = {}
    for one in formats.FORMATS:
        if one.kind is formats.Kind.OTHER:
            names.setdefault(one.remedy, {})[one.name] = None
    lines = ["| the file is | what helps |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| {'; '.join(all_)} | {helps} |" for helps, all_ in names.items())]
    )


def failures_of_systems() -> str:
    """What apt and the operating system say, and what helps."""
    lines = ["| the error says | what helps |", "|---|---|"]
    rows = [(f"`{word}`", helps) for word, helps in packages.REMEDIES.items()]
    rows += [(os.strerror(number), helps) for number, helps in os_errors.REMEDIES.items()]
    return "\n".join([*lines, *(f"| {said} | {helps} |" for said, helps in rows)])


TABLES: dict[str, Callable[[], str]] = {
    "switches": refused_switches,
    "calls": refused_calls,
    "machines": refused_machines,
    "formats": other_formats,
    "systems": failures_of_systems,
}


def filled(text: str) -> str:
    """The document with its tables made anew."""
    for name, make in TABLES.items():
        begin, end = f"<!-- rows: {name} -->", "<!-- end of rows -->"
        place = re.compile(rf"({re.escape(begin)}\n).*?(\n{re.escape(end)})", re.S)
        text, found = place.subn(lambda m, make=make: f"{m[1]}{make()}{m[2]}", text)
        assert found == 1, name
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text()))
