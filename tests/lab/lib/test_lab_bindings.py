# SPDX-License-Identifier: GPL-2.0-only
"""The libraries for Python and Rust by the module, in one VM: their tests, run once more.

tests/packages has the tests, and runs them without the module. Nothing in them depends on a kernel.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.make import EXTENSION, make
from tests.packages.test_rust_binding import cargo
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[3]
NAMES = (
    "test_python_binding.py",
    "test_python_interruptions.py",
    "test_python_files.py",
    "test_rust_binding.py",
)


def test_the_module_makes_the_calls_of_other_languages() -> None:
    make(ROOT / "build/lib/libtrapless-ffi.so", EXTENSION)
    names = NAMES if shutil.which("cargo") else NAMES[:-1]
    if names is NAMES:
        cargo("test", "--no-run")
    config = lab.LabConfig(
        host_root=True,
        timeout_s=1800,
        env=(("TRAPLESS_BACKEND", "module"), ("PYTHONDONTWRITEBYTECODE", "1")),
    )
    options = ["-q", "--noconftest", "--tb=short", "-m", "not nightly"]
    options += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    files = [str(ROOT / "tests/packages" / name) for name in names]
    result = lab.run(config, [sys.executable, "-m", "pytest", *options, *files])
    said = result.stdout.decode() + result.stderr.decode()
    assert result.status == 0, said
    assert " passed" in said and "skipped" not in said
    assert lab.splats(result.kernel_log) == []
