# SPDX-License-Identifier: GPL-2.0-only
"""What samples of a stock kernel mean, and a recording in tables; no kernel runs here."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.sampling import json_form, recording_figures, recording_tables, tier0
from trapless.peek.sampling import recording as recording_file
from trapless.peek.sampling import sample_rows as rows_file
from trapless.peek.sampling import sample_summary as summary_file
from trapless.peek.sampling.recording import Recorder, Recording
from trapless.peek.sampling.sample_rows import End, Ending, Head, Rows, parse_head
from trapless.peek.sampling.sample_summary import summarise
from trapless.peek.sampling.sampling_plan import Field, Group, Plan, Rule
from trapless.peek.sampling.tier0 import Part
from trapless.peek.trace import samples

MEMBERS = (("preempt_count", 4), ("current", 8), ("pid", 4), ("comm", 16), ("nr_running", 4))
CONTEXT = (("context", 4), ("context_active", 1))
COUNT = 1000
LOST = 250
SHARE = "share without interrupts"


def head(contexts: bool = False, threads: int = 2) -> Head:
    members = (*MEMBERS, *(CONTEXT if contexts else ()))
    fields = tuple(Field(name, size, 0) for name, size in members)
    groups = tuple(Group(f"cpu{cpu}", Rule.STABLE, fields) for cpu in range(2))
    text = Plan(100_000, groups, threads=tuple(range(10, 10 + threads))).text()
    size = 56 + 8 * threads + 2 * sum(size for _, size in members)
    return parse_head(f"{text}# monotonic-ns 1\n# realtime-ns 1\n", (size + 7) // 8 * 8)


def busy_and_idle(what: Head) -> Rows:
    """CPU 0 runs pid 7, less a tenth in interrupts and a fifth in softirqs; CPU 1 is idle."""
    rows = np.zeros(COUNT, what.dtype)
    rows["slot"] = np.arange(COUNT) + np.where(np.arange(COUNT) < 500, 0, LOST)
    rows["lag_ns"] = 2000
    rows["cpu0.pid"] = 7
    rows["cpu0.comm"] = np.frombuffer(b"worker".ljust(16, b"\0"), "V16")[0]
    rows["cpu0.nr_running"] = 3
    rows["cpu0.preempt_count"][:100] = 0x10001
    rows["cpu0.preempt_count"][100:300] = 0x102
    return rows


def recorded(folder: Path, what: Head, rows: Rows, end: bool = True) -> Recording:
    with Recorder(folder, what, {"context_user": 2}) as recorder:
        recorder.add(rows)
        counts = End(Ending.SIGNAL, len(rows), len(rows) + LOST, LOST, 0, 0, 0, 0, 0, 0)
        recorder.close(counts if end else None)
    return Recording.open(folder)


def cells(recording: Recording, table: str) -> list[dict[str, str]]:
    (found,) = (one for one in recording_tables.tables(recording) if one.id == table)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_examples_are_so():
    modules = (tier0, summary_file, recording_tables, rows_file)
    assert not any(doctest.testmod(module).failed for module in modules)


@pytest.mark.parametrize(
    ("count", "pid", "context", "active", "part"),
    [
        (0, 7, 2, 1, Part.USER),
        (0, 7, 0x102, 1, Part.USER),  # higher bits are RCU's
        (0, 7, 0, 1, Part.KERNEL),
        (0, 7, 1, 1, Part.KERNEL),
        (0, 7, 2, 0, Part.PROCESS),  # this CPU is not tracked: the state means nothing
        (0x80000001, 7, 0, 0, Part.PROCESS),  # preemption is off, that is all
        (0x200, 7, 0, 0, Part.PROCESS),  # softirqs are off, none is served
        (0x100, 7, 2, 1, Part.BOTTOM_HALF),
        (0x10100, 0, 0, 0, Part.TOP_HALF),
        (0x110000, 7, 0, 0, Part.TOP_HALF),
        (0, 0, 0, 1, Part.IDLE),
    ],
)
def test_where_a_cpu_is(count, pid, context, active, part):
    arrays = [
        np.array([value], kind)
        for value, kind in ((count, "u4"), (pid, "u4"), (context, "u4"), (active, "u1"))
    ]
    assert tier0.parts(*arrays, in_user=2).tolist() == [part]


def test_shares_add_up(tmp_path):
    recording = recorded(tmp_path / "r", head(), busy_and_idle(head()))
    busy, idle = cells(recording, "shares")
    assert busy["CPU"] == "0" and idle["CPU"] == "1"
    assert (busy["user or kernel"], busy["top half"], busy["bottom half"]) == (
        *("70.0%", "10.0%", "20.0%"),
    )
    assert (busy["idle"], idle["idle"]) == ("0.0%", "100.0%")
    assert (busy["run queue"], busy["longest"]) == ("3.00", "3")
    assert cells(recording, "processes") == [{"PID": "7", "name": "worker", SHARE: "35.0%"}]
    (sampling,) = cells(recording, "sampling")
    assert sampling["samples"] == "1000" and sampling["lost"] == "20.00%"
    assert sampling["lag, median"] == sampling["lag, 99%"] == "2.1 µs"  # in steps of 0.1


def test_processes_of_one_name_are_summed(tmp_path):
    rows = busy_and_idle(head())
    rows["cpu0.pid"][300:600] = 8  # a second worker; before, interrupts and softirqs of the first
    rows["cpu0.pid"][900:] = 9
    rows["cpu0.comm"][900:] = np.frombuffer(b"other".ljust(16, b"\0"), "V16")[0]
    recording = recorded(tmp_path / "r", head(), rows)
    assert cells(recording, "programs") == [
        {"name": "worker", "processes": "2", SHARE: "30.0%"},
        {"name": "other", "processes": "1", SHARE: "5.0%"},
    ]
    single = recorded(tmp_path / "s", head(), busy_and_idle(head()))
    assert "programs" not in [table.id for table in recording_tables.tables(single)]


def renamed(count: int) -> Rows:
    """CPU 0 runs a process that takes another name before each sample, and a steady one."""
    rows = np.zeros(count, head().dtype)
    rows["slot"] = np.arange(count)
    rows["cpu0.pid"], rows["cpu0.nr_running"] = 7, 1
    rows["cpu0.comm"] = np.frombuffer(b"".join(b"%015d\0" % n for n in range(count)), "V16")
    rows["cpu0.pid"][::4] = 8
    rows["cpu0.comm"][::4] = np.frombuffer(b"steady".ljust(16, b"\0"), "V16")[0]
    return rows


def test_a_process_with_another_name_in_each_sample_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SUMS_MAX", 100)
    monkeypatch.setattr(recording_file, "SEGMENT_ROWS_MAX", 1000)
    with Recorder(tmp_path / "r", head(), {}) as recorder:
        for start in range(0, 4000, 1000):
            rows = renamed(4000)[start : start + 1000]
            recorder.add(rows)
    recording = Recording.open(tmp_path / "r")
    summary = summarise(recording)
    assert len(summary.processes) <= 101 and summary.processes.total() == 4000
    first, second, *_ = cells(recording, "processes")
    assert first == {"PID": "", "name": "(others)", SHARE: "36.9%"}
    assert second == {"PID": "8", "name": "steady", SHARE: "12.5%"}
    (boot,) = json.loads(json_form.report(recording))["boots"]
    assert boot["tasks"][0]["pid"] is None and boot["tasks"][1]["pid"] == 8
    out = samples.export(tmp_path / "r", tmp_path / "trace")
    assert out.slices > 4000


def test_lags_beyond_all_bounds_are_told(tmp_path):
    rows = busy_and_idle(head())
    rows["lag_ns"][:100] = 4_000_000_000
    (sampling,) = cells(recorded(tmp_path / "r", head(), rows), "sampling")
    assert (sampling["lag, median"], sampling["lag, 99%"]) == ("2.1 µs", "over 10 ms")


def test_user_mode_is_told_from_the_kernel_where_memory_tells(tmp_path):
    what = head(contexts=True)
    rows = busy_and_idle(what)
    rows["cpu0.context_active"] = 1
    rows["cpu0.context"][:600] = 2
    busy, _ = cells(recorded(tmp_path / "r", what, rows), "shares")
    assert (busy["user"], busy["other kernel"]) == ("30.0%", "40.0%")
    assert "user or kernel" not in busy


@pytest.mark.parametrize(
    ("column", "bits", "left_out"),
    [("torn", 1, (100, 0)), ("absent", 2, (0, 100)), ("frozen", 2, (0, 100))],
)
def test_samples_that_mean_nothing_are_left_out(tmp_path, column, bits, left_out):
    rows = busy_and_idle(head())
    rows[column][:100] = bits
    rows["flags"][:100] = {"torn": 2, "frozen": 4, "absent": 8}[column]
    found = cells(recorded(tmp_path / "r", head(), rows), "shares")
    assert tuple(int(cpu["left out"]) for cpu in found) == left_out
    (sampling,) = cells(Recording.open(tmp_path / "r"), "sampling")
    assert sampling["torn"] == ("10.00%" if column == "torn" else "0.00%")
    assert found[0].get("top half") == (None if left_out[0] else "10.0%")


def test_one_thread_may_be_all_cpus(tmp_path):
    what = head(threads=1)
    rows = busy_and_idle(what)
    rows["frozen"][:100] = 1
    found = cells(recorded(tmp_path / "r", what, rows), "shares")
    assert [cpu["left out"] for cpu in found] == ["100", "100"]


def test_a_killed_recording_is_shown_with_what_is_missing(tmp_path):
    recording = recorded(tmp_path / "r", head(), busy_and_idle(head()), end=False)
    (sampling,) = cells(recording, "sampling")
    assert sampling["lost"] == "20.00%"
    assert "killed" in recording_tables.tables(recording)[-1].caption


def after_restart(folder: Path, rows: Rows) -> Recording:
    """A recording of a kernel that was gone at time 0 already."""
    rows["t_ns"] = rows["slot"] * 100_000
    with Recorder(folder, head(), {"context_user": 2}) as recorder:
        recorder.add(rows)
        recorder.close(End(Ending.TARGET, len(rows), len(rows), 0, 0, 0, 0, 0, 0, 0), alive_ns=0)
    return Recording.open(folder)


def test_samples_of_a_kernel_that_was_gone_are_told_wherever_they_are_left_out(tmp_path):
    recording = after_restart(tmp_path / "r", busy_and_idle(head()))
    why = "999 samples, because they came after the last tick of a kernel that was gone"
    assert dict(recording_tables.about(recording, summarise(recording)).rows)["left out"] == why
    (boot,) = json.loads(json_form.report(recording))["boots"]
    assert (boot["sampling"]["samples"], boot["left_out_samples"]) == (1, 999)
    assert why in str(samples.export(recording.folder, tmp_path / "trace"))
    recording_figures.write(recording, tmp_path / "x.html")
    assert why in (tmp_path / "x.html").read_text()
    none = after_restart(tmp_path / "none", busy_and_idle(head())[1:])
    with pytest.raises(PeekError, match=why):
        summarise(none)
    whole = recorded(tmp_path / "whole", head(), busy_and_idle(head()))
    assert "left out" not in dict(recording_tables.about(whole, summarise(whole)).rows)


def test_left_out_samples_are_counted_over_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_file, "SEGMENT_ROWS_MAX", 100)
    rows = busy_and_idle(head())
    rows["t_ns"] = rows["slot"] * 100_000
    with Recorder(tmp_path / "r", head(), {}) as recorder:
        for start in range(0, COUNT, 100):
            recorder.add(rows[start : start + 100])
        end = End(Ending.TARGET, COUNT, COUNT, 0, 0, 0, 0, 0, 0, 0)
        recorder.close(end, alive_ns=249 * 100_000)
    found = Recording.open(tmp_path / "r")
    assert found.left_out() == 750 and summarise(found).rows == 250


@pytest.mark.parametrize(
    ("probes", "remedy"),
    [
        (None, "load trapless there with probes=3"),
        (0, "echo 3 >/sys/module/trapless/parameters/probes"),
        (8, "echo 11 >/sys/module/trapless/parameters/probes"),
    ],
)
def test_report_and_top_say_the_same_about_what_is_not_known(tmp_path, probes, remedy):
    what = head()
    with Recorder(tmp_path / "r", what, {"context_user": 2, "probes": probes}) as recorder:
        recorder.add(busy_and_idle(what))
        recorder.close(None)
    recording = Recording.open(tmp_path / "r")
    assert remedy in dict(recording_tables.about(recording, summarise(recording)).rows)["known"]


@pytest.mark.parametrize(("timer", "moved"), [(5, False), (6, True), (None, None)])
def test_a_memory_that_nobody_runs_is_told(tmp_path, timer, moved):
    recording = recorded(tmp_path / "r", head(), busy_and_idle(head()))
    columns = {"time_ns": pa.array([0, 10**9], pa.int64())}
    for name, last in (("timer", timer), ("device", 7)):
        if last is not None:
            columns[f"0 {name}"] = pa.array([5 if name == "timer" else 7, last], pa.uint32())
    pq.write_table(pa.table(columns), recording.folder / recording_file.COUNTS_FILE)
    facts = dict(recording_tables.about(recording, summarise(recording)).rows)
    assert ("it never moved" in facts.get("clock", "")) == (moved is False)
    (boot,) = json.loads(json_form.report(recording))["boots"]
    assert boot["clock_moved"] is moved


@pytest.mark.parametrize("empty", ["r", "r/boot-2"])
def test_a_boot_without_rows_hides_no_other(empty, tmp_path):
    for name in ("r", "r/boot-2"):
        rows = busy_and_idle(head())
        recorded(tmp_path / name, head(), rows[:0] if name == empty else rows)
    recording = Recording.open(tmp_path / "r")
    (boot,) = json.loads(json_form.report(recording))["boots"]
    assert boot["problems"][-1] == "boots without a sample are left out: 1"
    assert boot["sampling"]["samples"] > 0 and recording_tables.of_all_boots(recording)


def test_a_recording_without_rows_is_an_error(tmp_path):
    recording = recorded(tmp_path / "r", head(), busy_and_idle(head())[:0])
    with pytest.raises(PeekError, match="no rows"):
        recording_tables.tables(recording)
