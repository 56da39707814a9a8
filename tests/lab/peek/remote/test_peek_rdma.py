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
from functools import cached_property
from pathlib import Path

import pytest

from tests.lab.command import LIMIT_S, ROOT, wait_until
from tests.lab.peek.remote import linked_guests, ssh_guest
from tests.lab.peek.remote.linked_guests import ADD, KEY, LOAD, TARGET
from tests.lab.peek.watched_guest import ROUND_TRIPS_MAX, Guest, folder_of_memory
from trapless.base.console import Silent
from trapless.peek import machines
from trapless.peek.check import far_memory
from trapless.peek.diagnosis.commands import HANGS
from trapless.peek.kernel.target import Target
from trapless.stock import kernels
from trapless.stock.kernel import Kernel
from trapless.vm.qmp import Monitor
from trapless.vm.splats import splats

pytestmark = [
    pytest.mark.tool,
    pytest.mark.nightly,
    pytest.mark.timeout(2 * LIMIT_S),
    pytest.mark.skipif(bool(linked_guests.missing()), reason=f"no {linked_guests.missing()} here"),
]

CONNECTIONS_MAX = 8
"""TLR_CONNECTIONS_MAX of the module."""
SAMPLER = "build/sampler/trapless-sampler"
READS = f"--source rdma:{TARGET},18515,/root/key --interval-test 4096 --reads 10000000"
HOSTILE = ROOT / "tests/lab/peek/remote/hostile_observer.c"
OTHERS = ("remote/rdma_key.c", "remote/rdma_library.c", "source.c", "ramfile.c")
FLAGS = ("-O1", "-D_GNU_SOURCE", "-Isampler", "-Iinclude", "-Iinclude/uapi")
LIMITS = ("s/thread_time() + bound.seconds/thread_time() + 60 * bound.seconds/",)
LIMITS += ("s/^ANSWER_S = /&60 * /", "s/^OPEN_S, SEARCH_BYTES_S = /&60 * /")
SLOWER = f"cd {ROOT}/trapless/peek; cp limits.py /root/limits.py; "
SLOWER += "; ".join(f"sed -i '{one}' limits.py" for one in LIMITS)
SLOWER += "; diff /root/limits.py limits.py | grep -c '^>.*60 [*]'"
"""In the guest's view of this machine's files: the limits of processor time are for a processor
that is not emulated, on a machine that has nothing else to do. The last line counts them."""
LOADS = "sleep 100000 & echo $!; taskset 2 sh -c 'while :; do :; done' & echo $!"
LOOK = f"""\
import dataclasses, json
from pathlib import Path
from trapless.peek import machines
from trapless.peek.check import far_memory
from trapless.peek.check.far_memory import look
with machines.Rdma("{TARGET}", 18515, Path("/root/key")).open() as far:
    trips = far.memory.connection.reads
    print(json.dumps([trips, dataclasses.asdict(look(far))]))
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
    """The two guests. `near` is the target's kernel by the file of its memory."""

    folder: Path
    kernel: Kernel
    """The target's."""
    target: Guest
    observer: Guest
    sleeper: int
    loop: int
    text: int
    """The physical address of the kernel's code."""
    stack: ExitStack

    @cached_property
    def near(self) -> Target:
        return self.stack.enter_context(machines.Image(self.target.ram).open())

    def memory(self, address: int, length: int) -> bytes:
        """What its file has; the memory of 1 GiB has no hole, so addresses are offsets."""
        with self.target.ram.open("rb") as file:
            file.seek(address)
            return file.read(length)

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
        return wait_until(lambda: self.attack("read 0x2000000 8").startswith("done"))

    def hold(self, name: str) -> None:
        """Let an observer hold its connection, until its input of that name ends, or it is
        killed; its keys are in a file, and its process is the one in another."""
        hold = f"/root/hostile_observer {TARGET} /root/key hold </root/{name} >/root/{name}.keys"
        said = self.run(
            f"mkfifo /root/{name}; {hold} & echo $! >/root/{name}.pid; exec 8>/root/{name}"
        )
        written = f"[ -s /root/{name}.keys ] && echo written"
        assert wait_until(lambda: self.run(written) == "written"), said
        assert self.holds(), self.log()

    def move(self, address: str) -> None:
        """Give the observer another address, which its device for RDMA takes later."""
        self.run(f"ip addr flush dev eth0; ip addr add {address}/24 dev eth0")
        gid = "ffff:0a09:{:02x}{:02x}".format(*map(int, address.split(".")[2:]))
        gids = "cat /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null"
        assert wait_until(lambda: gid in self.run(gids)), self.run(gids)

    def wait_for_end(self) -> None:
        """Wait until the target holds no region for anybody."""
        assert wait_until(lambda: not self.holds()), self.resources()

    def holds(self) -> bool:
        return " mr 0 " not in f"{self.resources()} "

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
    """One pair for all tests of a kernel. Only the target, which has the module, gets a debug
    kernel; the observer then has the default one."""
    if kernel not in pairs:
        pairs.clear()
        stack.close()
        found = kernels.resolve(kernel, Silent())
        observers_kernel = kernels.default() if found.debug else kernel
        folder = stack.enter_context(folder_of_memory())
        target = stack.enter_context(linked_guests.target(folder, kernel))
        observer = stack.enter_context(linked_guests.observer(folder, observers_kernel, hostile))
        sleeper, loop = map(int, target.say(LOADS).split())
        text = int(target.say("grep 'Kernel code' /proc/iomem").split("-")[0], 16)
        pairs[kernel] = Pair(folder, found, target, observer, sleeper, loop, text, stack)
        assert pairs[kernel].run(SLOWER) == str(len(LIMITS))
        assert pairs[kernel].reads_again()
    return pairs[kernel]


