# SPDX-License-Identifier: GPL-2.0-only
"""Archives of results: what is packed verifies, and what is damaged or hostile is refused with a
reason, without a file outside of the reader's own folder."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import shutil
import tarfile
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.peek.test_foreign_recordings import bomb
from trapless.base.console import Silent, TraplessError
from trapless.experiments import archive, experiment, verify
from trapless.results import result_file

DATA = Path(__file__).parents[3] / "docs/results/6.1"
NAME = "programs"


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A folder of results with one experiment."""
    folder = tmp_path_factory.mktemp("results") / "machine"
    shutil.copytree(DATA / NAME, folder / NAME)
    result_file.save(experiment.analyse(NAME, folder / NAME), folder / NAME)
    return folder


@pytest.fixture(scope="module")
def packed(results) -> Path:
    path = results.parent / "machine.tar.xz"
    assert archive.pack(results, path, Silent()) == 1
    return path


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}


def rewritten(path: Path, files: dict[str, bytes], *, listed: bool = True) -> Path:
    """The same archive of other files; `listed`: the list of files fits them."""
    name = "machine/files.json"
    if listed:
        hashes = {
            one.removeprefix("machine/"): {"bytes": len(data), "sha256": digest(data)}
            for one, data in files.items()
            if one != name
        }
        files = {**files, name: json.dumps({"format": 1, "files": hashes, "left_out": {}}).encode()}
    path.write_bytes(lzma.compress(tar_of(files), preset=0))
    return path


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def refused(path: Path) -> str:
    with pytest.raises(TraplessError) as error:
        verify.verify(path, Silent())
    assert str(path) in str(error.value)
    return str(error.value)


def test_what_is_packed_verifies_and_is_the_same_bytes_again(results, packed, tmp_path):
    verified = verify.verify(packed, Silent())
    assert [one.experiment for one in verified.results] == [NAME]
    assert "the same again" in verified.text()
    again = tmp_path / "again.tar.xz"
    archive.pack(results, again, Silent())
    assert again.read_bytes() == packed.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd")
def test_zstd_does_as_well(results, tmp_path):
    path = tmp_path / "machine.tar.zst"
    archive.pack(results, path, Silent())
    assert verify.verify(path, Silent()).folder == "machine"
    path.write_bytes(path.read_bytes()[:-400])
    assert "damaged" in refused(path)


def test_other_raw_data_give_another_result(packed, tmp_path):
    files = members(packed)
    raw = f"machine/{NAME}/raw.jsonl"
    files[raw] = files[raw].replace(b'"value": 1', b'"value": 9')
    assert "its raw data give another result" in refused(rewritten(tmp_path / "a.tar.xz", files))


def test_a_changed_result_is_noticed(packed, tmp_path):
    files = members(packed)
    result = f"machine/{NAME}/result.json"
    files[result] = files[result].replace(b'"machine": "', b'"machine": "my own ')
    assert "another result: machine" in refused(rewritten(tmp_path / "a.tar.xz", files))


def test_files_are_those_that_are_listed(packed, tmp_path):
    files, path = members(packed), tmp_path / "a.tar.xz"
    raw, meta = f"machine/{NAME}/raw.jsonl", f"machine/{NAME}/meta.json"
    changed = {**files, raw: files[raw] + b"\n"}
    assert "is not what was packed" in refused(rewritten(path, changed, listed=False))
    less = {name: data for name, data in files.items() if name != meta}
    assert "is listed and missing" in refused(rewritten(path, less, listed=False))
    assert "no such file" in refused(rewritten(path, less))
    more = {**files, "machine/ls/meta.json": b"{}"}
    assert "is there and not listed" in refused(rewritten(path, more, listed=False))
    unlisted = {name: data for name, data in files.items() if "files.json" not in name}
    assert "was not packed by us" in refused(rewritten(path, unlisted, listed=False))


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "machine/../../escaped",
        "/tmp/escaped",
        "machine/parallel/../../escaped",
        "machine/parallel/evil\x1b[2J.json",
        "machine/parallel/evil.py",
        "machine/deep/er/raw.jsonl",
        "machine/.hidden/raw.jsonl",
        "machine/parallel/" + "x" * 300,
        "machine",
    ],
)
def test_a_name_that_no_result_has_is_refused(name, packed, tmp_path):
    path = rewritten(tmp_path / "a.tar.xz", {**members(packed), name: b"x"})
    message = refused(path)
    assert (
        "no name of a result" in message or "not among the files" in message or "header" in message
    )
    assert "\x1b" not in message
    assert [one.name for one in tmp_path.iterdir()] == ["a.tar.xz"]
    assert not Path("/tmp/escaped").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_only_plain_files_are_taken(kind, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("machine/parallel/raw.jsonl")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(buffer.getvalue()))
    assert "is a link" in refused(path) or "is no plain file" in refused(path)


