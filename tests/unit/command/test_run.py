# SPDX-License-Identifier: GPL-2.0-only
"""`trapless run` on this machine: it becomes the command, and says what it refuses.

Supervisor mode itself is tested in VMs (tests/lab/supervisor/test_lab_switch.py); here a function
stands in for the request.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from trapless import abi, cli, run
from trapless.base import statuses
from trapless.supervisor.control import Calls

ROOT = Path(__file__).resolve().parents[3]
COMMAND = str(ROOT / "bin/trapless")


def trapless(*argv, **options):
    return subprocess.run(
        [COMMAND, "run", *argv], capture_output=True, text=True, timeout=600, **options
    )


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -TERM $$", -15)]
)
def test_status_is_the_commands(script, status):
    assert trapless("--", "sh", "-c", script).returncode == status


def test_streams_and_arguments_are_the_commands():
    done = trapless("sh", "-c", 'cat; echo "$1" >&2', "sh", "--mode", input="in\n")
    assert (done.stdout, done.stderr) == ("in\n", "--mode\n")


def test_it_becomes_the_command():
    started = subprocess.Popen([COMMAND, "run", "sleep", "40"])
    try:
        for _ in range(2000):
            words = Path(f"/proc/{started.pid}/cmdline").read_bytes().split(b"\0")
            if words[0] == b"sleep":
                break
            time.sleep(0.01)
        assert words[:2] == [b"sleep", b"40"]
    finally:
        started.kill()
        started.wait()


def test_signals_that_python_ignores_are_not_ignored_by_the_command():
    mask = int(
        trapless("grep", "SigIgn", "/proc/self/status").stdout.split()[1],
        16,
    )
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT):
        assert not mask & 1 << (number - 1), number.name


def test_descriptors_of_ours_are_not_the_commands():
    assert trapless("ls", "/proc/self/fd").stdout.split() == ["0", "1", "2", "3"]  # 3 is ls's own


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("no-such-program", 127, "there is no program 'no-such-program'"),
        ("./none", 127, "there is no program './none'"),
        ("./data", 126, "cannot execute ./data: Permission denied"),
        (".", 127, "there is no program '.'"),
        ("./damaged", 126, "cannot execute ./damaged: Exec format error"),
    ],
)
def test_what_cannot_be_run_has_the_status_of_shells(tmp_path, name, status, words):
    (tmp_path / "data").write_text("text")
    (tmp_path / "damaged").write_bytes(b"\x7fno program")
    (tmp_path / "damaged").chmod(0o755)
    done = trapless(name, cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr == f"trapless: {words}{' on this machine' if status == 127 else ''}\n"


@pytest.mark.skipif(os.path.exists(abi.DEVICE), reason="the module is loaded here")
def test_without_the_module_it_is_not_run():
    done = trapless("--mode", "supervisor", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert "the module is not loaded" in done.stderr and "--lab" in done.stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--children", "--", "ls"], "only with --mode supervisor: "),
        (["--resident", "--", "ls"], "only with --mode supervisor: "),
        (["--any-user", "--", "ls"], "only with --mode supervisor: "),
        (["--allow-hlt", "--", "ls"], "only with --mode supervisor: "),
        (["--cpus", "2", "--", "ls"], "--cpus needs a VM"),
        (["--timeout", "2", "--", "ls"], "--timeout needs a VM"),
        (["--mode", "god", "--", "ls"], "'god' is not one of"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_is_status_2(argv, words):
    done = trapless(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ([], abi.SWITCH_EXEC),
        (["--no-exec"], 0),
        (["--children", "--resident", "--any-user", "--allow-hlt"], abi.SWITCH_FLAGS),
    ],
)
def test_options_reach_the_vm(monkeypatch, options, flags):
    from trapless.vm import lab

    seen = []

    def stand_in(config, command, **_):
        seen.append((config, command))
        return lab.LabResult(9, b"", b"", "", "6", 1.0, (), calls=Calls(19, 0, 0, 1))

    monkeypatch.setattr(lab, "run", stand_in)
    line = ["run", "--lab", "--mode", "supervisor", *options, "--append", "x", "--", "ls", "-l"]
    result = CliRunner().invoke(cli.cli, line)
    assert result.exit_code == 9
    ((config, command),) = seen
    assert (config.supervisor, config.host_root, config.append) == (flags, True, "x")
    assert config.timeout_s == lab.LabConfig().timeout_s and command == ("ls", "-l")
    assert "95.0% of 20 system calls ended in supervisor mode" in result.stderr


def test_user_mode_in_the_vm_asks_for_no_switch(monkeypatch):
    from trapless.vm import lab

    seen = []

    def stand_in(config, _command, **_):
        seen.append(config.supervisor)
        return lab.LabResult(0, b"", b"", "", "6", 1.0, ())

    monkeypatch.setattr(lab, "run", stand_in)
    result = CliRunner().invoke(cli.cli, ["run", "--lab", "--", "ls"])
    assert (seen, result.exit_code, result.stderr) == ([None], 0, "")


def test_a_program_that_ran_in_user_mode_is_named_with_the_reason(monkeypatch):
    from trapless.vm import lab

    line = "trapless: sp[81] runs in user mode: a program that hlt ends"
    log = f"[    1.1] other: line\n[    2.2] {line}\n"

    def stand_in(_config, _command, **_):
        return lab.LabResult(139, b"", b"", log, "6", 1.0, (), calls=Calls(0, 0, 0, 1))

    monkeypatch.setattr(lab, "run", stand_in)
    result = CliRunner().invoke(cli.cli, ["run", "--lab", "--mode", "supervisor", "--", "sp"])
    assert result.exit_code == 139
    assert "trapless: sp[81] ran in user mode: its C library, musl," in result.stderr
    assert "--allow-hlt" in result.stderr


@pytest.mark.parametrize(("own", "status"), [(1, 125), (2, 2), (126, 126), (127, 127)])
def test_a_failure_of_ours_is_never_the_commands(monkeypatch, own, status):
    for command in statuses.HAND_ON:
        monkeypatch.setattr(sys, "argv", ["trapless", command, "lab"])
        assert statuses.of_failure(own) == status
    monkeypatch.setattr(sys, "argv", ["trapless", "lab", "run"])
    assert statuses.of_failure(own) == own


def test_a_command_without_calls_has_no_share():
    assert run.summary(Calls(0, 0, 0, 0)) == "no system call was made in supervisor mode"


# The whole of `--no-exec` but the module: a stand-in that writes down who was asked for what.
WITHOUT_EXEC = """
import sys
import time
from trapless import run
from trapless.supervisor import control
from trapless.abi import Mode
def switch(pid, mode, flags=0):
    with open(sys.argv[1], "a") as file:
        name = open(f"/proc/{pid or 'self'}/comm").read().strip()
        print(name, pid, mode.name, flags, file=file)
control.switch = switch
run.here(sys.argv[2:], Mode.SUPERVISOR, 0)
"""


def test_without_exec_it_is_switched_again_from_outside_after_the_exec(tmp_path):
    asked = tmp_path / "asked"
    started = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_EXEC, str(asked), "sleep", "0.5"], cwd=ROOT
    )
    assert started.wait(30) == 0
    first, second = asked.read_text().splitlines()
    assert first.split()[1:] == ["0", "SUPERVISOR", "0"]
    assert second == f"sleep {started.pid} SUPERVISOR 0"


def test_without_exec_nobody_is_switched_where_the_exec_fails(tmp_path):
    asked = tmp_path / "asked"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXEC, str(asked), "/dev/null"],
        cwd=ROOT,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode != 0
    assert len(asked.read_text().splitlines()) == 1
