# SPDX-License-Identifier: GPL-2.0-only
"""Traces for Perfetto's viewer, read back by Perfetto's own classes: what is on which track."""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from tests.unit.peek.test_summary import busy_and_idle, head, recorded
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.tasks import Task
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.recording_tables import COLUMNS
from trapless.peek.sampling.sample_summary import summarise
from trapless.peek.trace import perfetto_file, samples
from trapless.peek.trace.event_decoder import Event, Names
from trapless.peek.trace.perfetto import PerfettoWriter

TIMERS = ("interprocessor and timer interrupts", "CPU 0")
BEGIN, END = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END


class Read:
    """A trace as a viewer sees it."""

    def __init__(self, data: bytes) -> None:
        self.packets = pb.Trace.FromString(data).packet
        self.tracks = {
            packet.track_descriptor.uuid: packet.track_descriptor
            for packet in self.packets
            if packet.HasField("track_descriptor")
        }

    def ftrace(self, kind: str) -> list:
        """(CPU, event) of one kind, in order."""
        return [
            (packet.ftrace_events.cpu, event)
            for packet in self.packets
            for event in packet.ftrace_events.event
            if event.WhichOneof("event") == kind
        ]

    def events(self, name: str, within: str | None = None) -> list:
        """Packets of a track by name, and by the name of the one that it is in."""
        return [
            packet
            for packet in self.packets
            if packet.HasField("track_event")
            and (track := self.tracks[packet.track_event.track_uuid]).name == name
            and (within is None or self.tracks[track.parent_uuid].name == within)
        ]

    def slices(self, name: str, within: str) -> list[tuple[str, int, int]]:
        """(name, begin, end) of a track's slices; every one must have ended, none inside others."""
        found, opened = [], None
        for packet in self.events(name, within):
            if packet.track_event.type == BEGIN:
                assert opened is None
                opened = (packet.track_event.name, packet.timestamp)
            else:
                assert packet.track_event.type == END and opened is not None
                found.append((*opened, packet.timestamp))
                opened = None
        assert opened is None
        return found


def written(*events: Event, queues: dict[int, int] | None = None) -> Read:
    file, names = io.BytesIO(), Names(None)
    names.known[7] = Task(7, 6, "worker", 1, False)
    names.known[6] = Task(6, 6, "server", 1, False)
    writer = PerfettoWriter(file, names, "6.1.0-toy", "Linux version 6.1.0-toy", queues)
    for event in events:
        writer.write(event)
    writer.close()
    return Read(file.getvalue())


def switch(t_ns: int, cpu: int, prev: int, next_: int, state: str = "S") -> Event:
    comm = "worker" if next_ else "swapper/0"
    values = {"prev": prev, "state": state, "next": next_, "prio": 120, "comm": comm}
    return Event(t_ns, cpu, prev, "sched_switch", values)


def test_viewer_is_told_the_machine_and_its_processes():
    trace = written(switch(1, 0, 0, 7))
    name = trace.packets[0].system_info.utsname
    assert (name.sysname, name.machine, name.release) == ("Linux", "x86_64", "6.1.0-toy")
    assert trace.packets[0].sequence_flags == pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    tree = trace.packets[-1].process_tree
    assert [(task.tid, task.tgid, task.name) for task in tree.threads] == [
        (7, 6, "worker"),
        (6, 6, "server"),
    ]
    assert [(task.pid, list(task.cmdline)) for task in tree.processes] == [(6, ["server"])]


def test_scheduling_and_calls_are_as_the_kernels_tracer_writes_them():
    call = {"call": "read", "nr": 0, "a": 3, "b": 1 << 63, "c": 9, "d": 0, "e": 0}
    trace = written(
        switch(10, 1, 0, 7),
        Event(11, 1, 7, "sys_enter", call),
        Event(12, 1, 7, "sys_exit", {"call": "read", "nr": 0, "result": -4}),
        switch(13, 1, 7, 0, "R+"),
    )
    (cpu, first), (_, second) = trace.ftrace("sched_switch")
    assert (cpu, first.timestamp, first.pid) == (1, 10, 0)
    one, two = first.sched_switch, second.sched_switch
    assert (one.prev_comm, one.next_comm, one.next_pid) == ("swapper", "worker", 7)
    assert (two.prev_comm, two.prev_prio, two.prev_state) == ("worker", 120, 256)
    ((_, enter),) = trace.ftrace("sys_enter")
    assert (enter.sys_enter.id, list(enter.sys_enter.args)) == (0, [3, 1 << 63, 9, 0, 0])
    ((_, leave),) = trace.ftrace("sys_exit")
    assert leave.sys_exit.ret == -4


def test_chosen_places_are_instants_on_their_thread_with_values():
    values = {"count": 832, "file": 0xFFFF888000000000, "ip": "schedule"}
    trace = written(Event(5, 1, 7, "vfs_read", values), Event(6, 1, 0, "vfs_read", values))
    packets = [packet for packet in trace.packets if packet.track_event.name == "vfs_read"]
    busy, idle = (trace.tracks[packet.track_event.track_uuid] for packet in packets)
    assert (busy.thread.pid, busy.thread.tid) == (6, 7)
    assert trace.tracks[idle.parent_uuid].name == "CPU 1"
    found = {one.name: one for one in packets[0].track_event.debug_annotations}
    assert found["count"].int_value == 832 and found["cpu"].int_value == 1
    assert found["file"].pointer_value == 0xFFFF888000000000
    assert found["ip"].string_value == "schedule"


