# SPDX-License-Identifier: GPL-2.0-only
"""The lower bounds of the optional packages (test_wheel.py has those of the others).

The unit tests of what uses them run in an environment that has nothing newer. The upper ends are
what scripts/setup installs, so every other test is of those.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.packages.test_wheel import LOWEST, NUMPY_OF_ITS_TIME, PROJECT, ROOT, outside, run

TESTS = ("tests/unit/peek", "tests/unit/results", "tests/unit/experiments/test_fleet.py")
CHECKERS = ("import-linter", "mypy", "ruff")
"""They run no code of ours, and need newer packages than it does: scripts/setup's are tested."""


def lowest() -> list[str]:
    """What pip is asked for: of each bound the first series, as >=14 is 14.0 and >=2.3 is 2.3."""
    asked = [f"{name}=={version}" for name, version in LOWEST.items()] + [NUMPY_OF_ITS_TIME]
    for extra in PROJECT["optional-dependencies"].values():
        for requirement in extra:
            name, low = re.match(r"([\w.-]+)>=([\d.]+),<", requirement).groups()
            if name in CHECKERS:
                continue
            series = low if "." in low else f"{low}.0"
            asked.append(f"{name}=={series}.*")
    return asked


def test_what_is_optional_works_at_its_lower_bounds(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "lowest")
    python = tmp_path / "lowest/bin/python"
    run(python, "-m", "pip", "-q", "install", "--only-binary=:all:", *lowest())
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=outside(),
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
