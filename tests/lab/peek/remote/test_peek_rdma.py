# SPDX-License-Identifier: GPL-2.0-only
"""`--rdma`: a machine that is read by RDMA, compared with its RAM file, and attacked.

Two guests are linked by Soft-RoCE. What the observer reads is compared with what the file of the
target's memory holds at the same time. Soft-RoCE takes the target's processor for each read, so the
shares of `top` are not compared, and nothing here is a claim about speed.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.command import LIMIT_S, ROOT, wait_until
from tests.lab.peek.remote import linked_guests
from tests.lab.peek.remote.linked_guests import KEY, LOAD, TARGET
from tests.lab.peek.watched_guest import ROUND_TRIPS_MAX, Guest, folder_of_memory
from trapless.peek import machines
from trapless.peek.diagnosis.commands import HANGS
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.boots import clock
from trapless.peek.sandbox.client import SandboxedTarget
from trapless.vm.splats import splats

pytestmark = [
    pytest.mark.tool,
    pytest.mark.nightly,
    pytest.mark.timeout(2 * LIMIT_S),
    pytest.mark.skipif(bool(linked_guests.missing()), reason=f"no {linked_guests.missing()} here"),
]

CONNECTIONS_MAX = 8
"""TLR_CONNECTIONS_MAX of the module."""
HOSTILE = ROOT / "tests/lab/peek/remote/hostile_observer.c"
OTHERS = ("remote/rdma_key.c", "remote/rdma_library.c", "source.c", "ramfile.c")
FLAGS = ("-O1", "-D_GNU_SOURCE", "-Isampler", "-Iinclude", "-Iinclude/uapi")
SLOWER = "sed -i 's/thread_time() + bound.seconds/thread_time() + 60 * bound.seconds/' "
SLOWER += f"{ROOT}/trapless/peek/limits.py"
"""In the guest's view of this machine's files: the limits of processor time are for a processor
that is not emulated."""
LOADS = "sleep 100000 & echo $!; taskset 2 sh -c 'while :; do :; done' & echo $!"
LOOK = f"""\
import hashlib, json
from pathlib import Path
from trapless.peek import machines
from trapless.peek.sampling.boots import clock
with machines.Rdma("{TARGET}", 18515, Path("/root/key")).open() as far:
    trips = far.memory.connection.reads
    names = "init_task", "schedule", "jiffies_64", "__per_cpu_offset", "modules"
    start = far.symbol("_stext")
    print(json.dumps(dict(
        round_trips=trips, release=str(far.release), build_id=far.build_id,
        places=[far.physical(far.symbol(name)) for name in names],
        text=hashlib.sha256(far.read(start, 2 << 20)).hexdigest(), clock=clock(far),
        threads=[[one.pid, str(one.comm)] for one in far.threads().values()],
        log=[str(one.text) for one in far.log(-1).records[:50]],
        stacks=[[one.pid, [str(far.name_of(at)) for at in one.stack.addresses]]
                for one in far.thread_stacks() if one.stack is not None])))
"""
RECORDED = """\
import json, sys
from pathlib import Path
from pyarrow.parquet import ParquetFile
folder = Path(sys.argv[1])
rows = sum(ParquetFile(file).metadata.num_rows for file in folder.glob("rows-*.parquet"))
print(rows == json.loads((folder / "end.json").read_text())["rows"] > 0)
"""


@dataclass
class Pair:
    """The two guests, and the target's kernel by the file of its memory."""

    folder: Path
    kernel: str
    target: Guest
    observer: Guest
    near: Target
    sleeper: int
    loop: int

    def run(self, command: str) -> str:
        """What a command of the observer says, with its errors."""
        return self.observer.say(f"cd {ROOT}; {{ {command}; }} 2>&1")

    def peek(self, *arguments: str) -> str:
        """The same of `trapless peek`, and its status."""
        words = " ".join(arguments[1:])
        way = f"--rdma {TARGET} --key /root/key"
        return self.run(f"bin/trapless peek {arguments[0]} {way} {words}; echo status $?")

    def attack(self, words: str, key: str = "/root/key") -> str:
        """What one of the attacks says, or the observer's files for it."""
        return self.run(f"/root/hostile_observer {TARGET} {key} {words}")

    def log(self) -> str:
        return self.target.say("dmesg")

    def reads_again(self) -> bool:
        """Whether an honest observer reads, soon."""
        return wait_until(lambda: self.attack("read 0x2000000 8").startswith("done"), 120)

    def wait_for_end(self) -> None:
        """Wait until the target holds no region, key or queue for anybody."""
        assert wait_until(lambda: " mr 0 " in f"{self.resources()} ", 120), self.resources()

    def resources(self) -> str:
        return self.target.say("rdma resource show | grep rxe0")


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    program = tmp_path_factory.mktemp("hostile") / "hostile_observer"
    others = [f"sampler/{name}" for name in (*OTHERS, "observed_process.c")]
    subprocess.run(
        ["gcc", *FLAGS, "-o", program, HOSTILE, *others, "-ldl", "-pthread"], check=True, cwd=ROOT
    )
    return program


