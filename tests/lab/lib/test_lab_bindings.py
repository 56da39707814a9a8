# SPDX-License-Identifier: GPL-2.0-only
"""The libraries for Python, Rust and Go by the module: their tests, run once more.

tests/packages has the tests, and runs them without the module. Nothing in them depends on a kernel.
What a program in Go counts is compared with what its page says.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.make import EXTENSION, make
from tests.packages import test_go_example as go_package
from tests.packages.test_rust_binding import cargo
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(7200)]

ROOT = Path(__file__).resolve().parents[3]
PYTEST = [sys.executable, "-m", "pytest", "-q", "--noconftest", "--tb=short"]
PYTEST += ["-p", "no:cacheprovider", "-p", "no:xdist"]
NAMES = (
    "test_python_binding.py",
    "test_python_interruptions.py",
    "test_python_ends.py",
    "test_python_files.py",
    "test_rust_binding.py",
)


def passes_in_a_guest(files: list[str], selected: str) -> None:
    """Runs those tests of the files in a guest with the module, and no other backend."""
    config = lab.LabConfig(
        host_root=True,
        timeout_s=3000,
        env=(("TRAPLESS_BACKEND", "module"), ("PYTHONDONTWRITEBYTECODE", "1")),
    )
    result = lab.run(config, [*PYTEST, "-m", selected, *files])
    said = result.stdout.decode() + result.stderr.decode()
    assert result.status == 0, said
    assert " passed" in said and "skipped" not in said
    assert lab.splats(result.kernel_log) == []


def test_the_module_makes_the_calls_of_other_languages() -> None:
    make(ROOT / "build/lib/libtrapless-ffi.so", EXTENSION)
    names = NAMES if shutil.which("cargo") else NAMES[:-1]
    if names is NAMES:
        cargo("test", "--no-run")
    passes_in_a_guest([str(ROOT / "tests/packages" / name) for name in names], "not nightly")


@pytest.fixture(scope="module")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples of the package for Go, and its tests as one program."""
    folder = tmp_path_factory.mktemp("go")
    go_package.build(folder)
    go_package.go("test", "-c", "-o", folder / "tests", ".")
    return folder


def test_the_module_makes_the_calls_of_go(go_programs: Path, monkeypatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(ROOT / "build/lib"))
    config = lab.LabConfig(timeout_s=3000, env=(("TRAPLESS_BACKEND", "module"),))
    result = lab.run(config, [str(go_programs / "tests"), "-test.v"])
    assert result.status == 0, result.stdout.decode() + result.stderr.decode()
    assert result.stdout.decode().rstrip().endswith("PASS") and b"SKIP" not in result.stdout
    assert lab.splats(result.kernel_log) == []


def test_a_count_in_go_is_what_its_page_says(go_programs: Path, monkeypatch) -> None:
    """Counts of the same programs repeat; another compiler changes them by a quarter at most."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(ROOT / "build/lib"))
    (shown,) = re.findall(
        r"--icount -- /tmp/count\n```\n\n```text\n(.*?)```", go_package.PAGE, re.S
    )
    result = lab.run(lab.LabConfig(icount=True), [str(go_programs / "count")])
    printed = result.stdout.decode()
    number = re.compile(r"(?<=\s)\d{3,}\b")  # an instruction count
    break_even = re.compile(r"\d+ calls$", re.M)

    def words(text: str) -> list[str]:
        return break_even.sub("N calls", number.sub("N", text)).split()

    assert words(printed) == words(shown), printed + result.stderr.decode()
    for pattern, more in ((number, 0), (break_even, 2)):
        for said, counted in zip(pattern.findall(shown), pattern.findall(printed), strict=True):
            expected = int(said.split()[0])
            assert abs(int(counted.split()[0]) - expected) <= expected / 4 + more, printed
    by_walk_dir, by_walk, no_module = map(int, number.findall(printed)[:3])
    assert by_walk < no_module < by_walk_dir


@pytest.mark.nightly
def test_100000_random_interruptions_of_python_cost_no_memory_and_no_result() -> None:
    make(EXTENSION)
    interruptions = str(ROOT / "tests/packages/test_python_interruptions.py")
    plain = [*PYTEST, "-m", "nightly", interruptions]
    done = subprocess.run(plain, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    passes_in_a_guest([interruptions], "nightly")