@pytest.fixture
def stock(pair) -> None:
    """Skip the test on a debug kernel."""
    if pair.kernel.debug:
        pytest.skip("a debug kernel has neither types, which peek needs to open it, nor lockdown")


@pytest.mark.usefixtures("stock")
def test_rdma_and_the_ram_file_have_the_same_memory(pair):
    round_trips = []

    def far() -> far_memory.Look:
        said = pair.run(f".venv/bin/python -c '{LOOK}'")
        trips, found = json.loads(said.splitlines()[-1])
        round_trips.append(trips)
        return far_memory.Look(**found)

    found = far_memory.compare(lambda: far_memory.look(pair.near), far)
    assert not found.different
    assert all(0 < trips < ROUND_TRIPS_MAX for trips in round_trips), round_trips
    sleeper = str(pair.sleeper)
    assert all(sleeper in found.steady[kind] for kind in far_memory.KINDS)
    assert any("nanosleep" in name for name in found.last.stacks[sleeper])
    assert found.last.log and len(found.last.places) == len(far_memory.NAMES)


@pytest.mark.usefixtures("stock")
def test_commands_show_the_target(pair):
    ps = pair.peek("ps")
    assert re.search(rf"^ *{pair.sleeper} S .*sleep 100000$", ps, re.M) and "status 0" in ps, ps
    why = pair.peek("why")
    assert why.splitlines()[-1] in ("status 0", f"status {HANGS}"), why
    *_, second, status = pair.peek("top", "--interval-us 50000 --updates 2 --json").splitlines()
    assert status == "status 0"
    assert pair.loop in [task["pid"] for task in json.loads(second)["tasks"]], second


@pytest.mark.usefixtures("stock")
def test_a_recording_is_whole(pair):
    said = pair.peek("record", "--interval-us 50000 --seconds 3 --stacks 1 /root/whole")
    assert "the time is over" in said, said
    assert pair.run(f".venv/bin/python -c '{RECORDED}' /root/whole") == "True"


@pytest.mark.skipif(bool(ssh_guest.missing()), reason=f"no {ssh_guest.missing()} here")
@pytest.mark.usefixtures("stock")
def test_check_compares_with_what_the_target_says_of_itself(pair):
    key = pair.run("ssh-keygen -q -t ed25519 -N '' -f /root/id; cat /root/id.pub")
    pair.target.say(ssh_guest.SERVER.format(key=key.splitlines()[-1], port=ssh_guest.PORT))
    lines = ("'IdentityFile /root/id'", "'StrictHostKeyChecking no'", "'LogLevel ERROR'")
    pair.run(f"mkdir -p /root/.ssh; printf '%s\\n' {' '.join(lines)} >/root/.ssh/config")
    answers = f"ssh root@{TARGET} echo answers"
    assert wait_until(lambda: "answers" in pair.run(answers), 300), pair.run(answers)
    said = pair.peek("check", f"--witness root@{TARGET} --reads 100 -o /root/check.json")
    print(said)
    assert "different: nothing" in said and said.endswith("status 0"), said
    found = json.loads(pair.run("cat /root/check.json"))
    assert found["compared"]["threads"] > 20 and found["compared"]["stacks"] > 20
    assert [row["bytes"] for row in found["intervals"]] == list(far_memory.SIZES)
    assert "rxe0" in found["observer"]["devices"]
    assert 0 < found["opening"]["reads"] < ROUND_TRIPS_MAX


