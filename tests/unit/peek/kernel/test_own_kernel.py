# SPDX-License-Identifier: GPL-2.0-only
"""A machine whose memory its own kernel shows: /proc/kcore, read here or by an agent over a pipe.

The lab's test reads real ones. These show what a machine may lack, and what one that attacks its
observer may answer.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.make import make
from tests.unit.peek.toy_kernel import IMAGE_AT, IMAGE_BASE, NOTE_AT, RAM_BYTES, ToyKernel
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories import kcore
from trapless.peek.kernel.memories.agent_memory import Agent, AgentMemory, Kind, by_ssh
from trapless.peek.kernel.memories.kcore import NO_ADDRESS, Access, regions
from trapless.peek.kernel.memories.remote_memory import KEPT_BYTES
from trapless.peek.kernel.memory import Region
from trapless.peek.machines import Own
from trapless.peek.sampling import sampler
from trapless.peek.sampling.sample_rows import BLOCK_MAGIC, END_MAGIC, STREAM_MAGIC
from trapless.peek.sampling.sampler import AgentSampler
from trapless.peek.sampling.sampling_plan import Field, Group, Plan, Rule
from trapless.peek.sandbox.client import SandboxedTarget

ROOT = Path(__file__).resolve().parents[4]
DIRECT_MAP = 0xFFFF_8880_0000_0000
DATA_AT = 0x1000
SPLIT = 3 << 20
"""Where the toy's memory is in two segments: reads across it take two messages."""
NOTE = f"{NOTE_AT:#x} 1000"
HELLO = "error 0\nuser 0\ncpu 3\nlockdown [none] integrity confidentiality\nnote " + NOTE + "\n"
SERVER = f"""
import os, struct, sys
def take(length):
    data = b""
    while len(data) < length:
        piece = os.read(0, length - len(data))
        if not piece:
            sys.exit()
        data += piece
    return data
def say(kind, data):
    data = struct.pack("<II", kind, len(data)) + data
    while data:
        data = data[os.write(1, data):]
take(PROGRAM_BYTES)
say({Kind.HELLO:d}, {HELLO!r}.encode())
"""
"""How an agent begins: it has taken the program that is sent to each."""
ANSWERS = f"""
memory = open(PATH, "rb")
while True:
    kind, length = struct.unpack("<II", take(8))
    if kind == {Kind.READ:d}:
        offset, length = struct.unpack("<QQ", take(16))
        say({Kind.DATA:d}, os.pread(memory.fileno(), length, offset))
"""


def segment(start: int, length: int, offset: int, virtual: int, kind: int = 1) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 7, offset, virtual, start, length, length, 4096)


def header(*segments: bytes, machine: int = 62) -> bytes:
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQ", 4, machine, 1, 0, 64, 0)
    head += struct.pack("<IHHHHHH", 0, 64, 56, len(segments), 0, 0, 0)
    return head + b"".join(segments)


def core(*segments: bytes, machine: int = 62) -> bytes:
    """A kcore with the segments that every kernel has, and these."""
    notes = segment(0, 100, 64, 0, kind=4)
    mapped = segment(NO_ADDRESS, 1 << 40, 1 << 41, 0xFFFFC90000000000)
    image = segment(IMAGE_AT, 1 << 20, 1 << 42, IMAGE_BASE + IMAGE_AT)
    return header(notes, mapped, image, *segments, machine=machine)


def parts() -> list[bytes]:
    return [
        segment(start, length, DATA_AT + start, DIRECT_MAP + start)
        for start, length in ((SPLIT, RAM_BYTES - SPLIT), (0, SPLIT))
    ]


@pytest.fixture
def toy(tmp_path) -> Path:
    """A kcore of the toy kernel."""
    path = tmp_path / "kcore"
    path.write_bytes(core(*parts()).ljust(DATA_AT, b"\0") + bytes(ToyKernel().ram))
    return path


def started(script: str, tmp_path: Path) -> Agent:
    """An agent that is a program in Python, which answers over pipes as ssh's do."""
    program = tmp_path / "program"
    program.write_bytes(b"program")
    text = script.replace("PROGRAM_BYTES", "7")
    return Agent("web", [sys.executable, "-I", "-c", text], program)


