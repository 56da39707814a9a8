# SPDX-License-Identifier: GPL-2.0-only
"""What an older checkout has left in the build folder is no obstacle to make, and what newcomers
build says in few lines what it made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def make(*arguments):
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def test_a_source_that_has_moved_is_no_obstacle(tmp_path):
    target = tmp_path / "examples/first"
    target.parent.mkdir()
    target.with_suffix(".d").write_text(f"{target}: examples/elsewhere/first.c examples/gone.h\n")
    run = make("-n", f"BUILD={tmp_path}", str(target))
    assert run.returncode == 2 and "gone.h" in run.stderr  # gcc -MP writes a rule for each header
    target.with_suffix(".d").write_text(f"{target}: examples/elsewhere/first.c\n")
    run = make("-n", f"BUILD={tmp_path}", str(target))
    assert run.returncode == 0, run.stderr
    assert f"-o {target} examples/first.c" in run.stdout


def test_a_file_that_nothing_makes_is_an_error(tmp_path):
    run = make("-n", f"BUILD={tmp_path}", f"{tmp_path}/examples/second")
    assert run.returncode == 2
    assert "No rule to make target" in run.stderr


def test_lib_is_built_without_a_word_but_the_last_one():
    newer = ("-W", "lib/calls.c")
    (last,) = make(*newer, "lib").stdout.splitlines()
    assert last.startswith("built: build/lib/libtrapless.a and ")
    *commands, last = make(*newer, "V=1", "lib").stdout.splitlines()
    assert "gcc" in commands[0] and last.startswith("built: ")
    assert make("-s", "lib").stdout == ""


@pytest.mark.slow  # in a clean checkout it builds them all
def test_workloads_say_what_to_run_next():
    first, last = make("workloads").stdout.splitlines()
    assert first.startswith("building: ") and "V=1" in first
    assert last.startswith("built: ") and "build/examples/first" in last
    assert make("-s", "workloads").stdout == ""
