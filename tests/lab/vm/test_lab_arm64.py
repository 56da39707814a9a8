# SPDX-License-Identifier: GPL-2.0-only
"""The lab runs a kernel of another processor: its tools, a program built for it, and all unit tests
of the library that qemu-user cannot run (test_arm64.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.lab.command import LIMIT_S
from trapless.base.architecture import ARM64
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import repo_root
from trapless.stock import kernels
from trapless.vm import lab

ROOT = repo_root()
BUILT = ROOT / "build/arm64"
COMPILER = f"{ARM64.triplet}-gcc"
PROGRAMS = ("batch_has_typed_calls", "objects_are_inert_in_child", "sandboxes_lack_calls")
KERNEL = kernels.OF_OTHERS[ARM64.name][0]
NEEDED = {COMPILER: f"gcc-{ARM64.triplet}", ARM64.qemu: ARM64.qemu_package}

pytestmark = [
    pytest.mark.timeout(4 * LIMIT_S),
    *(
        pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}: apt-get install {package}")
        for tool, package in NEEDED.items()
    ),
]

SCRIPT = """
uname -m
/first
for test in /lib_*; do $test >/tmp/said 2>&1 || { echo $test; cat /tmp/said; }; done
exit 3
"""


def config(**more: object) -> lab.LabConfig:
    return lab.LabConfig(arch=ARM64, kernel=KERNEL, **more)  # type: ignore[arg-type]


def test_a_guest_of_another_processor_runs_the_library():
    targets = ["build/arm64/examples/first"]
    targets += [f"build/arm64/tests/unit/lib_{name}" for name in PROGRAMS]
    make = ["make", "-s", "BUILD=build/arm64", f"CC={COMPILER}", f"AR={ARM64.triplet}-ar"]
    subprocess.run([*make, *targets], cwd=ROOT, check=True, timeout=1800)
    files = tuple((ROOT / path, f"/{os.path.basename(path)}") for path in targets)
    result = lab.run(config(files=files), ["sh", "-c", SCRIPT])
    assert result.status == 3, result.stderr
    said = result.stdout.decode().splitlines()
    assert said[0] == "aarch64" and said[1].startswith("3 calls, ")
    assert said[-1] == "close -1: -9", "unit tests failed"
    assert len(said) == 5
    assert result.release.endswith("-arm64") and result.accelerator == "tcg"
    assert not lab.splats(result.kernel_log)


@pytest.mark.parametrize(
    ("more", "argv", "said"),
    [
        ({}, [str(ROOT / "build/sampler/trapless-sampler")], "copies only those for arm64"),
        ({"host_root": True}, ["true"], "--host-root runs this machine's programs"),
        ({"supervisor": 0}, ["true"], "no supervisor mode: .*PXN"),
    ],
)
def test_what_another_processor_cannot_run_is_refused(more, argv, said):
    with pytest.raises(TraplessError, match=said):
        lab.prepare(config(**more), argv, Silent())


def test_other_kernels_are_refused_by_name():
    with pytest.raises(TraplessError, match=rf"no kernel 'debug' for arm64; give one of {KERNEL}"):
        lab.prepare(lab.LabConfig(arch=ARM64, kernel="debug"), ["true"], Silent())
