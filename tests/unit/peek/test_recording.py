# SPDX-License-Identifier: GPL-2.0-only
"""Recordings: what is stored is what was sampled, in any case up to the last piece, and small.

Rows are made here in the sampler's form; a recorder that is killed is a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from trapless.peek.errors import PeekError
from trapless.peek.sampling import recording
from trapless.peek.sampling.recording import Recorder, Recording
from trapless.peek.sampling.sample_rows import End, Ending, Head, Rows, parse_head
from trapless.peek.sampling.sampling_plan import Field, Group, Plan, Rule

ROOT = Path(__file__).resolve().parents[3]
CPUS = 4
INTERVAL_NS = 100_000
FIRST_NS = 5_000_000_000
RUN_TIME_ROWS = 20  # in which a run time stays the same: the sampler and the kernel's tick say so
PER_HOUR = 3600 * 10_000


def head() -> Head:
    """The head of a plan with five fields for each CPU, and run times."""
    groups = tuple(
        Group(
            f"cpu{cpu}",
            Rule.STABLE,
            (
                Field("preempt_count", 4, 0),
                Field("current", 8, 8),
                Field("pid", 4, 8, (16,)),
                Field("nr_running", 4, 24),
                Field("blob", 3, 32),
            ),
        )
        for cpu in range(CPUS)
    )
    text = Plan(INTERVAL_NS, groups, threads=tuple(range(100, 100 + CPUS))).text()
    return parse_head(
        f"{text}# monotonic-ns {FIRST_NS}\n# realtime-ns 7\n", 56 + 8 * CPUS + 23 * CPUS + 4
    )


def rows_of(count: int, start: int = 0) -> Rows:
    """Rows as a busy machine makes them: jitter in every time, states that last a while."""
    random = np.random.default_rng(start)
    rows = np.zeros(count, head().dtype)
    slots = np.arange(start, start + count)
    rows["slot"] = slots
    rows["lag_ns"] = random.lognormal(7.5, 0.6, count)
    rows["t_ns"] = FIRST_NS + slots * INTERVAL_NS + rows["lag_ns"]
    rows["cost_ns"] = 400 + random.lognormal(4, 1, count)
    rows["torn"] = (random.random(count) < 0.001) << random.integers(0, CPUS, count)
    rows["flags"] = np.where(rows["torn"], 2, 0)
    for cpu in range(CPUS):
        ran = random.integers(0, 4_000_000, count) * (slots % RUN_TIME_ROWS == 0)
        rows[f"run_ns.{100 + cpu}"] = np.cumsum(ran)
        changes = np.cumsum(random.random(count) < 0.05)
        process = random.integers(0, 40, int(changes[-1]) + 1)[changes]
        rows[f"cpu{cpu}.current"] = (process * 0x1D40).astype("<u8") + np.uint64(0xFFFF888003000000)
        rows[f"cpu{cpu}.pid"] = process
        rows[f"cpu{cpu}.nr_running"] = random.integers(0, 3, int(changes[-1]) + 1)[changes]
        interrupts = random.random(count) < 0.02
        rows[f"cpu{cpu}.preempt_count"] = np.where(interrupts, 0x10000, 0x100 * (process % 3))
    return rows


def end_of(rows: int) -> End:
    return End(Ending.SIGNAL, rows, rows, 0, 0, 0, 0, 0, 0, 0)


def all_rows(found: Recording) -> pa.Table:
    return pa.concat_tables(table.replace_schema_metadata() for table in found.tables())


def test_what_is_read_is_what_was_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "SEGMENT_ROWS_MAX", 1000)
    rows = rows_of(3500)
    rows["cpu1.blob"][7] = b"abc"
    with Recorder(tmp_path / "r", head(), {"release": "x"}, [(4096, "start_kernel")]) as recorder:
        for start in range(0, 3500, 300):
            recorder.add(rows[start : start + 300])
        recorder.close(end_of(3500))
    found = Recording.open(tmp_path / "r")
    assert found.problems == ()
    assert len(found.segments) == 3
    assert found.end is not None and found.end["rows"] == 3500
    assert found.end["ending"] == "signal"
    assert found.meta["about"] == {"release": "x"}
    assert found.symbols() == [(4096, "start_kernel")]
    table = all_rows(found)
    for name in rows.dtype.names or ():
        if name == "cpu1.blob":
            assert table[name][7].as_py() == b"abc"
        elif name in ("lag_ns", "cost_ns"):
            assert (table[name].to_numpy() == rows[name] // 16 * 16).all(), name
        elif name != "t_ns" and not name.endswith("blob"):
            assert (table[name].to_numpy() == rows[name]).all(), name
    early = rows["t_ns"].astype(np.int64) - FIRST_NS - found.times_ns(table)
    assert early.min() >= 0 and early.max() < 16
    assert pq.read_schema(found.segments[1]).metadata[b"first_ns"] == str(FIRST_NS).encode()


def test_any_reader_of_parquet_opens_the_folder(tmp_path):
    with Recorder(tmp_path / "r", head(), {}) as recorder:
        recorder.add(rows_of(500))
        recorder.close(None)
    files = sorted((tmp_path / "r").glob("rows-*.parquet"))
    table = pyarrow.dataset.dataset(files).to_table(columns=["slot", "cpu0.pid"])
    assert table.num_rows == 500
    for path in files:
        assert pq.ParquetFile(path).num_row_groups == 1


def busy_with_probes(random: np.random.Generator, count: int) -> tuple[Head, Rows]:
    """Two CPUs that have another task in one sample of twenty, run other code in one of five."""
    fields = (
        *("preempt_count:4", "current:8", "pid:4", "comm:16", "task_flags:4", "nr_running:4"),
        *("nr_switches:8", "state:8", "entry:4"),
    )
    groups = tuple(
        Group(f"cpu{cpu}", Rule.STABLE, tuple(Field(*split(field), 0) for field in fields))
        for cpu in range(2)
    )
    plan = Plan(INTERVAL_NS, groups, threads=(100, 101))
    head_ = parse_head(f"{plan.text()}# monotonic-ns 1\n# realtime-ns 7\n", 56 + 16 + 2 * 60)
    rows = np.zeros(count, head_.dtype)
    rows["slot"] = np.arange(count)
    rows["lag_ns"] = random.lognormal(7.5, 0.6, count)
    rows["cost_ns"] = 400 + random.lognormal(4, 1, count)
    states = np.append(
        random.integers(1 << 24, size=200).astype("u8") + np.uint64(2**64 - 2**31), 1
    )
    for cpu in range(2):
        ran = random.integers(0, 4_000_000, count) * (np.arange(count) % RUN_TIME_ROWS == 0)
        rows[f"run_ns.{100 + cpu}"] = np.cumsum(ran)
        at = np.cumsum(random.random(count) < 0.05)  # the number of the task that is another
        steps = int(at[-1]) + 1
        pid = random.integers(0, 60, steps)[at]
        rows[f"cpu{cpu}.pid"], rows[f"cpu{cpu}.current"] = pid, 0x1D40 * pid
        rows[f"cpu{cpu}.comm"] = np.array([b"task%d" % n for n in range(60)], "S16").view("V16")[
            pid
        ]
        rows[f"cpu{cpu}.nr_switches"] = np.cumsum(random.integers(1, 30, steps))[at]
        rows[f"cpu{cpu}.nr_running"] = random.integers(0, 50, steps)[at]
        at = np.cumsum(random.random(count) < 0.2)
        steps = int(at[-1]) + 1
        rows[f"cpu{cpu}.state"] = states[random.geometric(0.1, steps)[at] % len(states)]
        rows[f"cpu{cpu}.entry"] = random.integers(1, 3, steps)[at]
        rows[f"cpu{cpu}.preempt_count"] = random.choice([0, 1, 0x100, 0x10000], steps)[at]
    return head_, rows


def split(field: str) -> tuple[str, int]:
    name, _, size = field.partition(":")
    return name, int(size)


@pytest.mark.slow
def test_an_hour_of_two_cpus_with_probes_is_less_than_200_megabytes(tmp_path):
    count = recording.SEGMENT_ROWS_MAX
    head_, rows = busy_with_probes(np.random.default_rng(5), count)
    with Recorder(tmp_path / "r", head_, {}) as recorder:
        recorder.add(rows)
        recorder.close(None)
    size = sum(path.stat().st_size for path in (tmp_path / "r").glob("rows-*"))
    assert size / count * PER_HOUR < 200e6


KILLED = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.unit.peek import test_recording as t
t.recording.SEGMENT_ROWS_MAX = 500
with t.Recorder(Path({folder!r}), t.head(), {{}}) as recorder:
    for i in range(10**6):
        recorder.add(t.rows_of(100, 100 * i))
        print(100 * (i + 1), flush=True)
"""


