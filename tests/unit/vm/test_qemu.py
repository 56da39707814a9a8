# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's command line and the life of its process; no VM is started here."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from trapless.base.architecture import ARM64
from trapless.base.console import TraplessError
from trapless.peek import qemu_arguments
from trapless.vm import qemu

ROOT = Path(__file__).resolve().parents[3]
VMX = "processor\t: 0\nflags\t\t: fpu vmx sse\nprocessor\t: 1\nflags\t\t: fpu vmx sse\n"
PLAIN = "processor\t: 0\nflags\t\t: fpu hypervisor sse\n"
DEADLINE_S = 600


def machine(**changes: object) -> qemu.Machine:
    fields: dict[str, object] = {
        "kernel": Path("/boot/vmlinuz"),
        "initrd": "/dev/fd/3",
        "kernel_log": "/dev/fd/4",
        "channel": "/dev/fd/5",
        "channel_bytes": 8 << 20,
        "doorbell_fd": 6,
    }
    return qemu.Machine(**(fields | changes))  # type: ignore[arg-type]


def after(argv: list[str], option: str) -> str:
    return argv[argv.index(option) + 1]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512 << 20),
        ("2G", 2 << 30),
        ("1024", 1 << 30),
        ("1048576K", 1 << 30),
        ("1g", 1 << 30),
        (" 1GiB ", 1 << 30),
        ("1GB", 1 << 30),
    ],
)
def test_memory_sizes(text, size):
    assert qemu.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "big", "-1G", "1.5G", "1X", "127M", "0", "9" * 40 + "G"])
def test_bad_memory_size_is_refused(text):
    with pytest.raises(TraplessError, match=f"'{text}'") as caught:
        qemu.parse_size(text)
    assert caught.value.status == 2


def test_kvm_only_where_the_processor_has_it(tmp_path):
    cpuinfo, device = tmp_path / "cpuinfo", tmp_path / "kvm"
    cpuinfo.write_text(VMX)
    assert qemu.accelerator(cpuinfo, device) == "tcg"  # no device
    device.touch()
    assert qemu.accelerator(cpuinfo, device) == "kvm"
    cpuinfo.write_text(PLAIN)
    assert qemu.accelerator(cpuinfo, device) == "tcg"  # a device that stock kernels hang in
    cpuinfo.unlink()
    assert qemu.accelerator(cpuinfo, device) == "tcg"


def test_icount_turns_off_all_that_differs_between_runs():
    argv = qemu.command(machine(icount=True), "kvm")
    assert after(argv, "-icount") == "shift=0,sleep=off"
    assert after(argv, "-smp") == "1"
    assert after(argv, "-cpu") == "max,-rdrand,-rdseed"
    assert after(argv, "-seed") == "1"
    assert after(argv, "-rtc") == f"base={qemu.CLOCK_BASE},clock=vm"
    assert after(argv, "-nic") == "none"
    assert after(argv, "-accel").startswith("tcg")
    assert {"nokaslr", "norandmaps"} <= set(after(argv, "-append").split())


def test_a_counted_guest_that_starts_quickly_needs_no_calibrated_timer():
    words = {
        (icount, quick): set(
            qemu.kernel_command_line(machine(icount=icount, cpus=1, quick_start=quick)).split()
        )
        for icount in (False, True)
        for quick in (False, True)
    }
    assert words[False, True] - words[False, False] == {"cryptomgr.notests"}
    assert words[True, True] - words[True, False] == {"cryptomgr.notests", "nolapic_timer"}


def test_beside_this_machines_files_a_counting_guest_has_its_clock():
    """git takes files younger than its index for changed, and reads them all again."""
    before = int(time.time()) - 1  # gmtime() reads a clock that may be a tick behind
    words = after(qemu.command(machine(icount=True, share_root=True), "tcg"), "-rtc").split(",")
    base = datetime.fromisoformat(words[0].removeprefix("base=") + "+00:00").timestamp()
    assert before <= base <= time.time() and words[1:] == ["clock=vm"]


def test_a_network_card_leads_to_one_port_of_the_guest_only():
    argv = qemu.command(machine(forward=(4001, 80)), "tcg")
    network = after(argv, "-netdev").split(",")
    assert {"restrict=on", "hostfwd=tcp:127.0.0.1:4001-10.0.2.15:80"} <= set(network)
    assert f"{qemu.NETWORK_CARD},netdev=net" in argv
    assert "-nic" not in argv


def test_a_link_leads_to_one_other_guest_only():
    one = qemu.command(machine(link=(Path("/a,b"), Path("/c"))), "tcg")
    other = qemu.command(machine(link=(Path("/c"), Path("/a,b"))), "tcg")
    netdev = "dgram,id=link,local.type=unix,local.path={},remote.type=unix,remote.path={}"
    assert netdev.format("/a,,b", "/c") in one and netdev.format("/c", "/a,,b") in other
    cards = [next(word for word in argv if "netdev=link" in word) for argv in (one, other)]
    assert cards[0] != cards[1]  # their addresses differ


def test_plugins_are_the_emulators():
    argv = qemu.command(machine(plugins=("/m.so,out=/x", "/n.so")), "tcg")
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "-plugin"] == [
        "/m.so,out=/x",
        "/n.so",
    ]
    assert "-plugin" not in qemu.command(machine(), "tcg")


def test_single_thread_is_never_kvm():
    argv = qemu.command(machine(thread_single=True), "kvm")
    assert after(argv, "-accel") == "tcg,thread=single"


