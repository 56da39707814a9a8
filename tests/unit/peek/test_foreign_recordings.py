# SPDX-License-Identifier: GPL-2.0-only
"""Recordings that somebody else has made, or that a disk has damaged: each is shown as far as it is
one, or refused in words, within bounds of time and memory, and with no command for a terminal.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import random
import resource
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.unit.peek.test_summary import busy_and_idle, head
from trapless.base import jail, parquet
from trapless.base.console import TraplessError
from trapless.base.parquet import DamagedError
from trapless.cli import cli
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel import counters
from trapless.peek.kernel.kernel_stacks import ThreadStack
from trapless.peek.kernel.unwinding.frames import Ending, Stack
from trapless.peek.sampling import recording as recording_file
from trapless.peek.sampling import recording_tables
from trapless.peek.sampling.code_names import NAMES_FILE
from trapless.peek.sampling.recording import COUNTS_FILE, Recorder, Recording, damage_as_errors
from trapless.peek.sampling.sample_rows import End
from trapless.peek.sampling.sample_rows import Ending as RunEnding
from trapless.peek.stacks.profile import Profile
from trapless.report.figures import Table

PLACES = (0xFFFFFFFF81000010, 0xFFFFFFFF81000020)
VALUES = (None, -1, 1 << 70, 10**400, 1e308, "", "\x1b[2J", "x" * 10_000, [], {}, [[]], True)
QUICK_S = 20.0
BOMB_TABLES = 14
"""Of 4 million values each: together more than parquet.MEMORY_BYTES."""


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
    before = resource.getrlimit(resource.RLIMIT_DATA)
    done = CliRunner().invoke(cli, ["peek", "report", str(folder)])
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
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


@pytest.mark.parametrize("name", ["rows-x.parquet", "boot-2x", "boot-²", "rows-99999999.parquet"])
def test_names_that_no_recorder_gives_are_passed_over(folder, name):
    (folder / name).mkdir()
    assert shown(folder)


@pytest.mark.parametrize("name", ["meta.json", "end.json", "rows-000000.parquet", "names.parquet"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(folder, name):
    """Archives may have pipes and devices in them."""
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert shown(folder) == (name in ("end.json", "names.parquet"))


def test_a_process_with_much_memory_of_its_own_reads_a_recording(folder, monkeypatch):
    own = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE)
    monkeypatch.setattr(recording_file, "READ_MEMORY_BYTES", 128 << 20)
    assert shown(folder)
    own.close()


@pytest.mark.slow
def test_what_takes_more_memory_than_a_recording_is_refused_in_words(folder, monkeypatch):
    """Lists take thirty times their text: what fits into an archive is more than all memory."""
    monkeypatch.setattr(recording_file, "READ_MEMORY_BYTES", 256 << 20)
    data = {**json.loads((folder / "meta.json").read_text()), "x": [[]] * (8 << 20)}
    (folder / "meta.json").write_text(json.dumps(data, separators=(",", ":")))
    done = CliRunner().invoke(cli, ["peek", "report", str(folder)])
    assert isinstance(done.exception, PeekError) and "more memory than any" in str(done.exception)


def bomb(path: Path, column: pa.Array) -> int:
    """A file that is the same column again and again, and the bytes that it has once it is read."""
    table = pa.table({"slot": column})
    one_long = pa.types.is_binary(column.type)  # a dictionary of it takes seconds
    options = {"compression": "zstd", "use_dictionary": not one_long, "write_statistics": False}
    with pq.ParquetWriter(path, table.schema, **options) as file:
        for _ in range(BOMB_TABLES):
            file.write_table(table)
    assert path.stat().st_size < 200_000
    return BOMB_TABLES * int(table.nbytes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "column",
    [
        lambda: pa.array([b"x" * (32 << 20)]),
        lambda: pa.array([[7] * (1 << 20)] * 4),
        lambda: pa.array([["x" * (1 << 20)]] * 32),
        lambda: pa.array([[7] * (1 << 20)] * 4, pa.list_(pa.int8())),
    ],
    ids=["bytes", "numbers", "texts", "bytes of numbers"],
)
def test_a_kilobyte_that_would_be_gigabytes_is_refused(folder, column):
    """Its description says nothing of it: it has few rows."""
    size = bomb(folder / "rows-000000.parquet", column())
    assert size > BOMB_TABLES << 22
    parquet.check(folder / "rows-000000.parquet")
    with pytest.raises(
        DamagedError, match=r"it takes (more than 512 MiB|\d[\d,]+ bytes of memory)"
    ):
        parquet.read_table(folder / "rows-000000.parquet")
    assert decoder("VmHWM") < 500 << 10 and not shown(folder)


def decoder(key: str) -> int:
    """What the kernel says of the process that decodes, in KiB where it is memory."""
    process = parquet._child._process
    assert process is not None and process.poll() is None
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{key}:")))


@pytest.mark.parametrize("name", ["rows-000000.parquet", "stacks.parquet", "names.parquet"])
def test_files_with_other_bytes_are_tables_or_refused(folder, name):
    path, chance = folder / name, random.Random(name)
    data, tables = path.read_bytes(), 0
    for _ in range(200):
        other = bytearray(data)
        for _ in range(chance.choice((1, 1, 4, 16))):
            other[chance.randrange(len(other))] ^= 1 << chance.randrange(8)
        path.write_bytes(other[: chance.choice((len(other), len(other), chance.randrange(1, 999)))])
        try:
            parquet.check(path)
            tables += parquet.read_table(path).nbytes > 0
        except DamagedError as error:
            assert str(error).isprintable() and len(str(error)) < 1000
    assert 0 < tables < 200
    path.write_bytes(data)
    assert parquet.read_table(path).equals(pq.read_table(path))
    assert decoder("VmHWM") < 500 << 10


@pytest.mark.slow
def test_what_decodes_is_in_a_jail_and_is_replaced(folder, monkeypatch):
    path = folder / "rows-000000.parquet"
    table = parquet.read_table(path)
    process = parquet._child._process
    assert process is not None and decoder("NoNewPrivs") == 1
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        assert "Seccomp:\t2" in (task / "status").read_text()
    process.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "BUSY_FACTOR", 0.01)
        with pytest.raises(DamagedError, match="took more than 6 s"):
            parquet.read_table(path)
    assert process.returncode == -signal.SIGKILL
    assert parquet.read_table(path).equals(table)
    with monkeypatch.context() as patch:
        # Once it is asked: one that ended before is replaced without a word.
        patch.setattr(jail, "allow", lambda pid, seconds: os.kill(pid, signal.SIGSYS))
        with pytest.raises(DamagedError, match="what no decoding must do"):
            parquet.read_table(path)
    assert parquet.read_table(path, ["slot"]).equals(table.select(["slot"]))
    with pytest.raises(DamagedError, match="no_such"):
        parquet.read_table(path, ["no_such"])


@pytest.mark.slow
def test_a_full_disk_is_not_taken_for_a_damaged_recording(folder, tmp_path):
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    trace = ["trace", "--recording", str(folder), "-o", str(full)]
    for words in (trace, ["report", "--html", str(full), str(folder)]):
        text = str(CliRunner().invoke(cli, ["peek", *words]).exception)
        assert f"{full}: " in text and "No space left" in text and "recorder" not in text
    with pytest.raises(PeekError, match="output cannot be written"), damage_as_errors(folder):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "error",
    [
        NameError("x"),
        RuntimeError("x"),
        AssertionError(),
        ImportError("x"),
        OSError(errno.EIO, "x", "/elsewhere"),
    ],
)
def test_an_error_of_ours_is_not_told_as_one_of_the_recording(folder, error):
    with pytest.raises(type(error)) as raised, damage_as_errors(folder):
        raise error
    assert raised.value is error


def test_a_missing_attribute_is_damage_only_where_data_lack_it(folder):
    with pytest.raises(PeekError, match="not what a recorder"), damage_as_errors(folder):
        json.loads("[1]").get("rows")
    with pytest.raises(AttributeError), damage_as_errors(folder):
        getattr(Recording, "no_such_function")  # noqa: B009 -- mypy would find it


WAYS = [["report", "--html"], ["report", "--stacks"], ["trace", "-o"]]


def written(way: list[str], path: Path, folder: Path) -> Result:
    command, option = way
    last = ["--recording", str(folder)] if command == "trace" else [str(folder)]
    return CliRunner().invoke(cli, ["peek", command, option, str(path), *last])


def output_error(way: list[str], path: Path, folder: Path) -> str:
    done = written(way, path, folder)
    assert isinstance(done.exception, TraplessError), done.exc_info
    return str(done.exception)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_disk_that_is_full_gets_no_empty_file(folder, tmp_path, way):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "out").mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        text = output_error(way, tmp_path / "out" / "x", folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"{tmp_path / 'out' / 'x'}" in text and "File too large" in text
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("way", WAYS[:2])
def test_a_folder_that_is_not_there_is_named_and_not_made(folder, tmp_path, way):
    text = output_error(way, tmp_path / "no" / "such" / "x", folder)
    assert f"there is no folder {tmp_path / 'no' / 'such'}" in text
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_may_not_be_written_is_blamed_and_not_the_recording(whole, way):
    """The folder may be looked at by nobody but its owner."""
    with tempfile.TemporaryDirectory() as place:
        folder = shutil.copytree(whole, Path(place) / "r")
        locked = Path(place) / "locked"
        locked.mkdir(0o000)
        # What is imported for it, another user may not be able to read.
        assert written(way, Path(place) / "fine", folder).exit_code == 0
        Path(place).chmod(0o755)
        me = os.geteuid()
        if me == 0:
            os.seteuid(65534)
        try:
            text = output_error(way, locked / "x", folder)
        finally:
            os.seteuid(me)
            locked.chmod(0o700)
    assert text.startswith(str(locked / "x")) and "Permission denied" in text
    assert str(folder) not in text


EVIL = "\x1b]0;PWN\x07<script>"


@pytest.mark.parametrize(
    "groups",
    [["cpu0" + EVIL, "cpu1"], ["cpu0\n"], ["cpu99999"], [f"cpu{n}" for n in range(65)], [7], None],
)
def test_groups_of_fields_are_those_of_cpus(folder, groups):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "groups": groups}))
    with pytest.raises(PeekError, match=r"meta\.json is damaged: its groups"):
        Recording.open(folder)
    assert not shown(folder)


@pytest.mark.slow
def test_counters_that_no_kernel_has_are_passed_over(folder, tmp_path):
    evil, soft = (counters.SOFTIRQ + EVIL, f"{counters.SOFTIRQ}rcu")
    names = [f"0 {one}" for one in (counters.DEVICE, soft, evil)] + [f"{EVIL} {counters.DEVICE}"]
    columns = {name: pa.array([0, 5], pa.uint32()) for name in names}
    times = pa.array([0, 10**9], pa.int64())
    pq.write_table(pa.table({"time_ns": times, **columns}), folder / COUNTS_FILE)
    assert Recording.open(folder).rates() == {0: {counters.DEVICE: 5, soft: 5}}
    words = ["peek", "report", "--html", str(tmp_path / "x.html"), str(folder)]
    text = CliRunner().invoke(cli, words).output + (tmp_path / "x.html").read_text()
    assert "softirq rcu" in text and "PWN" not in text and "\x1b" not in text


def test_texts_of_tables_are_visible_where_all_come_by():
    table = Table("x", "t\x1b[2J", (EVIL,), (("\x9b2J\u202e",),), caption="long " * 200 + "\x1b[A")
    (found,) = recording_tables.of_boot([table], 1, 1)
    texts = (found.title, *found.columns, *found.rows[0], found.caption)
    assert all(text.isprintable() for text in texts) and len(found.caption) > 1000
    assert found.columns == (r"\x1b]0;PWN\x07<script>",)


def test_boots_beyond_the_bound_are_left_out_and_said(folder, monkeypatch):
    monkeypatch.setattr(limits, "BOOTS_MAX", 2)
    for number in (2, 3, 10):
        shutil.copytree(folder, folder / f"boot-{number}", ignore=lambda *_: ["boot-2", "boot-3"])
    first, second = Recording.open(folder).boots()
    assert second.folder.name == "boot-2"
    assert first.problems == (f"2 later boots are left out, from {folder / 'boot-3'}",)


def test_missing_segments_are_counted_and_not_looked_for_one_by_one(folder, monkeypatch):
    made = []
    name_of = recording_file._segment_name
    monkeypatch.setattr(
        recording_file, "_segment_name", lambda number: made.append(number) or name_of(number)
    )
    end = json.loads((folder / "end.json").read_text())
    (folder / "end.json").write_text(json.dumps({**end, "segments": 10**6}))
    problems = Recording.open(folder).problems
    assert problems[0] == "rows-000001.parquet is missing" and len(made) < 100
    assert problems[-1] == "999,979 more are missing" and len(problems) == 21


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(PeekError, match=r"not a recording.* meta.json: No such file"):
        Recording.open(tmp_path / "nowhere")