def test_what_is_not_allowed_is_refused_and_changes_nothing(pair):
    text, kept = pair.text, pair.memory(pair.text, 64)
    assert pair.attack(f"read {text:#x} 8") == f"done: {kept[:2].hex()}"
    assert pair.attack(f"write {text:#x} 8").startswith("refused: remote")
    assert pair.attack(f"atomic {text:#x} 8").startswith("refused: remote")
    for hole in ("0xa0000 8", "0x40000000 8", "0x3ffffff8 16", "0xfee00020 4"):
        assert pair.attack(f"read {hole}") == "refused: remote access error", hole
    assert pair.attack(f"read {text:#x} 8 0x12345678") == "refused: remote access error"
    assert pair.memory(text, 64) == kept
    assert not splats(pair.log())


def test_a_key_of_another_connection_reads_nothing(pair):
    pair.hold("held")
    keys = [line.split() for line in pair.run("cat /root/held.keys").splitlines()]
    rkey = next(key for key, start in reversed(keys) if int(start, 16) <= pair.text)
    assert pair.attack(f"read {pair.text:#x} 8 {rkey}") == "refused: remote access error"
    pair.run("exec 8>&-")


def test_who_lacks_the_key_or_the_address_is_refused(pair):
    assert pair.attack("replay") == "first: taken\nreplayed: refused"
    pair.run(f"umask 077; echo {KEY[::-1]} >/root/wrong")
    wrong = f"bin/trapless peek ps --rdma {TARGET} --key /root/wrong"
    assert "is the key the same on both sides?" in (said := pair.run(wrong)), said
    pair.move("10.9.0.3")
    said = pair.peek("ps")
    pair.move(linked_guests.OBSERVER)
    assert "does not allow this machine's address" in said, said
    assert "others may read it" in (said := pair.run(f"chmod 644 /root/wrong; {wrong}")), said


def test_a_target_whose_card_is_not_known_yet_is_reached_at_once(pair):
    read = f"/root/hostile_observer {TARGET} /root/key read 0x2000000 8"
    said = pair.run(f"for one in $(seq 20); do ip neigh flush dev eth0; {read}; done 2>&1")
    assert said.count("done") == 20, (
        said
    )  # a reply of ARP that comes early does not wake the kernel


def test_silent_and_malformed_observers_are_bounded(pair, pytestconfig):
    said = pair.attack("silent 20")
    taken, closed = map(int, re.fullmatch(r"taken (\d+) closed (\d+)", said).groups())
    # The first may be closed before the last begins: others then take their places.
    assert CONNECTIONS_MAX <= taken < 20 and closed == taken
    seconds = pytestconfig.getoption("--flood-seconds")
    attack = f"/root/hostile_observer {TARGET} /root/wrong2"
    silent = f"timeout {seconds} sh -c 'while :; do {attack} silent 20; done' >/root/silent"
    floods = " & ".join([silent, *[f"{attack} flood {seconds}"] * 3])
    said = pair.run(f"umask 077; echo {KEY[::-1]} >/root/wrong2; {floods}; wait")
    print(said)
    assert re.search(r"attacks [1-9]", said) and "taken" not in said, said
    pair.wait_for_end()
    assert pair.reads_again()
    assert not splats(pair.log())


def test_an_observer_that_dies_leaves_nothing(pair):
    pair.hold("dying")
    pair.run("kill -9 $(cat /root/dying.pid); exec 8>&-")
    pair.wait_for_end()
    pair.hold("cut")
    pair.run("ip link set eth0 down")
    pair.wait_for_end()  # it can say nothing any more
    # Soft-RoCE itself does not come back with its card.
    pair.run("kill -9 $(cat /root/cut.pid); exec 8>&-; ip link set eth0 up; rdma link delete rxe0")
    pair.run(ADD)
    assert pair.reads_again()
    assert not splats(pair.log())


