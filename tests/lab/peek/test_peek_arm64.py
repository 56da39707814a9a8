# SPDX-License-Identifier: GPL-2.0-only
"""Kernels of arm64 are read on any host: what the guest says of itself is what its memory says, and
what hangs in it is named.

One guest for each kernel: pages of 4 KiB, and nightly those of 16 KiB, the newest kernel, and all
hangs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.peek.test_peek_kernels import FIRST_THREAD, agrees
from tests.lab.peek.test_peek_why import HANGS, MODULE, MORE, PREPARE, Hang, one_after_the_other
from tests.lab.peek.watched_guest import (
    GUEST_LIMIT_S,
    Guest,
    folder_of_memory,
    guest,
    peek,
    recording,
)
from trapless.base.architecture import ARM64
from trapless.base.console import Silent
from trapless.peek.kernel.unwinding.frames import Ending
from trapless.peek.machines import Image
from trapless.peek.stacks import stops
from trapless.stock import kbuild, kernels
from trapless.vm.qmp import Monitor

SMALL_PAGES, NEWEST = kernels.default(ARM64), "newest"
LARGE_PAGES = f"{SMALL_PAGES}-16k"
COMPILER = f"{ARM64.triplet}-gcc"

pytestmark = [
    pytest.mark.timeout(4 * GUEST_LIMIT_S),
    *(
        pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}")
        for tool in (ARM64.qemu, COMPILER)
    ),
]

CHAIN, SPIN = (one for one in HANGS if one.name in ("chain", "spin"))
EVERY_HANG = [one for one in (*HANGS[:-1], *MORE) if not one.program]
SECONDS, BUSY_MIN = 3, 0.1
"""The share of a program that never sleeps, of two CPUs that it shares with two or three others."""
STOPS, WHOLE_MIN = 40, 0.9
"""The share of stacks of CPUs that end in user mode or where a thread begins: an interrupt may meet
code that has no frame yet."""
WORK = """
sleep 1000 & echo $! >/tmp/sleeper
(while :; do :; done) & echo $! >/tmp/busy
(while :; do cat /proc/self/stat; done >/dev/null) & echo $! >/tmp/jobs
"""


@contextmanager
def arm64_guest(folder: Path, kernel: str) -> Iterator[Guest]:
    """A guest with the module that makes hangs."""
    resolved = kernels.resolve(kernel, Silent(), ARM64)
    module = (kbuild.module_for(resolved, Silent(), MODULE, "hang.ko"), "/hang.ko")
    with guest(folder, module, arch=ARM64, kernel=kernel, cpus=2, memory="512M") as running:
        running.say(PREPARE)
        yield running


@pytest.mark.parametrize(
    ("kernel_name", "hangs"),
    [
        pytest.param(SMALL_PAGES, (CHAIN, SPIN), id="4k"),
        pytest.param(SMALL_PAGES, EVERY_HANG, marks=pytest.mark.nightly, id="4k-all-hangs"),
        pytest.param(LARGE_PAGES, (CHAIN, SPIN), marks=pytest.mark.nightly, id="16k"),
        pytest.param(NEWEST, EVERY_HANG, marks=pytest.mark.nightly, id="newest-all-hangs"),
    ],
)
def test_a_kernel_of_arm64_is_read(kernel_name: str, hangs: Sequence[Hang]) -> None:
    with folder_of_memory() as folder, arm64_guest(folder, kernel_name) as running:
        one_after_the_other(running, hangs)
        release = running.say("uname -r").strip()
        stack = running.say(f"cat /proc/{FIRST_THREAD}/stack")
        functions = re.findall(r"\] (\w+)\+", stack)
        assert functions
        with running.machine.open() as target:
            agrees(target, release, functions)
            pids = {int(word) for word in running.say("cd /proc; echo [0-9]*; cd /").split()}
            assert len(pids - target.threads().keys()) <= 2  # threads may come and go
        running.say(WORK)
        lists_processes(running)
        shows_log(running)
        records(running, folder / "recording")
        stacks_of_cpus_are_whole(running)
        refuses_what_it_cannot(running, folder)
        running.say("kill $(cat /tmp/jobs)")
        saved_memory_agrees(running, folder, release, functions)


def lists_processes(running: Guest) -> None:
    rows = {one["pid"]: one for one in json.loads(peek("ps", *running.way, "--json").stdout)}
    sleeper = rows[int(running.say("cat /tmp/sleeper"))]
    assert (sleeper["name"], sleeper["command"]) == ("sleep", "sleep 1000")
    assert (sleeper["state"], sleeper["waits_in"]) == ("S", "do_nanosleep")
    # Names of kernel threads are whole there; a worker's says what it works on, too.
    said = dict(
        re.findall(r"^(\d+) \(((?!kworker).*)\)", running.say("cat /proc/[0-9]*/stat"), re.M)
    )
    there = [pid for pid in map(int, said) if pid in rows]
    assert len(there) > len(said) / 2
    assert [rows[pid]["name"] for pid in there] == [said[str(pid)][:15] for pid in there]


def shows_log(running: Guest) -> None:
    said = [line.strip() for line in running.say("dmesg").splitlines()]
    shown = [line.strip() for line in peek("dmesg", *running.way).stdout.splitlines()]
    assert len(said) > 100 and shown[: len(said)] == said


def records(running: Guest, folder: Path) -> None:
    options = ("--seconds", str(SECONDS), "--stacks", "10")
    with recording(running.way, folder, *options) as process:
        assert process.wait(GUEST_LIMIT_S) == 0
    (boot,) = json.loads(peek("report", "--json", folder).stdout)["boots"]
    busy = int(running.say("cat /tmp/busy"))
    shares = {one["pid"]: one["share"] for one in boot["tasks"]}
    assert shares[busy] > BUSY_MIN, boot


def stacks_of_cpus_are_whole(running: Guest) -> None:
    """The registers know nothing of the memory's current task, and both must fit each other."""
    whole = in_user_mode = count = 0
    with running.machine.open() as target, Monitor(running.monitor) as monitor:
        for _ in range(STOPS):
            with monitor.stopped():
                registers = stops.registers_of(monitor.registers())
                for one in target.cpu_stacks(registers):
                    count += 1
                    whole += one.stack.ending in (Ending.USER, Ending.BOTTOM)
                    in_user_mode += not one.stack.addresses
    assert count == 2 * STOPS and whole >= WHOLE_MIN * count, (whole, count)
    assert 0 < in_user_mode < count


def saved_memory_agrees(
    running: Guest, folder: Path, release: str, functions: Sequence[str]
) -> None:
    with Monitor(running.monitor) as monitor, monitor.stopped():
        monitor.dump(folder / "dump", format_="kdump-zlib")
        assert not peek("export", *running.way, "--core", folder / "core").returncode
    for name in ("dump", "core"):
        with Image(folder / name).open() as target:
            agrees(target, release, list(functions))
            assert target.saved_registers() == []


def refuses_what_it_cannot(running: Guest, folder: Path) -> None:
    for command in (("trace", "-o", folder / "trace"), ("check", "--monitor", running.monitor)):
        done = peek(*command, *running.way)
        assert done.returncode == 1
        assert "a kernel of arm64: `peek " in done.stderr, done.stderr
