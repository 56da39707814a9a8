# SPDX-License-Identifier: GPL-2.0-only
"""docs/security.md promises nothing without a test: each promise names tests, and they exist.

What the tests prove is theirs; this file owns only that the names are not empty.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "security.md").read_text()
HEAD = "| promise | how it is kept | tested by |"


def promises() -> list[tuple[str, str]]:
    """Each row of the tables of promises: the promise, and its last column."""
    rows = []
    for table in TEXT.split(HEAD)[1:]:
        for line in table.splitlines()[2:]:
            if not line.startswith("|"):
                break
            cells = line.strip("|").split(" | ")
            rows.append((cells[0].strip(), cells[-1]))
    return rows


def test_each_part_has_promises_and_says_what_it_gives_up():
    parts = re.split(r"^## ", TEXT, flags=re.M)[1:]
    with_promises = [part for part in parts if HEAD in part]
    assert len(with_promises) == 8
    for part in with_promises:
        assert "**Given up.**" in part, part.splitlines()[0]


def test_each_promise_names_tests_that_exist():
    tests = {path.name for path in (ROOT / "tests").rglob("*") if path.suffix in {".c", ".py"}}
    faults = []
    for promise, tested_by in promises():
        names = re.findall(r"`([\w.]+)`", tested_by)
        if not names:
            faults.append(f"no test is named for: {promise}")
        faults += [f"no such test: {name} ({promise})" for name in names if name not in tests]
    assert not faults, "\n".join(faults)
