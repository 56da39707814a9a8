# SPDX-License-Identifier: GPL-2.0-only
""".ci/run: its last line is the closing count, and it never succeeds without tests.

A Makefile that only prints stands in for the project's. What becomes of tests that fail is seen in
a folder of tests of its own, with the project's conftest.py and by two processes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300


def ci(folder, recipe):
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "Makefile").write_text(f"test:\n\t@{recipe}\n")
    environment = {name: value for name, value in os.environ.items() if name[:7] != "PYTEST_"}
    return subprocess.run(
        [str(folder / ".ci" / "run")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )


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


STEADY = """
import pytest
@pytest.mark.parametrize("number", range(5))
def test_steady(number):
    pass
"""
ONCE = """
import os, pathlib, pytest
pytestmark = pytest.mark.lab
def first(name):
    place = pathlib.Path(name)
    try:
        place.mkdir()
    except FileExistsError:
        return False
    return True
"""
FAILS_ONCE = """
def test_once{0}():
    print("in process", os.getpid())
    assert not first("once{0}"), "the first time"
"""
FAILS_ALWAYS = """
def test_always():
    assert False, "always"
"""
SHARED = """
@pytest.fixture(scope="module")
def machine():
    assert not first("machine"), "no machine"
@pytest.mark.parametrize("number", range(4))
def test_shares(machine, number):
    pass
"""


def ci_of(folder, *parts, no_lab="", mark="lab"):
    """Run tests so marked, made of these parts, with five more that pass, and `no_lab`."""
    tests = folder / "made_up"
    tests.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    (tests / "test_steady.py").write_text(STEADY)
    (tests / "test_no_lab.py").write_text(no_lab)
    once = ONCE.replace("mark.lab", f"mark.{mark}")
    (tests / "test_parts.py").write_text("".join([once, *parts]))
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n    {mark}: of these tests\n")
    return ci(folder, f"{sys.executable} -m pytest -ra -n 2 $(if $(CI),--once-more) made_up")


@pytest.mark.parametrize("mark", ["lab", "slow"])
def test_a_test_that_fails_once_is_unsteady_and_no_failure(tmp_path, mark):
    """Tests that shared what failed count as one such test."""
    run = ci_of(tmp_path, FAILS_ONCE.format(1), SHARED, mark=mark)
    *_, count = run.stdout.splitlines()
    assert run.returncode == 0, run.stdout
    assert count.startswith("5 passed, 5 unsteady in ")
    log = "build/once-more/made_up-test_parts.py-test_once1.log"
    line = f"unsteady: made_up/test_parts.py::test_once1 (both logs: {log})"
    lines = run.stdout.splitlines()
    assert lines[lines.index(line) + 1] == "    AssertionError: the first time"
    before, after = (tmp_path / log).read_text().split("==== once more, alone")
    assert "AssertionError: the first time" in before and "1 passed" in after
    # Both say what the test printed, and each was alone in its process.
    pids = {text.split("in process ")[1].split()[0] for text in (before, after)}
    assert len(pids) == 2


def test_a_lab_test_that_fails_twice_fails_the_run(tmp_path):
    """A test with neither mark fails it at once."""
    run = ci_of(tmp_path, FAILS_ONCE.format(1), FAILS_ALWAYS, no_lab=FAILS_ALWAYS)
    assert run.returncode == 1
    *_, count = run.stdout.splitlines()
    assert count.startswith("ci: make test failed: 2 failed, 5 passed, 1 unsteady in ")
    assert "FAILED made_up/test_no_lab.py::test_always" in run.stdout
    assert not re.search("(once more|unsteady|failed twice).* made_up/test_no_lab", run.stdout)
    assert "\nunsteady: made_up/test_parts.py::test_once1 " in run.stdout
    assert "\nfailed twice: made_up/test_parts.py::test_always " in run.stdout
    log = tmp_path / "build/once-more/made_up-test_parts.py-test_always.log"
    assert log.read_text().count("AssertionError: always") >= 2


def test_three_unsteady_tests_fail_the_run(tmp_path):
    run = ci_of(tmp_path, *(FAILS_ONCE.format(number) for number in range(3)))
    assert run.returncode == 1
    *_, count = run.stdout.splitlines()
    assert count.startswith("ci: make test failed: 5 passed, 3 unsteady in ")
    for number in range(3):
        assert f"\nunsteady: made_up/test_parts.py::test_once{number} " in run.stdout