def test_run_queues_are_counters_and_exact_once_a_cpu_was_idle():
    def change(t_ns: int, by: int) -> Event:
        values = {"queue": 1, "change": by}
        return Event(t_ns, 0, 7, "sched_update_nr_running_tp", values)

    trace = written(change(1, 1), change(2, -1), switch(3, 1, 7, 0), change(4, 1), queues={1: 5})
    counts = [packet.track_event.counter_value for packet in trace.events("run queue", "CPU 1")]
    assert counts == [6, 5, 0, 1]


def test_interrupts_are_slices_that_end_also_where_events_were_lost():
    def vector(t_ns: int, name: str, lost: int = 0) -> Event:
        return Event(t_ns, 0, 7, name, {"vector": 236}, lost)

    trace = written(
        vector(1, "local_timer_exit"),
        vector(2, "local_timer_entry"),
        vector(3, "local_timer_exit"),
        vector(4, "reschedule_entry"),
        vector(9, "local_timer_entry", lost=50),
        vector(10, "local_timer_exit"),
    )
    assert trace.slices("interprocessor and timer interrupts", "CPU 0") == [
        ("local_timer", 2, 3),
        ("reschedule", 4, 9),
        ("local_timer", 9, 10),
    ]
    (lost,) = trace.events("events lost", "CPU 0")
    assert lost.track_event.debug_annotations[0].int_value == 50
    assert any(packet.ftrace_events.lost_events for packet in trace.packets)


def test_recording_becomes_slices_with_the_shares_of_its_report(tmp_path: Path):
    what = head()
    folder = recorded(tmp_path / "recording", what, busy_and_idle(what)).folder
    output = tmp_path / "trace.pftrace"
    said = samples.export(folder, output)
    trace = Read(output.read_bytes())
    summary = summarise(Recording.open(folder))
    assert said.cpus == 2 and said.samples == summary.rows
    for number, cpu in enumerate(summary.cpus.values()):
        spent: dict[str, int] = defaultdict(int)
        for name, begin, end in trace.slices("where", f"CPU {number}"):
            spent[name] += end - begin
        for part, column in COLUMNS.items():
            share = spent.pop(column, 0) / (summary.rows * 100_000)
            assert share == pytest.approx(cpu.share(part), abs=0.01)
        assert not spent
    running = {name for name, _, _ in trace.slices("process", "CPU 0")}
    assert running == {"worker 7"} and trace.slices("process", "CPU 1") == []


def test_each_boot_has_tracks_of_its_own_at_its_time(tmp_path: Path):
    what = head()
    folder = recorded(tmp_path / "r", what, busy_and_idle(what)).folder
    later = replace(what, monotonic_ns=what.monotonic_ns + 10**9)
    recorded(folder / "boot-2", later, busy_and_idle(later))
    said = samples.export(folder, tmp_path / "trace")
    trace = Read((tmp_path / "trace").read_bytes())
    assert (said.samples, said.cpus) == (2000, 2)
    first = trace.slices("where", "CPU 0 (boot 1 of 2)")
    second = trace.slices("where", "CPU 0 (boot 2 of 2)")
    assert first and second == [(name, at + 10**9, end + 10**9) for name, at, end in first]


def test_time_without_samples_has_no_slices(tmp_path: Path):
    what = head()
    rows = busy_and_idle(what)
    folder = recorded(tmp_path / "recording", what, rows).folder
    samples.export(folder, tmp_path / "trace")
    trace = Read((tmp_path / "trace").read_bytes())
    slots = rows["slot"].astype(int)
    gap = int((slots[1:] - slots[:-1]).argmax())
    begin, end = int(slots[gap] + 2) * 100_000, int(slots[gap + 1]) * 100_000
    assert end - begin > 20_000_000
    found = trace.slices("where", "CPU 1")
    assert found and all(stop <= begin or start >= end for _, start, stop in found)


def test_a_recording_whose_samples_are_all_damaged_becomes_no_trace(tmp_path: Path):
    folder = recorded(tmp_path / "recording", head(), busy_and_idle(head())).folder
    segments = list(folder.glob("rows-*.parquet"))
    assert segments
    for path in segments:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(PeekError, match=f"no sample that can be read; .*{segments[0].name} is dam"):
        samples.export(folder, tmp_path / "trace")
    assert not (tmp_path / "trace").exists()


def test_a_guest_that_makes_up_threads_and_interrupts_keeps_no_memory(monkeypatch):
    monkeypatch.setattr(limits, "TRACKS_MAX", 50)
    file = io.BytesIO()
    writer = PerfettoWriter(file, Names(None), "r", "b")
    for number in range(1, 1000):
        writer.write(Event(number, 0, number, "vfs_read", {"count": 1}))
        writer.write(Event(number, 0, 0, "local_timer_entry", {}))
    assert len(writer._out._tracks) < 60 and len(writer._open[0]) <= limits.SLICES_OPEN_MAX
    writer.close()
    read = Read(file.getvalue())
    assert len(read.events(perfetto_file.OTHER_THREADS)) > 900
    ends = [one.track_event.type for one in read.events(*TIMERS)]
    assert ends.count(BEGIN) == ends.count(END) == 999