def read(data: bytes):
    return lambda offset, length: data[offset : offset + length]


# ---- What kcore says -----------------------------------------------------------------------------


def test_memory_is_what_the_direct_map_has():
    found = regions("kcore", read(core(*parts())))
    assert found == [
        Region(0, SPLIT, DATA_AT),
        Region(SPLIT, RAM_BYTES - SPLIT, DATA_AT + SPLIT),
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0" * 64, "no x86-64|not of an x86-64 kernel"),
        (core(*parts(), machine=183), "not of an x86-64 kernel"),
        (core(), "0 parts of memory"),
        (core(segment(0, 8192, 0, 0), segment(4096, 8192, 0, 0)), "cannot be right"),
        (core(segment(7, 8192, 0, 0)), "cannot be right"),
        (core(segment(0, 8192, (1 << 64) - 1, 0)), "cannot be right"),
        (core(*(segment(8192 * at, 4096, 0, 0) for at in range(99))), "99 parts of memory"),
    ],
)
def test_strange_tables_are_refused(data, words):
    with pytest.raises(PeekError, match=words):
        regions("kcore", read(data))


@pytest.mark.parametrize(
    ("machine", "error", "user", "lockdown", "words"),
    [
        (kcore.HERE, errno.ENOENT, 0, "", "this machine has no /proc/kcore"),
        (kcore.HERE, errno.EACCES, 1000, "", "takes root; use sudo$"),
        ("web", errno.EACCES, 1000, "", "takes root; use root@HOST, or sudo there"),
        ("web", errno.EPERM, 0, "none integrity [confidentiality]", r"locked down \(confid"),
        ("web", errno.EPERM, 0, "[none] integrity confidentiality", "CAP_SYS_RAWIO"),
        ("web", errno.EMFILE, 0, "", "cannot be opened: Too many open files"),
    ],
)
def test_a_kernel_that_does_not_show_its_memory_is_refused_in_words(
    machine, error, user, lockdown, words
):
    with pytest.raises(PeekError, match=words):
        Access(machine, error, user, lockdown, NOTE).check()


def test_a_kernel_without_a_note_is_refused_in_words():
    with pytest.raises(PeekError, match="CONFIG_VMCORE_INFO"):
        Access("web", 0, 0, "", "").note_address()


def test_this_machine_is_opened_by_its_kcore(toy, tmp_path, monkeypatch):
    (tmp_path / "note").write_text(NOTE + "\n")
    monkeypatch.setattr(kcore, "KCORE", toy)
    monkeypatch.setattr(kcore, "NOTE", tmp_path / "note")
    with Own().open() as target:
        assert str(target.release) == ToyKernel().release
        again = target.again()
        assert again.identity == target.identity
        again.close()
    monkeypatch.setattr(kcore, "KCORE", tmp_path / "none")
    with pytest.raises(PeekError, match="has no"):
        Own().open()


# ---- Agents --------------------------------------------------------------------------------------


def test_a_kernel_is_opened_by_messages(toy, tmp_path):
    one = started(SERVER + ANSWERS.replace("PATH", repr(str(toy))), tmp_path)
    memory, ram = AgentMemory(one), bytes(ToyKernel().ram)
    with SandboxedTarget.of([memory]) as target:
        assert target.memory is memory and one.last_cpu == 3
        assert memory.read(SPLIT - 8, 16) == ram[SPLIT - 8 : SPLIT + 8]
        assert memory.read_all([(0, 4), (SPLIT - 1, 2)]) == [ram[:4], ram[SPLIT - 1 : SPLIT + 1]]
        with pytest.raises(PeekError, match="has no physical address"):
            memory.read(RAM_BYTES - 1, 2)
        other = target.again()
        assert other.identity == target.identity
        other.close()
        target.check_same()  # the duplicate has closed, and the connection stays
    with pytest.raises(PeekError, match="the connection to web has ended"):
        memory.read(0, 1)


