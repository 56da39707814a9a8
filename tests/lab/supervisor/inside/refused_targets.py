# SPDX-License-Identifier: GPL-2.0-only
"""Refusals of a module that offers supervisor mode: each target and each caller that it turns away.

The machine's own reasons need a guest each, or change it for good: lockdown is the last test.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab.supervisor.inside.people import (
    CALLS_FOREVER,
    listed,
    process,
    shell,
    trapless,
    until,
)
from trapless.abi import Refusal
from trapless.doctor import supervisor_offer
from trapless.doctor.capabilities import Host
from trapless.supervisor.refusals import explain, table

pytestmark = pytest.mark.timeout(1200)

USER = 1000
CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_PTRACE = 16, 17, 19
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 22, 38, 24
SECCOMP_MODE_FILTER = 2
LIBC = ctypes.CDLL(None, use_errno=True)


def refused(pid, code, before=None):
    done = trapless("switch", "--supervisor", str(pid), before=before)
    assert done.status == 1 and done.out == ""
    assert explain(code) in done.err
    if not table()[code].of_machine:
        assert f"process {pid} (" in done.err
    assert pid not in listed()


def become_user():
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)


def without(*capabilities):
    """What makes the calling process lose these for good."""

    def drop():
        header = struct.pack("Ii", 0x20080522, 0)
        data = bytearray(24)
        buffer = (ctypes.c_char * 24).from_buffer(data)
        assert LIBC.capget(header, buffer) == 0
        words = list(struct.unpack("6I", data))
        for capability in capabilities:
            for i in range(3):
                words[i] &= ~(1 << capability)
        assert LIBC.capset(header, struct.pack("6I", *words)) == 0

    return drop


# ---- Callers -------------------------------------------------------------------------------------


def test_an_unprivileged_caller_may_not_even_switch_itself():
    with process(shell()) as pid:
        refused(pid, Refusal.NOT_CAPABLE, before=become_user)
    done = trapless("run", "--mode", "supervisor", "--", "echo", "ran", before=become_user)
    assert (done.status, done.out) == (125, "")
    assert table()[Refusal.NOT_CAPABLE].reason in done.err


@pytest.mark.parametrize("capability", [CAP_SYS_MODULE, CAP_SYS_RAWIO])
def test_both_capabilities_are_needed(capability):
    with process(shell()) as pid:
        refused(pid, Refusal.NOT_CAPABLE, before=without(capability))


def test_another_users_process_takes_ptrace_and_consent():
    def sleep():
        become_user()
        time.sleep(1000)

    with process(sleep) as pid:
        until(lambda: os.stat(f"/proc/{pid}").st_uid == USER)
        refused(pid, Refusal.OTHER_USER, before=without(CAP_SYS_PTRACE))
        refused(pid, Refusal.NOT_ROOTS)
        assert trapless("switch", "--supervisor", "--any-user", str(pid)).status == 0
        assert pid in listed()


def test_an_unprivileged_caller_may_list():
    done = trapless("ps", before=become_user)
    assert (done.status, done.err) == (0, "") and done.out.startswith("PID")


def test_an_unprivileged_caller_may_not_switch_others_back():
    with process(shell()) as pid:
        assert trapless("switch", "--supervisor", str(pid)).status == 0
        done = trapless("switch", "--user", str(pid), before=become_user)
        assert done.status == 1 and table()[Refusal.NOT_CAPABLE].reason in done.err
        assert listed()[pid]["mode"] == "supervisor"


# ---- Targets -------------------------------------------------------------------------------------


def test_a_process_confined_by_seccomp_is_not_switched():
    allow_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(allow_all))

    def confine():
        assert LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        assert LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0
        time.sleep(1000)

    with process(confine) as pid:
        until(lambda: "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text())
        refused(pid, Refusal.CONFINED)


# Without a C library for 32 bits: its own entry, its own calls. It sleeps for ever (pause).
COMPAT = """
void _start(void)
{
    for (;;)
        asm volatile ("int $0x80" : : "a" (29) : "memory");
}
"""


def test_a_32_bit_process_is_not_switched(tmp_path):
    (tmp_path / "compat.c").write_text(COMPAT)
    program = str(tmp_path / "compat")
    flags = ("-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fcf-protection=none")
    subprocess.run(["gcc", *flags, "-o", program, str(tmp_path / "compat.c")], check=True)
    with process([program]) as pid:
        refused(pid, Refusal.COMPAT)


def test_a_kernel_thread_is_not_switched():
    refused(2, Refusal.KERNEL_THREAD)  # kthreadd


def test_a_process_that_has_ended_is_not_switched():
    with process(lambda: None) as pid:
        until(lambda: "State:\tZ" in Path(f"/proc/{pid}/status").read_text())
        refused(pid, Refusal.KERNEL_THREAD)


def test_a_process_that_runs_a_virtual_machine_is_not_switched(tmp_path):
    """An emulated guest has no KVM: a file stands in, named as KVM names its processors' files."""

    def hold():
        with open(tmp_path / "kvm-vcpu:0", "w"):
            time.sleep(1000)

    with process(hold) as pid:
        until(lambda: (tmp_path / "kvm-vcpu:0").exists())
        refused(pid, Refusal.VCPU)


