# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of many machines within a bound of bytes: which go, what is left, and a bad disk."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.peek.serve.serving import until
from tests.unit.peek.toy_kernel import RELEASE
from trapless.peek.errors import PeekError
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.sample_rows import FIXED, Rows, parse_head
from trapless.peek.serve import recordings_folder
from trapless.peek.serve.recordings_folder import RecordingsFolder, Source, safe_name

INTERVAL_NS = 10_000_000
ROWS = 100
FIELD_BYTES = 512
BOUND = 384 << 10
MANY = 40


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
    monkeypatch.setattr(recordings_folder, "RECORDING_S", 0.0)
    monkeypatch.setattr(recordings_folder, "AGAIN_S", 0.0)
    yield


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_oldest_recordings_go_of_the_machine_that_has_the_most(tmp_path, short):
    big, small = source("big/1"), source("small")
    with RecordingsFolder(tmp_path, BOUND, print) as folder:
        folder.add(small, rows(small, 0))
        for number in range(12):
            folder.add(big, rows(big, number * ROWS))
        folder.add(small, rows(small, ROWS))
    assert size(tmp_path) <= folder.bytes <= BOUND
    left = kept(tmp_path)
    assert left["small"] == [0, ROWS]
    name = safe_name("big/1")
    assert left[name] == [number * ROWS for number in range(12 - len(left[name]), 12)]
    assert len(left[name]) >= 2


def test_recordings_from_before_count_and_go_first(tmp_path, short):
    before, now = source("before"), source("now")
    with RecordingsFolder(tmp_path, BOUND, print) as folder:
        for number in range(4):
            folder.add(before, rows(before, number * ROWS))
    with RecordingsFolder(tmp_path, BOUND, print) as folder:
        for number in range(12):
            folder.add(now, rows(now, number * ROWS))
    assert size(tmp_path) <= folder.bytes <= BOUND
    left = kept(tmp_path)
    assert left["now"][-1] == 11 * ROWS
    assert left.get("before", []) == [n * ROWS for n in range(4)][4 - len(left.get("before", [])) :]
    assert len(left.get("before", [])) < 4


def test_a_disk_that_takes_nothing_is_told_once_and_tried_again(tmp_path, short):
    notes: list[str] = []
    one = source("web")
    (tmp_path / "web").write_text("in the way\n")
    with RecordingsFolder(tmp_path, BOUND, notes.append) as folder:
        for number in range(3):
            folder.add(one, rows(one, number * ROWS))
        until(lambda: folder.errors >= 3)
        assert "web" in folder.error and len(notes) == 1 and "recording pauses" in notes[0]
        (tmp_path / "web").unlink()
        folder.add(one, rows(one, 3 * ROWS))
        folder.add(one, rows(one, 4 * ROWS))
        until(lambda: not folder.error)
    assert notes[1:] == ["recording goes on"]
    assert kept(tmp_path) == {"web": [3 * ROWS, 4 * ROWS]}


# ---- A folder or data that cannot be used -----------------------------------------------------


def test_a_folder_in_which_others_write_is_refused(tmp_path, monkeypatch):
    with RecordingsFolder(tmp_path / "new", BOUND, print):
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700  # guests' data are in it
    for mode in (0o1777, 0o775):
        (tmp_path / "new").chmod(mode)
        with (
            pytest.raises(PeekError, match="another user can write in"),
            RecordingsFolder(tmp_path / "new", BOUND, print),
        ):
            pass
    (tmp_path / "new").chmod(0o700)
    (tmp_path / "new/inner").mkdir()
    for mode, is_taken in ((0o1777, True), (0o777, False)):  # who owns the outer one may replace it
        (tmp_path / "new").chmod(mode)
        with suppress(PeekError), RecordingsFolder(tmp_path / "new/inner", BOUND, print):
            assert is_taken
    own = os.geteuid()
    (tmp_path / "new").chmod(0o755)
    if own == 0:
        os.chown(tmp_path / "new", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with (
        pytest.raises(PeekError, match="another user can write in"),
        RecordingsFolder(tmp_path / "new", BOUND, print),
    ):
        pass


def test_what_cannot_be_removed_counts_and_recording_pauses(tmp_path, short, monkeypatch):
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    one, notes = source("web"), []
    with RecordingsFolder(tmp_path, BOUND, notes.append) as folder:
        for number in range(40):
            folder.add(one, rows(one, number * ROWS))
    assert "cannot be removed" in folder.error and len(notes) == 1
    assert size(tmp_path) <= 2 * BOUND and folder.dropped + folder.errors * ROWS >= 10 * ROWS


def test_rows_that_no_recording_takes_stop_no_others(tmp_path, short):
    good, bad = source("good"), source("bad")
    bad = replace(bad, about={"release": object()})
    late = replace(source("late"), head=replace(good.head, realtime_ns=1 << 100))
    with RecordingsFolder(tmp_path, BOUND, print) as folder:
        for number in range(2):
            folder.add(bad, rows(bad, number * ROWS))
            folder.add(late, rows(late, number * ROWS))
        until(lambda: folder.errors >= 4)
        folder.add(good, rows(good, 0))
        folder.add(good, rows(good, ROWS))
    assert [path.name for path in tmp_path.glob("good/*/end.json")] == ["end.json"] * 2


def test_machines_whose_titles_are_alike_have_folders_of_their_own(tmp_path, short):
    titles = ["web/1", "web 1", "web_1", safe_name("web/1"), "..", "_."]
    assert len({safe_name(title) for title in titles}) == len(titles)
    sources = [source(title) for title in titles]
    with RecordingsFolder(tmp_path, 10 * BOUND, print) as folder:
        for one in sources:
            folder.add(one, rows(one, 0))
        folder.end(sources[2], None)
        folder.add(sources[0], rows(sources[0], ROWS))
    assert folder._live == set(titles) - {"web_1"}
    assert len(kept(tmp_path)) == len(titles)


@pytest.mark.slow
def test_what_is_recorded_at_once_stays_within_the_bound(tmp_path, short, monkeypatch):
    """No recording is complete, so none could be removed before."""
    monkeypatch.setattr(recordings_folder, "RECORDING_S", 600.0)
    monkeypatch.setattr(recordings_folder, "PARTS", 0.001)
    with RecordingsFolder(tmp_path, BOUND, print) as folder:
        for number in range(MANY):
            one = source(f"m{number}")
            folder.add(one, rows(one, 0, 3 * ROWS))
        until(folder._queue.empty)
        assert not folder.error
    assert list(tmp_path.glob(f"m{MANY - 1}/*/meta.json")) and folder.bytes <= BOUND


def test_machines_that_have_gone_count_as_one(tmp_path, short):
    live = source("web")
    with RecordingsFolder(tmp_path, BOUND, print) as folder:
        for number in range(2):
            folder.add(live, rows(live, number * ROWS))
        for number in range(MANY):
            one = source(f"m{number}")
            folder.add(one, rows(one, 0))
            folder.end(one, None)
    assert kept(tmp_path)["web"] == [0, ROWS] and folder.bytes <= BOUND
