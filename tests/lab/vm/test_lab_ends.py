# SPDX-License-Identifier: GPL-2.0-only
"""How a run of `trapless lab` ends when it does not end well, and that nothing stays behind.

Guests that panic, hang or leave, launchers that are killed, machines without QEMU or without root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.command import LIMIT_S, ROOT, own_vms, run_lab, wait_until
from tests.notes import Notes
from trapless.base.console import Silent, TraplessError
from trapless.stock import kbuild, kernels
from trapless.vm import lab

NOBODY = 65534

pytestmark = pytest.mark.timeout(2 * LIMIT_S)


# ---- Ends that are not success -------------------------------------------------------------------


def test_panic_is_an_error_with_its_trace():
    # What the guest's init has not passed on when the kernel dies is lost with it.
    done = run_lab("sh", "-c", "echo before; sleep 2; echo c > /proc/sysrq-trigger")
    assert done.returncode == 1
    assert done.stdout == b"before\n"
    assert b"kernel panicked before the command finished" in done.stderr
    assert b"sysrq triggered crash" in done.stderr


@pytest.fixture
def complaining(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """complain.ko for `kernel`, built by the product's own way into kbuild."""
    resolved = kernels.resolve(kernel, Silent())
    tree = tmp_path / "tree"
    (tree / "kmod").mkdir(parents=True)
    shutil.copy(ROOT / "tests/lab/modules/complain/complain.c", tree / "kmod")
    (tree / "kmod/Kbuild").write_text("obj-m := trapless.o\ntrapless-y := complain.o\n")
    with monkeypatch.context() as patch:
        patch.setattr(kbuild, "repo_root", lambda: tree)
        patch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
        return kbuild.module_for(resolved, Silent())


def complain(kernel: str, module: Path, kind: str) -> lab.LabResult:
    config = lab.LabConfig(kernel=kernel, module=False, files=((module, "/complain.ko"),))
    return lab.run(config, ["sh", "-c", f"insmod /complain.ko kind={kind}; echo survived"])


@pytest.mark.tool
def test_complaint_of_a_kernel_is_found_and_an_oops_fails_the_run(kernel, complaining):
    result = complain(kernel, complaining, "warn")
    assert result.stdout == b"survived\n"
    (found,) = lab.splats(result.kernel_log)
    assert found.startswith("WARNING: ")
    assert "complain" in found
    # The command could go on.
    with pytest.raises(lab.LabError, match="kernel panicked before the command") as caught:
        complain(kernel, complaining, "null-pointer")
    assert "null_pointer" in str(caught.value)  # the trace is shown
    assert "Fatal exception" in lab.splats(caught.value.kernel_log)[-1]


@pytest.mark.parametrize("way", ["reboot -f", "poweroff -f"])
def test_guest_that_leaves_early_is_an_error(way):
    done = run_lab("sh", "-c", way)
    assert done.returncode == 1
    assert b"ended before the command finished" in done.stderr


def test_time_limit_ends_the_vm_and_says_so():
    done = run_lab("sleep", "100000", options=("--timeout", "2"))
    assert done.returncode == 1
    assert b"time limit of 2 s" in done.stderr


def test_a_command_that_writes_nothing_any_more_ends_the_vm():
    config = lab.LabConfig(module=False, output_limit_s=15, timeout_s=LIMIT_S)
    script = "for second in $(seq 20); do sleep 1; echo $second; done; sleep 100000"
    pieces: list[bytes] = []
    with pytest.raises(lab.LabError, match="wrote nothing for 15 s") as raised:
        lab.run(config, ["sh", "-c", script], sink=pieces.append, progress=Silent())
    assert raised.value.timed_out and b"".join(pieces).endswith(b"\n20\n")


@pytest.mark.parametrize(("missed", "again"), [(False, 1), (True, 3)])
def test_vm_that_never_boots_is_started_once_more_with_its_monitor(
    missed, again, tmp_path, monkeypatch
):
    path, there, go = tmp_path / "monitor", [], lab._Attempt.go

    def looking(self, *arguments):
        there.append(path.exists())
        return go(self, *arguments)

    monkeypatch.setattr(lab._Attempt, "go", looking)
    monkeypatch.setattr(lab, "emulator_missed_a_patch", lambda log: missed)
    notes = Notes()
    dies = "rdinit=/no/such/init init=/none root=none"
    with pytest.raises(TraplessError, match="panicked before its init ran"):
        lab.run(lab.LabConfig(module=False, monitor=path, append=dies), ["true"], progress=notes)
    assert there == [True] * (again + 1) and not path.exists()
    assert len(notes.said) == again
    for said in notes.said:
        assert said.startswith("the VM did not reach its init: the guest's kernel panicked before ")
        assert said.endswith("; starting it once more")


