# SPDX-License-Identifier: GPL-2.0-only
"""What probes say about samples, and what becomes of it in a recording's tables and page; the
probes' memory is made here, in the form that the module has
(test_layouts_shared_with_c.py).

tests/lab/peek/test_peek_live.py has the module and a kernel.
"""

from __future__ import annotations

import doctest
import json
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.notes import Notes
from tests.unit.peek.toy_kernel import CODE_SITES, ToyKernel
from trapless.base.console import Silent
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Image
from trapless.peek.sampling import (
    code_names,
    course,
    json_form,
    probes,
    record,
    recording_figures,
    recording_tables,
    sites,
    tier0,
    tier1,
)
from trapless.peek.sampling.probe_watch import Watch
from trapless.peek.sampling.probes import ACTIVE_AT, MAGIC_NUMBER, Mode
from trapless.peek.sampling.recording import Recorder, Recording
from trapless.peek.sampling.sample_rows import End, Ending, Rows, parse_head
from trapless.peek.sampling.sample_summary import summarise
from trapless.peek.sampling.tier0 import PF_KTHREAD, Part
from trapless.peek.sampling.tier1 import Entry, Who

pytestmark = pytest.mark.usefixtures("own_cache")

MS = 1_000_000
COUNT = 1000
COUNT_AT = sites.SITE.fields["count"][1]
LOCK = 0xFFFFFFFF81000405
SCHEDULE, LOCKER = 0xFFFFFFFF81000110, 0xFFFFFFFF81000190  # a cli, and a caller of a lock function


@pytest.mark.parametrize("module", [tier1, probes, sites, code_names, course])
def test_examples_are_so(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("count", "pid", "state", "part", "who"),
    [
        (0, 7, tier1.STATE_USER, Part.USER, Who.ENABLED),
        (0, 7, tier1.STATE_ENABLED, Part.KERNEL, Who.ENABLED),
        (0, 7, tier1.STATE_ENTERED, Part.KERNEL, Who.ENTERED),
        (1, 7, SCHEDULE, Part.KERNEL, SCHEDULE),
        (0, 0, tier1.STATE_ENABLED, Part.IDLE, Who.ENABLED),
        (0, 0, SCHEDULE, Part.IDLE, Who.ENABLED),  # hlt and mwait end with an interrupt
        (0x100, 7, tier1.STATE_ENABLED, Part.BOTTOM_HALF, Who.ENABLED),
        (0x100, 0, LOCKER, Part.BOTTOM_HALF, LOCKER),
        (0x10000, 7, tier1.STATE_ENABLED, Part.TOP_HALF, Who.TOP_HALF),  # the processor did it
        (0x10000, 7, tier1.STATE_ENTERED, Part.TOP_HALF, Who.TOP_HALF),
        (0x10100, 0, SCHEDULE, Part.TOP_HALF, Who.TOP_HALF),
        (0x110000, 7, tier1.STATE_USER, Part.TOP_HALF, Who.TOP_HALF),  # an NMI: not entered yet
    ],
)
def test_a_sample_is_judged_by_state_and_preempt_count(count, pid, state, part, who):
    arrays = (
        np.array([value], kind) for value, kind in ((count, "u4"), (pid, "u4"), (state, "u8"))
    )
    count, pid, state = arrays
    found = tier1.parts(count, pid, state)
    assert found.tolist() == [part]
    assert tier1.disabled_by(found, state).tolist() == [who]


# ---- In a target's memory ------------------------------------------------------------------------


def test_the_map_is_found_by_the_modules_symbol(tmp_path):
    with Target.open(ToyKernel(probes=3).save(tmp_path)) as target:
        found = probes.find(target)
        assert found is not None
        assert found.active == Mode.PARTS | Mode.INTERRUPTS
        book = sites.SiteBook()
        book.look(target, found)
        assert [*map(str, book.sites().names)] == ["schedule+0x10", "schedule_timeout+0x10"]
    with Target.open(ToyKernel().save(tmp_path)) as target:
        assert probes.find(target) is None


