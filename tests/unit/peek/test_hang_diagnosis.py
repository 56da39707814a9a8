# SPDX-License-Identifier: GPL-2.0-only
"""What is said of a hang, in which order, and how the kernel's log is read out of its ring.

The reading of a real kernel's threads, locks and CPUs is tested in VMs (test_peek_why.py).
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
from click.testing import CliRunner

from trapless.base.console import TraplessError
from trapless.cli import cli
from trapless.peek import limits
from trapless.peek.diagnosis import text, two_looks
from trapless.peek.diagnosis.two_looks import Diagnosis
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.btf import Place
from trapless.peek.kernel.health import printk_ring
from trapless.peek.kernel.health.hang_causes import ROOT, Cause, Look, Processor, Verdict
from trapless.peek.kernel.health.printk_ring import Log, Record
from trapless.peek.kernel.health.single_look import merged
from trapless.peek.kernel.health.thread_states import Clocks
from trapless.peek.sandbox import messages
from trapless.peek.sandbox.sandboxed_resolver import QUESTIONS
from trapless.peek.stacks import stops

RECORDS, RECORD_BITS, DATA_BITS = 8, 3, 7
RING, DESCS = 0x1000, 0x2000
MEMBERS = {
    ("printk_ringbuffer", "desc_ring"): 0,
    ("printk_ringbuffer", "text_data_ring"): 64,
    ("prb_desc_ring", "count_bits"): 0,
    ("prb_desc_ring", "descs"): 8,
    ("prb_desc_ring", "infos"): 16,
    ("prb_desc_ring", "head_id"): 24,
    ("prb_desc_ring", "tail_id"): 32,
    ("prb_data_ring", "size_bits"): 0,
    ("prb_data_ring", "data"): 8,
    ("prb_desc", "state_var"): 0,
    ("prb_desc", "text_blk_lpos"): 8,
    ("printk_info", "seq"): 0,
    ("printk_info", "ts_nsec"): 8,
    ("printk_info", "text_len"): 16,
    ("printk_info", "facility"): 18,
}
SIZES = {"prb_desc": 24, "printk_info": 24}


class RingOfLog:
    """A kernel that has nothing but the ring of its log, as a target."""

    release = "6.1.0-toy"

    def __init__(self, record_bits: int = RECORD_BITS, data_bits: int = DATA_BITS) -> None:
        self.records, self._bytes = 1 << record_bits, 1 << data_bits
        self._infos = DESCS + 24 * self.records
        self._texts = self._infos + 24 * self.records
        self.memory = bytearray(self._texts + self._bytes)
        self._next = 0
        self.put(0x800, struct.pack("<Q", RING))
        self.put(RING, struct.pack("<QQQ", record_bits, DESCS, self._infos))
        self.put(RING + 64, struct.pack("<QQ", data_bits, self._texts))

    def put(self, place: int, data: bytes) -> None:
        self.memory[place : place + len(data)] = data

    def log(self, number: int, message: bytes, *, state: int = 2, level: int = 6) -> None:
        """Write a record as the kernel does, with its text behind those that are there."""
        size, ring = 8 + len(message) + -len(message) % 8, self._bytes
        begin = self._next
        if begin // ring != (begin + size - 1) // ring:  # it would cross the end
            place, end = 0, (begin // ring + 1) * ring + size
        else:
            place, end = begin % ring, begin + size
        self._next = end
        at = number % self.records
        self.put(self._texts + place, struct.pack("<Q", number) + message)
        self.put(DESCS + 24 * at, struct.pack("<QQQ", state << 62 | number, begin, end))
        info = struct.pack("<QQHBB", number, number * 1000, len(message), 0, level << 5)
        self.put(self._infos + 24 * at, info)
        self.put(RING + 24, struct.pack("<QQ", number, max(number - self.records + 1, 0)))

    def has_symbol(self, name: str) -> bool:
        return name == "prb"

    def symbol(self, _: str) -> int:
        return 0x800

    def offset(self, record: str, path: str) -> int:
        return MEMBERS[record, path]

    def sizeof(self, record: str) -> int:
        return SIZES[record]

    def read(self, place: int, length: int) -> bytes:
        if place + length > len(self.memory):
            raise PeekError(f"{place:#x} is not mapped")
        return bytes(self.memory[place : place + length])

    def read_u64(self, place: int) -> int:
        return int.from_bytes(self.read(place, 8), "little")


class BufferOfLog:
    """A kernel before Linux 5.10 that has nothing but its log, written as log_store() does."""

    release = "5.4.0-toy"
    SYMBOLS = MappingProxyType(
        {
            "log_first_seq": 0,
            "log_next_seq": 8,
            "log_first_idx": 16,
            "log_next_idx": 20,
            "log_buf_len": 24,
            "log_buf": 32,
        }
    )
    HEADER = struct.Struct("<QHHHBB")
    PLACES = MappingProxyType(
        {
            "ts_nsec": Place(0, 0, 8),
            "len": Place(8, 0, 2),
            "text_len": Place(10, 0, 2),
            "level": Place(15, 0, 1, bit=5, bits=3),
        }
    )

    def __init__(self, size: int = 256) -> None:
        self.memory = bytearray(64 + size)
        self._size, self._kept = size, deque[tuple[int, int]]()  # of each record: place, length
        self._next, self._count = 0, 0
        self.put(24, struct.pack("<IIQ", size, 0, 64))

    def put(self, place: int, data: bytes) -> None:
        self.memory[place : place + len(data)] = data

    def log(self, message: bytes, level: int = 6) -> None:
        """Write a record, in the place of the oldest ones if there is no other room."""
        length = self.HEADER.size + len(message) + -len(message) % 4
        if self._next + length + self.HEADER.size > self._size:
            self.put(64 + self._next, bytes(self.HEADER.size))
            self._drop(self._next, self._size)
            self._next = 0
        self._drop(self._next, self._next + length + self.HEADER.size)
        header = (self._count * 1000, length, len(message), 0, 0, level << 5 | 2)
        self.put(64 + self._next, self.HEADER.pack(*header) + message)
        self._kept.append((self._next, length))
        self._next, self._count = self._next + length, self._count + 1
        sequence = self._count - len(self._kept)
        self.put(0, struct.pack("<QQII", sequence, self._count, self._kept[0][0], self._next))

    def _drop(self, start: int, end: int) -> None:
        while self._kept and start <= self._kept[0][0] < end:
            self._kept.popleft()

    def has_symbol(self, name: str) -> bool:
        return name in self.SYMBOLS

    def symbol(self, name: str) -> int:
        return self.SYMBOLS[name]

    def place(self, record: str, path: str) -> Place:
        assert record == "printk_log"
        return self.PLACES[path]

    def sizeof(self, record: str) -> int:
        return self.HEADER.size

    def read(self, place: int, length: int) -> bytes:
        return bytes(self.memory[place : place + length])

    def read_u64(self, place: int) -> int:
        return int.from_bytes(self.read(place, 8), "little")


def read(ring: RingOfLog | BufferOfLog, after: int = -1) -> Log:
    return printk_ring.read(ring, after)  # type: ignore[arg-type]


def lines(ring: RingOfLog | BufferOfLog, after: int = -1) -> list[str]:
    return [str(line) for one in read(ring, after).records for line in one.lines]


def test_log_is_read_in_order_and_from_a_record_on():
    ring = RingOfLog()
    for number, message in enumerate((b"one", b"two\nlines", b"three\x1b[2J")):
        ring.log(number, message, level=number)
    assert lines(ring) == ["one", "two", "lines", "three\\x1b[2J"]
    assert lines(ring, after=1) == ["three\\x1b[2J"]
    assert [one.level for one in read(ring).records] == [0, 1, 2]


def test_log_keeps_what_is_not_overwritten():
    """Text that crosses the end of the ring begins at its beginning; the oldest is overwritten."""
    ring = RingOfLog()
    for number in range(40):
        ring.log(number, b"message %d" % number)
    found = lines(ring)
    assert found[-4:] == ["message 36", "message 37", "message 38", "message 39"]
    assert len(read(ring).records) <= RECORDS


@pytest.mark.parametrize(
    ("limit", "value", "kept"), [("LOG_LINES_MAX", 3, 3), ("LOG_TEXT_BYTES_MAX", 29, 2)]
)
def test_of_a_long_log_the_newest_part_is_read_and_the_rest_is_counted(
    limit, value, kept, monkeypatch
):
    ring = RingOfLog(record_bits=5, data_bits=10)
    for number in range(20):
        ring.log(number, b"message %d" % number)
    monkeypatch.setattr(limits, limit, value)
    log = read(ring)
    assert [one.sequence for one in log.records] == list(range(20 - kept, 20))
    assert log.left_out == 20 - kept
    assert f"newest {kept} records are shown, and {20 - kept} older ones" in text.left_out(log)
    assert read(ring, after=17) == Log(log.records[-2:], 0)


@pytest.mark.slow
@pytest.mark.parametrize("message", [b"\xff" * 1000, b"a" * 80, b"\n" * 500, b""], ids=len)
def test_the_longest_log_fits_into_an_answer(message):
    """32 MiB, as with log_buf_len=32M, also where each byte is shown as an escape."""
    ring = RingOfLog(limits.LOG_RECORDS_BITS, limits.LOG_BYTES_BITS)
    count = min(ring.records, (1 << limits.LOG_BYTES_BITS) // (len(message) + 16))
    for number in range(count):
        ring.log(number, message)
    answer = QUESTIONS["log"](ring, -1)
    sent = json.dumps(answer)
    assert len(sent) <= limits.ANSWER_BYTES_MAX
    left_out, records = messages.ANSWERS["log"](json.loads(sent))
    assert left_out > 0 and left_out + len(records) == count and records[-1][0] == count - 1


def test_log_of_before_5_10_is_read_from_its_first_record_on():
    buffer = BufferOfLog()
    for number in range(40):
        buffer.log(b"two\nlines %d" % number, level=number % 8)
        first = max(number - 5, 0)
        found = read(buffer).records
        assert [one.sequence for one in found][-6:] == list(range(first, number + 1))
        assert all(one.time_ns == 1000 * one.sequence for one in found)
        assert all(one.level == one.sequence % 8 for one in found)
        assert lines(buffer)[-2:] == ["two", f"lines {number}"]
    assert lines(buffer, after=38) == ["two", "lines 39"]


@pytest.mark.parametrize("length", [0, 1, 15, 0xFFFF])
def test_damaged_record_of_before_5_10_ends_the_log(length):
    buffer = BufferOfLog()
    for number in range(4):
        buffer.log(b"message %d" % number)
    buffer.put(64 + 2 * 28 + 8, struct.pack("<H", length))
    assert lines(buffer)[:2] == ["message 0", "message 1"]
    assert len(lines(buffer)) <= 4


def test_of_a_long_log_of_before_5_10_the_newest_part_is_read(monkeypatch):
    buffer = BufferOfLog(4096)
    for number in range(20):
        buffer.log(b"message %d" % number)
    monkeypatch.setattr(limits, "LOG_LINES_MAX", 3)
    log = read(buffer)
    assert [one.sequence for one in log.records] == [17, 18, 19] and log.left_out == 17


def test_record_that_is_being_written_is_left_out():
    ring = RingOfLog()
    ring.log(0, b"whole")
    ring.log(1, b"not yet", state=0)
    assert lines(ring) == ["whole"]


@pytest.mark.parametrize("place", [RING, RING + 64], ids=["records", "text"])
def test_log_of_absurd_size_is_refused(place):
    ring = RingOfLog()
    ring.put(place, struct.pack("<Q", 40))
    with pytest.raises(PeekError, match="damaged"):
        read(ring)


WEB = "web (process 7)"


def verdict(cause: Cause, subject: str, seconds: float = 1.0) -> Verdict:
    return Verdict(cause, f"{cause} {subject}", seconds, subject, (f"evidence of {subject}",))


def test_cause_that_explains_others_comes_first_and_has_what_follows_as_evidence():
    found = merged(
        [
            verdict(Cause.BLOCKED, "a"),
            verdict(Cause.RCU, "waits for readers", 50),
            verdict(Cause.RCU, f"{ROOT}grace period"),
            verdict(Cause.LOCK, "short"),
            verdict(Cause.LOCK, "long", 30),
            verdict(Cause.CPU_HELD, "cpu 1"),
        ]
    )
    causes = [one.cause for one in found]
    assert causes == [Cause.CPU_HELD, Cause.RCU, Cause.LOCK, Cause.LOCK, Cause.BLOCKED]
    assert [one.subject for one in found if one.cause is Cause.LOCK] == ["long", "short"]
    assert "rcu waits for readers" in found[1].evidence


@pytest.mark.parametrize(("oops_s", "first"), [(40, Cause.OOPS), (4000, Cause.STORAGE)])
def test_oops_long_before_a_hang_does_not_explain_it(oops_s, first):
    oops = verdict(Cause.OOPS, "oops", oops_s)
    found = merged([oops, verdict(Cause.STORAGE, f"{ROOT}disk sda", 20)])
    assert found[0].cause is first and len(found) == 2
    assert merged([oops]) == [oops]


def test_first_line_is_the_likeliest_cause():
    cpu = Processor(0, True, True, 0, "", 10**9, 0, 0.0, 0)
    look = Look(95.0, 1, 12, (cpu,), ())
    quiet = Diagnosis("6.1.0", look, (), (), 2)
    first = next(text.diagnosis(quiet, 10))  # of shorter hangs it says nothing
    assert first.startswith("Nothing in the kernel has hung for 10 s: ")
    hanging = Diagnosis("6.1.0", look, (verdict(Cause.LOCK, "x"),), ("a note",), 1, WEB)
    shown = list(text.diagnosis(hanging, 10))
    assert shown[0] == "1. lock x" and "Note: a note" in shown
    assert (
        shown[-1] == "web (process 7), 6.1.0, up 95 s, 1 CPU, 12 threads; "
        "one look, at memory that does not change"
    )
    assert text.diagnosis_in_json(hanging)["verdicts"][0]["cause"] == "lock"


def test_last_line_says_what_a_panic_stopped():
    """The panic takes the others off line; a CPU that never was there has no time."""
    cpus = tuple(Processor(n, n == 0, True, 0, "", ns, 0, 0.0, 0) for n, ns in enumerate((9, 9, 0)))
    look = Look(95.0, 1, 12, cpus, ())
    last = list(text.diagnosis(Diagnosis("6.1.0", look, (), (), 2, WEB), 10))[-1]
    assert ", 1 CPU, " in last and last.endswith("; looked at twice")
    panicked = Diagnosis("6.1.0", look, (verdict(Cause.PANIC, "x"),), (), 1, WEB)
    last = list(text.diagnosis(panicked, 10))[-1]
    assert ", up 95 s until then, 2 CPUs, 1 of them stopped, " in last
    assert last.endswith("; one look was enough: the machine has panicked")


def test_a_panic_is_dated_by_the_age_of_its_process():
    """The guest's clock stands still since then. A restart makes the kernel younger than that."""
    look, panic = Look(50.0, 1, 1, (), ()), verdict(Cause.PANIC, "x", 2.0)
    line, *others = two_looks._dated(panic, look, 100.0).evidence
    assert line.startswith("at most 52 s ago: its process has run for 100 s, and its kernel for 48")
    assert tuple(others) == panic.evidence
    assert two_looks._dated(panic, look, 40.0) is panic
    assert 0 < Emulator(os.getpid(), ()).age_s() < 86_400


