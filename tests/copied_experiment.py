# SPDX-License-Identifier: GPL-2.0-only
"""A tree of sources into which the experiment of examples/ is copied as CONTRIBUTING.md says.

It runs the commands of that page up to the build; tests build, run, collect and analyse.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "own-call"
SOURCES = (
    "bin",
    "eval",
    "examples",
    "include",
    "kmod",
    "lib",
    "model",
    "sampler",
    "stat",
    "trapless",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "target", "node_modules", "*.o", "*.ko", "*.so")


def copy_as_contributing_says(tree: Path) -> str:
    """Make the tree, and copy the experiment in it; the page's commands from the build on."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, tree / name, ignore=LEFT_OUT, symlinks=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tree)
    (tree / ".venv").symlink_to(ROOT / ".venv")  # bin/trapless takes its Python
    (tree / "tests/unit/eval").mkdir(parents=True)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## Adding an experiment")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.S)
    copying, build, commands = block.partition("make workloads\n")
    subprocess.run(["sh", "-ec", copying], cwd=tree, check=True, timeout=600)
    return f"{build}{commands}"
