# SPDX-License-Identifier: GPL-2.0-only
"""The Debian packages for arm64: they are cross-built, lintian finds no fault with them, and they
work in a root of Debian for arm64.

The libraries run there in the emulator of single programs (qemu-user), and the module, which is
built from DKMS's source as DKMS's file says, on a kernel in the lab. No package manager runs in
that root: the emulator cannot start the programs of the packages' scripts.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.lab.vm.test_arm64_bindings import COMPILER, EMULATOR, LIMIT_S, ROOT, pytestmark
from trapless import __version__
from trapless.base.architecture import ARM64
from trapless.base.console import Silent
from trapless.stock import kbuild, kernels, real_programs
from trapless.vm import lab

__all__ = ["pytestmark"]
NAMES = ("libtrapless-dev", "libtrapless0", "python3-libtrapless", "trapless-dkms")
FIRST = ROOT / "examples/first.c"
BATCH = """
from libtrapless import Batch

buffer = bytearray(4096)
with Batch(32) as batch:
    file = batch.openat("/proc/version")
    read = batch.read(file, buffer)
    batch.close_file(file)
    print(batch.flush(), buffer[: read.result()].split()[0].decode())
"""


def said(*words: str | Path, **env: str) -> str:
    done = subprocess.run(
        words, env=os.environ | env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def python_root() -> Path:
    packages = ("python3-dev", "python3-numpy", "python3-pytest")
    return real_programs.unpacked(Silent(), packages, (), f"python3-{ARM64.name}", ARM64).root


@pytest.fixture(scope="module")
def packages(python_root: Path) -> list[Path]:
    words = (ROOT / "scripts/deb", "--arch", ARM64.name)
    return [Path(line) for line in said(*words, PYTHON_ROOT=str(python_root)).splitlines()]


@pytest.fixture(scope="module")
def root(packages, python_root, tmp_path_factory) -> Path:
    """A root for arm64 that has the packages' files."""
    root = tmp_path_factory.mktemp("arm64") / "root"
    said("cp", "-a", "--reflink=auto", python_root, root)
    for package in packages:
        said("dpkg-deb", "-x", package, root)
    return root


def compiled(root: Path, program: Path, *options: str) -> Path:
    """The first example, by the headers, the library and the pkg-config file of the packages."""
    places = root / f"usr/lib/{ARM64.triplet}/pkgconfig"
    where = {"PKG_CONFIG_SYSROOT_DIR": str(root), "PKG_CONFIG_LIBDIR": str(places)}
    words = said("pkg-config", "--cflags", "--libs", "trapless", **where).split()
    said(COMPILER, f"--sysroot={root}", *options, "-o", program, FIRST, *words)
    return program


def test_lintian_finds_no_fault(packages):
    assert [path.name.partition("_")[0] for path in packages] == list(NAMES)
    words = ("lintian", "--allow-root", "--fail-on", "error,warning")
    assert said(*words, *packages) == ""


def test_a_program_is_compiled_and_runs(root, tmp_path):
    program = compiled(root, tmp_path / "first")
    shown = said(EMULATOR, "-L", root, program)
    assert shown.startswith("3 calls, one by one: the module is not loaded ")
    assert shown.endswith("close -1: -9\n")


def test_python_makes_a_batch(root):
    python = root / "usr/bin/python3.11"
    assert said(EMULATOR, "-L", root, python, "-I", "-c", BATCH) == "3 Linux\n"


def test_the_module_is_built_by_dkms_words_and_serves(root, tmp_path):
    tree = root / f"usr/src/trapless-{__version__}"
    words = f". {tree}/dkms.conf; [[ {ARM64.machine} =~ $BUILD_EXCLUSIVE_ARCH ]]"
    said("bash", "-c", words, kernel_source_dir="", dkms_tree="")
    kernel = kernels.resolve(kernels.default(ARM64), Silent(), ARM64)
    built = [
        kbuild.module_for(kernel, Silent(), tree, name)
        for name in ("trapless.ko", "rdma/trapless_rdma.ko")
    ]
    first = compiled(root, tmp_path / "first", "-static")
    files = ((built[0], "/trapless.ko"), (first, "/first"))
    config = lab.LabConfig(arch=ARM64, kernel=kernel.name, module=False, files=files)
    result = lab.run(config, ["sh", "-c", "insmod /trapless.ko && /first"])
    assert result.status == 0, result.stderr
    assert result.stdout.startswith(b"3 calls, one crossing\n")
    assert not lab.splats(result.kernel_log)
