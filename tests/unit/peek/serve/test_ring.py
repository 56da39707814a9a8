# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of many machines within a bound of bytes: which go, what is left, and a bad disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.unit.peek.toy_kernel import RELEASE
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.rows import FIXED, Rows, parse_head
from trapless.peek.serve import ring as ring_file
from trapless.peek.serve.ring import Ring, Source

INTERVAL_NS = 10_000_000
ROWS = 100
FIELD_BYTES = 512
BOUND = 256 << 10


class NoNames:
    """For recordings of machines without probes."""

    def keep(self, recorder: object) -> None:
        pass


def source(title: str) -> Source:
    text = f"# interval-ns {INTERVAL_NS}\n# monotonic-ns 0\n# realtime-ns {10**18}\n"
    text += f"group cpu0 stable\nfield noise {FIELD_BYTES} 0x0\n"
    size = sum(np.dtype(kind).itemsize for _, kind in FIXED) + FIELD_BYTES
    return Source(title, parse_head(text, size), {"release": RELEASE}, NoNames())


def rows(of: Source, first: int, count: int = ROWS) -> Rows:
    """Rows that no compression makes smaller."""
    made = np.zeros(count, of.head.dtype)
    made["slot"] = np.arange(first, first + count)
    made["t_ns"] = made["slot"] * INTERVAL_NS
    noise = np.random.default_rng(first).bytes(count * FIELD_BYTES)
    made["cpu0.noise"] = np.frombuffer(noise, made["cpu0.noise"].dtype)
    return made


def kept(folder: Path) -> dict[str, list[int]]:
    """The first slot of each recording that is left, in its first run's numbers, by machine."""
    found: dict[str, list[int]] = {}
    for meta in sorted(folder.glob("*/*/meta.json")):
        recording = Recording.open(meta.parent)
        assert not recording.problems and recording.end is not None
        assert sum(len(table) for table in recording.tables()) == recording.end["rows"] == ROWS
        assert recording.slots() == ROWS and recording.end["lost"] == 0
        first = (int(recording.meta["monotonic_ns"])) // INTERVAL_NS
        found.setdefault(meta.parent.parent.name, []).append(first)
    return {name: sorted(numbers) for name, numbers in found.items()}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each batch of rows is a recording."""
    monkeypatch.setattr(ring_file, "RECORDING_S", 0.0)
    monkeypatch.setattr(ring_file, "AGAIN_S", 0.0)
    yield


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_oldest_recordings_go_of_the_machine_that_has_the_most(tmp_path, short):
    big, small = source("big/1"), source("small")
    with Ring(tmp_path, BOUND, print) as ring:
        ring.add(small, rows(small, 0))
        for number in range(12):
            ring.add(big, rows(big, number * ROWS))
        ring.add(small, rows(small, ROWS))
    assert size(tmp_path) == ring.bytes <= BOUND
    left = kept(tmp_path)
    assert left["small"] == [0, ROWS]
    assert left["big_1"] == [number * ROWS for number in range(12 - len(left["big_1"]), 12)]
    assert len(left["big_1"]) >= 2


def test_recordings_from_before_count_and_go_first(tmp_path, short):
    before, now = source("before"), source("now")
    with Ring(tmp_path, BOUND, print) as ring:
        for number in range(4):
            ring.add(before, rows(before, number * ROWS))
    with Ring(tmp_path, BOUND, print) as ring:
        for number in range(12):
            ring.add(now, rows(now, number * ROWS))
    assert size(tmp_path) == ring.bytes <= BOUND
    left = kept(tmp_path)
    assert left["now"][-1] == 11 * ROWS
    assert left.get("before", []) == [n * ROWS for n in range(4)][4 - len(left.get("before", [])) :]
    assert len(left.get("before", [])) < 4


def test_a_disk_that_takes_nothing_is_told_once_and_tried_again(tmp_path, short):
    notes: list[str] = []
    one = source("web")
    (tmp_path / "web").write_text("in the way\n")
    with Ring(tmp_path, BOUND, notes.append) as ring:
        for number in range(3):
            ring.add(one, rows(one, number * ROWS))
        while ring.errors < 3:
            time.sleep(0.01)
        assert "web" in ring.error and len(notes) == 1 and "recording pauses" in notes[0]
        (tmp_path / "web").unlink()
        ring.add(one, rows(one, 3 * ROWS))
        ring.add(one, rows(one, 4 * ROWS))
        while ring.error:
            time.sleep(0.01)
    assert notes[1:] == ["recording goes on"]
    assert kept(tmp_path) == {"web": [3 * ROWS, 4 * ROWS]}