def test_absent_qemu_names_its_package(tmp_path):
    for tool in ("sh", "cc", "busybox", "setpriv", "readlink", "ldconfig", "as", "ld"):
        for folder in ("/usr/bin", "/sbin", "/usr/sbin"):
            if (Path(folder) / tool).exists() and not (tmp_path / tool).exists():
                (tmp_path / tool).symlink_to(Path(folder) / tool)
    done = run_lab("sh", env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert b"apt-get install qemu-system-x86" in done.stderr


def test_bad_memory_size_is_wrong_usage():
    done = run_lab("true", options=("--memory", "lots"))
    assert done.returncode == 2
    assert b"'lots'" in done.stderr


# ---- Nothing is left behind ----------------------------------------------------------------------


@pytest.fixture
def traces(tmp_path: Path) -> Iterator[tuple[str, dict[str, str], Path]]:
    """A mark for one run's QEMU, an environment with its own temporary folder, that folder."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    mark = f"mark.{os.getpid()}.{time.monotonic_ns()}"
    yield mark, {**os.environ, "TMPDIR": str(folder)}, folder
    assert wait_until(lambda: not own_vms(mark))
    assert list(folder.iterdir()) == []


def started(mark: str, environment: dict[str, str], running: bool) -> subprocess.Popen[bytes]:
    """A launcher whose VM is booting, or whose command is running."""
    code = (
        "import signal\nfrom trapless import cli\nfrom trapless.vm import lab, qemu\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # nohup above us has it ignored
        "plain = qemu.kernel_command_line\n"
        f"qemu.kernel_command_line = lambda machine: plain(machine) + ' {mark}'\n"
        "cli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "lab", "--no-module", "--", "sh", "-c", "echo up; sleep 999"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    if running:
        assert process.stdout.readline() == b"up\n"
    assert wait_until(lambda: own_vms(mark))
    return process


@pytest.mark.parametrize("running", [False, True], ids=["booting", "running"])
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
    ids=["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"],
)
def test_signal_leaves_nothing_behind(traces, number, status, running):
    mark, environment, _ = traces
    process = started(mark, environment, running)
    process.send_signal(number)
    assert process.wait(30) in (status, 128 + number)


def test_vm_killed_from_outside_is_an_error(traces):
    mark, environment, _ = traces
    process = started(mark, environment, running=True)
    for pid in own_vms(mark):
        os.kill(pid, signal.SIGKILL)
    assert process.wait(30) == 1


def test_success_leaves_nothing_behind(traces):
    _, environment, folder = traces
    assert run_lab("true", env=environment).returncode == 0
    assert list(folder.iterdir()) == []


def test_kept_files_are_there_and_verbose_shows_the_kernels_log(tmp_path):
    done = run_lab("true", options=("--keep", "-vv"), env={"TMPDIR": str(tmp_path)})
    (folder,) = tmp_path.iterdir()
    assert f"kept: {folder}".encode() in done.stderr
    assert b"Linux version" in (folder / "kernel.log").read_bytes()
    assert (folder / "initramfs.cpio").read_bytes().startswith(b"070701")
    assert "qemu-system" in (folder / "qemu.argv").read_text()
    assert b"Linux version" in done.stderr
    assert b"-kernel" in done.stderr


# ---- Without root --------------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
from pathlib import Path
from trapless import cli
from trapless.stock import kbuild, kernels
from trapless.vm import lab
from trapless.base.console import Silent
kernel = kernels.resolve(kernels.SUPPORTED[0].name, Silent())
kernels.resolve = lambda *_: kernel
os.environ["TRAPLESS_CACHE"] = sys.argv[1]
lab.run(lab.LabConfig(module=False, memory="128M"), ["true"])  # imports all there is to import
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
result = lab.run(lab.LabConfig(module=False), ["id", "-u"])
print(os.getuid(), result.status, result.stdout.decode().strip())
"""


def test_no_root_is_needed(tmp_path):
    """The VM runs as nobody, who may write nowhere; inside, the command is root."""
    image = kernels.resolve(kernels.SUPPORTED[0].name, Silent()).image
    readable = all(os.stat(parent).st_mode & 0o005 == 0o005 for parent in image.parents)
    code = AS_NOBODY
    if not readable:  # the cache is in a private home: give nobody a copy of the image
        copy = Path("/tmp") / f"trapless-test-{os.getpid()}"
        copy.write_bytes(image.read_bytes())
        copy.chmod(0o644)
        code = code.replace(
            "kernels.resolve = lambda",
            f"import dataclasses; kernel = dataclasses.replace(kernel, image=Path('{copy}'))\n"
            "kernels.resolve = lambda",
        )
    cache = Path("/tmp") / f"trapless-test-cache-{os.getpid()}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(cache)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        uid = NOBODY if os.getuid() == 0 else os.getuid()
        assert done.stdout == f"{uid} 0 0\n", done.stderr
    finally:
        subprocess.run(["rm", "-rf", str(cache), f"/tmp/trapless-test-{os.getpid()}"], check=True)
