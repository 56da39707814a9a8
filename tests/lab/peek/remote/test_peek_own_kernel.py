# SPDX-License-Identifier: GPL-2.0-only
"""`--ssh` and `--local`: a machine whose memory its own kernel shows, compared with its RAM file.

The guest has an SSH server, which this machine asks by the real ssh. What an agent reads there is
compared with what the file of the guest's memory holds at the same time. The guest also looks at
itself.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.command import LIMIT_S, ROOT, wait_until
from tests.lab.peek import watched_guest
from tests.lab.peek.remote import ssh_guest
from tests.lab.peek.watched_guest import ROUND_TRIPS_MAX, Guest, folder_of_memory, recording
from trapless.peek import machines
from trapless.peek.diagnosis.commands import HANGS
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.agent_memory import AgentMemory
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.boots import clock
from trapless.peek.sampling.recording import Recording
from trapless.peek.sandbox.client import SandboxedTarget

pytestmark = [
    pytest.mark.tool,
    pytest.mark.long,
    pytest.mark.timeout(2 * LIMIT_S),
    pytest.mark.skipif(bool(ssh_guest.missing()), reason=f"no {ssh_guest.missing()} here"),
]

SHARE_MIN = 0.6
"""Of the CPU that only a loop may use: the guest's own ticks and kernel threads have the rest."""
LOADS = """\
sleep 100000 & echo $!
taskset 1 sh -c 'while :; do :; done' & echo $!
taskset -p 2 $(cat /root/dropbear.pid) >/dev/null
"""
LOOK = """\
from trapless.base.console import Silent
from trapless.peek import limits, machines
from trapless.peek.sampling import top
from trapless.peek.sampling.boots import clock
for name in ("OPENING", "NOTES", "THREADS", "MODULES", "TYPES"):
    setattr(limits, name, getattr(limits, name)._replace(seconds=600))
class Own(machines.Own):
    def open(self, *, sandbox=True):
        return super().open(sandbox=False)
with Own().open() as own:
    print(own.release, hex(own.physical(own.symbol("init_task"))), clock(own))
    for one in own.threads().values():
        print(one.pid, one.comm)
top.top(Own(), interval_ns=10**6, cpu=None, updates=2, progress=Silent(), as_json=True)
"""
"""In the guest. The limits of processor time are for a processor that is not emulated, and the
sandbox would have them still."""
LOCK = "mount -t securityfs none /sys/kernel/security; "
LOCK += "echo confidentiality >/sys/kernel/security/lockdown"


@dataclass
class Observed:
    """A guest that sleeps in one process and loops in another."""

    guest: Guest
    sleeper: int
    loop: int
    far: Target  # its kernel through ssh
    near: Target  # and by the file of its memory
    agent: int  # its process
    round_trips: int  # that opening took

    def agents(self) -> int:
        """How many agents there are; none samples."""
        return len(self.guest.say("pidof trapless-agent").split())


@pytest.fixture(scope="module")
def guests() -> dict[str, Observed]:
    return {}


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def observed(kernel, guests, stack) -> Observed:
    """One guest for all tests of a kernel."""
    if kernel not in guests:
        guests.clear()
        stack.close()
        folder = stack.enter_context(folder_of_memory())
        guest, programs = stack.enter_context(ssh_guest.guest_with_server(folder, kernel))
        stack.enter_context(_path_with(programs))
        sleeper, loop = map(int, guest.say(LOADS).split())
        far = stack.enter_context(machines.Host("guest").open())
        near = stack.enter_context(machines.Image(guest.ram).open())
        assert isinstance(far.memory, AgentMemory)
        agent, trips = int(guest.say("pidof trapless-agent")), far.memory.agent.reads
        guests[kernel] = Observed(guest, sleeper, loop, far, near, agent, trips)
    return guests[kernel]


@contextmanager
def _path_with(folder: Path) -> Iterator[None]:
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


def threads(target: Target) -> set[tuple[int, str]]:
    """All threads that are there long enough to be seen twice."""
    return {
        (one.pid, str(one.comm))
        for one in target.threads().values()
        if not str(one.comm).startswith(("kworker", "dropbear", "trapless", "sh"))
    }


def shares(second: dict[str, Any]) -> dict[int, float]:
    """The shares of a CPU that the processes had in a second of `top`."""
    return {task["pid"]: task["share"] * len(second["cpus"]) for task in second["tasks"]}


def test_ssh_and_the_ram_file_have_the_same_memory(observed):
    far, near = observed.far, observed.near
    assert (far.release, far.build_id) == (near.release, near.build_id)
    assert far.page_tables.root == near.page_tables.root
    for name in ("init_task", "schedule", "jiffies_64", "__per_cpu_offset", "modules"):
        assert far.physical(far.symbol(name)) == near.physical(near.symbol(name)), name
    start = far.symbol("_stext")
    length = min(far.symbol("_etext") - start, 4 << 20)
    assert far.read(start, length) == near.read(start, length)
    before, between, after = clock(near), clock(far), clock(near)
    assert before <= between <= after
    assert threads(far) == threads(near) and (observed.sleeper, "sleep") in threads(far)


