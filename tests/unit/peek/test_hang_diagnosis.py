# SPDX-License-Identifier: GPL-2.0-only
"""What is said of a hang, in which order, and how the kernel's log is read out of its ring.

The reading of a real kernel's threads, locks and CPUs is tested in VMs (test_peek_why.py).
"""

from __future__ import annotations

import doctest
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from trapless.base.console import TraplessError
from trapless.cli import cli
from trapless.peek import limits
from trapless.peek.diagnosis import text, two_looks
from trapless.peek.diagnosis.two_looks import Diagnosis
from trapless.peek.errors import PeekError
from trapless.peek.kernel.health import printk_ring
from trapless.peek.kernel.health.hang_causes import ROOT, Cause, Look, Processor, Verdict
from trapless.peek.kernel.health.printk_ring import Log
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


def read(ring: RingOfLog, after: int = -1) -> Log:
    return printk_ring.read(ring, after)  # type: ignore[arg-type]


def lines(ring: RingOfLog, after: int = -1) -> list[str]:
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
    assert next(text.diagnosis(quiet, 10)).startswith("Nothing hangs in the kernel: ")
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
    assert ", 2 CPUs, 1 of them stopped, " in last
    assert last.endswith("; one look was enough: the machine has panicked")


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
    with deaf(tmp_path / "m") as path, stops.opened(path, None, said.append) as found:
        assert found is None
    assert said == [f"QEMU's monitor at {path} does not answer; what the CPUs execute is not known"]
    with (  # of peek record and check, which are nothing without it
        deaf(tmp_path / "n") as path,
        pytest.raises(TraplessError, match="does not answer"),
        stops.opened(path),
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


def test_registers_of_a_file_are_not_sought_elsewhere():
    one = {"known": False, "threads": [], "state": "R", "kernel": [], "user": [], "lack": ""}
    assert "--monitor" in "".join(text.stacks_for_people([one]))
    assert "this file does not hold" in "".join(text.stacks_for_people([one], lives=False))


def test_moment_later_than_the_clock_is_no_time_ago():
    """The clock is read first, so what is read after it may be later."""
    clocks = Clocks.__new__(Clocks)
    clocks.jiffies, clocks.rate = (1 << 32) + 500, 250
    assert clocks.ticks_s(0) == 2.0
    assert clocks.ticks_s(clocks.jiffies + 1) == 0.0


def test_times_are_for_people():
    assert doctest.testmod(text).failed == 0


def test_file_is_named_once(tmp_path):
    image = tmp_path / "ram"
    image.write_bytes(bytes(1 << 20))
    done = CliRunner().invoke(cli, ["peek", "why", "--ram", str(image), str(image)])
    assert done.exit_code == 2 and "give one of them" in done.output
    done = CliRunner().invoke(cli, ["peek", "why", "--vm", "web", str(image)])
    assert done.exit_code == 2 and "FILE and --vm each name a machine" in done.output
    done = CliRunner().invoke(cli, ["peek", "why", str(image)])
    assert done.exit_code == 1 and "all zeros" in str(done.exception or done.output)
