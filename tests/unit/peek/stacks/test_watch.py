# SPDX-License-Identifier: GPL-2.0-only
"""Stacks sampled beside a recording of the toy kernel: whole, and of no kernel that is gone."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from tests.notes import Notes
from tests.unit.peek.toy_kernel import ToyKernel
from trapless.peek.errors import PeekError
from trapless.peek.kernel.unwinding.frames import Ending
from trapless.peek.machines import Image
from trapless.peek.sampling import record
from trapless.peek.sampling.code_names import Names
from trapless.peek.sampling.recording import Recording
from trapless.peek.sandbox.client import open_target
from trapless.peek.stacks import flame, profile
from trapless.peek.stacks.stack_watch import StackWatch

pytestmark = pytest.mark.usefixtures("own_cache")

MS = 1_000_000


def recorded(ram: Path, folder: Path, duration_ns: int, **options) -> Notes:
    notes = Notes()
    record.record(
        Image(ram),
        folder,
        interval_ns=MS,
        duration_ns=duration_ns,
        cpu=None,
        progress=notes,
        companion=lambda target, names: StackWatch(target, names, 100, options.get("monitor")),
    )
    return notes


def test_stacks_are_recorded_beside_samples(tmp_path):
    notes = recorded(ToyKernel().save(tmp_path), tmp_path / "r", 400 * MS)
    recording = Recording.open(tmp_path / "r")
    found = profile.load(recording)
    assert found is not None and found.samples >= 1
    assert {(key.pid, key.stack.ending) for key in found.times} == {
        (2, Ending.BOTTOM),
        (6, Ending.BOTTOM),
        (7, Ending.USER),
    }
    assert set(found.times.values()) == {found.time_ns}  # all of them waited all the time
    flame.write(recording, tmp_path / "folded")
    lines = (tmp_path / "folded").read_text()
    assert "server;(runnable);toy_bottom;schedule_timeout;schedule " in lines
    assert "toy_open [toy_driver]" in lines
    assert any("stacks: " in text and "a second" in text for text in notes.said)


def test_monitor_that_is_not_there_is_said_and_samples_go_on(tmp_path):
    notes = recorded(
        ToyKernel().save(tmp_path), tmp_path / "r", 100 * MS, monitor=tmp_path / "none"
    )
    assert any(f"stacks: {tmp_path}/none cannot be opened" in text for text in notes.said)
    assert profile.load(Recording.open(tmp_path / "r")) is None
    assert next(iter(Recording.open(tmp_path / "r").tables())).num_rows


def test_stacks_of_a_kernel_that_is_gone_do_not_count(tmp_path):
    kernel = ToyKernel()
    ram = kernel.save(tmp_path)
    jiffies = kernel.physical(kernel.symbols["jiffies_64"])
    canary = kernel.physical(kernel.symbols["init_task"]) + 24
    with open_target(ram) as target, ram.open("r+b", buffering=0) as file:
        with StackWatch(target, Names(target), 200, None) as watch:
            sampled(watch._pending, 2)
            file.seek(jiffies)
            file.write(struct.pack("<Q", 5000))
            sampled(watch._sums, 2)
            counted = watch._sums.samples
            sampled(watch._pending, 2)
            file.seek(canary)  # another kernel's: what came after the last tick is its
            file.write(struct.pack("<Q", 1))
        assert watch._sums.samples == counted
        with pytest.raises(PeekError, match="was restarted"):
            target.check_same()


def sampled(sums: profile.Profile, count: int) -> None:
    end = time.monotonic() + 30
    while sums.samples < count and time.monotonic() < end:
        time.sleep(0.002)
    assert sums.samples >= count