@pytest.mark.usefixtures("many_open_files")
@pytest.mark.parametrize("ending", ["sys.exit('gone')", "os.write(2, b'gone'); sys.exit()"])
def test_an_agent_is_heard_where_more_files_are_open_than_select_takes(ending, tmp_path):
    one = started(f"{SERVER}\ntake(24)\nsay({Kind.DATA:d}, b'12345678')\n{ending}", tmp_path)
    assert one.read([(0, 8)]) == [b"12345678"]
    with pytest.raises(PeekError, match="has ended: gone"):
        one.read([(0, 8)])
    one.close()


def test_many_reads_are_in_flight(tmp_path):
    """The agent answers none before it has got all."""
    waits = f"""
offsets = [struct.unpack("<IIQQ", take(24))[2] for _ in range(100)]
for offset in offsets:
    say({Kind.DATA:d}, struct.pack("<Q", offset))
take(1)
"""
    one = started(SERVER + waits, tmp_path)
    answers = one.read([(number, 8) for number in range(100)])
    assert [int.from_bytes(answer, "little") for answer in answers] == list(range(100))
    one.close()


@pytest.mark.slow
def test_a_slow_line_is_no_attack(toy, tmp_path, monkeypatch):
    """The process in the sandbox has its time, whatever the line takes."""
    monkeypatch.setattr(limits, "OPEN_S", 0.5)
    line = "        say("
    slow = ANSWERS.replace(line, f"        time.sleep(length / {KEPT_BYTES})\n{line}", 1)
    script = f"import time\n{SERVER}{slow.replace('PATH', repr(str(toy)))}"
    began_s = time.monotonic()
    with SandboxedTarget.of([AgentMemory(started(script, tmp_path))]) as target:
        assert str(target.release) == ToyKernel().release
    assert time.monotonic() - began_s > limits.OPEN_S * limits.BUSY_FACTOR


def test_more_reads_than_a_pipe_holds_are_answered(tmp_path):
    """The agent answers each at once, and its answers fill the other pipe meanwhile."""
    answers = f"""
while True:
    say({Kind.DATA:d}, struct.pack("<Q", struct.unpack("<IIQQ", take(24))[2]) * 100)
"""
    one = started(SERVER + answers, tmp_path)
    found = one.read([(number, 800) for number in range(20_000)])
    assert all(int.from_bytes(data[:8], "little") == at for at, data in enumerate(found))
    one.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (f"say({Kind.DATA:d}, b'123')", "answers what was not asked"),
        (f"say({Kind.DATA:d}, b'12345678'); say({Kind.DATA:d}, b'')", "what was not asked|^$"),
        ("say(77, b'')", "says what no agent says"),
        ("os.write(1, b'\\xff' * 8)", "says what no agent says"),
        (f"say({Kind.ROWS:d}, b'')", "says what no agent says"),
        (f"say({Kind.FAILED:d}, struct.pack('<i', 14))", "memory of web: Bad address"),
        (f"say({Kind.FAILED:d}, b'')", "memory of web: no reason"),
        ("os.write(2, b'\\x1b[2Jboom'); sys.exit(1)", r"ended: \\x1b\[2Jboom"),
        ("sys.exit(0)", "the machine, or the line to it, is gone"),
    ],
)
def test_strange_answers_end_the_connection_in_words(answer, words, tmp_path):
    one = started(f"{SERVER}\ntake(24)\n{answer}\ntake(1)", tmp_path)
    with pytest.raises(PeekError, match=words):
        for _ in range(2):
            one.read([(0, 8)])
            end = time.monotonic() + 30
            while not one._lost and time.monotonic() < end:
                time.sleep(0.01)
    one.close()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit('ssh: no such host')", "ssh: no such host"),
        (SERVER.replace("error 0", "error x"), "says what no agent says"),
        (SERVER.replace("error 0", "error 2"), "web has no /proc/kcore"),
        ("print('Welcome to web!' * 9)", "says what no agent says"),
    ],
)
def test_what_is_no_agent_is_refused_in_words(script, words, tmp_path):
    with pytest.raises(PeekError, match=words):
        started(script, tmp_path)


