# SPDX-License-Identifier: GPL-2.0-only
"""Random programs of calls, made by plain calls, do what the reference says.

The lab's test says so of the module. tests/call_programs.py owns the programs and the reference.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.call_programs import compare
from tests.make import make

ROOT = Path(__file__).resolve().parents[3]
RUNNER = ROOT / "build/tests/unit/lib_run_programs"
PROGRAMS = 2000


@pytest.mark.slow
def test_plain_calls_do_what_the_reference_says() -> None:
    make(RUNNER)
    environment = os.environ | {"TRAPLESS_BACKEND": "plain"}

    def run(packed: bytes) -> bytes:
        done = subprocess.run([RUNNER], input=packed, capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    assert compare(run, PROGRAMS, seed=1) == []
