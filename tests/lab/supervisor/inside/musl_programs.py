# SPDX-License-Identifier: GPL-2.0-only
"""Programs whose C library ends them by hlt, in a guest: they die of SIGSEGV whatever is asked, and
go on behind their smashed stack only where whoever switches them has said so."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.lab.supervisor.inside.people import (
    end,
    fork,
    listed,
    process,
    running,
    trapless,
    until,
)
from trapless.abi import Refusal
from trapless.supervisor.refusals import explain

pytestmark = pytest.mark.timeout(1200)

INTERPRETER = "/lib/ld-musl-x86_64.so.1"
PROGRAMS = {
    "static": ["/opt/musl-static"],
    "static-pie": ["/opt/musl-static-pie"],
    "dynamic": ["/opt/musl-dynamic"],
    "dynamic by its interpreter": [INTERPRETER, "/opt/musl-dynamic"],
}
FILES = [INTERPRETER, *{words[-1] for words in PROGRAMS.values()}]
"""What test_lab_switch.py has brought, yet to be made executable."""

GO = b"calls, and then a new line\n"


@pytest.fixture(autouse=True, scope="module")
def executable():
    for file in FILES:
        Path(file).chmod(0o755)


@pytest.fixture(params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]


def ended(*command):
    """The status and the output of a command that is told to go on."""
    done = subprocess.run(command, input=GO, capture_output=True, check=False)
    return done.returncode, done.stdout.decode()


def test_in_user_mode_it_ends_as_it_should(program):
    assert ended(*program) == (0, "")
    assert ended(*program, "smash") == (-signal.SIGSEGV, "")


def test_a_running_one_is_refused_with_the_reason(program):
    reading, writing = os.pipe()
    with process([*program, "smash"], stdin=reading) as pid:
        done = trapless("switch", "--supervisor", str(pid))
        assert done.status == 1 and explain(Refusal.HLT) in done.err
        assert pid not in listed()
        os.write(writing, GO)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGSEGV


def test_with_consent_it_is_switched_and_goes_on_behind_its_smashed_stack(program):
    """What the option costs: the halt ends with the next interrupt, and nothing ends the program.
    An interrupt just before the hlt makes it user mode's: hence the few times."""
    statuses = set()
    for _ in range(5):
        reading, writing = os.pipe()
        with process([*program, "smash"], stdin=reading) as pid:
            assert trapless("switch", "--supervisor", "--allow-hlt", str(pid)).status == 0
            assert listed()[pid]["options"] == ["allow-hlt"]
            os.write(writing, GO)
            _, status = os.waitpid(pid, 0)
            statuses.add(os.waitstatus_to_exitcode(status))
        os.close(reading)
        os.close(writing)
    assert 0 in statuses and statuses <= {0, -signal.SIGSEGV}


@pytest.mark.parametrize(
    "options", [(), ("--no-exec",), ("--children",), ("--children", "--resident")]
)
def test_one_that_is_executed_goes_to_user_mode(program, options):
    command = ("run", "--mode", "supervisor", *options, "--", *program, "smash")

    def start():
        reading, writing = os.pipe()
        os.write(writing, GO)
        os.dup2(reading, 0)

    assert trapless(*command, before=start).status == -signal.SIGSEGV


def test_a_child_that_executes_one_is_in_user_mode_and_its_parent_is_not(program):
    """The shell goes on in supervisor mode and sees how its child has ended."""
    words = " ".join([*program, "smash"])
    script = f"{words}; echo $?; while :; do kill -0 $$; done"
    out, into = os.pipe()
    feeding, feed = os.pipe()

    def start():
        os.dup2(into, 1)
        os.dup2(feeding, 0)
        os.execv("/bin/sh", ["sh", "-c", f"read line; {script}"])

    pid = fork(start)
    try:
        until(lambda: running(pid) == "sh")
        flags = ("--children", "--exec")
        assert trapless("switch", "--supervisor", *flags, str(pid)).status == 0
        os.write(feed, GO + GO)  # the shell's line, and its child's
        assert os.read(out, 100) == b"139\n"
        until(lambda: listed()[pid]["threads_in_supervisor_mode"] == 1)
    finally:
        end(pid)


def test_the_kernels_log_says_what_was_not_switched_at_its_exec():
    log = subprocess.run(["dmesg"], capture_output=True, check=True).stdout.decode()
    assert "runs in user mode: a program that hlt ends" in log


def test_programs_of_another_c_library_are_not_refused():
    assert Path("/bin/sh").exists()
    with process(["/bin/sh", "-c", "while :; do kill -0 $$; done"]) as pid:
        assert trapless("switch", "--supervisor", str(pid)).status == 0
