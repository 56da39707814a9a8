# SPDX-License-Identifier: GPL-2.0-only
"""Rings of events: read once and in order, losses counted, written so that a viewer finds them.

No kernel runs here: rings are made in a piece of memory, as the module would write them.
"""

from __future__ import annotations

import doctest
import errno
import io
import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from trapless.cli import cli
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.tasks import Task
from trapless.peek.sampling.probes import MAGIC, MAP, ProbeMap, read
from trapless.peek.trace import event_decoder as decoding
from trapless.peek.trace import perfetto_file
from trapless.peek.trace import rings as reading
from trapless.peek.trace.event_decoder import Decoder, Event
from trapless.peek.trace.rings import (
    EVENT,
    HEAD,
    HEAD_BYTES,
    MARGIN,
    PLACE_BYTES,
    TAKEN,
    VALUES,
    Merger,
    Place,
    Rings,
)
from trapless.peek.trace.text_trace import JsonWriter, TextWriter

ROOT = Path(__file__).resolve().parents[3]
SLOTS, CPUS = 32, 2
MAP_AT, PLACE_AT, TABLE_AT, RINGS_AT = 0x100, 0x200, 0x1000, 0x2000
RING_BYTES = HEAD_BYTES + SLOTS * EVENT.itemsize
PLACES = ("sched_switch:prev:state:next:prio:comm.0:comm.1", "vfs_read:count=dx:0x8(di)")