def test_opening_takes_few_round_trips(observed):
    assert 0 < observed.round_trips < ROUND_TRIPS_MAX


def test_threads_wait_where_the_ram_file_says(observed):
    stacks = [
        next(
            [str(one.name_of(address)) for address in thread.stack.addresses]
            for thread in one.thread_stacks()
            if thread.pid == observed.sleeper and thread.stack is not None
        )
        for one in (observed.far, observed.near)
    ]
    assert stacks[0] == stacks[1] and any("nanosleep" in name for name in stacks[0])


def test_log_and_processes_are_those_of_the_ram_file(observed):
    far, near = observed.far, observed.near
    assert isinstance(far, SandboxedTarget) and isinstance(near, SandboxedTarget)
    assert near.log(-1).records[:50] == far.log(-1).records[:50] != []
    sleepers = [
        [
            (process.state, process.place, str(process.command))
            for process in one.processes(every_thread=False)
            if process.pid == observed.sleeper
        ]
        for one in (far, near)
    ]
    assert sleepers[0] == sleepers[1] and "sleep 100000" in sleepers[0][0][2]
    done = watched_guest.peek("why", "--ssh", "guest")
    assert done.returncode in (0, HANGS), done.stderr


def test_top_shows_what_runs(observed):
    done = watched_guest.peek("top", "--ssh", "guest", "--updates", "2", "--json")
    assert done.returncode == 0, done.stderr
    second = json.loads(done.stdout.splitlines()[-1])
    assert shares(second)[observed.loop] > SHARE_MIN
    assert second["sampling"]["interval_us"] == 1000


def test_a_recording_is_whole(observed, tmp_path):
    done = watched_guest.peek(
        *("record", "--ssh", "guest", "--seconds", "2", "--stacks", "1", tmp_path / "record")
    )
    assert done.returncode == 0 and "the time is over" in done.stdout, done.stderr
    assert "the machine samples itself: the sampler runs on its CPU 1" in done.stderr
    found = Recording.open(tmp_path / "record")
    assert found.problems == () and found.end is not None and found.end["rows"] > 0
    assert sum(table.num_rows for table in found.tables()) == found.end["rows"]


def test_an_agent_that_is_killed_ends_the_recording_and_it_is_whole(observed, tmp_path):
    with recording(("--ssh", "guest"), tmp_path / "killed") as process:
        time.sleep(1)
        # Of the agent that samples: its child samples, is younger, and ends with it.
        others = f"pidof trapless-agent | tr ' ' '\\n' | grep -vx {observed.agent}"
        observed.guest.say(f"kill -9 $({others} | sort -n | head -n 1)")
        said, noted = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and "the VM's memory went away" in said, noted
    assert "the connection to guest has ended" in noted
    found = Recording.open(tmp_path / "killed")
    assert found.problems == () and found.end is not None
    assert sum(table.num_rows for table in found.tables()) == found.end["rows"] > 0


def test_nothing_is_left_even_by_an_observer_that_was_killed(observed, tmp_path):
    with recording(("--ssh", "guest"), tmp_path / "left") as process:
        assert "trapless-" not in observed.guest.say("ls /dev/shm /run")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert wait_until(lambda: observed.agents() == 1, 120)  # the one of `observed`


def test_a_machine_looks_at_itself(observed):
    near = observed.near
    before = clock(near)
    said = observed.guest.say(f"cd {ROOT} && .venv/bin/python -c '{LOOK}' 2>&1")
    after, expected = clock(near), threads(near)
    head, *rows, _, second = said.splitlines()
    release, init_task, own_clock = head.split()
    place = near.physical(near.symbol("init_task"))
    assert (release, int(init_task, 16)) == (str(near.release), place)
    assert before < int(own_clock) < after
    assert expected <= {(int(pid), name) for pid, name in (row.split(" ", 1) for row in rows)}
    assert shares(json.loads(second))[observed.loop] > SHARE_MIN


def test_a_root_without_the_right_is_refused_in_words(observed):
    said = observed.guest.say(
        f"cd /root && setpriv --bounding-set=-sys_rawio {ROOT}/bin/trapless peek top --local 2>&1"
    )
    assert "takes CAP_SYS_RAWIO, which root lacks in this container" in said


def test_a_locked_kernel_is_refused_in_words(observed):
    """The last test of a guest: a lockdown stays until it is booted again."""
    said = observed.guest.say(f"{LOCK} 2>&1")
    assert not said, said
    with pytest.raises(PeekError, match=r"guest is locked down \(confidentiality\)"):
        machines.Host("guest").open()
    assert wait_until(lambda: observed.agents() == 1, 120)