def test_the_agent_removes_itself_wherever_it_is_put(tmp_path, monkeypatch):
    """ssh is a shell on this machine here, whose kernel shows its memory to no test."""
    program = ROOT / "build/sampler/trapless-agent"
    make(program)
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("trapless.base.built_programs.find", lambda _: program)
    before = set(Path("/dev/shm").glob("trapless-*"))
    with pytest.raises(PeekError, match="web"), closing(by_ssh("web")) as one:
        one.read([(1 << 62, 8)])  # beyond the end, where this kernel shows its memory
    assert set(Path("/dev/shm").glob("trapless-*")) == before


@pytest.mark.slow
def test_the_agent_does_not_outlive_an_observer_that_stands_still(tmp_path):
    """Its input stays open, and nobody says anything or takes what it says."""
    program = ROOT / "build/sampler/trapless-agent"
    make(program)
    own = shutil.copy(program, tmp_path / "trapless-agent")
    (tmp_path / "other").touch()  # its folder stays
    with subprocess.Popen(
        [own, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as agent:
        assert agent.stdin is not None
        question = struct.pack("<IIQQ", Kind.READ, 16, 0, 8)
        os.set_blocking(agent.stdin.fileno(), False)
        while agent.stdin.write(question):
            pass  # until its answers fill one pipe, and these the other
        assert agent.wait(600) == -signal.SIGALRM


# ---- Agents that sample --------------------------------------------------------------------------

PLAN = Plan(
    interval_ns=10**6, groups=(Group("cpu0", Rule.ONCE, (Field("x", 8, 0),)),), duration_ns=10**8
)
HEAD = sampler._head(PLAN)
SAMPLES = f"""
import time
memory = open(PATH, "rb")
text, bytes_ = {HEAD.text.encode()!r}, {HEAD.dtype.itemsize}
def head(text=text):
    return struct.pack("<8sII", {STREAM_MAGIC!r}, len(text), bytes_) + text
def rows(count):
    return struct.pack("<II", {BLOCK_MAGIC}, count) + bytes(count * bytes_)
end = struct.pack("<II9Q", {END_MAGIC}, 0, *[0] * 9)
while True:
    kind, length = struct.unpack("<II", take(8))
    asked = take(length)
    if kind == {Kind.READ:d}:
        offset, length = struct.unpack("<QQ", asked)
        say({Kind.DATA:d}, os.pread(memory.fileno(), length, offset))
    elif kind == {Kind.SAMPLE:d}:
        SAYS
"""


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("head() + rows(5000) + end", "more rows than were asked for"),
        ("head() + end + rows(1)", "something follows their end"),
        ("head() + rows(0)", "does not begin where it should"),
        ("head(text.replace(b'field x 8', b'field x -8'))", "head of the samples is damaged"),
        ("head(text.replace(b'field x 8', b'field x 99999999999'))", "damaged: a field of"),
        ("head(b'group a\\n' + b'field x 8\\n' * 90000)", "does not describe their rows"),
    ],
)
def test_samples_that_were_not_asked_for_end_sampling_in_words(says, words, toy, tmp_path):
    with pytest.raises(PeekError, match=words):
        rows_of(f"say({Kind.ROWS:d}, {says})", toy, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("says", ["head()", "head() + rows(1)"])
def test_an_agent_that_does_not_end_is_left(says, toy, tmp_path, monkeypatch):
    """It goes on after its time, and when it is asked to end."""
    monkeypatch.setattr(sampler, "STOP_S", 2.0)
    goes_on = (
        f"say({Kind.ROWS:d}, {says})\n        while True: say({Kind.ROWS:d}, b''); time.sleep(0.1)"
    )
    with pytest.raises(PeekError, match="does not end"):
        rows_of(goes_on, toy, tmp_path)


def rows_of(says: str, toy: Path, tmp_path: Path) -> int:
    """The rows by an agent that does this when it is to sample."""
    script = SERVER + SAMPLES.replace("PATH", repr(str(toy))).replace("SAYS", says)
    with closing(AgentMemory(started(script, tmp_path))) as memory:
        run = AgentSampler(memory, PLAN)
        with run:
            return sum(len(rows) for rows in run.batches())
