# SPDX-License-Identifier: GPL-2.0-only
"""Imports run downwards: the contracts of import-linter in pyproject.toml hold, and would be seen
to break.

It owns no rule. docs/architecture.md describes the layers that the contracts name.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(folder):
    command = [sys.executable, "-P", "-c", LINT, "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_imports_run_downwards_and_in_no_circle():
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout


BACKWARDS = {
    "trapless/base/paths.py": "import trapless.stock\nimport trapless.base.files\n",
    "trapless/base/files.py": "import trapless.base.paths\n",
    "trapless/fresh.py": "",  # no layer names it
    "trapless/experiments/experiment.py": "import eval.ls\n",
    "eval/ls/spec.py": "import eval.parallel\n",
}


@pytest.mark.slow
def test_imports_that_run_back_are_seen(tmp_path):
    """In a copy of both trees, with such imports added, every contract breaks."""
    for name in ("trapless", "eval"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=lambda folder, names: set(names) - _code(folder)
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, lines in BACKWARDS.items():
        with (tmp_path / name).open("a") as file:
            file.write(lines)
    run = lint(tmp_path)
    assert run.returncode == 1
    assert "4 broken" in run.stdout and "0 kept" in run.stdout
    assert "trapless.fresh" in run.stdout


def _code(folder):
    return {path.name for path in Path(folder).iterdir() if path.is_dir() or path.suffix == ".py"}
