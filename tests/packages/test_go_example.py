# SPDX-License-Identifier: GPL-2.0-only
"""The package for Go: its own tests, its examples beside find, and a program that imports it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import random_trees
from tests.make import make

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "lib/bindings/go"
PAGE = (EXAMPLE / "README.md").read_text()


def run(*command: str | Path, cwd: Path = EXAMPLE, **env: str) -> subprocess.CompletedProcess[str]:
    env |= {name: str(ROOT / "build/lib") for name in ("PKG_CONFIG_PATH", "LD_LIBRARY_PATH")}
    return subprocess.run(
        command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=800
    )


def go(*words: str | Path, cwd: Path = EXAMPLE) -> str:
    cache = str(ROOT / "build/go")
    done = run("go", *words, cwd=cwd, GOCACHE=cache, GOFLAGS="-mod=mod", GOPROXY="off")
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def build(folder: Path) -> None:
    """Puts the examples into a folder."""
    if shutil.which("go") is None:
        pytest.skip("go is missing")
    for name in ("libtrapless.so", "trapless-uninstalled.pc"):
        make(ROOT / "build/lib" / name)
    go("build", "-o", f"{folder}/", "./examples/...")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples."""
    folder = tmp_path_factory.mktemp("go")
    build(folder)
    go("vet", "./...")
    return folder


def test_a_walk_is_that_of_the_standard_library(programs):
    assert "ok" in go("test", "./...")


def test_the_first_program_says_why_its_calls_are_plain(programs):
    lines = run(programs / "first", TRAPLESS_BACKEND="plain").stdout.splitlines()
    assert lines[0].startswith("3 calls, one by one: ") and "TRAPLESS_BACKEND" in lines[0]
    assert lines[1] == f"getppid: {os.getpid()}"
    assert lines[2] == f"lstat /: inode {os.lstat('/').st_ino}"
    assert lines[3] == "open absent: no such file or directory"


def test_a_program_of_another_module_imports_the_package(programs, tmp_path):
    (program,) = re.findall(r"^```go\n(package main\n.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "main.go").write_text(program)
    (lines,) = re.findall(r"^```sh\n(go mod init [^`]*)^CHECKOUT/bin/trapless lab", PAGE, re.M)
    for line in lines.replace("CHECKOUT", str(ROOT)).splitlines():
        go(*shlex.split(line)[1:], cwd=tmp_path)
    tree = tmp_path / "tree"
    tree.mkdir()
    files = random_trees.texts(tree)
    done = run("./mine", tree, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == sum(path.stat().st_size for path in files)
    assert "no such file" in run("./mine", "/absent", cwd=tmp_path).stderr


def test_a_program_that_is_linked_statically_needs_no_path_of_the_library(programs, tmp_path):
    (line,) = re.findall(r"^go (build -o /tmp/first .*)", PAGE, re.M)
    go(*shlex.split(line.replace("/tmp/first", f"{tmp_path}/first"), comments=True))
    done = subprocess.run([tmp_path / "first"], capture_output=True, text=True, env={})
    assert "open absent: no such file" in done.stdout


def test_the_example_counts_bytes_while_memory_is_collected(programs, tmp_path):
    files = random_trees.texts(tmp_path)
    (tmp_path / "link").symlink_to("/absent")
    done = run(programs / "du", tmp_path, GOGC="1", GODEBUG="cgocheck=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == sum(path.stat().st_size for path in files)
    assert run(programs / "du", "-walkdir", tmp_path).stdout == done.stdout


def test_the_count_takes_a_tree_and_has_no_figures_of_an_absent_module(programs, tmp_path):
    (tmp_path / "file").touch()
    done = run(programs / "count", tmp_path, TRAPLESS_BACKEND="plain")
    unit, reason, files, _, head, *rows = done.stdout.splitlines()
    assert unit.startswith("nanoseconds") and unit in PAGE and head in PAGE
    assert reason.startswith("one by one: ") and "TRAPLESS_BACKEND" in reason
    number = r"\d+"
    ways = f"{number} by filepath.WalkDir, {number} by a Walk without the module"
    assert re.fullmatch(f"a file of {tmp_path}: {ways}", files)
    assert rows[0].startswith("getppid ")
    for row in rows:
        assert re.fullmatch(rf".* {number} +– +{number}  –", row)
    assert "no such file" in run(programs / "count", "/absent").stderr


def test_the_example_goes_on_after_an_unreadable_directory_and_exits_with_1(programs, tmp_path):
    (tmp_path / "file").write_text("twelve bytes")
    (tmp_path / "closed").mkdir(mode=0)
    for ways in ([], ["-walkdir"]):
        command = [programs / "du", *ways, tmp_path]
        if os.geteuid() == 0:  # which may read every directory
            tmp_path.chmod(0o755)
            command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *command]
        done = run(*command)
        assert (done.returncode, done.stdout) == (1, "12\n")
        assert "closed: " in done.stderr and "permission denied" in done.stderr


def test_a_tree_that_is_not_there_is_an_error(programs):
    done = run(programs / "du", "/absent")
    assert done.returncode == 1 and "no such file" in done.stderr
