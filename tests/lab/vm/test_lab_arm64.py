# SPDX-License-Identifier: GPL-2.0-only
"""The lab runs a kernel of another processor: its tools, a program built for it, the unit tests of
the library that qemu-user cannot run (test_arm64.py), and the module's own programs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.lab.command import LIMIT_S
from tests.lab.vm.test_arm64_bindings import rust_tests
from trapless.base import built_programs
from trapless.base.architecture import ARM64
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import repo_root
from trapless.stock import kernels, real_programs
from trapless.vm import lab

ROOT = repo_root()
BUILT = ROOT / "build/arm64"
COMPILER = f"{ARM64.triplet}-gcc"
PROGRAMS = ("batch_has_typed_calls", "objects_are_inert_in_child", "sandboxes_lack_calls")
KERNEL = kernels.default(ARM64)
NEEDED = {COMPILER: f"gcc-{ARM64.triplet}", ARM64.qemu: ARM64.qemu_package}

pytestmark = [
    pytest.mark.timeout(4 * LIMIT_S),
    *(
        pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}: apt-get install {package}")
        for tool, package in NEEDED.items()
    ),
]

SAMPLE = (
    *("batch_keeps_order", "batch_passes_six_arguments", "batch_wraps_around_ring"),
    *("bad_pointers_are_efault", "batch_inside_batch_is_edeadlk", "traced_thread_is_busy"),
    *("seccomp_errno_holds_in_batch", "seccomp_trap_stops_batch", "seccomp_holds_in_programs"),
    *("signal_between_calls_stops_batch", "workers_serve_in_parallel"),
    "lib_poller_learns_that_the_module_stops",
)
"""What also runs where the whole set would take too long."""

SCRIPT = """
uname -m
/first
for test in /lib_*; do $test >/tmp/said 2>&1 || { echo $test; cat /tmp/said; }; done
exit 3
"""


LARGE_PAGES, NEWEST = f"{KERNEL}-16k", "newest"
NIGHTLY = pytest.mark.nightly


def config(kernel: str = KERNEL, **more: object) -> lab.LabConfig:
    return lab.LabConfig(arch=ARM64, kernel=kernel, **more)  # type: ignore[arg-type]


def make(*targets: str) -> None:
    argv = ["make", "-s", "BUILD=build/arm64", f"CC={COMPILER}", f"AR={ARM64.triplet}-ar"]
    subprocess.run([*argv, *targets], cwd=ROOT, check=True, timeout=1800)


@pytest.mark.parametrize(
    "name",
    [KERNEL, *(pytest.param(name, marks=NIGHTLY) for name in (LARGE_PAGES, NEWEST))],
    ids=["4k", "16k", "newest"],
)
def test_a_guest_of_another_processor_runs_the_library(name: str):
    targets = ["build/arm64/examples/first"]
    targets += [f"build/arm64/tests/unit/lib_{name}" for name in PROGRAMS]
    make(*targets)
    files = tuple((ROOT / path, f"/{os.path.basename(path)}") for path in targets)
    result = lab.run(config(name, files=files), ["sh", "-c", SCRIPT])
    assert result.status == 3, result.stderr
    said = result.stdout.decode().splitlines()
    assert said[:2] == ["aarch64", "3 calls, one crossing"]
    assert said[-1] == "close -1: -9", "unit tests failed"
    assert len(said) == 5
    assert "-arm64" in result.release and result.accelerator == "tcg"
    assert not lab.splats(result.kernel_log)


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        pytest.param(KERNEL, SAMPLE, id="sample"),
        pytest.param(KERNEL, (), marks=NIGHTLY, id="all"),
        pytest.param(LARGE_PAGES, SAMPLE, marks=NIGHTLY, id="large-pages"),
        pytest.param(NEWEST, (), marks=NIGHTLY, id="newest"),
    ],
)
def test_the_module_keeps_its_promises(name: str, tests: tuple[str, ...]):
    make("build/arm64/tests/lab/labtests")
    listed = (BUILT / "tests/lab/tests.inc").read_text().split()
    known = [word.removeprefix("TEST(").removesuffix(")") for word in listed]
    assert set(tests) <= set(known)
    argv = [f"{test}={LIMIT_S}" for test in tests or known]
    program = str(BUILT / "tests/lab/labtests")
    result = lab.run(config(name, timeout_s=4 * LIMIT_S), [program, "--each", *argv])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    ended = {row["test"]: row for row in rows if "test" in row}
    assert list(ended) == list(tests or known)
    for test, row in ended.items():
        assert (row["end"], row["in_use"]) == ("exit", 0), test
        assert row["code"] in (0, 77), f"{test}: {row['output']}"
        assert not lab.splats(row["kernel"]), test


def test_an_experiment_is_built_for_it_and_counts():
    libraries = real_programs.foreign_libraries(ARM64, Silent())
    path = "eval/batch_size/batch-size"
    built_programs.cross_build(ARM64, [path], libraries, Silent())
    of_calls = ["--calls", "getppid", "--mechanisms", "plain,batch", "--sizes", "3,32"]
    argv = [str(BUILT / path), "--kind", "counted", "--repeats", "2", *of_calls]
    rows = [json.loads(line) for line in lab.run(config(icount=True), argv).stdout.splitlines()]
    least: dict[tuple[str, int], float] = {}
    for row in rows:
        if row.get("kind") == "counted":
            key, cost = (row["mechanism"], row["n"]), row["value"] / row["ops"]
            least[key] = min(cost, least.get(key, cost))
    assert least["batch", 3] < least["plain", 3]
    assert least["batch", 32] < 0.45 * least["plain", 32]


@pytest.mark.nightly
def test_the_crate_for_rust_makes_batches_there():
    programs = {f"/rust_{path.name.rpartition('-')[0]}": path for path in rust_tests("rust")}
    files = tuple((path, target) for target, path in programs.items())
    env = (("TRAPLESS_BACKEND", "module"),)
    script = "for test in /rust_*; do $test || exit; done"
    result = lab.run(config(files=files, env=env), ["sh", "-c", script])
    assert result.status == 0, result.stdout.decode()[-3000:]
    assert result.stdout.count(b"test result: ok.") == len(programs) == 3
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
