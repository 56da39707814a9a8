# SPDX-License-Identifier: GPL-2.0-only
"""Recordings that somebody else has made, or that a disk has damaged: each is shown as far as it is
one, or refused in words, within bounds of time and memory, and with no command for a terminal.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.unit.peek.test_summary import busy_and_idle, head
from trapless.base.console import TraplessError
from trapless.cli import cli
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.stacks import Ending, Stack, ThreadStack
from trapless.peek.sampling import recording
from trapless.peek.sampling.names import NAMES_FILE
from trapless.peek.sampling.recording import Recorder, Recording, told_of_damage
from trapless.peek.sampling.rows import End
from trapless.peek.sampling.rows import Ending as RunEnding
from trapless.peek.stacks.profile import Profile

PLACES = (0xFFFFFFFF81000010, 0xFFFFFFFF81000020)
VALUES = (None, -1, 1 << 70, 10**400, 1e308, "", "\x1b[2J", "x" * 10_000, [], {}, [[]], True)
QUICK_S = 20.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    what, folder = head(), tmp_path_factory.mktemp("damaged") / "r"
    with Recorder(folder, what, {"release": "6.1", "context_user": 2}) as recorder:
        recorder.add(busy_and_idle(what))
        sums = Profile()
        sums.add([ThreadStack(6, 6, GuestText(b"a"), 1, Stack(Ending.USER, PLACES))], [], 10**7)
        sums.keep(recorder)
        names = pa.table({"address": pa.array(PLACES, pa.uint64()), "name": ["work", "rest"]})
        recorder.keep(NAMES_FILE, names)
        recorder.close(End(RunEnding.SIGNAL, 10, 10, 0, 0, 0, 0, 0, 0, 0))
    assert shown(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "r"))


def shown(folder: Path) -> bool:
    """Whether it is shown; else it is refused in words."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    done = CliRunner().invoke(cli, ["peek", "report", str(folder)])
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert "\x1b" not in done.output and len(done.output) < 1 << 20
    if done.exception is not None:
        assert isinstance(done.exception, TraplessError), done.exc_info
        assert str(done.exception).isprintable() and len(str(done.exception)) < 1000
    return done.exception is None


def with_each_value(data: Any) -> Iterator[Any]:
    """The same JSON with one value in the place of another, or without it."""
    if isinstance(data, dict):
        for key in data:
            yield {one: value for one, value in data.items() if one != key}
            yield from ({**data, key: value} for value in VALUES)
            if isinstance(data[key], dict):
                yield from ({**data, key: inner} for inner in with_each_value(data[key]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["meta.json", "end.json"])
def test_json_of_any_kind_ends_in_a_table_or_in_words(folder, name):
    for data in with_each_value(json.loads((folder / name).read_text())):
        (folder / name).write_text(json.dumps(data))
        shown(folder)
    for text in ("[" * 100_000, '{"format": NaN}', "\x00", '{"format": 1}'):
        (folder / name).write_text(text)
        shown(folder)


@pytest.mark.parametrize("name", ["rows-000000.parquet", "stacks.parquet", "names.parquet"])
def test_bytes_of_any_kind_end_in_a_table_or_in_words(folder, name):
    path, chance = folder / name, random.Random(name)
    data = path.read_bytes()
    for _ in range(12):
        other = bytearray(data)
        for _ in range(chance.randrange(1, 8)):
            other[chance.randrange(len(other))] = chance.randrange(256)
        path.write_bytes(other)
        shown(folder)


@pytest.mark.parametrize("name", ["rows-x.parquet", "boot-2x", "boot-²", "rows-99999999.parquet"])
def test_names_that_no_recorder_gives_are_passed_over(folder, name):
    (folder / name).mkdir()
    assert shown(folder)


def test_a_count_of_segments_is_bounded(folder):
    end = json.loads((folder / "end.json").read_text())
    for count in (10**6, 10**12):
        (folder / "end.json").write_text(json.dumps({**end, "segments": count}))
        began = time.monotonic()
        assert shown(folder) == (count == 10**6)
        assert time.monotonic() - began < QUICK_S


@pytest.mark.parametrize("bound", ["READ_ROWS_MAX", "READ_BYTES_MAX"])
def test_a_file_that_would_be_gigabytes_is_not_read(folder, monkeypatch, bound):
    """Anybody's kilobyte may be one number a billion times."""
    monkeypatch.setattr(recording, bound, 0)
    with monkeypatch.context() as patch:
        patch.setattr(pq, "read_table", lambda *_, **__: pytest.fail("it is read"))
        found = Recording.open(folder)
        assert found.segments == () and "damaged and left out" in found.problems[0]
        assert all(found.kept(name) is None for name in ("stacks.parquet", NAMES_FILE))
    assert not shown(folder)


def test_what_takes_too_much_memory_is_said(tmp_path):
    with pytest.raises(PeekError, match="more memory than any recording"), told_of_damage(tmp_path):
        bytearray(1 << 44)
