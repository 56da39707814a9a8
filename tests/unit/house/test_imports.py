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


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("trapless/base/paths.py", "import trapless.stock", "layers"),
        ("trapless/fresh.py", "import trapless.base", "layers"),
        ("eval/ls/spec.py", "import eval.parallel", "experiments"),
        ("trapless/experiments/experiment.py", "import eval.ls", "command"),
        ("trapless/base/paths.py", "import trapless.base.files", "circles"),
    ],
)
def test_an_import_that_runs_back_is_seen(tmp_path, file, line, contract):
    """In a copy of both trees, with one import more."""
    for name in ("trapless", "eval"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.json"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / file
    text = path.read_text() if path.exists() else ""
    path.write_text(f"{text}\n{line}\n")
    if contract == "circles":
        (tmp_path / "trapless/base/files.py").open("a").write("import trapless.base.paths\n")
    run = lint(tmp_path)
    assert run.returncode == 1
    broken = (ROOT / "pyproject.toml").read_text().split(f'id = "{contract}"\nname = "')[1]
    assert f"{broken.partition(chr(34))[0]} BROKEN" in run.stdout