class Machine:
    """Memory with rings in it, whose addresses are what they are; it is its own `memory`."""

    cpus_possible = tuple(range(CPUS))

    def __init__(self) -> None:
        self.data = bytearray(0x4000)
        self.heads = [0] * CPUS
        self.on_read = lambda: None
        for number, text in enumerate(PLACES):
            self.put(PLACE_AT + PLACE_BYTES * number, text.encode())
        for cpu in range(CPUS):
            self.put(TABLE_AT + 8 * cpu, struct.pack("<Q", self.ring(cpu)))
        self.put_map(TABLE_AT)
        self.memory = self

    def put_map(self, rings: int) -> None:
        numbers = (MAP.size, 8, 0, 64, 0, 0, rings, CPUS, SLOTS, EVENT.itemsize, len(PLACES))
        self.put(MAP_AT, MAP.pack(MAGIC, *numbers, PLACE_AT))

    def put(self, address: int, data: bytes) -> None:
        self.data[address : address + len(data)] = data

    @staticmethod
    def ring(cpu: int) -> int:
        return RINGS_AT + cpu * RING_BYTES

    def read(self, address: int, length: int) -> bytes:
        data = bytes(self.data[address : address + length])
        if length >= EVENT.itemsize and address >= RINGS_AT:
            self.on_read()
        return data

    def read_u64(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")

    def physical(self, virtual: int) -> int:
        return virtual

    def write(self, cpu: int, t_ns: int, *values: int, place: int = 1, pid: int = 7) -> None:
        """One event, as the module does it: the slot, then the head."""
        slot = self.ring(cpu) + HEAD_BYTES + self.heads[cpu] % SLOTS * EVENT.itemsize
        padded = (*values, *[0] * (VALUES - len(values)))
        self.put(slot, np.array((t_ns, place, pid, padded), EVENT).tobytes())
        self.heads[cpu] += 1
        self.put(self.ring(cpu), HEAD.pack(self.heads[cpu], 0))

    def found(self) -> ProbeMap:
        found = read(self, MAP_AT)
        assert found is not None
        return found


@pytest.fixture
def machine() -> Machine:
    return Machine()


def rings(machine: Machine) -> Rings:
    return Rings(machine, machine.found())


def values(batches) -> list[int]:
    return [int(value) for batch in batches for value in batch["value"][:, 0]]


def test_examples_in_the_code_hold():
    assert all(doctest.testmod(part).failed == 0 for part in (decoding, reading, perfetto_file))


def test_places_have_names_and_labels(machine):
    assert rings(machine).places == (
        Place("sched_switch", ("prev", "state", "next", "prio", "comm.0", "comm.1")),
        Place("vfs_read", ("count", "0x8(di)")),
    )


def test_each_event_is_read_once_around_the_end_of_a_ring(machine):
    reader, seen = rings(machine), []
    for count in range(10 * SLOTS):
        machine.write(0, count, count)
        if count % 7 == 0:
            seen += values(reader.poll())
    seen += values(reader.poll())
    assert seen == list(range(10 * SLOTS))
    assert reader.lost == 0 and reader.poll() == []


def test_events_that_were_written_over_are_counted_and_told_once(machine):
    reader = rings(machine)
    for count in range(3 * SLOTS):
        machine.write(0, count, count)
    (batch,) = reader.poll()
    kept = SLOTS - MARGIN
    assert values([batch]) == list(range(3 * SLOTS - kept, 3 * SLOTS))
    assert reader.lost == 3 * SLOTS - kept
    assert batch["lost"].tolist() == [reader.lost] + [0] * (kept - 1)


def test_ring_that_is_written_over_while_it_is_read_gives_no_torn_event(machine):
    reader = rings(machine)
    for count in range(SLOTS - MARGIN):
        machine.write(0, count, count)

    def meanwhile() -> None:
        machine.on_read = lambda: None
        for count in range(SLOTS - MARGIN, SLOTS + 5):
            machine.write(0, count, count)

    machine.on_read = meanwhile
    lost = 5 + MARGIN
    assert values(reader.poll()) == list(range(lost, SLOTS - MARGIN))
    assert values(reader.poll()) == list(range(SLOTS - MARGIN, SLOTS + 5))
    assert reader.lost == lost


def test_loss_of_a_whole_poll_is_told_with_the_next_event(machine):
    reader = rings(machine)
    machine.write(0, 0, 0)

    def meanwhile() -> None:
        machine.on_read = lambda: None
        for count in range(1, 2 * SLOTS):
            machine.write(0, count, count)

    machine.on_read = meanwhile
    assert values(reader.poll()) == []
    (batch,) = reader.poll()
    assert reader.lost == SLOTS + MARGIN == int(batch["lost"][0])


def test_reading_begins_with_what_comes_or_with_what_is_there(machine):
    for count in range(2 * SLOTS):
        machine.write(1, count, count)
    later, earlier = rings(machine), rings(machine)
    later.begin(backlog=False)
    earlier.begin(backlog=True)
    machine.write(1, 99, 99)
    assert values(later.poll()) == [99]
    assert values(earlier.poll()) == [*range(SLOTS + MARGIN + 1, 2 * SLOTS), 99]
    assert later.lost == 0


def test_events_that_were_switched_off_are_not_read(machine):
    reader = rings(machine)
    machine.write(0, 1, 1)
    machine.put_map(0)
    assert reader.gone() and reader.poll() == []


@pytest.mark.parametrize(
    "wrong", [{"ring_events": 0}, {"ring_events": 1 << 20}, {"places": 0}, {"event_bytes": 48}]
)
def test_damaged_map_is_refused(machine, wrong):
    with pytest.raises(PeekError):
        Rings(machine, replace(machine.found(), **wrong))


def test_cpus_are_merged_by_time_and_held_back_until_all_have_come(machine):
    reader, merger = rings(machine), Merger()
    machine.write(0, 10, 1)
    machine.write(0, 30, 3)
    merger.add(reader.poll(), 0.0)
    assert len(merger.take(0.0)) == 0
    machine.write(1, 20, 2)
    machine.write(1, 40, 4)
    merger.add(reader.poll(), Merger.HOLD_S / 2)
    ripe = merger.take(Merger.HOLD_S)
    assert values([ripe]) == [1, 2, 3] and ripe["cpu"].tolist() == [0, 1, 0]
    assert merger.count == 1 and values([merger.rest()]) == [4] and merger.count == 0


def events(machine: Machine, places: tuple[str, ...] = PLACES) -> tuple[list[Event], Decoder]:
    decoder = Decoder([Place.parse(text) for text in places], None)
    reader, merger = rings(machine), Merger()
    merger.add(reader.poll(), 0.0)
    return list(decoder.decode(merger.rest())), decoder


def comm(name: str) -> tuple[int, int]:
    return struct.unpack("<QQ", name.encode().ljust(16, b"\0"))


def test_names_of_processes_come_with_switches(machine):
    machine.write(0, 1, 0, 0, 7, 120, *comm("cat"), place=0, pid=0)
    machine.write(0, 2, 4096, 5)
    found, decoder = events(machine)
    assert found[0].values == {
        "prev": 0,
        "state": "R",
        "next": 7,
        "prio": 120,
        "comm": GuestText(b"cat"),
    }
    assert found[1].values == {"count": 4096, "0x8(di)": 5}
    assert decoder.names.of(7).comm.says("cat")


def known_places() -> list[str]:
    """The module's table of tracepoints, as it describes them."""
    text = (ROOT / "kmod/probe/event_tracepoint.c").read_text()
    rows = re.findall(r'^\tROW\((\w+), "([\w.:]+)", on_\w+\)', text, re.M)
    return [f"{name}:{labels}" for name, labels in rows]


def test_every_tracepoint_of_the_module_is_understood_and_fits(tmp_path):
    places = tuple(known_places())
    assert len(places) >= 30
    assert set(decoding._FIELDS) <= {text.split(":")[0] for text in places}
    for text in places:
        assert len(text) < PLACE_BYTES
        assert len(Place.parse(text).labels) <= VALUES
    machine = Machine()
    for number in range(len(places)):
        machine.write(number % 2, number, 1, 2, 3, 4, *comm("x")[:2], place=number)
    found, decoder = events(machine, places)
    assert [event.name for event in found] == [text.split(":")[0] for text in places]
    out = io.StringIO()
    for event in found:
        TextWriter(out, decoder.names).write(event)
        JsonWriter(out, decoder.names).write(event)
    assert len(out.getvalue().splitlines()) == 2 * len(places)


def line(event: Event) -> str:
    out, decoder = io.StringIO(), Decoder([], None)
    decoder.names.known[7] = Task(7, 7, "cat", 1, False)
    TextWriter(out, decoder.names).write(event)
    return out.getvalue()


def test_lines_are_for_people():
    enter = Event(1_000_000_005, 1, 7, "sys_exit", {"call": "read", "nr": 0, "result": -2})
    assert line(enter).split() == [
        "1.000000005",
        "cpu1",
        "cat/7",
        "sys_exit",
        "read",
        "=",
        "-2",
        f"({errno.errorcode[2]})",
    ]
    read_at = Event(5, 0, 9, "vfs_read", {"file": 0xFFFF888000000000, "count": 832}, lost=3)
    first, second = line(read_at).splitlines()
    assert "3 events lost" in first
    assert second.endswith(
        "?/9                    vfs_read           file=0xffff888000000000 count=832"
    )


def test_json_lines_keep_numbers(machine):
    machine.write(0, 3, (1 << 64) - 1, 5)
    found, decoder = events(machine)
    out = io.StringIO()
    JsonWriter(out, decoder.names).write(found[0])
    row = json.loads(out.getvalue())
    assert row["values"] == {"count": (1 << 64) - 1, "0x8(di)": 5}
    assert (row["t_ns"], row["cpu"], row["pid"], row["event"]) == (3, 0, 7, "vfs_read")


@pytest.mark.parametrize("option", [("--recording", "/"), ("--format", "perfetto")])
def test_a_perfetto_trace_needs_a_file(option):
    outcome = CliRunner().invoke(cli, ["peek", "trace", *option])
    assert outcome.exit_code == 2 and "-o FILE" in outcome.output


def test_what_is_no_event_is_left_out(machine):
    machine.write(0, 1, 1, place=999)
    assert events(machine)[0] == []


class Target:
    """What a decoder asks; it counts the walks of the lists of threads."""

    cpus_possible = ()

    def __init__(self) -> None:
        self.walks = 0

    def threads(self) -> dict[int, Task]:
        self.walks += 1
        return {1: Task(1, 1, GuestText(b"init"), 0, False)}

    def name_of(self, address: int) -> GuestText:
        return GuestText(b"%x" % address)

    def read_string(self, address: int, most: int) -> GuestText:
        return self.name_of(address)


def lies(count: int) -> np.ndarray:
    """Events each of which is of another thread and place, and a second after the one before."""
    made, numbers = np.zeros(3 * count, TAKEN), np.arange(3 * count, dtype="u8")
    made["t_ns"], made["pid"], made["place"] = numbers * 10**9, 10 + numbers, numbers % 3
    made["value"][:] = (decoding.KERNEL_HALF + numbers)[:, None]
    return made


LYING_PLACES = (
    "page_fault_kernel:ip",
    "irq_handler_entry:irq:name:handler",
    "sched_wakeup:pid:prio:cpu:comm.0:comm.1",
)


def test_events_that_lie_make_a_trace_neither_slow_nor_large(monkeypatch):
    """A guest may write any pid, time and address, as fast as its memory is."""
    monkeypatch.setattr(limits, "TRACE_KEPT_MAX", 100)
    target = Target()
    decoder = Decoder([Place.parse(text) for text in LYING_PLACES], target)
    out = TextWriter(io.StringIO(), decoder.names)
    for event in decoder.decode(lies(1000)):
        out.write(event)
    assert target.walks == 1  # another one comes after a pause by the clock of this machine
    kept = decoder.names.known, decoder._symbols, decoder._texts
    assert all(0 < len(one) <= 101 for one in kept) and len(decoder.names._missing) <= 1


def test_a_thread_that_began_after_a_walk_has_its_name_after_the_next_one(monkeypatch):
    target = Target()
    names = Decoder([], target).names
    assert names.of(1).comm.says("init")
    target.threads = lambda: {2: Task(2, 2, GuestText(b"late"), 1, False)}
    assert not names.of(2).comm
    monkeypatch.setattr(names, "_look_s", 0.0)
    assert names.of(2).comm.says("late") and names.of(1).comm.says("init")
