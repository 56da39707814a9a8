# SPDX-License-Identifier: GPL-2.0-only
"""Recording a toy kernel: what is sampled where, how it ends, and what cannot be recorded.

Nothing runs in a toy kernel; tests/lab/peek/test_peek_live.py has one that does.
"""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from pathlib import Path

import pytest

from tests.notes import Notes
from tests.unit.peek import toy_kernel
from tests.unit.peek.toy_kernel import FORMS, ToyKernel
from trapless.base.console import Silent
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import record, summary, tier0
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.rows import Ending

pytestmark = pytest.mark.usefixtures("own_cache")

MS = 1_000_000


def recorded(ram: Path, folder: Path, duration_ns: int = 0, progress: Silent | None = None):
    return record.record(
        ram,
        None,
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
    first, second = summary.summarise(found).cpus.values()
    assert first.share(tier0.Part.IDLE) == 1
    assert second.share(tier0.Part.BOTTOM_HALF) == 1


def in_the_background(ram: Path, folder: Path, act) -> None:
    """`act` happens once the recording has begun."""

    def wait() -> None:
        while not (folder / "meta.json").exists():
            time.sleep(0.01)
        act()

    threading.Thread(target=wait, daemon=True).start()


def test_ctrl_c_ends_sampling_and_keeps_all(tmp_path):
    ram = ToyKernel().save(tmp_path)
    folder = tmp_path / "r"
    before = signal.getsignal(signal.SIGINT)
    in_the_background(ram, folder, lambda: os.kill(os.getpid(), signal.SIGINT))
    end = recorded(ram, folder)
    assert end.ending is Ending.SIGNAL
    assert signal.getsignal(signal.SIGINT) is before
    assert sum(table.num_rows for table in Recording.open(folder).tables()) == end.rows


def test_a_restarted_kernel_ends_the_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "CHECK_S", 0.05)
    kernel = ToyKernel()
    ram, folder, notes = kernel.save(tmp_path), tmp_path / "r", Notes()
    at = kernel.physical(kernel.symbols["init_task"]) + 24

    def restart() -> None:
        with ram.open("r+b") as file:
            file.seek(at)
            file.write(struct.pack("<Q", 1))  # another boot's canary

    in_the_background(ram, folder, restart)
    assert recorded(ram, folder, progress=notes).ending is Ending.SIGNAL
    assert any("was restarted" in text for text in notes.said)


def test_a_folder_that_is_there_is_refused_at_once(tmp_path):
    with pytest.raises(PeekError, match="exists already"):
        recorded(tmp_path / "nowhere", tmp_path)


def test_what_is_no_running_machine_is_not_recorded(tmp_path):
    with Target.open(ToyKernel().save(tmp_path)) as target:
        memory = target.memory
        assert isinstance(memory, FileMemory)
        memory._regions = (*memory._regions, toy_region())
        with pytest.raises(PeekError, match="not the RAM of a running machine"):
            record.source_of(target)


def toy_region():
    from trapless.peek.kernel.memory import Region

    return Region(1 << 40, 4096, 0)
