# SPDX-License-Identifier: GPL-2.0-only
"""One archive of a folder of results, which anybody can send and everybody can check.

This file owns the archive's form: a tar, compressed by xz or zstd, with a folder an experiment and
a list of all files with their hashes; what may be in it; and how one that comes from anywhere is
unpacked. verify.py compares results.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from trapless.base import json_text, tools
from trapless.base.console import Progress, TraplessError
from trapless.experiments import experiment
from trapless.experiments.raw_files import META_FILE, RAW_FILE, is_saved, saved_bytes
from trapless.results import result_file

LIST_FILE = "files.json"
FORMAT = 1
XZ, ZSTD = b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
FILES_MAX = 500
FILE_BYTES_MAX = 512 << 20
"""Unpacked. The largest file of this project's own results has 30 MB."""
ALL_BYTES_MAX = 1 << 30
JSON_BYTES_MAX = {LIST_FILE: 1 << 20, META_FILE: 16 << 20, result_file.FILE_NAME: 16 << 20}
"""The largest file that is read as a whole."""
NAME_CHARS_MAX = 200
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
KEPT = (RAW_FILE, META_FILE, result_file.FILE_NAME)
PLAIN_TYPES = frozenset(tarfile.SUPPORTED_TYPES) - frozenset(tarfile.GNU_TYPES)
"""The bound of members of which only the header is read before their names are checked."""
NEEDS_ZSTD = {"zstd": "zstd"}


def pack(directory: Path, archive: Path, progress: Progress) -> int:
    """Write the results in `directory` to `archive`; the number of experiments in it. One that
    failed or was not finished is left out, and the archive says why."""
    suffix = "".join(archive.suffixes[-2:])
    if suffix not in (".tar.xz", ".tar.zst"):
        raise TraplessError(f"{archive}: name it FILE.tar.xz or FILE.tar.zst", status=2)
    files: dict[str, bytes] = {}
    folders, failed = _folders(directory)
    for name, why in failed.items():
        progress.note(f"{name} is left out: {why}")
    for folder in folders:
        progress.step(f"reading {folder.name}")
        files |= {f"{folder.name}/{name}": data for name, data in _content(folder).items()}
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in sorted(files.items())
    }
    head = {"format": FORMAT, "files": listed, "left_out": failed}
    files = {LIST_FILE: (json.dumps(head, indent=1) + "\n").encode(), **files}
    progress.step(f"writing {archive}")
    data = _tar(directory.resolve().name, files)
    try:
        _write(archive, _compressed(data, suffix))
    except OSError as error:
        raise TraplessError(f"{archive}: {error.strerror}") from error
    progress.done()
    return len(folders)


def _folders(directory: Path) -> tuple[list[Path], dict[str, str]]:
    """The folders of whole experiments, and for each other one, by name, why it is left out."""
    if not directory.is_dir():
        raise TraplessError(f"{directory}: no such folder; `trapless evaluate` makes one")
    if not NAME.fullmatch(directory.resolve().name):
        raise TraplessError(
            f"{directory}: an archive's folder is named by letters, digits, '.', '_', '+' and '-'; "
            "give it another name"
        )
    folders, failed = [], {}
    for name in experiment.names():
        folder = directory / name
        reason, _ = experiment.load_failure(folder) or ("", "")
        if reason:
            failed[name] = f"it failed: {reason}"
        elif (folder / result_file.FILE_NAME).exists():
            folders.append(folder)
        elif is_saved(folder / RAW_FILE):
            failed[name] = f"its result is not made; `trapless report {directory}` makes it"
        elif folder.is_dir():
            failed[name] = "it was not finished"
    if not folders:
        words = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise TraplessError(f"{directory}: holds no whole result{f' ({words})' if words else ''}")
    return folders, failed


def _content(folder: Path) -> dict[str, bytes]:
    """The files of an experiment by name; raw data without its own compression."""
    for name in KEPT:
        if not is_saved(folder / name):
            raise TraplessError(f"{folder / name} is missing: nobody could check the result")
    names = sorted({*KEPT, *(path.name for path in folder.glob("*.parquet"))})
    return {name: saved_bytes(folder / name) for name in names}


