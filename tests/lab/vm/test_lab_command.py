# SPDX-License-Identifier: GPL-2.0-only
"""What `trapless lab` promises to a command that can be run, checked in real VMs.

Most tests go through bin/trapless; the module is left out except where it matters. What happens
when a run goes wrong is in test_lab_ends.py.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.command import LIMIT_S, run_lab, trapless
from trapless.base.console import TraplessError
from trapless.vm import lab

pytestmark = pytest.mark.timeout(2 * LIMIT_S)

BOOT_MAX_S = 4
"""Of the guest's clock, one ns an instruction: from its first to the command's. It takes 1.9."""


# ---- Status and streams --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("cat; exit 255", 255),
        ("cat && kill -KILL $$", 128 + signal.SIGKILL),
        ("ulimit -c 0; kill -SEGV $$", 128 + signal.SIGSEGV),
    ],
)
def test_status_is_the_commands_that_has_seen_the_end_of_its_empty_input(script, status):
    assert run_lab("sh", "-c", script).returncode == status


def test_command_that_cannot_be_executed_is_reported(tmp_path):
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x7fnot an executable format")
    damaged.chmod(0o755)
    done = run_lab(str(damaged))
    assert done.returncode == 126
    assert b"cannot execute" in done.stderr


def test_unknown_command_starts_no_vm():
    done = run_lab("no-such-program-anywhere", options=("-vv",))
    assert done.returncode == 127
    assert b"no-such-program-anywhere" in done.stderr
    assert b"qemu-system" not in done.stderr


def test_streams_arguments_and_environment_arrive_whole(tmp_path):
    """Every byte goes in and comes back, and megabytes do; standard error is another stream."""
    every_byte = bytes(range(256)) * 3
    data = every_byte + os.urandom((10 << 20) + 17)
    words = ["a b", "", "$HOME", "*", "it's", 'a"b', "line\nbreak", "\u00fc"]
    (tmp_path / "bytes").write_bytes(every_byte[::-1])
    config = lab.LabConfig(
        module=False,
        files=((tmp_path / "bytes", "/bytes"),),
        env=(("NAME", "a value=with = signs"),),
    )
    script = 'for i in "$@"; do printf "[%s]" "$i"; done; printf "%s" "$NAME"; cat; cat /bytes >&2'
    result = lab.run(config, ["sh", "-c", script, "sh", *words], stdin=data)
    said = "".join(f"[{word}]" for word in words) + "a value=with = signs"
    assert result.stdout == said.encode() + data
    assert result.stderr == every_byte[::-1]


def test_hundred_megabytes_arrive_whole():
    done = run_lab("sh", "-c", "dd if=/dev/zero bs=1M count=100 2>/dev/null | tr '\\0' x; echo end")
    assert done.returncode == 0
    assert len(done.stdout) == 100 * (1 << 20) + 4
    assert hashlib.sha256(done.stdout).digest() == (
        hashlib.sha256(b"x" * (100 << 20) + b"end\n").digest()
    )


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


def test_guest_is_an_ordinary_system_with_what_was_asked_for():
    """Its processors, its memory, and a stock module with its parameters."""
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
nproc
grep MemTotal /proc/meminfo
ls /sys/block | grep -c nullb
"""
    config = lab.LabConfig(
        module=False, cpus=3, memory="600M", modules=(("null_blk", "nr_devices=3 gb=1"),)
    )
    done = lab.run(config, ["sh", "-c", script])
    assert done.status == 0, done.stderr
    home, cpus, total, devices = done.stdout.decode().splitlines()
    assert (home, cpus, devices) == ("/root", "3", "3")
    assert 500 << 10 < int(re.findall(r"\d+", total)[0]) < 600 << 10


def test_module_is_loaded_and_booting_takes_few_instructions():
    """Seconds on a quiet machine. Under --icount the guest's clock counts instructions, so that a
    busy one finds the same."""
    script = "cat - /proc/modules; ls /dev/trapless; cat /proc/uptime"
    result = lab.run(lab.LabConfig(icount=True), ["sh", "-c", script])
    module, *_, device, uptime = result.stdout.decode().splitlines()
    assert module.startswith("trapless ")
    assert device == "/dev/trapless"
    assert 0 < float(uptime.split()[0]) < BOOT_MAX_S
    assert lab.splats(result.kernel_log) == []
    assert result.boot_s > 0


def test_module_the_kernel_refuses_is_an_error(tmp_path):
    config = lab.LabConfig(module=False, modules=(("null_blk", "nr_devices=none"),))
    with pytest.raises(TraplessError, match=r"(?s)could not be prepared.*refused module.*null_blk"):
        lab.run(config, ["true"])


def test_host_root_runs_any_program_where_we_are(tmp_path):
    (tmp_path / "input").write_text("from the host")
    code = "import os,sys;print(open('input').read(), sys.stdin.read(), os.getcwd());"
    code += "open('input','w').write('x')"
    done = subprocess.run(
        trapless(sys.executable, "-c", code, options=("--host-root",)),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout.decode() == f"from the host  {tmp_path}\n", done.stderr
    assert (tmp_path / "input").read_text() == "from the host"  # the guest wrote to its own layer


def test_host_root_has_files_laid_over_it_and_the_module(tmp_path):
    (tmp_path / "hosts").write_text("laid over\n")
    config = lab.LabConfig(host_root=True, files=((tmp_path / "hosts", "/etc/hosts"),))
    said = lab.run(config, ["cat", "/etc/hosts", "/proc/modules"]).stdout
    assert said.startswith(b"laid over\n")
    assert b"trapless " in said


def test_too_little_memory_for_the_files_is_refused(tmp_path):
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", 100 << 20)
    config = lab.LabConfig(module=False, memory="128M", files=((tmp_path / "big", "/big"),))
    with pytest.raises(TraplessError, match=r"too much for a guest with 128M.*--memory"):
        lab.run(config, ["true"])


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
    subprocess.run(command, check=True, timeout=LIMIT_S)
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
