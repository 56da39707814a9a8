# SPDX-License-Identifier: GPL-2.0-only
"""The crate trapless for Rust: `cargo test` without a network, and the examples.

tests/lab/lib/test_lab_bindings.py runs this file in a guest, too, where the module makes the calls
of the same programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import random_trees

ROOT = Path(__file__).resolve().parents[2]
CRATE = ROOT / "lib/bindings/rust"
BUILT = ROOT / "build/rust/debug"
IN_GUEST = os.environ.get("TRAPLESS_BACKEND") == "module"
LIMIT_S = 1200
TESTS = {"batch": 18, "descriptors": 12, "walk": 4}


def cargo(*words: str, folder: Path = CRATE) -> str:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing: scripts/setup installs it")
    hidden = ("MAKE", "MFLAGS", "CARGO_TARGET")
    env = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(
        ["cargo", *words, "--offline"],
        cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tested() -> str:
    """What `cargo test` says; it builds the examples, too. In a guest, what its programs say."""
    if not IN_GUEST:
        return cargo("test")
    built = [sorted(BUILT.glob(f"deps/{name}-*[0-9a-f]"), key=os.path.getmtime) for name in TESTS]
    return "".join(run(programs[-1]).stdout for programs in built)


def run(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run(BUILT / "examples" / name, *arguments)


def test_its_tests_pass(tested):
    for tests in TESTS.values():
        assert f"test result: ok. {tests} passed; 0 failed; 0 ignored" in tested
    if not IN_GUEST:
        assert "compile fail ... ok" in tested


def test_the_first_program_runs(tested):
    lines = example("first").stdout.splitlines()
    way = lines.pop()
    if IN_GUEST:
        assert way == "3 calls, one crossing"
    else:
        assert way.startswith("3 calls, one by one: the module is not loaded")
    assert lines == [
        f"getppid: {os.getpid()}", f"stat /: 0, inode {os.stat('/').st_ino}", "open /absent: -2",
    ]  # fmt: skip


def test_wc_counts_as_wc_does_by_a_crossing_for_32_files(tested, tmp_path):
    files = random_trees.texts(tmp_path)
    done = example("wc", tmp_path)
    assert set(done.stdout.splitlines()) == random_trees.counted(files)
    assert done.stderr == f"100 files, 400 calls, {4 if IN_GUEST else 400} crossings\n"


def test_cp_copies_a_tree_by_a_crossing_for_32_files(tested, tmp_path):
    said = random_trees.copied_by([BUILT / "examples/cp"], tmp_path)
    # Of 12 empty files 5 each, of the long one 9, of any other 7.
    assert said == f"100 files, 678 calls, {4 if IN_GUEST else 678} crossings\n"


def test_a_log_commits_many_records_at_once(tested, tmp_path):
    done = example("log", tmp_path / "log", "20", "5")
    records, commits, crossed = (int(word.split()[0]) for word in done.stdout.split(", "))
    assert records == 100 and 5 <= commits <= 100
    assert crossed == (commits if IN_GUEST else records + commits)
    lines = (tmp_path / "log").read_text().splitlines()
    for task in range(20):
        own = [line for line in lines if line.startswith(f"task {task} ")]
        assert own == [f"task {task} record {j}" for j in range(5)]
    assert len(lines) == 100


def test_tasks_of_an_executor_share_crossings(tested, tmp_path):
    files = random_trees.texts(tmp_path)
    done = example("executor", *files, "/absent")
    sizes = {f"{path.stat().st_size} {path}" for path in files}
    absent = "/absent: No such file or directory (os error 2)"
    assert set(done.stdout.splitlines()) == sizes | {absent}
    calls, crossed = (int(word.split()[0]) for word in done.stderr.split(", "))
    # Opens, reads of 4096 bytes, and the read of each that finds its end.
    reads = sum(-(-path.stat().st_size // 4096) + 1 for path in files)
    assert calls == 101 + reads
    assert calls / 64 <= crossed < calls / 10 if IN_GUEST else crossed == calls
