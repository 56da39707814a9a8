# SPDX-License-Identifier: GPL-2.0-only
"""Recording a toy kernel: what is sampled where, how it ends, and what cannot be recorded.

Nothing runs in a toy kernel; tests/lab/peek/test_peek_live.py has one that does.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.notes import Notes
from tests.unit.peek import toy_kernel
from tests.unit.peek.toy_kernel import FORMS, ToyKernel
from trapless.base.console import Silent
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Image
from trapless.peek.sampling import boots, json_form, record, recording_tables, sample_summary, tier0
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.sample_rows import Ending

pytestmark = pytest.mark.usefixtures("own_cache")

MS = 1_000_000


def recorded(ram: Path, folder: Path, duration_ns: int = 0, progress: Silent | None = None):
    return record.record(
        Image(ram),
        folder,
        interval_ns=MS,
        duration_ns=duration_ns,
        cpu=None,
        progress=progress or Silent(),
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_is_recorded_by_its_own_addresses(form, tmp_path):
    ram = ToyKernel(form=form).save(tmp_path)
    end = recorded(ram, tmp_path / "r", 50 * MS)
    found = Recording.open(tmp_path / "r")
    table = next(iter(found.tables()))
    assert end.ending is Ending.DURATION and end.rows == table.num_rows
    assert set(table["cpu0.nr_running"].to_pylist()) == {3}
    assert set(table["cpu1.nr_running"].to_pylist()) == {4}
    assert set(table["cpu1.preempt_count"].to_pylist()) == {0x100}
    assert set(table["cpu0.pid"].to_pylist()) == {0}
    assert table["cpu0.comm"][0].as_py() == b"swapper/0".ljust(16, b"\0")
    assert set(table["absent"].to_pylist()) == {0}
    assert found.meta["about"]["release"] == toy_kernel.RELEASE
    first, second = sample_summary.summarise(found).cpus.values()
    assert first.share(tier0.Part.IDLE) == 1
    assert second.share(tier0.Part.BOTTOM_HALF) == 1


@pytest.fixture
def in_the_background() -> Iterator[Callable[[Path, Callable[[threading.Event], object]], None]]:
    """What is to happen once a recording has begun in a folder. It gets an event that says that
    the test is over: nothing of it lives longer than its test.
    """
    over, threads = threading.Event(), []

    def begin(folder: Path, act: Callable[[threading.Event], object]) -> None:
        def wait() -> None:
            while not (folder / "meta.json").exists():
                if over.wait(0.01):
                    return
            act(over)

        threads.append(threading.Thread(target=wait, daemon=True))
        threads[-1].start()

    yield begin
    over.set()
    for thread in threads:
        thread.join()


def interrupt(_over: threading.Event) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_sampling_and_keeps_all(tmp_path, in_the_background):
    ram = ToyKernel().save(tmp_path)
    folder = tmp_path / "r"
    before = signal.getsignal(signal.SIGINT)
    in_the_background(folder, interrupt)
    end = recorded(ram, folder)
    assert end.ending is Ending.SIGNAL
    assert signal.getsignal(signal.SIGINT) is before
    assert sum(table.num_rows for table in Recording.open(folder).tables()) == end.rows


def restarts(ram: Path, kernel: ToyKernel, ticks: int, over: threading.Event) -> None:
    """Another boot of the same kernel at the same place, whose clock then moves so often."""
    canary = kernel.physical(kernel.symbols["init_task"]) + 24
    jiffies = kernel.physical(kernel.symbols["jiffies_64"])
    with ram.open("r+b", buffering=0) as file:
        file.seek(canary)
        file.write(struct.pack("<Q", 1))
        for tick in range(ticks):
            file.seek(jiffies)
            file.write(struct.pack("<Q", 5000 + tick))
            if over.wait(0.01):
                return


def test_a_kernel_that_does_not_come_back_ends_the_recording(
    tmp_path, monkeypatch, in_the_background
):
    monkeypatch.setattr(record, "CHECK_S", 0.05)
    monkeypatch.setattr(boots, "UNSEEN_S", 0.2)
    kernel = ToyKernel()
    ram, folder, notes = kernel.save(tmp_path), tmp_path / "r", Notes()
    in_the_background(folder, lambda over: restarts(ram, kernel, 0, over))
    ends = recorded(ram, folder, progress=notes)
    assert (ends.ending, ends.boots) == (Ending.TARGET, 1)
    assert any("was restarted" in text for text in notes.said)
    assert Recording.open(folder).end["ending"] == "restart"


@pytest.mark.slow
def test_a_restart_is_followed_in_a_recording_of_its_own(tmp_path, monkeypatch, in_the_background):
    for module, name in ((record, "CHECK_S"), (boots, "AGAIN_S")):
        monkeypatch.setattr(module, name, 0.05)
    kernel = ToyKernel()
    ram, folder = kernel.save(tmp_path), tmp_path / "r"
    in_the_background(folder, lambda over: restarts(ram, kernel, 10_000, over))
    in_the_background(folder / "boot-2", interrupt)
    ends = recorded(ram, folder)
    first, second = Recording.open(folder).boots()
    assert (ends.ending, ends.boots) == (Ending.SIGNAL, 2)
    assert ends.rows == first.end["rows"] + second.end["rows"]
    assert second.folder == folder / "boot-2" and second.end["ending"] == "signal"
    read = sum(table.num_rows for table in first.tables())
    assert first.slots() - 1 <= first.end["alive_slot"] and read < first.end["rows"]
    titles = [table.title for table in recording_tables.of_all_boots(first)]
    assert "Where each CPU was (boot 2 of 2)" in titles
    (one, two) = json.loads(json_form.report(first))["boots"]
    assert [one["sampling"]["samples"], one["ending"]] == [read, "restart"]
    assert two["cpus"][0]["shares"] == {"idle": 1.0} and two["kernel"] == toy_kernel.RELEASE


def test_an_idle_kernel_whose_clock_stops_is_not_taken_for_another(tmp_path, monkeypatch):
    monkeypatch.setattr(boots, "STILL_S", 0.0)
    monkeypatch.setattr(boots, "AGAIN_S", 0.0)
    kernel = ToyKernel()
    with Target.open(kernel.save(tmp_path)) as target:
        mine = boots.Boots(target, Emulator(os.getpid(), ()))
        monkeypatch.setattr(mine, "_worked_s", lambda: (1e9, 0.0))  # it works on something
        for _ in range(3):
            assert mine.look()
            mine._search.join()
        with monkeypatch.context() as patch:  # a clock that went back
            patch.setattr(boots, "clock", lambda _: 17)
            assert not mine.look()


def test_a_folder_that_is_there_is_refused_at_once(tmp_path):
    with pytest.raises(PeekError, match="exists already"):
        recorded(tmp_path / "nowhere", tmp_path)


def test_folders_that_are_not_there_are_not_made(tmp_path):
    with pytest.raises(PeekError, match=f"there is no folder {tmp_path / 'no' / 'such'}"):
        recorded(ToyKernel().save(tmp_path), tmp_path / "no" / "such" / "r", 50 * MS)
    assert not (tmp_path / "no").exists()


def test_what_is_no_running_machine_is_not_recorded(tmp_path):
    with Target.open(ToyKernel().save(tmp_path)) as target:
        assert isinstance(target.memory, FileMemory)
        target.memory.is_saved = True
        with pytest.raises(PeekError, match="not the RAM of a running machine"):
            record.source_of(target)
