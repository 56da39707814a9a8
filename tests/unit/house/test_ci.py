# SPDX-License-Identifier: GPL-2.0-only
""".ci/run: its last line is the closing count, and it never succeeds without tests.

A Makefile that only prints stands in for the project's.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def ci(folder, recipe):
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "Makefile").write_text(f"test:\n\t@{recipe}\n")
    return subprocess.run([str(folder / ".ci" / "run")], capture_output=True, text=True, timeout=50)


def test_the_count_is_the_last_line(tmp_path):
    run = ci(tmp_path, 'echo "=== 12 passed, 1 skipped in 3.10s ==="; echo more')
    assert run.returncode == 0
    assert run.stdout.splitlines()[-1] == "12 passed, 1 skipped in 3.10s"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ('echo "=== 1 failed, 3 passed in 2s ==="; exit 1', "failed: 1 failed, 3 passed in 2s"),
        ("exit 2", "failed: no test was run"),
        ("echo fine", "ran no tests"),
        ('echo "=== no tests ran in 0.1s ==="', "ran no tests"),
        ('echo "=== 3 skipped in 0.1s ==="', "ran no tests"),
        ('echo "=== 12 passed in 1s ==="; kill -9 $$$$', "failed: 12 passed in 1s"),
    ],
)
def test_what_is_no_success_fails(tmp_path, recipe, message):
    run = ci(tmp_path, recipe)
    assert run.returncode == 1
    assert message in run.stdout.splitlines()[-1]


def test_nothing_waits_for_input(tmp_path):
    run = ci(tmp_path, 'cat; echo "=== 1 passed in 1s ==="')
    assert run.returncode == 0


def test_tools_are_told_that_this_is_ci(tmp_path):
    run = ci(tmp_path, 'echo "CI is $$CI"; echo "=== 1 passed in 1s ==="')
    assert "CI is true" in run.stdout
