# SPDX-License-Identifier: GPL-2.0-only
"""trapless run, switch, ps and doctor about supervisor mode, in VMs with the real module.

What happens inside of a guest is in inside/, beside this file: pytest runs those files there. What
the command does on this side of `run --lab` is here.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.lab.command import COMMAND, LIMIT_S, ROOT
from tests.lab.conftest import shown_progress
from tests.lab.supervisor import musl_build
from trapless.base.console import Silent
from trapless.stock import real_programs
from trapless.vm import lab
from trapless.vm.lab import DEFAULT_KERNEL

pytestmark = [pytest.mark.outer_kernels, pytest.mark.timeout(3 * LIMIT_S)]

INSIDE_S = 3600
SUMMARY = re.compile(r"trapless: ([\d.]+)% of ([\d,]+) system calls ended in supervisor mode; .*\n")


INSIDE = ROOT / "tests/lab/supervisor/inside"
TOGETHER = ("mode_commands.py", "musl_programs.py", "refused_targets.py")
"""In one guest, for most of its time goes into starting it and importing them; the last closes it
down for good."""


def run_inside(kernel, *names, append="", parameters="supervisor=1", expected="", files=()):
    """Run files of inside/ by pytest in a guest; what it printed, after they have passed."""
    config = lab.LabConfig(
        kernel=kernel,
        host_root=True,
        module_parameters=parameters,
        append=append,
        files=files,
        timeout_s=INSIDE_S,
        env=(
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("EXPECTED", expected),
            ("PROGRAMS", str(real_programs.unpacked(Silent()).root)),
        ),
    )
    options = ("-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short")
    paths = [str(INSIDE / name) for name in names]
    result = lab.run(config, [sys.executable, "-m", "pytest", *options, *paths])
    said = result.stdout.decode() + result.stderr.decode()
    assert result.status == 0, said
    assert lab.splats(result.kernel_log) == []
    return said


@pytest.fixture(scope="module")
def musls_programs(pytestconfig, tmp_path_factory):
    with shown_progress(pytestconfig) as progress:
        return musl_build.built(tmp_path_factory.mktemp("musl"), progress)


@pytest.mark.timeout(2 * INSIDE_S)
def test_inside_a_guest(kernel, musls_programs):
    assert " passed" in run_inside(kernel, *TOGETHER, files=musls_programs)


@pytest.mark.timeout(2 * INSIDE_S)
def test_a_machine_that_refuses(kernel):
    how = {"append": "pti=on nohz_full=1", "expected": "pti,context"}
    assert " passed" in run_inside(kernel, "refused_machine.py", **how)


@pytest.mark.tool
@pytest.mark.timeout(2 * INSIDE_S)
def test_a_module_that_was_not_told_to_offer_the_mode(kernel):
    how = {"parameters": "", "expected": "parameter"}
    assert " passed" in run_inside(kernel, "refused_machine.py", **how)


# ---- run --lab ----------------------------------------------------------------------------------


def run_lab(*argv, kernel=DEFAULT_KERNEL, stdin=b""):
    """`trapless run --lab`. What the command does in each kernel is tried inside of a guest."""
    return subprocess.run(
        [COMMAND, "run", "--lab", "--kernel", kernel, *argv],
        input=stdin,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )


def summary(errors):
    """What comes before the last line of standard error, the share and the calls that it names."""
    match = re.search(SUMMARY.pattern + r"\Z", errors)
    assert match, errors
    return errors[: match.start()], float(match[1]), int(match[2].replace(",", ""))


LOOP = "i=0; while [ $i -lt 2000 ]; do kill -0 $$; i=$((i+1)); done"


@pytest.mark.tool
def test_streams_and_status_are_the_commands_and_one_line_is_ours(kernel):
    script = f"cat; {LOOP}; echo err >&2; exit 9"
    done = run_lab("--mode", "supervisor", "--", "sh", "-c", script, kernel=kernel, stdin=b"in")
    assert (done.returncode, done.stdout) == (9, b"in")
    errors, share, calls = summary(done.stderr.decode())
    assert errors.endswith("err\n")
    assert share > 95 and calls > 2000


def test_user_mode_has_no_share():
    done = run_lab("--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 143
    assert not SUMMARY.search(done.stderr.decode())


@pytest.mark.parametrize(("option", "stays"), [("--exec", True), ("--no-exec", False)])
def test_another_program_stays_in_supervisor_mode_only_as_asked(option, stays):
    words = ("--mode", "supervisor", option, "--", "sh", "-c", f"exec sh -c '{LOOP}'")
    done = run_lab(*words)
    assert done.returncode == 0
    errors = done.stderr.decode()
    made = summary(errors)[2] if SUMMARY.search(errors) else 0
    assert (made > 2000) is stays, errors


def test_children_count_only_as_asked():
    script = f"sh -c '{LOOP}'; true"
    for options, more in (((), False), (("--children", "--exec"), True)):
        words = ("--mode", "supervisor", *options, "--", "sh", "-c", script)
        done = run_lab(*words)
        assert done.returncode == 0
        assert (summary(done.stderr.decode())[2] > 2000) is more, options


@pytest.mark.tool
@pytest.mark.parametrize(("options", "locked"), [((), False), (("--resident",), True)])
def test_memory_is_locked_in_the_program_that_was_executed(kernel, options, locked):
    words = ("--mode", "supervisor", *options, "--", "grep", "VmLck", "/proc/self/status")
    done = run_lab(*words, kernel=kernel)
    assert done.returncode == 0
    assert (int(done.stdout.split()[1]) > 0) is locked


@pytest.mark.parametrize(
    ("command", "status"), [("no-such-program-anywhere", 127), ("/etc/passwd", 126)]
)
def test_what_cannot_be_run_has_the_status_of_shells(command, status):
    done = run_lab("--mode", "supervisor", "--", command)
    assert done.returncode == status
    assert command.encode() in done.stderr


def test_a_refusal_in_the_vm_is_explained_and_nothing_is_run():
    words = ("--mode", "supervisor", "--append", "pti=on", "--", "echo", "ran")
    done = run_lab(*words)
    assert (done.returncode, done.stdout) == (125, b"")
    message = done.stderr.decode().splitlines()[-1]
    assert message.startswith(
        "trapless: supervisor mode is refused in the VM: page-table isolation"
    )
    assert "pti=off" in message
