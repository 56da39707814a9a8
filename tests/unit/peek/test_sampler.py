# SPDX-License-Identifier: GPL-2.0-only
"""The sampler as a program, and its stream: on files and processes that change, shrink and die.

What its parts do is tested in C (tests/unit/sampler); here it is run as people run it. It owns no
VM: tests/lab has the tests on those.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.make import make
from trapless.peek.errors import PeekError
from trapless.peek.sampling import sampler
from trapless.peek.sampling.sample_rows import Ending, Flag, Rows, Stream
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.sampling.sampling_plan import Base, Field, Group, Plan, Rule

ROOT = Path(__file__).resolve().parents[3]
PAGES = 64
MS = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    make(ROOT / "build/sampler/trapless-sampler")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[tuple[Path, mmap.mmap]]:
    """A file as a VM's RAM, and the target's view of it."""
    path = tmp_path / "ram"
    path.write_bytes(bytes(PAGES * mmap.PAGESIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        yield path, view


def plan(**changes: object) -> Plan:
    """Two groups at the start of memory, a sample a millisecond."""
    fields = (Field("count", 8, 0), Field("small", 2, 8), Field("blob", 12, 16))
    settings: dict[str, object] = {
        "interval_ns": MS,
        "groups": (
            Group("here", Rule.STABLE, fields),
            Group("there", Rule.ONCE, (Field("pid", 4, 0x100, (0x20,)),)),
        ),
        "bases": (Base(0xFFFF888000000000, PAGES * mmap.PAGESIZE, 0),),
        **changes,
    }
    return Plan(**settings)  # type: ignore[arg-type]


def collect(source: str, what: Plan) -> tuple[Rows, Sampler]:
    with Sampler(source, what) as run:
        rows = list(run.batches())
        return np.concatenate(rows), run


def test_rows_hold_what_is_in_memory(memory):
    path, view = memory
    view[0:10] = struct.pack("<QH", 1 << 40, 513)
    view[16:28] = b"twelve bytes"
    view[0x100:0x108] = struct.pack("<Q", 0xFFFF888000002000)
    view[0x2020:0x2024] = struct.pack("<I", 4711)
    rows, run = collect(sampler.ram(path), plan(duration_ns=50 * MS))
    assert set(rows["here.count"]) == {1 << 40}
    assert set(rows["here.small"]) == {513}
    assert {bytes(value) for value in rows["here.blob"]} == {b"twelve bytes"}
    assert set(rows["there.pid"]) == {4711}
    assert not (rows["flags"] & ~np.uint32(Flag.LATE)).any()
    assert run.end is not None and run.end.ending is Ending.DURATION
    assert run.head.groups == ("here", "there")


def test_a_sampler_is_asked_to_end_once_however_often_it_is_stopped(memory, monkeypatch):
    """A second signal ends it at once, and `timeout -s INT` sends two to a recorder."""
    path, _ = memory
    asked = []
    terminate = subprocess.Popen.terminate
    monkeypatch.setattr(
        subprocess.Popen, "terminate", lambda one: (asked.append(one), terminate(one))
    )
    with Sampler(sampler.ram(path), plan()) as run:
        batches = run.batches()
        next(batches)
        run.stop()
        run.stop()
        list(batches)
    assert len(asked) == 1
    assert run.end is not None and run.end.ending is Ending.SIGNAL


def test_deadlines_lie_on_a_grid_and_lost_slots_are_counted(memory):
    path, _ = memory
    with Sampler(sampler.ram(path), plan()) as run:
        batches = run.batches()
        parts = [next(batches)]
        os.kill(run.pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(run.pid, signal.SIGCONT)
        parts += [next(batches), next(batches)]
        run.stop()
        parts += batches
        rows, end = np.concatenate(parts), run.end
    deadlines = rows["t_ns"] - rows["lag_ns"]
    assert set((deadlines - deadlines[0]) // MS == rows["slot"] - rows["slot"][0]) == {True}
    assert set((deadlines - deadlines[0]) % MS) == {0}
    gaps = np.diff(rows["slot"].astype(np.int64)) - 1
    assert end is not None
    assert end.lost == gaps.sum() >= 50
    assert end.rows == len(rows) and end.slots == end.rows + end.lost
    late = (rows["flags"] & Flag.LATE) != 0
    assert end.late == late.sum()  # none, if it went on in the first half of a slot
    assert (late == (rows["lag_ns"] > MS // 2)).all()
    assert (rows["lag_ns"][rows["lag_ns"] > MS] > 0).all()


def test_pointers_that_lead_nowhere_are_absent(memory):
    path, view = memory
    view[0x100:0x108] = struct.pack("<Q", 0xDEAD000000000100)
    rows, run = collect(sampler.ram(path), plan(duration_ns=20 * MS))
    assert set(rows["absent"]) == {0b10}
    assert set(rows["there.pid"]) == {0}
    assert run.end is not None and run.end.absent == len(rows)


def test_a_file_that_is_cut_ends_sampling_and_loses_nothing(memory):
    path, _ = memory
    with Sampler(sampler.ram(path), plan()) as run:
        batches = run.batches()
        rows = [next(batches)]
        os.truncate(path, 0)
        rows += batches
        assert run.end is not None and run.end.ending is Ending.SOURCE
        assert run.end.rows == sum(map(len, rows))


def test_a_process_is_sampled_until_it_dies():
    target = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import ctypes, time\n"
            "cell = ctypes.c_uint64(1)\n"
            "print(ctypes.addressof(cell), flush=True)\n"
            "while True:\n    cell.value += 1\n    time.sleep(0.0005)",
        ],
        stdout=subprocess.PIPE,
    )
    with target:
        assert target.stdout is not None
        address = int(target.stdout.readline())
        what = plan(
            groups=(Group("cell", Rule.ONCE, (Field("count", 8, address),)),),
            bases=(),
            threads=(target.pid,),
        )
        with Sampler(sampler.process(target.pid), what) as run:
            batches = run.batches()
            parts = [next(batches), next(batches), next(batches)]
            target.kill()
            parts += batches
            rows = np.concatenate(parts)
    assert run.end is not None and run.end.ending is Ending.TARGET
    assert run.end.rows == len(rows)
    counts = rows["cell.count"].astype(np.int64)
    assert (np.diff(counts) >= 0).all() and counts[-1] > counts[0] + 5
    running = rows[f"run_ns.{target.pid}"].astype(np.int64)
    assert (np.diff(running) >= 0).all() and running[-1] > running[0]


def test_sampling_ends_with_the_process_to_watch(memory):
    path, _ = memory
    with subprocess.Popen(["sleep", "1000"]) as target:
        with Sampler(sampler.ram(path), plan(watch=target.pid)) as run:
            batches = run.batches()
            assert len(next(batches))
            target.kill()
            assert sum(map(len, batches)) >= 0
        assert run.end is not None and run.end.ending is Ending.TARGET


def test_a_stopped_target_is_marked_as_frozen(memory):
    path, _ = memory
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as target:
        with Sampler(sampler.ram(path), plan(threads=(target.pid,))) as run:
            batches = run.batches()
            next(batches)
            target.send_signal(signal.SIGSTOP)
            limit = time.monotonic() + 600
            flags = np.uint32(0)
            while not flags & Flag.FROZEN:
                assert time.monotonic() < limit
                batch = next(batches)
                flags = batch["flags"][-1]
            assert batch["frozen"][-1] == 1
        target.kill()


def test_it_ends_when_nobody_reads(memory):
    path, _ = memory
    with Sampler(sampler.ram(path), plan()) as run:
        next(run.batches())
        process = run._running
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(20) == 1
        process.stdout = None


@pytest.mark.parametrize(
    ("source", "changes", "said"),
    [
        ("ram:/nowhere", {}, "No such file"),
        ("ram:/dev/null", {}, "not a file that holds memory"),
        ("tape:1", {}, "is not a source"),
        ("process:4194305", {}, "No such process|Invalid argument"),
        ("RAM", {"interval_ns": 10}, "line 2: 10 is not between"),
        ("RAM", {"cpu": 4000}, "cannot run on CPU 4000"),
        ("RAM", {"threads": (4194303,)}, "thread 4194303: No such file"),
        ("RAM", {"watch": 4194303}, "process 4194303"),
    ],
)
def test_what_cannot_be_is_said(memory, source, changes, said):
    path, _ = memory
    source = sampler.ram(path) if source == "RAM" else source
    with pytest.raises(PeekError, match=said), Sampler(source, plan(**changes)) as run:
        list(run.batches())


def test_names_in_plans_are_single_words():
    with pytest.raises(ValueError, match="two words"):
        plan(groups=(Group("two words", Rule.ONCE, (Field("f", 4, 0),)),)).text()
    with pytest.raises(ValueError, match="two counters"):
        plan(groups=(Group("g", Rule.SEQLOCK, (Field("f", 4, 0),)),)).text()


@pytest.fixture
def saved(memory) -> bytes:
    """A whole stream, of a few blocks."""
    path, _ = memory
    run = subprocess.run(
        [str(sampler.program()), "--source", sampler.ram(path), "--plan", "-"],
        input=plan(duration_ns=250 * MS).text().encode(),
        capture_output=True,
        check=True,
    )
    assert b"the planned time is over" in run.stderr
    return run.stdout


def test_a_stream_may_come_in_any_pieces(saved):
    whole = Stream()
    rows = np.concatenate(whole.feed(saved))
    pieces = Stream()
    found = [batch for i in range(0, len(saved), 7) for batch in pieces.feed(saved[i : i + 7])]
    assert len(found) > 1
    assert (np.concatenate(found) == rows).all()
    assert pieces.end == whole.end is not None


def test_a_stream_may_stop_anywhere(saved):
    rows = np.concatenate(Stream().feed(saved))
    for length in range(0, len(saved), 101):
        cut = Stream()
        found = cut.feed(saved[:length])
        count = sum(map(len, found))
        assert cut.end is None
        assert not count or (np.concatenate(found) == rows[:count]).all()


def test_what_is_no_stream_is_refused(saved):
    for damaged in (b"GIF89a" + saved, saved[:8] + b"\xff" * 8 + saved[16:]):
        with pytest.raises(PeekError, match=r"not a stream|damaged"):
            Stream().feed(damaged)
    head_bytes = struct.unpack_from("<I", saved, 8)[0]
    start = 16 + head_bytes
    with pytest.raises(PeekError, match="block does not begin"):
        Stream().feed(saved[:start] + b"\0" * 8 + saved[start + 8 :])
    text = saved[16:start].replace(b"here", b"\xffere")
    with pytest.raises(PeekError, match="damaged"):
        Stream().feed(saved[:16] + text + saved[start:])


def times_are_likely(quiet) -> bool:
    """Whether reading takes longer of more bytes, and an interval has a reading of the clock too.

    Others may take the processor away during any part of a measurement.
    """
    return quiet[0]["bare_ns"] < quiet[1]["bare_ns"] and all(
        row["bare_ns"] < row["mean99_ns"] and row["step_ns"] <= row["clock_ns"] * 2 for row in quiet
    )


@pytest.mark.slow
def test_intervals_are_measured_and_reads_are_real(memory):
    path, view = memory
    for _ in range(20):
        quiet = sampler.intervals(sampler.ram(path), 4096, (4, 2048), 20_000)
        assert [row["bytes"] for row in quiet] == [4, 2048]
        for row in quiet:
            values = [value for _, value in row["quantiles"]]
            assert values == sorted(values)
            assert row["total_ns"] >= row["mean99_ns"] * row["reads"] * 0.98
            assert row["changes"] <= 1
            assert row["bare_ns"] > 0 and row["step_ns"] > 0
        if times_are_likely(quiet):
            break
    else:
        pytest.fail(f"not once likely: {quiet}")
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import mmap, sys\nfile = open(sys.argv[1], 'r+b')\n"
            "view = mmap.mmap(file.fileno(), 0)\n"
            "i = 0\nwhile True:\n    i += 1\n    view[4096:4100] = i.to_bytes(4, 'little')",
            str(path),
        ]
    ) as writer:
        limit = time.monotonic() + 600
        while not any(view[4096:4100]):
            assert time.monotonic() < limit
            time.sleep(0.01)
        while sampler.intervals(sampler.ram(path), 4096, (4,), 1_000_000)[0]["changes"] < 2:
            assert time.monotonic() < limit
        writer.kill()
    with pytest.raises(PeekError, match="cannot be read"):
        sampler.intervals(sampler.ram(path), PAGES * mmap.PAGESIZE, (4,), 10)


def leechcore() -> Path:
    """The library that the Python package of LeechCore brings along."""
    package = importlib.util.find_spec("leechcorepyc")
    if package is None or not package.submodule_search_locations:
        pytest.skip("leechcorepyc is not installed")
    library = Path(package.submodule_search_locations[0]) / "leechcore.so"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        pytest.skip(f"LeechCore cannot be loaded here: {error}")
    return library


def test_leechcore_reads_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("LEECHCORE_LIBRARY", str(leechcore()))
    path = tmp_path / "image"
    size = 32 << 20  # LeechCore takes no small file for memory
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(4096)
        file.write(bytes(range(1, 64)) * 100)
    places = ((8, 4096), (4, 4100), (1, 4111), (2, 8191), (24, 8190), (8, size - 8))
    fields = tuple(Field(f"f{i}", *place) for i, place in enumerate(places))
    beyond = Group("beyond", Rule.ONCE, (Field("f", 8, size - 4),))
    what = plan(duration_ns=30 * MS, groups=(Group("here", Rule.STABLE, fields), beyond))
    through, _ = collect(f"leechcore:file://{path}", what)
    mapped, _ = collect(sampler.ram(path), what)
    for name in through.dtype.names or ():
        if name.startswith(("here.", "beyond.", "absent")):
            assert through[name][0] == mapped[name][0], name
    assert through["here.f0"][0] == int.from_bytes(bytes(range(1, 9)), "little")
    assert set(through["absent"]) == {0b10}
    monkeypatch.setenv("LEECHCORE_LIBRARY", "/nowhere.so")
    with pytest.raises(PeekError, match="set LEECHCORE_LIBRARY"):
        collect(f"leechcore:file://{path}", what)