@pytest.fixture(scope="module")
def pairs() -> dict[str, Pair]:
    return {}


@pytest.fixture
def pair(kernel, pairs, stack, hostile) -> Pair:
    """One pair for all tests of a kernel."""
    if kernel not in pairs:
        pairs.clear()
        stack.close()
        folder = stack.enter_context(folder_of_memory())
        target = stack.enter_context(linked_guests.target(folder, kernel))
        observer = stack.enter_context(linked_guests.observer(folder, kernel, hostile))
        sleeper, loop = map(int, target.say(LOADS).split())
        near = stack.enter_context(machines.Image(target.ram).open())
        pairs[kernel] = Pair(folder, kernel, target, observer, near, sleeper, loop)
        pairs[kernel].run(SLOWER)
        assert pairs[kernel].reads_again()
    return pairs[kernel]


def settled(threads: list[list[Any]]) -> set[tuple[int, str]]:
    """All threads that are there long enough to be seen twice."""
    fleeting = ("kworker", "sh", "rdma", "dmesg")
    return {(pid, name) for pid, name in threads if not name.startswith(fleeting)}


def test_rdma_and_the_ram_file_have_the_same_memory(pair):
    near = pair.near
    assert isinstance(near, SandboxedTarget)
    before = clock(near)
    said = pair.run(f".venv/bin/python -c '{LOOK}'")
    after = clock(near)
    far = json.loads(said.splitlines()[-1])
    assert 0 < far["round_trips"] < ROUND_TRIPS_MAX
    assert (far["release"], far["build_id"]) == (str(near.release), near.build_id)
    names = ("init_task", "schedule", "jiffies_64", "__per_cpu_offset", "modules")
    assert far["places"] == [near.physical(near.symbol(name)) for name in names]
    assert before <= far["clock"] <= after
    now = [[one.pid, str(one.comm)] for one in near.threads().values()]
    assert settled(far["threads"]) == settled(now)
    assert far["log"] == [str(one.text) for one in near.log(-1).records[:50]] != []
    near_stack = next(
        [str(near.name_of(address)) for address in one.stack.addresses]
        for one in near.thread_stacks()
        if one.pid == pair.sleeper and one.stack is not None
    )
    assert dict(map(tuple, far["stacks"]))[pair.sleeper] == near_stack
    assert any("nanosleep" in name for name in near_stack)


def test_commands_show_the_target(pair):
    ps = pair.peek("ps")
    assert re.search(rf"^ *{pair.sleeper} S .*sleep 100000$", ps, re.M) and "status 0" in ps, ps
    why = pair.peek("why")
    assert why.splitlines()[-1] in ("status 0", f"status {HANGS}"), why
    *_, second, status = pair.peek("top", "--interval-us 50000 --updates 2 --json").splitlines()
    assert status == "status 0"
    assert pair.loop in [task["pid"] for task in json.loads(second)["tasks"]], second


def test_a_recording_is_whole(pair):
    said = pair.peek("record", "--interval-us 50000 --seconds 3 --stacks 1 /root/whole")
    assert "the time is over" in said, said
    assert pair.run(f".venv/bin/python -c '{RECORDED}' /root/whole") == "True"


def test_what_is_not_allowed_is_refused_and_changes_nothing(pair):
    near = pair.near
    text = near.physical(near.symbol("_stext"))
    kept = near.memory.read(text, 64)
    assert pair.attack(f"read {text:#x} 8") == f"done: {kept[:2].hex()}"
    assert pair.attack(f"write {text:#x} 8").startswith("refused: remote")
    assert pair.attack(f"atomic {text:#x} 8").startswith("refused: remote")
    for hole in ("0xa0000 8", "0x40000000 8", "0x3ffffff8 16", "0xfee00020 4"):
        assert pair.attack(f"read {hole}") == "refused: remote access error", hole
    assert pair.attack(f"read {text:#x} 8 0x12345678") == "refused: remote access error"
    assert near.memory.read(text, 64) == kept
    assert not splats(pair.log())