@pytest.mark.parametrize("damage", [{"magic": b"TLPROBE2"}, {"size": 8}, {"record_bytes": 4}])
def test_a_map_that_is_none_is_not_believed(damage, tmp_path):
    with Target.open(ToyKernel(probes=3, probe_map=damage).save(tmp_path)) as target:
        assert probes.find(target) is None


def test_records_are_sampled_beside_what_a_stock_kernel_shows(tmp_path):
    ram, folder, notes = ToyKernel(probes=3).save(tmp_path), tmp_path / "r", Notes()
    record.record(Image(ram), folder, interval_ns=MS, duration_ns=50 * MS, cpu=None, progress=notes)
    assert "tier 1" in notes.said[0]
    table = next(iter(Recording.open(folder).tables()))
    assert set(table["cpu0.state"].to_pylist()) == {CODE_SITES[0]}
    assert set(table["cpu1.state"].to_pylist()) == {tier1.STATE_USER}
    assert set(table["cpu0.entry"].to_pylist()) == {1}
    assert set(table["system.probes"].to_pylist()) == {3}
    found = summarise(Recording.open(folder))
    assert str(code_names.load(Recording.open(folder))[CODE_SITES[0]]) == "schedule+0x10"
    assert len(found.sites) == 2


def test_names_that_a_killed_recorder_did_not_keep_come_from_its_symbols(tmp_path):
    ram, folder = ToyKernel(probes=3).save(tmp_path), tmp_path / "r"
    record.record(
        Image(ram), folder, interval_ns=MS, duration_ns=20 * MS, cpu=None, progress=Silent()
    )
    (folder / code_names.NAMES_FILE).unlink()
    found = code_names.from_symbols(Recording.open(folder), [*CODE_SITES, 1 << 63])
    assert {one: str(name) for one, name in found.items()} == dict(
        zip(CODE_SITES, ("schedule", "schedule_timeout"), strict=True)
    )


def test_what_cannot_be_known_is_said_with_the_remedy(tmp_path):
    ram, notes = ToyKernel().save(tmp_path), Notes()
    arguments = {"interval_ns": MS, "duration_ns": 5 * MS, "cpu": None, "progress": notes}
    record.record(Image(ram), tmp_path / "r", **arguments)
    assert "tier 0" in notes.said[0] and "load trapless there with probes=3" in notes.said[0]
    assert "may stand still" in notes.said[1]  # nobody runs a toy
    ram = ToyKernel(probes=0).save(tmp_path)
    record.record(Image(ram), tmp_path / "s", **arguments)
    assert "echo 3 >/sys/module/trapless/parameters/probes" in notes.said[2]


def test_contexts_make_probes_unnecessary_for_user_mode():
    assert "user mode" not in tier1.knowledge_text(None, user_mode=True)
    assert "user mode" in tier1.knowledge_text(None)
    columns = ("cpu0.preempt_count", "cpu0.context_active", "cpu1.preempt_count", "system.threads")
    assert not tier0.tells_user_mode(columns)
    assert tier0.tells_user_mode((*columns, "cpu1.context_active"))


def poke(ram: Path, at: int, data: bytes) -> None:
    with ram.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.slow
