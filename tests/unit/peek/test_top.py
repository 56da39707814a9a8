# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek top` on a toy kernel: what is shown, in both forms, and how it ends."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.notes import Notes
from tests.unit.peek import toy_kernel
from tests.unit.peek.toy_kernel import ToyKernel
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.machines import Image
from trapless.peek.sampling import boots, top
from trapless.peek.sampling.probes import MAGIC


@pytest.fixture(autouse=True)
def settings(own_cache, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(top, "REFRESH_S", 0.15)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(
    ram: Path,
    stream: io.StringIO,
    updates: int | None,
    machine: Image | None = None,
    **options: bool,
) -> list[str]:
    notes = Notes()
    top.top(
        machine or Image(ram),
        interval_ns=1_000_000,
        cpu=None,
        updates=updates,
        progress=notes,
        stream=stream,
        **options,
    )
    return notes.said


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_each_second_is_added_up(kind, tmp_path):
    stream = kind()
    show(ToyKernel().save(tmp_path), stream, 2)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert text.count("Where each CPU was") >= 2
    assert re.search(r"^ *0 +0\.0% +100\.0% +3\.00 +3 +0 *$", text, re.M), text
    assert re.search(r"^ *1 +100\.0% +0\.0% +4\.00 +4 +0 *$", text, re.M), text
    assert text.count(toy_kernel.RELEASE) >= 2
    assert re.search(r"samples/s of 1,000, lag \S+ µs", text)


@pytest.mark.slow
def test_probes_may_come_and_go(tmp_path):
    kernel, stream = ToyKernel(probes=3), io.StringIO()
    ram = kernel.save(tmp_path)

    def act() -> None:
        for text, data in (("tier 1", bytes(8)), ("tier 0", MAGIC)):
            while text not in stream.getvalue():
                time.sleep(0.01)
            with ram.open("r+b") as file:
                file.seek(kernel.map_at)
                file.write(data)
        while not stream.getvalue().split("tier 0")[-1].count("tier 1"):
            time.sleep(0.01)
        os.truncate(ram, 0)

    threading.Thread(target=act, daemon=True).start()
    show(ram, stream, None)
    seconds = stream.getvalue().split(toy_kernel.RELEASE)[1:]
    tiers = [re.findall(r"^tier (\d)", second, re.M) for second in seconds]
    assert [tier for tier, _ in itertools.groupby(tiers)] == [["1"], ["0"], ["1"]]
    told = [second for second in seconds if "Who switched interrupts off" in second]
    assert seconds[0] in told and seconds[-1] in told
    assert seconds[tiers.index(["1"], tiers.index(["0"])) - 1] not in told


class Working(Image):
    """A machine whose emulator works on something, while its kernel's clock stands still."""

    def emulator(self) -> Emulator:
        argv = [sys.executable, "-c", "while True: pass"]
        self.__dict__["process"] = process = subprocess.Popen(argv)
        return Emulator(process.pid, ())


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_a_kernel_whose_clock_stands_still_is_doubted(tmp_path, monkeypatch, as_json):
    monkeypatch.setattr(boots, "STILL_S", 0.3)
    ram, stream = ToyKernel().save(tmp_path), io.StringIO()
    machine = Working(ram)

    def end() -> None:
        while not re.search(r"clock(_still_s|\s+has\s+stood)", stream.getvalue()):
            time.sleep(0.01)
        os.truncate(ram, 0)

    threading.Thread(target=end, daemon=True).start()
    try:
        show(ram, stream, None, machine=machine, as_json=as_json)
    finally:
        machine.__dict__["process"].kill()
    if as_json:
        seconds = [json.loads(line) for line in stream.getvalue().splitlines()]
        doubted = [one for one in seconds if "clock_still_s" in one]
        assert doubted[0]["clock_still_s"] >= 0.3 and "cpus" not in doubted[0]
    else:
        words = " ".join(stream.getvalue().split())
        _, doubted = words.split("its clock has stood still for", 1)
        assert "and the machine works" in doubted and "Where each CPU was" not in doubted


@pytest.mark.slow
def test_a_clock_that_stands_still_is_told(tmp_path, monkeypatch):
    """As where the machine is stopped, or all of its CPUs sleep; but not before a while."""
    monkeypatch.setattr(top, "STILL_S", 0.6)
    stream = io.StringIO()
    show(ToyKernel().save(tmp_path), stream, 8)
    words = " ".join(stream.getvalue().split())
    told = re.findall(r"; its clock has stood still for (\d+) s", words)
    assert told and min(map(int, told)) >= 1, "it was told before its time"
    assert words.count("Where each CPU was") == 8


def test_it_ends_with_the_memory(tmp_path):
    ram, stream = ToyKernel().save(tmp_path), io.StringIO()

    def cut() -> None:
        while "Where" not in stream.getvalue():
            time.sleep(0.01)
        os.truncate(ram, 0)

    threading.Thread(target=cut, daemon=True).start()
    (said,) = show(ram, stream, None)
    assert "went away" in said or "gone" in said


def test_what_is_no_kernel_is_said_first(tmp_path):
    path = tmp_path / "ram"
    path.write_bytes(bytes(1 << 20))
    with pytest.raises(PeekError):
        show(path, io.StringIO(), 1)


def test_each_second_is_an_object_for_programs(tmp_path):
    stream = io.StringIO()
    show(ToyKernel(probes=3).save(tmp_path), stream, 2, as_json=True)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["kernel"] == toy_kernel.RELEASE and second["time_ns"] > first["time_ns"]
    assert first["cpus"][0]["run_queue"] == 3 and first["sampling"]["samples"] > 0
    assert first["user_mode_known"] and first["interrupts_off"] is not None
