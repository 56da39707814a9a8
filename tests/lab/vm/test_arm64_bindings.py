# SPDX-License-Identifier: GPL-2.0-only
"""The bindings for arm64: the extension module of Python and the crates of Rust are cross-compiled,
and their tests run in the emulator of single programs (qemu-user), without the module.

What is left out needs what that emulator lacks: Python's tests of signals and of processes that it
starts, and Rust's of a child of fork, whose memory MADV_WIPEONFORK clears.
test_lab_arm64.py runs the crate's tests with the module, on a kernel for arm64.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trapless.base.architecture import ARM64
from trapless.base.console import Silent
from trapless.base.paths import repo_root
from trapless.stock import real_programs

ROOT = repo_root()
BUILT = ROOT / "build/arm64"
COMPILER, ARCHIVER = f"{ARM64.triplet}-gcc", f"{ARM64.triplet}-ar"
EMULATOR = "qemu-aarch64-static"
RUST = "aarch64-unknown-linux-gnu"
LIMIT_S = 1800
OF_PYTHON = ("arguments", "files", "scandir")
OF_FORK = (
    "a_child_cannot_go_on_with_a_program_and_closes_its_own_copies",
    "every_flush_in_a_child_is_refused",
)
PASSED = {"batch": 17, "descriptors": 10, "walk": 3, "drops": 1, "files": 6}
"""Tests of the crates' programs, less those of OF_FORK."""

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(2 * LIMIT_S),
    *(
        pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}: apt-get install {package}")
        for tool, package in ((COMPILER, "gcc-aarch64-linux-gnu"), (EMULATOR, "qemu-user-static"))
    ),
]


def said(argv: list[str], folder: Path = ROOT, **env: str) -> str:
    """What a command prints; one that fails is the test's failure."""
    hidden = ("MAKE", "MFLAGS", "CARGO_TARGET", "PYTHONPATH")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(
        argv,
        cwd=folder,
        env=kept | env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_python(tmp_path):
    packages = ("python3-dev", "python3-numpy", "python3-pytest")
    root = real_programs.unpacked(Silent(), packages, (), f"python3-{ARM64.name}", ARM64).root
    compiler = f"CC={COMPILER} -idirafter {root}/usr/include"
    headers = f"PYTHON_HEADERS={root}/usr/include/python3.11"
    extension = "build/arm64/python/_ring.abi3.so"
    said(["make", "-s", "BUILD=build/arm64", compiler, f"AR={ARCHIVER}", headers, extension])
    package = ROOT / "lib/bindings/python/libtrapless"
    shutil.copytree(package, tmp_path / "libtrapless", ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(ROOT / extension, tmp_path / "libtrapless")
    libraries = [f"{root}/usr/lib/{ARM64.triplet}/{name}" for name in ("blas", "lapack")]
    emulated = [EMULATOR, "-E", f"LD_LIBRARY_PATH={':'.join(libraries)}", "-L", str(root)]
    tests = [f"tests/packages/test_python_{name}.py" for name in OF_PYTHON]
    alone = ["--noconftest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(ROOT)]
    words = ["-m", "pytest", "-q", *alone, f"--basetemp={tmp_path / 'emulated'}", *tests]
    shown = said(
        [*emulated, f"{root}/usr/bin/python3.11", *words],
        PYTHONPATH=f"{tmp_path}:{ROOT}",
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert " passed" in shown and "skipped" not in shown


def rust_tests(crate: str) -> list[Path]:
    """The test programs of a crate, which need no library of the machine they run on."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing: scripts/setup installs it")
    sysroot = Path(said(["rustc", "--print", "sysroot"]).strip())
    if not (sysroot / "lib/rustlib" / RUST).is_dir():
        pytest.skip(f"no library of Rust for arm64: rustup target add {RUST}")
    words = ["--offline", "--target", RUST, "--target-dir", str(BUILT / "rust")]
    listed = said(
        ["cargo", "test", "--no-run", "--message-format=json", *words],
        ROOT / "lib/bindings" / crate,
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=COMPILER,
        CC=COMPILER,
        AR=ARCHIVER,
        RUSTFLAGS="-C target-feature=+crt-static",
    )
    lines = [line for line in listed.splitlines() if '"kind":["test"]' in line]
    return [Path(line.partition('"executable":"')[2].partition('"')[0]) for line in lines]


@pytest.mark.parametrize("crate", ["rust", "rust-tokio"])
def test_rust(crate):
    programs = rust_tests(crate)
    assert programs
    skipped = [word for name in OF_FORK for word in ("--skip", name)]
    for program in programs:
        shown = said([EMULATOR, str(program), *skipped])
        passed = PASSED[program.name.rpartition("-")[0]]
        assert f"test result: ok. {passed} passed; 0 failed; 0 ignored" in shown
