# SPDX-License-Identifier: GPL-2.0-only
"""`peek why --all` goes on where a machine cannot be read. test_peek_why.py has one that hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from click.testing import CliRunner

from tests.unit.peek.machines.made_up_monitors import started
from trapless.cli import cli
from trapless.peek.diagnosis.commands import UNREAD


def test_a_vm_that_cannot_be_read_does_not_fail_a_look_into_all():
    """It is named with the reason, and so is the next one."""
    child = "print('ready', flush=True); input()"
    names = [f"of-test-{os.getpid()}-{n}" for n in (1, 2)]
    with ExitStack() as stack:
        pids = [
            stack.enter_context(started("qemu-system-x86_64", child, "-name", one)).pid
            for one in names
        ]
        words = ["peek", "why", "--all", "--vm", f"of-test-{os.getpid()}-*"]
        argv = [sys.executable, "-c", "from trapless.cli import cli; cli()", *words]
        shown, objects = (
            done.stdout
            for more in ([], ["--json"])
            if (done := subprocess.run([*argv, *more], capture_output=True, text=True)).returncode
            == UNREAD
        )
    titles = [f"{name} (process {pid})" for name, pid in zip(names, pids, strict=True)]
    assert [line for line in shown.split("\n") if line.startswith("of-")] == [
        f"{one}:" for one in titles
    ]
    assert shown.count("cannot be read: ") == 2
    answers = [json.loads(line) for line in objects.splitlines()]
    assert [set(one) for one in answers] == [{"machine", "error"}] * 2
    assert [one["machine"] for one in answers] == titles


ENDS = """
import os, signal, time
from trapless.peek.diagnosis import commands
from trapless.peek.emulator import Emulator
def ends(opener, one, longer_s):
    os.kill(one.pid, signal.SIGKILL)
    while not Emulator(one.pid, ()).has_ended():
        time.sleep(0.01)
    raise commands.PeekError("nothing is left of it")
commands._diagnosis_of = ends
"""
"""Machines end while they are looked into."""


@pytest.mark.parametrize(("before", "pattern", "status"), [
    (ENDS, "{}", 0),
    ("", "no-{}", UNREAD),
])  # fmt: skip
def test_a_vm_that_has_ended_is_no_failure_and_a_pattern_that_none_fits_is(before, pattern, status):
    child, name = "print('ready', flush=True); input()", f"of-test-{os.getpid()}"
    words = ["peek", "why", "--all", "--vm", pattern.format(name)]
    argv = [sys.executable, "-c", f"{before}\nfrom trapless.cli import cli; cli()", *words]
    with started("qemu-system-x86_64", child, "-name", name):
        done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert ("nothing is left of it" in done.stdout) is bool(before)
    assert ("no such virtual machine" in done.stderr) is not bool(before)


@pytest.mark.parametrize("words", ["--pid 1", "--monitor socket", "file", "--wait 1", "--local"])
def test_a_look_into_all_takes_no_option_of_one_machine(words):
    done = CliRunner().invoke(cli, ["peek", "why", "--all", *words.split()])
    assert done.exit_code == 2 and "exclude each other" in done.output
