# SPDX-License-Identifier: GPL-2.0-only
"""Every kernel of the matrix in docs/kernels.md is opened, living and dumped: its threads and their
stacks are those that the guest itself names.

Nightly, as each kernel is a boot, and most are fetched for it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lab.peek.watched_guest import GUEST_LIMIT_S, Guest, folder_of_memory, guest
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.unwinding.frames import Ending
from trapless.peek.machines import Image
from trapless.stock import kernels
from trapless.vm.qmp import Monitor

NAMES = [one.name for one in (*kernels.SUPPORTED, *kernels.OTHERS, *kernels.GUESTS)]
FIRST_THREAD = 2  # kthreadd, which sleeps from the boot on

pytestmark = [
    pytest.mark.lab,
    pytest.mark.nightly,
    pytest.mark.timeout(1.2 * GUEST_LIMIT_S),
]


@pytest.mark.parametrize("name", NAMES)
def test_kernel_is_opened_with_its_threads_and_stacks(name):
    with folder_of_memory() as folder, guest(folder, kernel=name, cpus=2) as running:
        release = running.say("uname -r").strip()
        functions = re.findall(r"\] (\w+)\+", running.say(f"cat /proc/{FIRST_THREAD}/stack"))
        assert functions
        with running.machine.open() as target:
            agrees(target, release, functions)
            pids = {int(word) for word in running.say("cd /proc; echo [0-9]*; cd /").split()}
            assert pids - target.threads().keys() <= {max(pids)}  # threads may come and go
        dump_agrees(running, folder / "dump", release, functions)


def agrees(target: Target, release: str, functions: list[str]) -> None:
    assert str(target.release) == release
    stacks = {one.pid: one.stack for one in target.thread_stacks()}
    stack = stacks[FIRST_THREAD]
    assert stack is not None and stack.ending is Ending.BOTTOM
    names = [str(target.name_of(one)).partition("+")[0] for one in stack.addresses]
    assert names[-len(functions) :] == functions
    lost = [pid for pid, one in stacks.items() if one is not None and one.ending is Ending.LOST]
    assert not lost


def dump_agrees(running: Guest, dump: Path, release: str, functions: list[str]) -> None:
    with Monitor(running.monitor) as monitor:
        monitor.dump(dump, format_="kdump-zlib")
    with Image(dump).open() as target:
        agrees(target, release, functions)
        cpus = target.cpu_stacks(target.saved_registers())
        assert [one.cpu for one in cpus] == [0, 1]
        assert Ending.LOST not in [one.stack.ending for one in cpus]
