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
from tests.unit.peek.serve.serving import settings
from trapless.cli import cli
from trapless.peek import emulator, machines
from trapless.peek.diagnosis.commands import UNREAD, _naming_its_end
from trapless.peek.diagnosis.opener import Opener
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.serve.inventory import Inventory


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
    assert [set(one) for one in answers] == [{"machine", "error", "vm"}] * 2
    assert [one["machine"] for one in answers] == titles
    assert [one["vm"] for one in answers] == names


def test_vms_of_one_name_have_the_labels_of_peek_serve():
    """Two metrics of one label would make the text for Prometheus invalid."""
    child, name = "print('ready', flush=True); input()", f"of-test-{os.getpid()}"
    with ExitStack() as stack:
        vms = [
            stack.enter_context(started("qemu-system-x86_64", child, "-name", name)) for _ in "12"
        ]
        shown = look_into_all("", "--vm", name, "--json").stdout
        with Opener() as opener:
            inventory = Inventory(settings())
            inventory._latest = [one for one in opener.running() if one.fits((name,))]
            inventory._take_latest(0.0)
    labels = [json.loads(line)["vm"] for line in shown.splitlines()]
    assert labels == [name, f"{name}-{max(one.pid for one in vms)}"]
    assert labels == [vm.title for vm in inventory.vms]


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
    with started("qemu-system-x86_64", child, "-name", name):
        done = look_into_all(before, "--vm", pattern.format(name))
    assert done.returncode == status, done.stderr
    assert ("it has ended" in done.stdout) is bool(before)
    assert "nothing is left of it" not in done.stdout
    none = f"no virtual machine with a name like no-{name} runs on this host"
    assert (none in done.stderr) is not bool(before)


AS_NOBODY = """
from trapless.peek.diagnosis import opener
opener.PROGRAM = opener.PROGRAM.replace("; main(", "; import os; os.setuid(65534); main(")
"""
"""The process that opens machines runs as a user without rights."""
NO_VM = """
from trapless.peek.diagnosis.opener import Opener
Opener.running = lambda *_, **__: []
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
def test_a_vm_of_another_user_is_named_with_what_helps():
    """Else a timer that runs as a user without rights would be silent for ever."""
    child, name = "print('ready', flush=True); input()", f"of-test-{os.getpid()}"
    with started("qemu-system-x86_64", child, "-name", name) as vm:
        done = look_into_all(AS_NOBODY, "--vm", name)
    assert done.returncode == UNREAD, done.stderr
    assert f"{name} (process {vm.pid}):\ncannot be read: " in done.stdout
    assert "it runs as root (user 0); look as that user, or as root" in done.stdout


def test_on_a_host_without_vms_nothing_hangs():
    done = look_into_all(NO_VM)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "trapless: no virtual machine runs on this host\n"


def test_the_error_of_a_vm_that_ends_meanwhile_is_its_end():
    """Not that its memory is shorter than it was."""
    with started("qemu-system-x86_64", "print('ready', flush=True); input()") as vm:
        chosen, runs = machines.by_pid(vm.pid), Emulator(vm.pid, ())
        with pytest.raises(PeekError, match="nothing is left of it"), _naming_its_end(chosen, runs):
            raise PeekError("nothing is left of it")
        vm.kill()
        vm.wait()
        with (
            pytest.raises(PeekError, match=rf"^process {vm.pid} has ended while"),
            _naming_its_end(chosen, runs),
        ):
            raise PeekError("nothing is left of it")


def test_a_process_without_memory_has_ended(monkeypatch):
    """It is on its way out, and not yet gone."""
    for memory, ended in (("0", True), ("4096", False)):
        fields = ["S", *["1"] * 19, memory, "1"]
        monkeypatch.setattr(emulator, "text_of", lambda *_, f=fields: f"7 (a) b) {' '.join(f)}")
        assert Emulator(7, ()).has_ended() is ended


def look_into_all(before: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = f"{before}\nfrom trapless.cli import cli; cli()"
    argv = [sys.executable, "-c", program, "peek", "why", "--all", *words]
    return subprocess.run(argv, capture_output=True, text=True)


@pytest.mark.parametrize("words", ["--pid 1", "--monitor socket", "file", "--wait 1", "--local"])
def test_a_look_into_all_takes_no_option_of_one_machine(words):
    done = CliRunner().invoke(cli, ["peek", "why", "--all", *words.split()])
    assert done.exit_code == 2 and "exclude each other" in done.output
