# SPDX-License-Identifier: GPL-2.0-only
"""Each recipe of examples/cookbook.md runs as it stands and prints what is shown below it. What is
shown as `...` may be any text of a line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trapless.base.paths import build_dir, repo_root

ROOT = repo_root()
TEXT = (ROOT / "examples/cookbook.md").read_text()
RECIPE = re.compile(
    r"^## (.*?)\n(.*?)^```(c|js|python|rust|sh)\n(.*?)^```\n\n"
    r"(?:^```sh\n([^`]*)^```\n\n)?^```text\n(.*?)^```$",
    re.S | re.M,
)
"""Title, words, language, code, how it is run if that is shown, and what it prints."""
RECIPES = [
    (match[1], match[3], match[4], match[5] or "", match[6]) for match in RECIPE.finditer(TEXT)
]

pytestmark = pytest.mark.slow  # they run the built library


def command(language: str, code: str, folder: Path) -> list[str]:
    """How a reader runs a recipe, by the library that the checkout has built."""
    if language == "sh":
        return ["sh", "-c", code]
    if language == "python":
        return [sys.executable, "-c", code]
    if language == "rust":
        return rust(code, folder)
    if language == "js":
        return node(code, folder)
    (folder / "recipe.c").write_text(code)
    includes = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'include/uapi'}"]
    library = [str(build_dir() / "lib/libtrapless.a"), "-pthread"]
    argv = ["gcc", "-Wall", "-Wextra", "-Werror", *includes, "recipe.c", *library, "-o", "recipe"]
    subprocess.run(argv, cwd=folder, check=True, timeout=600)
    return ["./recipe"]


OF_RUST = f"trapless = {{ path = '{ROOT / 'lib/bindings/rust'}' }}\n"
OF_TOKIO = (
    f"trapless-tokio = {{ path = '{ROOT / 'lib/bindings/rust-tokio'}' }}\n"
    'tokio = { version = "1", features = ["rt-multi-thread", "macros"] }\n'
)


def fetch_tokio(package: Path) -> None:
    """Tokio is another project's, and not part of a checkout: without it the recipe is skipped."""
    for more in (["--offline"], []):
        fetched = subprocess.run(["cargo", "fetch", *more], cwd=package, timeout=600)
        if not fetched.returncode:
            return
    pytest.skip("tokio cannot be fetched from the registry of crates")


def rust(code: str, folder: Path) -> list[str]:
    """Cargo builds all recipes in one folder, so that the library is built once."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing: scripts/setup installs it")
    package = folder / "recipe"
    (package / "src").mkdir(parents=True)
    (package / "src/main.rs").write_text(code)
    (package / "Cargo.toml").write_text(
        '[package]\nname = "recipe"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
        + (OF_TOKIO if "tokio" in code else OF_RUST)
    )
    if "tokio" in code:
        fetch_tokio(package)
    target = build_dir() / "cookbook"
    argv = ["cargo", "build", "--offline", "--target-dir", target]
    subprocess.run(argv, cwd=package, env=os.environ, check=True, timeout=600)
    return [str(target / "debug/recipe")]


def node(code: str, folder: Path) -> list[str]:
    """A copy of the package is built, so that the checkout stays as it is."""
    if shutil.which("node") is None:
        pytest.skip("node is missing: scripts/setup installs it")
    left_out = shutil.ignore_patterns("target", "node_modules", "build", "vendor")
    for name in ("lib", "include"):
        shutil.copytree(ROOT / name, folder / "checkout" / name, ignore=left_out)
    package = folder / "checkout/lib/bindings/node"
    subprocess.run(["node", "build.js"], cwd=package, check=True, timeout=600)
    (folder / "node_modules").mkdir()
    (folder / "node_modules/trapless").symlink_to(package)
    (folder / "recipe.mjs").write_text(code)
    return ["node", "recipe.mjs"]


@pytest.mark.parametrize(("title", "language", "code", "run", "shown"), RECIPES)
def test_a_recipe_prints_what_is_shown(
    title: str, language: str, code: str, run: str, shown: str, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "lib/bindings/python"),
        "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}",
    }
    argv = command(language, code, tmp_path)
    if run:  # by commands that are typed in the checkout
        for name, place in (("bin", ROOT / "bin"), ("include", ROOT / "include")):
            (tmp_path / name).symlink_to(place)
        (tmp_path / "build").symlink_to(build_dir())
        (tmp_path / "recipe").unlink(missing_ok=True)
        argv = ["sh", "-c", run]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    expected = re.escape(shown).replace(re.escape("..."), ".*")
    assert done.returncode == 0, f"{title}: {done.stderr}"
    assert re.fullmatch(expected, done.stdout), f"{title}: {done.stdout}{done.stderr}"


def test_the_recipe_that_needs_the_module_says_so_where_it_is_not_loaded(tmp_path: Path) -> None:
    (code,) = [code for title, _, code, *_ in RECIPES if title.startswith("Count what a call")]
    argv = command("c", code, tmp_path)
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "no batch by the module: No such file or directory\n"


def test_every_section_is_a_recipe() -> None:
    assert [title for title, *_ in RECIPES] == re.findall(r"^## (.*)$", TEXT, re.M)
