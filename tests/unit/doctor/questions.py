# SPDX-License-Identifier: GPL-2.0-only
"""The tables of docs/questions.md, made from the rows that `trapless doctor` and messages show.

`python -m tests.unit.doctor.questions` writes them anew; test_questions.py finds them unchanged.
This file owns the text between the comments of that document, and nothing outside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.unit.house.test_tidy import ROOT
from trapless import calls
from trapless.supervisor import refusals

DOCUMENT = ROOT / "docs/questions.md"


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


TABLES: dict[str, Callable[[], str]] = {
    "switches": refused_switches,
    "calls": refused_calls,
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
