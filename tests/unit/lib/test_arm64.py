# SPDX-License-Identifier: GPL-2.0-only
"""The library for arm64: it is cross-compiled, its table of calls is arm64's, and it makes them.

The emulator of single programs (qemu-user) runs those of the library's unit tests that ask for
nothing it lacks: it knows no seccomp, and passes no memory limit or MADV_WIPEONFORK on. The lab
runs all of them on an arm64 kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from trapless import calls
from trapless.base.paths import repo_root

ROOT = repo_root()
BUILT = ROOT / "build/arm64"
COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = next(filter(shutil.which, ("qemu-aarch64", "qemu-aarch64-static")), None)
EMULATED = (
    *("backend_is_chosen_and_reported", "batch_queues_and_flushes", "batch_survives_signals"),
    *("call_classes_are_told", "programs_pass_results_and_jump", "psc_serves_in_parallel"),
    "sched_waits_for_descriptors_and_time",
    *("unordered_batch_survives_signals", "walk_equals_readdir_and_stat"),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which(COMPILER), reason=f"no {COMPILER}: apt-get install gcc-aarch64-linux-gnu"
    ),
]


def make(*targets: str) -> None:
    argv = ["make", "-s", "BUILD=build/arm64", f"CC={COMPILER}", "AR=aarch64-linux-gnu-ar"]
    run = subprocess.run(
        [*argv, *targets], cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]


def emulated(program: Path) -> subprocess.CompletedProcess[str]:
    if EMULATOR is None:
        pytest.skip("no emulator of programs: apt-get install qemu-user-static")
    argv = [EMULATOR, str(program)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)


def test_numbers_are_those_of_the_kernels_headers():
    """Name by name. Headers may be older than the table, and leave out what other tables have."""
    run = subprocess.run(
        [COMPILER, "-E", "-dM", "-include", "asm/unistd.h", "-x", "c", os.devnull],
        capture_output=True,
        text=True,
        check=True,
    )
    macros = dict(re.findall(r"^#define __NR_?(\w+) (\S+)$", run.stdout, re.M))
    numbers = {}
    for name, value in macros.items():
        while not value.isdigit():
            value = macros[re.sub("^__NR_?", "", value)]
        if not name.startswith("3264_") and name not in ("syscalls", "arch_specific_syscall"):
            numbers[name] = int(value)
    newest = max(numbers.values())
    rows = {row.name: row.nr for row in calls.load("aarch64") if row.nr <= newest}
    assert rows.pop("memfd_secret") == 447  # the headers want to be asked for it
    numbers.pop("memfd_secret", None)
    assert rows == numbers


def test_examples_and_the_shared_library_are_built():
    examples = (ROOT / "examples").glob("*.c")
    make("build/arm64/lib/libtrapless.so", *(f"build/arm64/examples/{x.stem}" for x in examples))
    head = (BUILT / "lib/libtrapless.so").read_bytes()[:20]
    assert head[18:20] == b"\xb7\x00"  # EM_AARCH64
    run = emulated(BUILT / "examples/first")
    assert run.stdout.startswith("3 calls, one by one: the module is not loaded")
    assert "stat /: 0, inode " in run.stdout
    assert run.stdout.endswith("close -1: -9\n")


@pytest.mark.parametrize("name", EMULATED)
def test_the_plain_backend_works(name):
    make(f"build/arm64/tests/unit/lib_{name}")
    run = emulated(BUILT / "tests/unit" / f"lib_{name}")
    assert run.returncode == 0, run.stdout + run.stderr