def test_probes_may_come_and_go_during_a_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "CHECK_S", 0.02)
    kernel = ToyKernel(probes=0)
    ram, folder, notes = kernel.save(tmp_path), tmp_path / "r", Notes()

    def act() -> None:
        while not (folder / "meta.json").exists():
            time.sleep(0.01)
        for said, at, data in (
            (2, kernel.map_at + ACTIVE_AT, struct.pack("<I", 7)),
            (3, kernel.map_at + ACTIVE_AT, bytes(4)),
            (4, kernel.map_at, bytes(8)),  # the module is gone, and its memory another's
        ):
            time.sleep(0.25)
            poke(ram, at, data)
            while len(notes.said) <= said:
                time.sleep(0.01)
        poke(ram, kernel.map_at + ACTIVE_AT, struct.pack("<I", 3))  # means nothing any more

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    record.record(
        Image(ram), folder, interval_ns=MS, duration_ns=2000 * MS, cpu=None, progress=notes
    )
    thread.join()
    assert "user and kernel, interrupts, counts" in notes.said[2]
    assert "turned to: off" in notes.said[3]
    assert "unloaded" in notes.said[4]
    found = Recording.open(folder)
    summary = summarise(found)
    assert found.problems == () and summary.rows == found.end["rows"]
    assert 0 < summary.probed[Mode.PARTS] < summary.rows
    assert "in part" in recording_tables.tier_text(summary)
    assert summary.cpus["cpu0"].judged == summary.probed[Mode.INTERRUPTS]


def test_counts_are_those_of_the_time_watched(tmp_path):
    kernel = ToyKernel(probes=7)
    ram = kernel.save(tmp_path)
    with Target.open(ram) as target:
        watch = Watch(target, Silent().note)
        for count in (12, 40):
            poke(ram, kernel.sites_at + COUNT_AT, struct.pack("<I", count))
            watch.look()
        assert watch.sites().runs.tolist() == [35, 0]
        assert watch.sites().runs_by_function() == {"schedule": 35}


# ---- In a recording ------------------------------------------------------------------------------

MEMBERS = "preempt_count:4 current:8 pid:4 comm:16 task_flags:4 nr_running:4 nr_switches:8"
PROBED = "state:8 entry:4"
SYSTEM = "threads:4 processes.0:8 processes.1:8 probe_magic:8 probes:4"


