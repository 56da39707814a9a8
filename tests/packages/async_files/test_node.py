# SPDX-License-Identifier: GPL-2.0-only
"""Builds the package for Node as its users do, and runs its own tests with the plain backend.

What the functions do is asserted in lib/bindings/node/test, in the language that uses them. This
file owns where they are built: a copy of the package that holds the library's sources, without a
checkout around it, by a compiler and the headers of Node alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BINDING = ROOT / "lib/bindings/node"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `npm pack` would take, unpacked elsewhere and built."""
    folder = tmp_path_factory.mktemp("my packages") / "package"
    copy = folder.parent / "checkout"
    for name in ("lib", "include"):
        left_out = shutil.ignore_patterns("target", "node_modules", "build")
        shutil.copytree(ROOT / name, copy / name, ignore=left_out)
    source = copy / "lib/bindings/node"
    packed = run("node", "build.js", "--vendor", cwd=source)
    assert packed.returncode == 0, packed.stderr
    folder.mkdir()
    files = [*json.loads((source / "package.json").read_text())["files"], "package.json", "test"]
    for name in files:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        else:
            shutil.copy(source / name, folder / name)
    shutil.rmtree(copy)
    built = run("node", "build.js", cwd=folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_functions_do_what_those_of_node_do(package: Path):
    tested = run("node", "--test", "test/", cwd=package)
    assert tested.returncode == 0, tested.stdout[-8000:] + tested.stderr
    assert "# pass 29" in tested.stdout


def test_the_example_of_the_page_runs(package: Path):
    page = (BINDING / "README.md").read_text(encoding="utf-8")
    example = page.split("```js\n")[1].split("```")[0]
    example = example.replace("trapless/promises", "../lib/promises.js")
    (package / "test/example.mjs").write_text(example, encoding="utf-8")
    tested = run("node", "test/example.mjs", cwd=package)
    assert tested.returncode == 0, tested.stderr
    assert (package / "copy.json").read_text() == (package / "package.json").read_text()


def test_the_name_of_the_package_alone_is_that_of_the_promises(package: Path):
    program = "import all, { lstats } from 'trapless'; console.log((await lstats(['/'])).length)"
    assert run("node", "--input-type=module", "-e", program, cwd=package).stdout == "1\n"


def test_a_package_that_was_not_compiled_says_how(package: Path, tmp_path: Path):
    """So npm leaves it where scripts are off (`ignore-scripts`)."""
    for name in ("lib", "src", "vendor"):
        shutil.copytree(package / name, tmp_path / name)
    for name in ("build.js", "package.json"):
        shutil.copy(package / name, tmp_path / name)
    program = ("node", "--import", "./lib/register.js", "-e", "console.log(7)")
    refused = run(*program, cwd=tmp_path)
    assert refused.returncode == 1
    assert "trapless was not compiled: run `npm rebuild trapless`" in refused.stderr
    assert f"`node build.js` in {tmp_path}/" in refused.stderr
    assert run("node", "build.js", cwd=tmp_path).returncode == 0
    assert run(*program, cwd=tmp_path).stdout == "7\n"


def test_a_missing_compiler_is_named(package: Path):
    built = subprocess.run(
        ["node", "build.js"],
        cwd=package,
        env={"CC": "no-such-compiler", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 1
    assert "no-such-compiler" in built.stderr and "apt-get install gcc" in built.stderr