@pytest.mark.slow
def test_kill_9_loses_no_more_than_the_last_segment(tmp_path):
    folder = tmp_path / "r"
    program = KILLED.format(root=str(ROOT), folder=str(folder))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as recorder:
        assert recorder.stdout is not None
        added = 0
        while added < 2300:
            added = int(recorder.stdout.readline())
        os.kill(recorder.pid, signal.SIGKILL)
        added = max([added, *map(int, recorder.stdout.read().split())])
    found = Recording.open(folder)
    table = all_rows(found)
    assert added - 500 <= table.num_rows <= added + 100
    assert table["slot"].to_pylist() == list(range(table.num_rows))
    assert found.end is None
    assert any("killed" in problem for problem in found.problems)


def made(tmp_path: Path, segments: int) -> Path:
    with Recorder(tmp_path / "r", head(), {}) as recorder:
        for i in range(segments):
            recorder.add(rows_of(50, 50 * i))
            recorder._write()
        recorder.close(end_of(50 * segments))
    return tmp_path / "r"


def test_a_recording_may_be_cut_anywhere(tmp_path):
    folder = made(tmp_path, 3)
    path = folder / "rows-000001.parquet"
    data = path.read_bytes()
    for length in [*range(0, len(data), 997), len(data) - 1]:
        path.write_bytes(data[:length])
        found = Recording.open(folder)
        assert [segment.name[8:11] for segment in found.segments] == ["000", "002"]
        assert any("rows-000001.parquet is damaged" in problem for problem in found.problems)
        assert all_rows(found).num_rows == 100
    path.unlink()
    assert Recording.open(folder).problems == ("rows-000001.parquet is missing",)


