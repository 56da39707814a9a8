# SPDX-License-Identifier: GPL-2.0-only
"""What `trapless lab` promises about any command, checked in real VMs.

Most tests go through bin/trapless, as a person would; all of them can run beside other VMs.
The module is left out except where it matters: these are tests of the lab.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trapless import kbuild, kernels, lab
from trapless.console import Silent, TraplessError

ROOT = Path(__file__).resolve().parents[2]
COMMAND = str(ROOT / "bin/trapless")
LIMIT_S = 180
NOBODY = 65534

pytestmark = pytest.mark.timeout(2 * LIMIT_S)


def trapless(*argv: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command line of a lab run without the module."""
    return [COMMAND, "lab", "--no-module", *options, "--", *argv]


def run_lab(
    *argv: str, options: tuple[str, ...] = (), stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run `argv` in a VM through the command; its output is collected."""
    return subprocess.run(
        trapless(*argv, options=options),
        input=stdin,
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, **(env or {})},
        check=False,
    )


def own_vms(mark: str) -> list[int]:
    """Process ids of QEMUs whose command line has `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if b"qemu-system" in line and mark.encode() in line:
                    found.append(int(entry.name))
    return found


def wait_until(condition, limit_s: float = LIMIT_S) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


# ---- Status and streams --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 255", 255),
        ("kill -KILL $$", 128 + signal.SIGKILL),
        ("ulimit -c 0; kill -SEGV $$", 128 + signal.SIGSEGV),
    ],
)
def test_status_is_the_commands(script, status):
    assert run_lab("sh", "-c", script).returncode == status


def test_command_that_cannot_be_executed_is_reported(tmp_path):
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x7fnot an executable format")
    damaged.chmod(0o755)
    done = run_lab(str(damaged))
    assert done.returncode == 126
    assert b"cannot execute" in done.stderr


def test_unknown_command_starts_no_vm():
    began = time.monotonic()
    done = run_lab("no-such-program-anywhere")
    assert done.returncode == 127
    assert b"no-such-program-anywhere" in done.stderr
    assert time.monotonic() - began < 5


def test_streams_are_separate_and_binary_safe(tmp_path):
    every_byte = bytes(range(256)) * 3
    script = "cat; cat /bytes >&2"
    (tmp_path / "bytes").write_bytes(every_byte[::-1])
    config = lab.LabConfig(module=False, files=((tmp_path / "bytes", "/bytes"),))
    result = lab.run(config, ["sh", "-c", script], stdin=every_byte)
    assert result.stdout == every_byte
    assert result.stderr == every_byte[::-1]


def test_arguments_and_environment_arrive_whole():
    words = ["a b", "", "$HOME", "*", "it's", 'a"b', "line\nbreak", "\u00fc"]
    config = lab.LabConfig(module=False, env=(("NAME", "a value=with = signs"),))
    script = 'for i in "$@"; do printf "[%s]" "$i"; done; printf "%s" "$NAME"'
    result = lab.run(config, ["sh", "-c", script, "sh", *words])
    assert result.stdout.decode() == "".join(f"[{word}]" for word in words) + "a value=with = signs"


def test_hundred_megabytes_arrive_whole():
    done = run_lab("sh", "-c", "dd if=/dev/zero bs=1M count=100 2>/dev/null | tr '\\0' x; echo end")
    assert done.returncode == 0
    assert len(done.stdout) == 100 * (1 << 20) + 4
    assert hashlib.sha256(done.stdout).digest() == (
        hashlib.sha256(b"x" * (100 << 20) + b"end\n").digest()
    )


def test_large_input_goes_in_and_comes_back():
    data = os.urandom((10 << 20) + 17)
    assert run_lab("cat", stdin=data).stdout == data


def test_output_is_seen_while_the_command_runs():
    process = subprocess.Popen(
        trapless("sh", "-c", "echo first; read line; echo got $line"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    process.stdin.write(b"second\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"got second\n"
    assert process.wait(LIMIT_S) == 0


def test_output_of_a_command_that_left_a_daemon_is_complete():
    done = run_lab("sh", "-c", "sleep 1000 & echo said; exit 4")
    assert (done.returncode, done.stdout) == (4, b"said\n")


def test_reader_that_leaves_ends_the_command():
    shell = f"{' '.join(trapless('yes'))} | head -n 2; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, timeout=LIMIT_S, check=False)
    assert done.stdout == b"y\ny\n"
    assert done.returncode == 128 + signal.SIGPIPE


def test_full_disk_on_this_side_is_an_error():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            trapless("echo", "text"), stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_S
        )
    assert done.returncode == 1
    assert b"standard output: No space left on device" in done.stderr


# ---- The guest -----------------------------------------------------------------------------------


def test_guest_is_an_ordinary_system():
    script = """
set -e
test "$(id -u)" = 0
test "$(su user -c 'id -u')" = 1000
ping -c 1 -W 5 127.0.0.1 >/dev/null
echo works > /dev/shm/file; cat /dev/shm/file > /tmp/file
su user -c 'echo mine > /tmp/mine'
test -e /sys/kernel/debug/sched
test -e /sys/kernel/tracing/trace
test -c /dev/ptmx
test -d /dev/pts
echo x | cat /dev/stdin > /dev/null
test "$(ulimit -c)" = unlimited
pwd
"""
    done = run_lab("sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr[-200:]) == (0, b"/root\n", done.stderr[-200:])


def test_module_is_loaded():
    result = lab.run(lab.LabConfig(), ["sh", "-c", "cat /proc/modules; ls /dev/trapless"])
    assert result.stdout.startswith(b"trapless ")
    assert result.stdout.endswith(b"/dev/trapless\n")
    assert lab.splats(result.kernel_log) == []


def test_stock_module_is_loaded_with_parameters():
    config = lab.LabConfig(module=False, modules=(("null_blk", "nr_devices=3 gb=1"),))
    result = lab.run(config, ["sh", "-c", "ls /sys/block | grep -c nullb"])
    assert result.stdout == b"3\n"


def test_module_the_kernel_refuses_is_an_error(tmp_path):
    config = lab.LabConfig(module=False, modules=(("null_blk", "nr_devices=none"),))
    with pytest.raises(TraplessError, match=r"(?s)could not be prepared.*refused module.*null_blk"):
        lab.run(config, ["true"])


def test_host_root_runs_any_program_where_we_are(tmp_path):
    (tmp_path / "input").write_text("from the host")
    code = "import json,os;print(open('input').read(), os.getcwd());open('input','w').write('x')"
    done = subprocess.run(
        trapless(sys.executable, "-c", code, options=("--host-root",)),
        cwd=tmp_path,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout.decode() == f"from the host {tmp_path}\n", done.stderr
    assert (tmp_path / "input").read_text() == "from the host"  # the guest wrote to its own layer


def test_files_are_laid_over_the_hosts_root(tmp_path):
    (tmp_path / "hosts").write_text("laid over\n")
    config = lab.LabConfig(
        module=False, host_root=True, files=((tmp_path / "hosts", "/etc/hosts"),)
    )
    assert lab.run(config, ["cat", "/etc/hosts"]).stdout == b"laid over\n"


def test_host_root_has_the_module_too():
    result = lab.run(lab.LabConfig(host_root=True), ["cat", "/proc/modules"])
    assert b"trapless " in result.stdout


def test_cpus_and_memory_are_as_asked():
    config = lab.LabConfig(module=False, cpus=3, memory="600M")
    result = lab.run(config, ["sh", "-c", "nproc; grep MemTotal /proc/meminfo"])
    cpus, total = re.findall(rb"\d+", result.stdout)
    assert int(cpus) == 3
    assert 500 << 10 < int(total) < 600 << 10


def test_too_little_memory_for_the_files_is_refused(tmp_path):
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", 100 << 20)
    config = lab.LabConfig(module=False, memory="128M", files=((tmp_path / "big", "/big"),))
    with pytest.raises(TraplessError, match=r"too much for a guest with 128M.*--memory"):
        lab.run(config, ["true"])


def test_boots_quickly():
    """The promise is ten seconds on a quiet machine; this bound is for one that is not."""
    result = lab.run(lab.LabConfig(module=False), ["true"])
    assert 0 < result.boot_s < 60


# ---- icount --------------------------------------------------------------------------------------

COUNTER = """
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
    for (int round = 0; round < 10; round++) {
        unsigned long before = __builtin_ia32_rdtsc();
        for (int i = 0; i < 2000; i++)
            syscall(SYS_getppid);
        printf("%lu %lu\\n", before, __builtin_ia32_rdtsc() - before);
    }
}
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints how many instructions the kernel's path took, and when."""
    folder = tmp_path_factory.mktemp("counter")
    (folder / "counter.c").write_text(COUNTER)
    command = ["cc", "-O2", "-static", "-o", str(folder / "counter"), str(folder / "counter.c")]
    subprocess.run(command, check=True, timeout=60)
    return folder / "counter"


def test_counts_repeat_to_the_instruction(counter):
    config = lab.LabConfig(module=False, icount=True)
    runs = [lab.run(config, [str(counter)]).stdout for _ in range(2)]
    assert len(runs[0].splitlines()) == 10
    assert runs[0] == runs[1]


def test_icount_refuses_more_than_one_cpu():
    done = run_lab("true", options=("--icount", "--cpus", "2"))
    assert done.returncode == 2
    assert b"one CPU" in done.stderr


# ---- Ends that are not success -------------------------------------------------------------------


def test_panic_is_an_error_with_its_trace():
    done = run_lab("sh", "-c", "echo before; echo c > /proc/sysrq-trigger")
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
    shutil.copy(Path(__file__).parent / "complain/complain.c", tree / "kmod")
    (tree / "kmod/Kbuild").write_text("obj-m := trapless.o\ntrapless-y := complain.o\n")
    with monkeypatch.context() as patch:
        patch.setattr(kbuild, "repo_root", lambda: tree)
        patch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
        return kbuild.module_for(resolved, Silent())


def complain(kernel: str, module: Path, kind: str) -> lab.LabResult:
    config = lab.LabConfig(kernel=kernel, module=False, files=((module, "/complain.ko"),))
    return lab.run(config, ["sh", "-c", f"insmod /complain.ko kind={kind}; echo survived"])


def test_oops_fails_the_run_though_the_command_could_go_on(kernel, complaining):
    with pytest.raises(lab.LabError, match="kernel panicked before the command") as caught:
        complain(kernel, complaining, "null-pointer")
    assert "null_pointer" in str(caught.value)  # the trace is shown
    assert "Fatal exception" in lab.splats(caught.value.kernel_log)[-1]


def test_complaint_of_a_kernel_is_found(kernel, complaining):
    result = complain(kernel, complaining, "warn")
    assert result.stdout == b"survived\n"
    (found,) = lab.splats(result.kernel_log)
    assert found.startswith("WARNING: ")
    assert "complain" in found


@pytest.mark.parametrize("way", ["reboot -f", "poweroff -f"])
def test_guest_that_leaves_early_is_an_error(way):
    done = run_lab("sh", "-c", way)
    assert done.returncode == 1
    assert b"ended before the command finished" in done.stderr


def test_time_limit_ends_the_vm_and_says_so():
    began = time.monotonic()
    done = run_lab("sleep", "1000", options=("--timeout", "2"))
    assert done.returncode == 1
    assert b"time limit of 2 s" in done.stderr
    assert time.monotonic() - began < 60


def test_vm_that_never_boots_is_started_once_more():
    notes: list[str] = []

    class Notes(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    config = lab.LabConfig(module=False, append="rdinit=/no/such/init init=/none root=none")
    with pytest.raises(TraplessError, match="panicked before its init ran"):
        lab.run(config, ["true"], progress=Notes())
    assert notes == ["the VM did not reach its init; starting it once more"]


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
    assert wait_until(lambda: not own_vms(mark), 10)
    assert list(folder.iterdir()) == []


def started(mark: str, environment: dict[str, str], running: bool) -> subprocess.Popen[bytes]:
    """A launcher whose VM is booting, or whose command is running."""
    code = (
        "from trapless import cli, lab, qemu\n"
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
    assert wait_until(lambda: own_vms(mark), 30)
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


def test_kept_files_are_there_and_named(tmp_path):
    done = run_lab("true", options=("--keep",), env={"TMPDIR": str(tmp_path)})
    (folder,) = tmp_path.iterdir()
    assert f"kept: {folder}".encode() in done.stderr
    assert b"Linux version" in (folder / "kernel.log").read_bytes()
    assert (folder / "initramfs.cpio").read_bytes().startswith(b"070701")
    assert "qemu-system" in (folder / "qemu.argv").read_text()


def test_verbose_shows_the_kernels_log():
    done = run_lab("true", options=("-vv",))
    assert b"Linux version" in done.stderr
    assert b"-kernel" in done.stderr


# ---- Without root --------------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
from pathlib import Path
from trapless import cli, kbuild, kernels, lab
from trapless.console import Silent
kernel = kernels.resolve(kernels.SUPPORTED[0].name, Silent())
kernels.resolve = lambda name, progress: kernel
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


# ---- Every kernel --------------------------------------------------------------------------------


def test_each_kernel_boots_to_the_command(kernel):
    config = lab.LabConfig(kernel=kernel, module=False)
    result = lab.run(config, ["uname", "-r"], stdin=b"")
    assert result.stdout.decode().strip() == result.release or kernel == "debug"
    assert lab.splats(result.kernel_log) == []


def test_each_kernel_mounts_the_hosts_root(kernel):
    config = lab.LabConfig(kernel=kernel, module=False, host_root=True, memory="2G")
    assert lab.run(config, ["cat", str(Path(__file__))]).stdout == Path(__file__).read_bytes()
