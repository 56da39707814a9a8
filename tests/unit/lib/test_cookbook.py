# SPDX-License-Identifier: GPL-2.0-only
"""Each recipe of examples/cookbook.md runs as it stands and prints what is shown below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trapless.base.paths import build_dir, repo_root

ROOT = repo_root()
TEXT = (ROOT / "examples/cookbook.md").read_text()
RECIPE = re.compile(
    r"^## (.*?)\n(.*?)^```(c|python|sh)\n(.*?)^```\n\n^```text\n(.*?)^```$", re.S | re.M
)
RECIPES = [(match[1], match[3], match[4], match[5]) for match in RECIPE.finditer(TEXT)]

pytestmark = pytest.mark.slow  # they run the built library


def command(language: str, code: str, folder: Path) -> list[str]:
    """How a reader runs a recipe, by the library that the checkout has built."""
    if language == "sh":
        return ["sh", "-c", code]
    if language == "python":
        return [sys.executable, "-c", code]
    (folder / "recipe.c").write_text(code)
    includes = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'include/uapi'}"]
    library = [str(build_dir() / "lib/libtrapless.a"), "-pthread"]
    argv = ["gcc", "-Wall", "-Wextra", "-Werror", *includes, "recipe.c", *library, "-o", "recipe"]
    subprocess.run(argv, cwd=folder, check=True, timeout=600)
    return ["./recipe"]


@pytest.mark.parametrize(("title", "language", "code", "shown"), RECIPES)
def test_a_recipe_prints_what_is_shown(
    title: str, language: str, code: str, shown: str, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "lib/bindings/python"),
        "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}",
    }
    argv = command(language, code, tmp_path)
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, shown), f"{title}: {done.stderr}"


def test_every_section_is_a_recipe() -> None:
    assert [title for title, *_ in RECIPES] == re.findall(r"^## (.*)$", TEXT, re.M)
