# SPDX-License-Identifier: GPL-2.0-only
"""The crate trapless-tokio: its own tests, its page's example, and what compares it with tokio::fs.

What the functions do is asserted in lib/bindings/rust-tokio/tests, beside tokio's own. This file
owns where they run: tokio comes from the registry of crates, so a machine without it skips them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CRATE = ROOT / "lib/bindings/rust-tokio"
LIMIT_S = 1200
FETCH_S = 120


def cargo(*words: str, limit_s: int = LIMIT_S) -> subprocess.CompletedProcess[str]:
    hidden = ("MAKE", "MFLAGS", "CARGO_TARGET")
    env = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    return subprocess.run(
        ["cargo", *words],
        cwd=CRATE, env=env, capture_output=True, text=True, timeout=limit_s, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tokio() -> None:
    """Fetches tokio, or skips: it is another project's, and not part of a checkout."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing: scripts/setup installs it")
    if cargo("fetch", "--offline").returncode == 0:
        return
    try:
        fetched = cargo("fetch", limit_s=FETCH_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"tokio was not fetched from the registry of crates in {FETCH_S} s")
    if fetched.returncode:
        pytest.skip(f"tokio cannot be fetched from the registry of crates: {fetched.stderr[-200:]}")


@pytest.mark.slow
@pytest.mark.usefixtures("tokio")
def test_its_tests_pass() -> None:
    done = cargo("test", "--offline")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "warning" not in done.stderr, done.stderr
    results = [line for line in done.stdout.splitlines() if line.startswith("test result")]
    assert [line.split(";")[0] for line in results] == [
        f"test result: ok. {passed} passed" for passed in (0, 1, 10, 1)
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("tokio")
def test_the_comparison_does_the_same_work_by_both(tmp_path: Path) -> None:
    done = compare(tmp_path, "100", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    *rows, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == {"complete": True}
    works = {f"rust-{work}" for work in ("stat", "read", "open-read")}
    assert Counter((row["call"], row["mechanism"]) for row in rows) == {
        (work, way): 2 for work in works for way in ("pool", "files")
    }
    assert all(row["value"] > 0 for row in rows)


@pytest.mark.slow
@pytest.mark.usefixtures("tokio")
def test_the_comparison_is_a_table_for_people_and_leaves_no_files(tmp_path: Path) -> None:
    done = compare(tmp_path, "100", "3", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    title, _, columns, *lines = done.stdout.splitlines()
    assert title.startswith("100 files; tasks at once: 7; medians of 3 rounds")
    assert columns.split() == ["tokio::fs", "Files"] * 2
    calls = ("metadata(path)", "read(path)", "open(path), read_to_end()")
    for line, call in zip(lines, calls, strict=True):
        assert re.fullmatch(rf"{re.escape(call)}( +\d+\.\d +\d+\.\d +\d+%){{2}}", line)
    assert list(tmp_path.iterdir()) == []
    for wrong, text in ((("100",), "usage"), (("100", "0"), "1 or more"), (("x", "1"), "usage")):
        done = compare(tmp_path, *wrong)
        assert done.returncode == 1 and text in done.stderr
    done = compare(tmp_path / "absent", "100", "3")
    assert done.returncode == 1
    assert done.stderr == f"tasks: {tmp_path}/absent: No such file or directory (os error 2)\n"


def compare(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return cargo("run", "--offline", "-q", "--example", "tasks", "--", *map(str, words))
