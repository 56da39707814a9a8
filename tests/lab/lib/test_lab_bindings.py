# SPDX-License-Identifier: GPL-2.0-only
"""The libraries for Python and Rust by the module, in one VM: their tests, run once more.

tests/packages has the tests, and runs them without the module. Nothing in them depends on a kernel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.make import EXTENSION, make
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


@pytest.mark.nightly
def test_100000_random_interruptions_of_python_cost_no_memory_and_no_result() -> None:
    make(EXTENSION)
    interruptions = str(ROOT / "tests/packages/test_python_interruptions.py")
    plain = [*PYTEST, "-m", "nightly", interruptions]
    done = subprocess.run(plain, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    passes_in_a_guest([interruptions], "nightly")
