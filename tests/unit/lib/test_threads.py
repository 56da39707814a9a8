# SPDX-License-Identifier: GPL-2.0-only
"""Runs the unit tests of parallel calls and files once more, under the thread sanitizer.

What they assert is theirs; this file owns the build with -fsanitize=thread, which cannot be
combined with the address sanitizer that all C unit tests run under (test_c_programs.py).
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OUT = ROOT / "build" / "tsan"
LIBRARY = ROOT / "tests/unit/lib"
CHILDREN = {"TSAN_OPTIONS": "die_after_fork=0"}
"""A child of a program with threads starts threads of its own: the sanitizer would end it."""
PROGRAMS = sorted(path.stem for path in LIBRARY.rglob("*.c") if path.stem[:4] in ("psc_", "file"))


def test_there_are_programs():
    assert PROGRAMS


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_data_race(program: str):
    target = f"build/tsan/tests/unit/lib_{program}"
    flags = ["STATIC=", "SANITIZE=-fsanitize=thread", "CFLAGS=-Og -g1"]
    make = ["make", "-s", f"BUILD={OUT.relative_to(ROOT)}", *flags, target]
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "lock").open("w") as lock:  # the tests run side by side, and share object files
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    environment = {**os.environ, **CHILDREN}
    run = subprocess.run(
        [ROOT / target], capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode == 0, f"exit status {run.returncode}\n{run.stdout}{run.stderr}"
