# SPDX-License-Identifier: GPL-2.0-only
"""Runs the C unit tests, built with the address and undefined-behaviour sanitizers.

Each is one program that exits 0 when all it asserts holds, 77 when this machine cannot run it.
The programs are rows of UNIT_PROGRAMS in the Makefile.inc files; this file owns none of them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "sanitized" / "tests" / "unit"
SKIPPED = 77
SLOW = {
    "lib_files_are_read_listed_and_written",
    "lib_files_end_at_random",
    "lib_walk_equals_readdir_and_stat",
    "lib_walk_survives_what_happens_meanwhile",
    "model_short_cuts_change_no_count",
}


def programs() -> list[Path]:
    if not BUILT.is_dir():
        return []
    files = (path for path in BUILT.iterdir() if path.is_file() and not path.suffix)
    return sorted(path for path in files if os.access(path, os.X_OK))


def test_the_c_unit_tests_were_built():
    assert programs(), "make check builds them into build/sanitized/tests/unit"


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(path, marks=[pytest.mark.slow] * (path.name in SLOW), id=path.name)
        for path in programs()
    ],
)
def test_c_program(program: Path):
    run = subprocess.run([str(program)], capture_output=True, text=True, timeout=600, check=False)
    if run.returncode == SKIPPED:
        pytest.skip(run.stdout.strip() or "the program says that this machine cannot run it")
    assert run.returncode == 0, f"exit status {run.returncode}\n{run.stdout}{run.stderr}"