@contextmanager
def deaf(path: Path) -> Iterator[Path]:
    """A monitor that lets anybody connect, and says nothing, as that of a stopped QEMU."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield path


def test_monitor_that_does_not_answer_is_gone_on_without(tmp_path, monkeypatch):
    monkeypatch.setattr(stops, "MONITOR_LIMIT_S", 0.2)
    said = list[str]()
    with deaf(tmp_path / "m") as path, stops.opened(path, None, None, said.append) as found:
        assert found is None
    assert said == [f"QEMU's monitor at {path} does not answer; what the CPUs execute is not known"]
    with (  # of peek record and check, which are nothing without it
        deaf(tmp_path / "n") as path,
        pytest.raises(TraplessError, match="does not answer"),
        stops.opened(path, None),
    ):
        pass


@pytest.mark.parametrize(
    ("status", "words"),
    [("paused", "paused (`virsh resume`, or `cont`"), ("io-error", "failed or is full")],
)
def test_state_of_a_machine_that_stands_still_is_told_by_its_monitor(status, words):
    class Told:
        def status(self) -> str:
            return status

    look = Look(95.0, 1, 12, (), ())
    (found,) = two_looks._Host(None).on_still_clock(look, Told())  # type: ignore[arg-type]
    assert found.cause is Cause.STOPPED and f"QEMU says that it is {status}" in found.text
    assert words in found.text


@pytest.mark.parametrize(
    ("lives", "has_emulator", "words", "others"),
    [
        (True, True, "--monitor SOCKET", "dump"),
        (True, False, "are not in memory", "--monitor"),
        (False, False, "this file does not hold its registers; a dump by", "--monitor"),
    ],
    ids=["VM", "agent", "file"],
)
def test_remedy_for_unknown_registers_fits_the_machine(lives, has_emulator, words, others):
    lack = stops.lack_of_registers(lives=lives, has_emulator=has_emulator)
    one = {"known": False, "threads": [], "state": "R", "kernel": [], "user": [], "lack": ""}
    held = Verdict(Cause.CPU_HELD, "", 20.0, "cpu 0", cpus=(0,))
    target = SimpleNamespace(saved_registers=list)
    explained = two_looks._with_stacks(target, held, None, lack)  # type: ignore[arg-type]
    for said in ("\n".join(text.stacks_for_people([one], lack)), explained.evidence[0]):
        assert words in said and others not in said


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_units_of_the_alarm_are_well_formed(tmp_path):
    page = Path(two_looks.__file__).with_name("README.md").read_text()
    units = []
    for name, unit in re.findall(r"```ini\n# (\S+)\n(.*?)```", page, re.S):
        path = tmp_path / name
        path.write_text(unit.replace("/usr/local/sbin/peek-why", sys.executable))
        units.append(path)
    assert len(units) == 2
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_tabs_of_a_log_stay_tabs():
    ring = RingOfLog()
    ring.log(0, b"a\tb\x1b[31m")
    sent = json.loads(json.dumps(QUESTIONS["log"](ring, -1)))
    _, ((sequence, time_ns, level, found),) = messages.ANSWERS["log"](sent)
    record = Record(sequence, time_ns, level, tuple(found))
    assert list(text.log([record])) == ["[    0.000000] a\tb\\x1b[31m"]
    assert text.log_in_json(record)["text"] == "a\tb\\x1b[31m"


def test_moment_later_than_the_clock_is_no_time_ago():
    """The clock is read first, so what is read after it may be later."""
    clocks = Clocks.__new__(Clocks)
    clocks.jiffies, clocks.rate = (1 << 32) + 500, 250
    assert clocks.ticks_s(0) == 2.0
    assert clocks.ticks_s(clocks.jiffies + 1) == 0.0


def test_times_are_for_people():
    assert doctest.testmod(text).failed == 0


@pytest.mark.parametrize("command", ["shell", "top", "trace", "why"])
def test_file_of_a_memory_is_a_plain_argument(tmp_path, command):
    image = tmp_path / "ram"
    image.write_bytes(bytes(1 << 20))
    done = CliRunner().invoke(cli, ["peek", command, str(image)])
    assert done.exit_code == 1 and "all zeros" in str(done.exception or done.output)


def test_file_is_named_once(tmp_path):
    image = tmp_path / "ram"
    image.write_bytes(bytes(1 << 20))
    done = CliRunner().invoke(cli, ["peek", "why", "--ram", str(image), str(image)])
    assert done.exit_code == 2 and "give one of them" in done.output
    done = CliRunner().invoke(cli, ["peek", "why", "--vm", "web", str(image)])
    assert done.exit_code == 2 and "FILE and --vm each name a machine" in done.output
    words = ["trace", "--recording", str(tmp_path), "-o", str(tmp_path / "new"), str(image)]
    done = CliRunner().invoke(cli, ["peek", *words])
    assert done.exit_code == 2 and "a recording becomes a Perfetto trace" in done.output


def test_a_machine_that_ends_amid_the_looks_is_not_called_paused(monkeypatch):
    process = subprocess.Popen(["sleep", "1000"])
    look = Look(1.0, 1, 1, (), ())
    looks = iter([False, True])

    class Ending:
        def look(self, longer_s: float) -> Look:
            if next(looks):
                process.kill()
                process.wait()
            return look

    monkeypatch.setattr(two_looks, "clock", lambda target: 0)
    monkeypatch.setattr(two_looks, "IDLE_STILL_S", two_looks.PAUSE_S)
    with pytest.raises(PeekError, match="the machine has ended while it was looked at"):
        two_looks.diagnose(Ending(), Emulator(process.pid, ()), 10.0)  # type: ignore[arg-type]