def test_what_is_no_recording_is_said(tmp_path):
    with pytest.raises(PeekError, match="not a recording"):
        Recording.open(tmp_path)
    folder = made(tmp_path, 1)
    meta = (folder / "meta.json").read_text()
    for text in (meta[: len(meta) // 2], "[]", json.dumps({"format": 99})):
        (folder / "meta.json").write_text(text)
        with pytest.raises(PeekError, match=r"meta\.json"):
            Recording.open(folder)


def test_a_recording_never_goes_into_another(tmp_path):
    folder = made(tmp_path, 1)
    with pytest.raises(PeekError, match="exists already"), Recorder(folder, head(), {}):
        pass
    with pytest.raises(PeekError, match="Not a directory"):
        Recorder(folder / "meta.json" / "r", head(), {}).__enter__()


def test_a_full_disk_leaves_what_was_recorded(tmp_path, monkeypatch):
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(PeekError, match="No space left on device; what was recorded"),
        Recorder(tmp_path / "r", head(), {}) as recorder,
    ):
        recorder.add(rows_of(50))
        recorder._write()
        monkeypatch.setattr(recording, "_write_whole", full)
        recorder.add(rows_of(50, 50))
        recorder.close(None)
    assert all_rows(Recording.open(tmp_path / "r")).num_rows == 50


def test_a_disk_that_is_full_at_once_leaves_no_part_and_no_lie(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(tmp_path / "r", head(), {})
    try:
        with pytest.raises(PeekError, match="File too large; it has no samples"), recorder:
            recorder.add(rows_of(5000))
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
            recorder.close(None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path / "r") == ["meta.json"]
    assert "or could not write" in Recording.open(tmp_path / "r").problems[0]


def test_an_error_while_sampling_still_writes_what_came(tmp_path):
    with pytest.raises(PeekError, match="gone"), Recorder(tmp_path / "r", head(), {}) as recorder:
        recorder.add(rows_of(70))
        raise PeekError("gone")
    assert all_rows(Recording.open(tmp_path / "r")).num_rows == 70


def test_old_rows_are_written_though_they_are_few(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "SEGMENT_AGE_S", 0.05)
    with Recorder(tmp_path / "r", head(), {}) as recorder:
        recorder.add(rows_of(10))
        time.sleep(0.06)
        recorder.add(rows_of(10, 10))
        assert (tmp_path / "r" / "rows-000000.parquet").exists()