def test_the_same_name_twice_is_refused(packed, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for data in (b"one", b"two"):
            member = tarfile.TarInfo("machine/parallel/raw.jsonl")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(buffer.getvalue()))
    assert "is in it twice" in refused(path)


@pytest.mark.parametrize(
    ("bound", "value"), [("FILES_MAX", 2), ("FILE_BYTES_MAX", 1000), ("ALL_BYTES_MAX", 2000)]
)
def test_a_bomb_is_refused_before_it_fills_anything(bound, value, packed, monkeypatch):
    monkeypatch.setattr(archive, bound, value)
    assert "it has more than" in refused(packed)


def test_a_header_that_asks_for_gigabytes_is_refused(tmp_path):
    member = tarfile.TarInfo("machine/parallel/raw.jsonl")
    member.size = 1 << 34
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(member.tobuf(tarfile.GNU_FORMAT)))
    assert "it has more than" in refused(path)
    long = tarfile.TarInfo("x")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 1 << 34
    path.write_bytes(lzma.compress(long.tobuf(tarfile.GNU_FORMAT)))
    assert "is a header" in refused(path)


@pytest.mark.parametrize("kind", [b"X", b"x", b"L", b"Z"])
def test_a_header_that_no_result_has_is_not_read(kind, tmp_path):
    """Solaris has a letter of its own for PAX headers, whose data Python reads in one piece."""
    long = tarfile.TarInfo("x")
    long.type, long.size = kind, 24 << 20
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(long.tobuf(tarfile.GNU_FORMAT) + bytes(24 << 20), preset=0))
    tracemalloc.start()
    try:
        assert "is a header" in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_negative_size_is_none(tmp_path):
    head = bytearray(tarfile.TarInfo("machine/parallel/raw.jsonl").tobuf(tarfile.GNU_FORMAT))
    head[124:136] = b"\xff" * 10 + b"\xfe\0"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head[:512])
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(bytes(head) + bytes(2048), preset=0))
    assert "is a header" in refused(path)


@pytest.mark.parametrize("name", ["files.json", "parallel/result.json", "parallel/meta.json"])
def test_a_file_that_is_read_as_a_whole_is_not_a_large_one(name, packed, tmp_path):
    files = members(packed)
    files[f"machine/{name}"] = b" " * (17 << 20) + b"{}"
    path = rewritten(tmp_path / "a.tar.xz", files, listed=name != "files.json")
    assert "is larger than such a file is" in refused(path)


@pytest.mark.parametrize("name", ["\x1b[2J", "\u202e", "x" * 100_000, "\ud800", "a\nb"])
def test_text_of_a_stranger_is_a_short_line(name, packed, tmp_path):
    files = members(packed)
    result = f"machine/{NAME}/result.json"
    files[result] = json.dumps({**json.loads(files[result]), name: 1}).encode()
    message = refused(rewritten(tmp_path / "a.tar.xz", files))
    assert "unknown fields" in message and message.isprintable() and len(message) < 1000


def test_what_was_left_out_does_not_fill_the_terminal(packed, tmp_path):
    files = members(packed)
    head = json.loads(files["machine/files.json"])
    head["left_out"] = {f"x{number}": "\x1b" * 100 for number in range(1000)}
    files["machine/files.json"] = json.dumps(head).encode()
    path = rewritten(tmp_path / "a.tar.xz", files, listed=False)
    text = verify.verify(path, Silent()).text()
    assert len(text.splitlines()) < 120 and text.replace("\n", "").isprintable()


def test_many_claims_take_no_long_time(results):
    result = result_file.load(results / NAME)
    claims = tuple(replace(result.claims[0], id=f"claim-{number}") for number in range(20_000))
    began = time.process_time()
    replace(result, claims=claims).check()
    assert time.process_time() - began < 3
    with pytest.raises(ValueError, match="claim claim-7 stands twice"):
        replace(result, claims=(*claims, claims[7])).check()