def test_guest_that_oopses_ends():
    words = after(qemu.command(machine(append="x=1"), "tcg"), "-append").split()
    assert {"oops=panic", "panic=-1", "x=1"} <= set(words)
    assert "-no-reboot" in qemu.command(machine(), "tcg")


def test_a_late_tick_of_a_busy_host_is_no_panic():
    timed, counted = machine(), machine(icount=True)
    assert qemu.NO_TIMER_CHECK in after(qemu.command(timed, "tcg"), "-append").split()
    assert qemu.NO_TIMER_CHECK not in after(qemu.command(counted, "tcg"), "-append").split()


@pytest.mark.skipif(not shutil.which(ARM64.qemu), reason=f"no {ARM64.qemu} on this machine")
def test_another_processor_has_a_machine_of_its_own():
    argv = qemu.command(machine(arch=ARM64), "tcg")
    assert os.path.basename(argv[0]) == "qemu-system-aarch64"
    assert after(argv, "-machine").startswith("virt,")
    assert after(argv, "-cpu") == "max,pauth-impdef=on"
    assert argv.count("-serial") == 1 and "pci-serial,chardev=bell" in argv
    words = after(argv, "-append").split()
    assert "console=ttyAMA0" in words and qemu.NO_TIMER_CHECK not in words


def test_host_root_is_shared_read_only():
    share = after(qemu.command(machine(share_root=True), "tcg"), "-fsdev")
    assert "readonly=on" in share.split(",")
    assert "-fsdev" not in qemu.command(machine(), "tcg")


def test_comma_in_a_path_is_escaped():
    argv = qemu.command(machine(kernel_log="/a,b/log"), "tcg")
    assert "file,id=log,path=/a,,b/log" in argv


def test_absent_qemu_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraplessError, match="apt-get install qemu-system-x86"):
        qemu.command(machine(), "tcg")


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def wait_until(condition) -> bool:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_process_dies_with_its_launcher(tmp_path):
    pid_file = tmp_path / "pid"
    shell = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600"
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\nfrom trapless.vm import qemu\n"
            "process = qemu.Process(['sh', '-c', sys.argv[1]], ())\ntime.sleep(600)",
            shell,
        ],
        cwd=ROOT,
    )
    try:
        assert wait_until(pid_file.exists)
        child = int(pid_file.read_text())
        assert alive(child)
        launcher.kill()
        launcher.wait()
        assert wait_until(lambda: not alive(child))
    finally:
        launcher.kill()
        launcher.wait()


def test_process_of_a_dead_launcher_never_starts(tmp_path):
    started = tmp_path / "started"
    guard = subprocess.run(
        ["sh", "-c", qemu._GUARD, "sh", "1", "touch", str(started)], timeout=DEADLINE_S, check=False
    )
    assert guard.returncode == 1
    assert not started.exists()


def test_ctrl_c_reaches_only_the_launcher():
    process = qemu.Process(["sleep", "600"], ())
    try:
        assert os.getpgid(process._process.pid) != os.getpgid(0)
    finally:
        process.close()


def test_stop_asks_first():
    process = qemu.Process(
        ["sh", "-c", "trap 'echo asked; exit 3' TERM; echo up; sleep 9 & wait"], ()
    )
    assert wait_until(lambda: "up" in process.complaint())
    process.stop()
    assert "asked" in process.complaint()
    process.close()


def test_stop_forces_what_does_not_listen(monkeypatch):
    monkeypatch.setattr(qemu, "STOP_S", 0.2)
    process = qemu.Process(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], ())
    assert wait_until(lambda: "up" in process.complaint())
    process.stop()
    assert process.ended()
    process.close()


def test_complaint_tells_what_qemu_said_and_what_killed_it():
    process = qemu.Process(["sh", "-c", "echo no such machine >&2; kill -SEGV $$"], ())
    poller = select.poll()
    poller.register(process.pidfd, select.POLLIN)
    assert poller.poll(DEADLINE_S * 1000)
    assert process.ended()
    assert "no such machine" in process.complaint()
    assert signal.Signals.SIGSEGV.name in process.complaint()
    process.close()


def test_missing_setpriv_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraplessError, match="apt-get install util-linux"):
        qemu.Process(["true"], ())


def test_shared_memory_is_the_guests_ram_whole():
    argv = qemu.command(machine(shared_memory=Path("/dev/shm/a,b"), memory_bytes=1 << 29), "tcg")
    assert after(argv, "-machine").endswith(",memory-backend=ram")
    assert "memory-backend-file,id=ram,mem-path=/dev/shm/a,,b,size=536870912,share=on" in argv
    assert qemu_arguments.name(argv) == "trapless"
    assert "-name" not in qemu.command(machine(), "tcg")


@pytest.mark.parametrize("shared", [None, Path("/dev/shm/ram")])
def test_observers_find_it_by_its_name_and_the_threads_of_its_cpus(shared):
    argv = qemu.command(machine(name="web,1=a", shared_memory=shared), "tcg")
    assert qemu_arguments.name(argv) == "web,1=a"
    assert after(argv, "-name").endswith(",debug-threads=on")


def test_another_qemu_can_be_named(tmp_path, monkeypatch):
    other = tmp_path / "qemu"
    other.write_text("#!/bin/sh\n")
    monkeypatch.setenv(qemu.VARIABLE, str(other))
    with pytest.raises(TraplessError, match=f"TRAPLESS_QEMU names {other}, which is no program"):
        qemu.binary()
    other.chmod(0o755)
    assert qemu.binary() == str(other)
    assert qemu.command(machine(), "tcg")[0] == str(other)