CLOSED, SILENT = "it has closed the connection", "it does not answer any more"
NOBODY = "no trapless_rdma.ko is there"
BLOCKS = "/sys/devices/system/memory/memory"
OFFLINE = f"""\
for n in 4 5 6; do echo offline >{BLOCKS}$n/state && echo $n && break; done 2>/dev/null
"""
"""Takes 128 MiB away where programs alone have memory (movablecore=): some of it may be in use."""


@pytest.mark.parametrize(
    ("end", "said", "begin"),
    [
        ("rmmod trapless_rdma", CLOSED, LOAD),
        ("rdma link delete rxe0", CLOSED, ADD),
        ("ip link set eth0 down", SILENT, f"ip link set eth0 up; rdma link delete rxe0; {ADD}"),
    ],
    ids=["module", "device", "link"],
)
def test_a_target_that_goes_ends_the_reads_in_flight(pair, end, said, begin):
    folder = f"/root/{end.replace(' ', '-')}"
    record(pair, folder)
    began_s = time.monotonic()
    pair.target.say(end)
    noticed(pair, folder, said, began_s)
    if said is SILENT:
        pair.wait_for_end()  # by its own empty writes, which nobody acknowledges
    pair.target.say(begin)
    assert pair.reads_again()
    assert not splats(pair.log())


def test_memory_that_goes_and_comes_ends_connections(pair):
    pair.hold("going")
    block = int(pair.target.say(OFFLINE))
    gone = block << 27
    pair.wait_for_end()
    assert pair.attack(f"read {gone:#x} 8") == "refused: remote access error"
    pair.hold("coming")
    pair.target.say(f"echo online >{BLOCKS}{block}/state")
    pair.wait_for_end()
    assert pair.attack(f"read {gone:#x} 8").startswith("done")
    pair.run("exec 8>&-")
    assert not splats(pair.log())


def test_a_target_that_is_reset_is_read_again(pair):
    folder = "/root/reset"
    record(pair, folder)
    began_s = time.monotonic()
    with Monitor(pair.target.monitor) as monitor:
        monitor.reset()
    noticed(pair, folder, SILENT, began_s)
    linked_guests.join(pair.target, TARGET)
    assert NOBODY in (said := pair.attack("read 0x2000000 8")), said
    linked_guests.serve(pair.target)
    assert pair.reads_again()
    assert not splats(pair.log())


@pytest.mark.usefixtures("stock")
def test_a_locked_down_target_shows_nothing(pair):
    """The last of all: no kernel unlocks itself."""
    locks = "mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security; "
    pair.target.say(locks + "echo confidentiality >/sys/kernel/security/lockdown")
    assert not pair.attack("read 0x2000000 8").startswith("done")
    assert "memory cannot be registered with rxe0: -1" in pair.log()
    assert not splats(pair.log())


def record(pair: Pair, folder: str) -> None:
    """Begin a recording that reads nearly all the time. A debug kernel has no types to record by:
    of that, begin to read one address."""
    if pair.kernel.debug:
        read = f"{SAMPLER} {READS} --address {pair.text:#x} >{folder}.log 2>&1"
        pair.run(f"{read} & echo $! >/root/pid")
        assert wait_until(lambda: pair.holds())
        time.sleep(5)
        return
    way = f"--rdma {TARGET} --key /root/key --interval-us 5000"
    command = f"bin/trapless peek record {way} {folder} >{folder}.log 2>&1"
    pair.run(f"{command} & echo $! >/root/pid")
    state = f"[ -e {folder}/meta.json ] || kill -0 $(cat /root/pid) 2>/dev/null || cat {folder}.log"
    assert wait_until(lambda: pair.run(f"[ -e {folder}/meta.json ] && echo there || {state}"))
    assert not (said := pair.run(state)), said
    time.sleep(5)


def noticed(pair: Pair, folder: str, reason: str, began_s: float) -> None:
    """The recording ends by itself, says why, and is whole."""
    said = pair.run(f"wait $(cat /root/pid); cat {folder}.log")
    print(f"{reason}: the recording has ended {time.monotonic() - began_s:.1f} s later")
    assert reason in said, said
    if pair.kernel.debug:
        return
    assert pair.run(f".venv/bin/python -c '{RECORDED}' {folder}") == "True"