def probed(folder: Path) -> Recording:
    """One CPU in all there is: a tenth user mode, a tenth by schedule, and so on."""
    groups = {"cpu0": f"{MEMBERS} {PROBED}", "system": SYSTEM}
    lines = ["trapless-plan 1", "interval-ns 100000"]
    size = 56
    for group, fields in groups.items():
        lines.append(f"group {group} once")
        for name, width in (field.split(":") for field in fields.split()):
            lines.append(f"field {name} {width} 0x0")
            size += int(width)
    text = "\n".join([*lines, "# monotonic-ns 1", "# realtime-ns 1"])
    head = parse_head(text, (size + 7) // 8 * 8)
    with Recorder(folder, head, {"release": "toy"}) as recorder:
        rows = rows_of(np.zeros(COUNT, head.dtype))
        for start in range(0, COUNT, 100):
            recorder.add(rows[start : start + 100])
        found = sites.Sites(
            np.array([SCHEDULE, LOCK], "u8"),
            np.zeros(2, "u4"),
            ("schedule+0x10", "_raw_spin_lock_irq+0x5"),
            np.array([50, 200], "u8"),
        )
        sites.keep(recorder, found)
        known = code_names.Names.__new__(code_names.Names)
        known.known = {SCHEDULE: "schedule+0x10", LOCKER: "e1000_open+0x9 [e1000]"}
        known.keep(recorder)
        recorder.close(End(Ending.SIGNAL, COUNT, COUNT, 0, 0, 0, 0, 0, 0, 0))
    return Recording.open(folder)


def rows_of(rows: Rows) -> Rows:
    rows["slot"] = np.arange(COUNT)
    rows["cpu0.pid"] = 7
    rows["cpu0.nr_running"] = 2
    rows["cpu0.nr_switches"] = 1000 + np.arange(COUNT)
    rows["cpu0.comm"] = np.frombuffer(b"worker".ljust(16, b"\0"), "V16")[0]
    rows["system.probe_magic"] = MAGIC_NUMBER
    rows["system.probes"] = 7
    rows["system.probes"][900:] = 0  # turned off: what the records hold is old
    rows["system.threads"] = 80
    rows["system.processes.0"] = 100
    rows["system.processes.1"] = np.uint64(2**64 - 30)  # more of them ended here than began
    rows["cpu0.state"][:100] = tier1.STATE_USER
    rows["cpu0.state"][100:200] = SCHEDULE
    rows["cpu0.state"][200:300] = LOCKER
    rows["cpu0.preempt_count"][300:400] = 0x10000
    rows["cpu0.preempt_count"][400:500] = 0x100
    rows["cpu0.pid"][500:600] = 0
    rows["cpu0.entry"] = Entry.SYSTEM_CALL
    rows["cpu0.entry"][700:800] = Entry.SIGNAL
    rows["cpu0.task_flags"][800:900] = PF_KTHREAD
    return rows


def cells(recording: Recording, table: str) -> list[tuple[str, ...]]:
    (found,) = (one for one in recording_tables.tables(recording) if one.id == table)
    return [*found.rows]


def test_shares_and_reasons_are_those_of_the_samples(tmp_path):
    recording = probed(tmp_path / "r")
    (found,) = (one for one in recording_tables.tables(recording) if one.id == "shares")
    row = dict(zip(found.columns, found.rows[0], strict=True))
    assert (row["user"], row["other kernel"], row["user or kernel"]) == ("10.0%", "50.0%", "10.0%")
    assert (row["top half"], row["bottom half"], row["idle"]) == ("10.0%", "10.0%", "10.0%")
    assert row["interrupts off"] == "33.3%"  # of the 900 samples with probes on
    assert row["switches a second"] == "9,990"
    reasons = dict(cells(recording, "entries"))
    assert reasons == {"system call": "75.0%", "signal": "25.0%"}  # without the kernel thread
    facts = dict(cells(recording, "about"))
    assert facts["processes"].startswith("70, ") and facts["threads"] == "80"
    (boot,) = json.loads(json_form.report(recording))["boots"]
    assert boot["cpus"][0]["entered_for"] == {
        "system_call": 0.75,
        "interrupt_or_exception": 0,
        "signal": 0.25,
        "not_known": 0,
    }
    assert "in part" in facts["known"] and "90.0%" in facts["known"]


def test_routines_have_their_share_and_their_time(tmp_path):
    found = {row[0]: row[1:] for row in cells(probed(tmp_path / "r"), "interrupts")}
    assert found["schedule"] == ("33.3%", "11.11%", "50", "200.00")  # 100 samples, 50 times
    assert found["e1000_open [e1000]"] == ("33.3%", "11.11%", "", "")  # by a lock function
    (table,) = (
        one for one in recording_tables.tables(probed(tmp_path / "s")) if one.id == "interrupts"
    )
    assert "Lock functions did it 200 times, for 50.00 µs each" in table.caption
    assert found["(top halves)"] == ("33.3%", "11.11%", "", "")


@pytest.mark.slow
def test_the_page_has_the_course_of_all(tmp_path):
    path = tmp_path / "page.html"
    recording = probed(tmp_path / "r")
    recording_figures.write(recording, path)
    page = path.read_text()
    for text in (
        "Where the CPUs were",
        "Run queues",
        "Processes",
        "Interrupts switched off",
        "Lag",
    ):
        assert f">{text}" in page
    assert page.count("<svg") == 5 and "http" not in page.replace("http://www.w3.org", "")
    drawn = {
        figure.id: figure for figure in recording_figures.figures(summarise(recording), 100_000)
    }
    off = drawn["interrupts-over-time"].series[0]
    assert off.y[len(off.x) // 4] == 100 and off.y[0] == 0  # rows 100 to 400 of 1000
    assert np.isnan(off.y[-1])  # probes were off
    layers = [np.array(series.y) for series in drawn["shares-over-time"].series]
    total = sum(layers)
    assert total == pytest.approx([100] * len(total))