def test_damage_is_said_to_be_damage(packed, tmp_path):
    whole, path = packed.read_bytes(), tmp_path / "a.tar.xz"
    for data in (b"", b"hello", whole[:-300], whole[:100], whole[:500] + b"\0" * 40 + whole[540:]):
        path.write_bytes(data)
        assert "damaged" in refused(path)
    path.write_bytes(lzma.compress(b"\0" * 4096))
    assert "results are in one folder" in refused(path)


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b'{"a": ' * 100_000, b"\xff\xfe", b"{}\n", b'{"part": "requests"}\n']
)
def test_raw_data_of_any_kind_end_in_a_message(raw, packed, tmp_path):
    files = members(packed)
    files[f"machine/{NAME}/raw.jsonl"] = raw
    refused(rewritten(tmp_path / "a.tar.xz", files))


@pytest.mark.slow
@pytest.mark.parametrize("is_bomb", [True, False])
def test_a_table_that_unpacks_to_gigabytes_or_is_damaged_is_refused(is_bomb, tmp_path):
    folder = tmp_path / "memory-hierarchy"
    shutil.copytree(DATA / folder.name, folder)
    result_file.save(experiment.analyse(folder.name, folder), folder)
    content = archive._content(folder)
    files = {f"machine/{folder.name}/{name}": data for name, data in content.items()}
    table = f"machine/{folder.name}/maps.parquet"
    if is_bomb:
        bomb(tmp_path / "bomb", pa.array([[7] * (1 << 20)] * 4))
        files[table] = (tmp_path / "bomb").read_bytes()
    else:
        files[table] = files[table].replace(b"PAR1", b"PAR2")
    words = refused(rewritten(tmp_path / "a.tar.xz", files))
    assert f"{table.partition('/')[2]} cannot be read: " in words
    assert ("it takes" in words) == is_bomb


def test_an_unknown_experiment_is_named(packed, tmp_path):
    files = {name.replace(f"/{NAME}/", "/future/"): data for name, data in members(packed).items()}
    assert "knows no experiment 'future'" in refused(rewritten(tmp_path / "a.tar.xz", files))


def test_a_result_without_its_raw_data_is_not_packed(results, tmp_path):
    folder = tmp_path / "machine"
    shutil.copytree(results, folder)
    (folder / NAME / "raw.jsonl.xz").unlink()
    with pytest.raises(TraplessError, match=r"raw\.jsonl is missing"):
        archive.pack(folder, tmp_path / "a.tar.xz", Silent())


@pytest.mark.parametrize("damage", ["cut", "garbled", "not xz"])
def test_damaged_raw_data_are_named_and_not_packed(results, tmp_path, damage):
    folder, path = tmp_path / "machine", tmp_path / "a.tar.xz"
    shutil.copytree(results, folder)
    raw = folder / NAME / "raw.jsonl.xz"
    data = raw.read_bytes()
    half = len(data) // 2
    raw.write_bytes(
        {"cut": data[:half], "garbled": data[:half] + b"\xff" * half, "not xz": b"x"}[damage]
    )
    with pytest.raises(TraplessError, match=r"raw\.jsonl\.xz: cannot be read"):
        archive.pack(folder, path, Silent())
    assert not path.exists()


def test_where_nothing_is_whole_nothing_is_packed(results, tmp_path):
    with pytest.raises(TraplessError, match="holds no whole result"):
        archive.pack(tmp_path, tmp_path / "a.tar.xz", Silent())
    with pytest.raises(TraplessError, match="name it") as error:
        archive.pack(results, tmp_path / "a.zip", Silent())
    assert error.value.status == 2
    folder = tmp_path / "machine"
    shutil.copytree(results, folder)
    (folder / NAME / "result.json").unlink()
    with pytest.raises(TraplessError, match="trapless report"):
        archive.pack(folder, tmp_path / "a.tar.xz", Silent())


def test_a_failed_experiment_is_left_out_with_its_reason(results, tmp_path):
    folder, path = tmp_path / "machine", tmp_path / "a.tar.xz"
    shutil.copytree(results, folder)
    experiment.note_failure(folder / "ls", "the disk was \x1b[31mfull", "trapless evaluate")
    assert archive.pack(folder, path, Silent()) == 1
    text = verify.verify(path, Silent()).text()
    assert "left out when it was packed: ls: it failed: the disk was ?[31mfull" in text