def _tar(top: str, files: dict[str, bytes]) -> bytes:
    """The same bytes for the same files: no owner, no time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _compressed(data: bytes, suffix: str) -> bytes:
    if suffix == ".tar.xz":
        return lzma.compress(data, preset=6)
    tools.require_tools(NEEDS_ZSTD, "an archive of .zst")
    return subprocess.run(["zstd", "-q", "-19"], input=data, capture_output=True, check=True).stdout


def _write(path: Path, data: bytes) -> None:
    """Write the archive as a whole or not at all: a stick may be full, or pulled."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The folder of results in an archive, for as long as the context lasts. A TraplessError where
    it has anything but whole files of results; nothing is ever written outside of that folder."""
    with tempfile.TemporaryDirectory(prefix="trapless-verify-") as place:
        try:
            with _opened(archive) as stream:
                top = _extract(stream, Path(place))
        except MemoryError as error:
            raise TraplessError(f"{archive}: takes more memory than results do") from error
        except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
            raise TraplessError(f"{archive}: damaged, or no archive of results: {error}") from error
        except OSError as error:
            raise TraplessError(f"{archive}: {error.strerror or error}") from error
        folder = Path(place) / top
        _check_list(archive, folder)
        yield folder


@contextmanager
def _opened(archive: Path) -> Iterator[BinaryIO]:
    """The archive's tar, as it is decompressed."""
    with archive.open("rb", buffering=0) as file:  # zstd goes on where we have read
        magic = file.read(len(XZ))
        file.seek(0)
        if magic == XZ:
            with lzma.open(file) as plain:
                yield plain  # type: ignore[misc]
        elif magic.startswith(ZSTD):
            tools.require_tools(NEEDS_ZSTD, "an archive of .zst")
            with subprocess.Popen(
                ["zstd", "-q", "-d", "-c"],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None and process.stderr is not None
                try:
                    yield process.stdout  # type: ignore[misc]
                finally:
                    tools.kill(process)
        else:
            raise ValueError("it is compressed neither by xz nor by zstd")


def _extract(stream: BinaryIO, place: Path) -> str:
    """Write the members below `place`; the name of the one folder at the top."""
    tops: set[str] = set()
    seen: set[str] = set()
    size = 0
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as tar:
        for member in tar:
            parts = _parts(member)
            if member.name in seen:
                raise ValueError(f"{member.name!r} is in it twice")
            seen.add(member.name)
            tops.add(parts[0])
            size += member.size
            if len(seen) > FILES_MAX or member.size > FILE_BYTES_MAX or size > ALL_BYTES_MAX:
                raise ValueError(
                    f"at {member.name!r} it has more than {FILES_MAX} files, {FILE_BYTES_MAX >> 20}"
                    f" MB in one, or {ALL_BYTES_MAX >> 20} MB in all"
                )
            if member.size > JSON_BYTES_MAX.get(parts[-1], member.size):
                raise ValueError(f"{member.name!r} is larger than such a file is")
            target = place.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            with target.open("xb") as file:
                while piece := content.read(1 << 20):
                    file.write(piece)
    if len(tops) != 1:
        raise ValueError(f"results are in one folder; here are {len(tops)}")
    return tops.pop()


class _Member(tarfile.TarInfo):
    """A member whose header makes the reader allocate no more than a result needs."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in PLAIN_TYPES or self.size < 0:
            raise tarfile.ReadError(f"{self.name!r} is a header that archives of results have not")
        return super()._proc_member(tar)  # type: ignore[misc, no-any-return]


def _parts(member: tarfile.TarInfo) -> list[str]:
    """The path of a member, which is a plain file of results; ValueError where it is not."""
    if not member.isreg() or member.issparse():
        kind = "a link" if member.issym() or member.islnk() else "no plain file"
        raise ValueError(f"{member.name!r} is {kind}")
    parts = member.name.split("/")
    if len(member.name) > NAME_CHARS_MAX or not all(NAME.fullmatch(part) for part in parts):
        raise ValueError(f"{member.name[:NAME_CHARS_MAX]!r} is no name of a result's file")
    listed = len(parts) == 2 and parts[1] == LIST_FILE
    kept = len(parts) == 3 and (parts[2] in KEPT or parts[2].endswith(".parquet"))
    if not (listed or kept):
        raise ValueError(f"{member.name!r} is not among the files of a result")
    return parts


def left_out(folder: Path) -> dict[str, str]:
    """The experiments that were not whole when the archive was packed, with the reasons."""
    head = json_text.parse((folder / LIST_FILE).read_text(encoding="utf-8"))
    return {str(name): str(why) for name, why in head["left_out"].items()}


def _check_list(archive: Path, folder: Path) -> None:
    """Raise TraplessError where files are not those that the archive lists."""
    try:
        head = json_text.parse((folder / LIST_FILE).read_text(encoding="utf-8"))
        if head["format"] != FORMAT:
            raise TraplessError(
                f"{archive}: its format is {head['format']!r}, and this trapless knows {FORMAT}"
            )
        listed = {str(name): str(one["sha256"]) for name, one in head["files"].items()}
        left_out(folder)
    except FileNotFoundError as error:
        raise TraplessError(
            f"{archive}: it has no {LIST_FILE}, so it was not packed by us"
        ) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise TraplessError(f"{archive}: {LIST_FILE} is damaged: {error}") from error
    present = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    present.pop(LIST_FILE)
    if missing := sorted(listed.keys() - present.keys()):
        raise TraplessError(f"{archive}: {missing[0]!r} is listed and missing")
    if more := sorted(present.keys() - listed.keys()):
        raise TraplessError(f"{archive}: {more[0]!r} is there and not listed")
    for name, path in present.items():
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != listed[name]:
                raise TraplessError(f"{archive}: {name!r} is not what was packed")
