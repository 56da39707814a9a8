# SPDX-License-Identifier: GPL-2.0-only
"""The example for Go counts as find does, also while memory is collected."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import random_trees
from tests.make import make

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "lib/bindings/go"


def run(*command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    env |= {name: str(ROOT / "build/lib") for name in ("PKG_CONFIG_PATH", "LD_LIBRARY_PATH")}
    return subprocess.run(
        command, cwd=EXAMPLE, env=os.environ | env, capture_output=True, text=True, timeout=800
    )


@pytest.fixture(scope="module")
def du(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("go is missing")
    for name in ("libtrapless.so", "trapless-uninstalled.pc"):
        make(ROOT / "build/lib" / name)
    program = tmp_path_factory.mktemp("go") / "du"
    for words in (("go", "vet", "."), ("go", "build", "-o", program, ".")):
        done = run(*words, GOCACHE=str(ROOT / "build/go"), GOFLAGS="-mod=mod", GOPROXY="off")
        assert done.returncode == 0, done.stderr
    return program


def test_the_example_for_go_counts_bytes_while_memory_is_collected(du, tmp_path):
    files = random_trees.texts(tmp_path)
    (tmp_path / "link").symlink_to("/absent")
    done = run(du, tmp_path, GOGC="1", GODEBUG="cgocheck=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == sum(path.stat().st_size for path in files)


def test_a_tree_that_is_not_there_is_an_error(du):
    done = run(du, "/absent")
    assert done.returncode == 1 and "no such file" in done.stderr