def test_a_key_of_another_connection_reads_nothing(pair):
    text = pair.near.physical(pair.near.symbol("_stext"))
    held = f"/root/hostile_observer {TARGET} /root/key hold >/root/keys"
    pair.run(f"mkfifo /root/held; {held} </root/held & exec 9>/root/held; sleep 5")
    rkey = pair.run("grep ' 0x200000$' /root/keys").split()[0]
    assert pair.attack(f"read {text:#x} 8 {rkey}") == "refused: remote access error"
    pair.run("exec 9>&-")


def test_who_lacks_the_key_or_the_address_is_refused(pair):
    assert pair.attack("replay") == "first: taken\nreplayed: refused"
    pair.run(f"umask 077; echo {KEY[::-1]} >/root/wrong")
    said = pair.run(f"bin/trapless peek ps --rdma {TARGET} --key /root/wrong")
    assert "is the key the same on both sides?" in said
    pair.run("ip addr flush dev eth0; ip addr add 10.9.0.3/24 dev eth0; sleep 2")
    said = pair.peek("ps")
    pair.run("ip addr flush dev eth0; ip addr add 10.9.0.2/24 dev eth0; sleep 2")
    assert "does not allow this machine's address" in said
    said = pair.run(
        f"chmod 644 /root/wrong; bin/trapless peek ps --rdma {TARGET} --key /root/wrong"
    )
    assert "others may read it" in said


def test_silent_and_malformed_observers_are_bounded(pair):
    said = pair.attack("silent 20")
    taken, closed = map(int, re.fullmatch(r"taken (\d+) closed (\d+)", said).groups())
    # The first may be closed before the last begins: others then take their places.
    assert CONNECTIONS_MAX <= taken < 20 and closed == taken
    floods = " & ".join([f"/root/hostile_observer {TARGET} /root/wrong2 flood 60"] * 3)
    said = pair.run(f"umask 077; echo {KEY[::-1]} >/root/wrong2; {floods}; wait")
    assert re.search(r"attacks [1-9]", said) and "taken" not in said, said
    pair.wait_for_end()
    assert pair.reads_again()
    assert not splats(pair.log())


def test_an_observer_that_dies_leaves_nothing(pair):
    hold = f"/root/hostile_observer {TARGET} /root/key hold </root/dying >/dev/null"
    pair.run(f"mkfifo /root/dying; {hold} & echo $! >/root/pid; exec 8>/root/dying; sleep 5")
    assert " mr 0 " not in f"{pair.resources()} "
    pair.run("kill -9 $(cat /root/pid); exec 8>&-")
    pair.wait_for_end()
    pair.run(f"{hold} & echo $! >/root/pid; exec 8>/root/dying; sleep 5; ip link set eth0 down")
    pair.wait_for_end()  # it can say nothing any more
    # Soft-RoCE itself does not come back with its card.
    pair.run("kill -9 $(cat /root/pid); exec 8>&-; ip link set eth0 up; rdma link delete rxe0")
    pair.run("rdma link add rxe0 type rxe netdev eth0")
    assert pair.reads_again()


def test_a_target_that_ends_the_connection_ends_the_recording_and_it_is_whole(pair):
    """The last test of a pair."""
    folder = "/root/ended"
    record = f"bin/trapless peek record --rdma {TARGET} --key /root/key --interval-us 50000"
    pair.run(f"{record} {folder} >{folder}.log 2>&1 & echo $! >/root/pid")
    assert wait_until(lambda: "there" in pair.run(f"[ -e {folder}/meta.json ] && echo there"))
    time.sleep(5)
    pair.target.say("rmmod trapless_rdma")
    said = pair.run(f"wait $(cat /root/pid); cat {folder}.log")
    assert "it has closed the connection" in said, said
    assert pair.run(f".venv/bin/python -c '{RECORDED}' {folder}") == "True"
    pair.target.say(LOAD)
    assert pair.reads_again()
    assert not splats(pair.log())


def test_a_locked_down_target_shows_nothing(pair):
    """The last of all: no kernel unlocks itself."""
    locks = "mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security; "
    pair.target.say(locks + "echo confidentiality >/sys/kernel/security/lockdown")
    assert not pair.attack("read 0x2000000 8").startswith("done")
    assert "memory cannot be registered with rxe0: -1" in pair.log()
    assert not splats(pair.log())