def set_user_id(tmp_path):
    """A sleep that runs with root's rights, whoever starts it."""
    tmp_path.chmod(0o755)
    program = tmp_path / "sleep"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    return str(program)


def test_a_set_user_id_process_is_not_switched(tmp_path):
    program = set_user_id(tmp_path)
    for parent in list(tmp_path.parents)[:-2]:
        parent.chmod(0o755)

    def start():
        become_user()
        os.execv(program, [program, "1000"])

    with process(start) as pid:
        until(lambda: f"Uid:\t{USER}\t0\t0\t" in Path(f"/proc/{pid}/status").read_text())
        refused(pid, Refusal.PRIVILEGED)


def test_a_set_user_id_program_leaves_supervisor_mode_when_executed(tmp_path):
    program = set_user_id(tmp_path)
    for parent in list(tmp_path.parents)[:-2]:
        parent.chmod(0o755)
    script = f"until [ -e {tmp_path}/go ]; do kill -0 $$; done; exec {program} 1000"

    def start():
        become_user()
        os.execv("/bin/sh", shell(script))

    with process(start) as pid:
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sh\n")
        assert trapless("switch", "--supervisor", "--exec", "--any-user", str(pid)).status == 0
        until(lambda: listed()[pid]["threads_in_supervisor_mode"] == 1)
        (tmp_path / "go").touch()
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        assert f"Uid:\t{USER}\t0\t0\t" in Path(f"/proc/{pid}/status").read_text()
        assert pid not in listed()


# ---- The machine ---------------------------------------------------------------------------------


def test_doctor_says_that_it_is_offered():
    (answer,) = supervisor_offer.examine(Host())
    assert answer.ok and "offered by the module" in answer.found


@pytest.mark.skipif(
    "securityfs" not in Path("/proc/filesystems").read_text(),
    reason="this kernel has no security modules, and so no lockdown",
)
def test_lockdown_forbids_what_comes_after_it():
    with process(shell(CALLS_FOREVER)) as early, process(shell(CALLS_FOREVER)) as late:
        assert trapless("switch", "--supervisor", str(early)).status == 0
        until(lambda: listed()[early]["threads_in_supervisor_mode"] == 1)
        lockdown = Path("/sys/kernel/security/lockdown")
        if not lockdown.exists():
            subprocess.run(["mount", "-t", "securityfs", "none", lockdown.parent], check=True)
        lockdown.write_text("integrity")
        refused(late, Refusal.LOCKDOWN)
        head, reason = supervisor_offer.examine(Host())
        assert not head.ok and reason.id == "supervisor-lockdown"
        assert trapless("ps").status == 0
