# SPDX-License-Identifier: GPL-2.0-only
"""Files that are unlike most, through libtrapless.aio.Files: those that are closed or given up
while requests are under way, those of /proc, links to themselves, and times far from now. Also what
programs that come from other libraries try first, and what errors say.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import libtrapless
from libtrapless.aio import AsyncBatch, Files
from tests.packages.async_files.test_python_async_files import opened_paths, run
from tests.packages.conftest import run_python

LIMIT_S = 300
"""For what hangs."""


async def writer_of(fifo: Path) -> int:
    """A descriptor for writing, once a reader has come."""
    while True:
        with contextlib.suppress(OSError):  # ENXIO: the reader has not come yet
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        await asyncio.sleep(0.001)


def test_a_file_that_another_loop_closes_gets_what_was_being_written(tmp_path: Path):
    """A worker that is busy lets the write begin late. Then another file could have its number."""
    os.mkfifo(tmp_path / "fifo")

    async def work():
        async with Files(workers=1) as files:
            file = await files.open(tmp_path / "target", "w")
            busy = asyncio.create_task(files.read_file(tmp_path / "fifo"))
            writer = await writer_of(tmp_path / "fifo")
            write = asyncio.create_task(file.pwrite(b"data", 0))
            await asyncio.sleep(0)
            await asyncio.to_thread(asyncio.run, file.close())
            with pytest.raises(ValueError, match="closed"):
                await file.pwrite(b"late", 0)
            with (tmp_path / "other").open("wb"):
                os.close(writer)
                await asyncio.gather(busy, write)
            while (tmp_path / "target") in opened_paths():
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(work(), LIMIT_S))
    assert (tmp_path / "target").read_bytes() == b"data"
    assert (tmp_path / "other").read_bytes() == b""


def test_an_end_closes_files_although_another_call_blocks(tmp_path: Path):
    """The read has not begun when the files end, and so nothing needs its descriptor any more."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "target").write_bytes(b"data")

    async def work():
        files = Files(workers=1)
        file = await files.open(tmp_path / "target")
        busy = asyncio.create_task(files.read_file(tmp_path / "fifo"))
        writer = await writer_of(tmp_path / "fifo")
        read = asyncio.create_task(file.pread(4, 0))
        await asyncio.sleep(0)
        files.close()
        await asyncio.wait([busy, read])
        await file.close()
        assert (tmp_path / "target") not in opened_paths()
        os.close(writer)

    asyncio.run(asyncio.wait_for(work(), LIMIT_S))


@pytest.mark.parametrize("ends", ["call", "files"])
def test_a_file_stays_open_for_a_request_whose_task_was_cancelled(tmp_path: Path, ends: str):
    """Until its call ends, or the files end. The request waits in the kernel for a lock."""

    async def work(files: Files):
        lock = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with files.open(tmp_path) as file:
            number = file.fileno()
            task = asyncio.create_task(file._call(0, "flock", fcntl.LOCK_EX))
            while (
                f"-> FLOCK  ADVISORY  WRITE {os.getpid()} " not in Path("/proc/locks").read_text()
            ):
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
        assert os.readlink(f"/proc/self/fd/{number}") == str(tmp_path)
        if ends == "files":
            files.close()
        os.close(lock)
        while ends == "call" and tmp_path in opened_paths():
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(run_in(work), LIMIT_S))


async def run_in(coroutine_of):
    async with Files() as files:
        return await coroutine_of(files)


def test_a_coroutine_that_is_closed_while_it_waits_leaves_nothing(tmp_path: Path):
    """Neither a descriptor, nor an error that nobody has seen."""
    said: list[dict] = []
    (tmp_path / "small").write_text("hello")

    async def work(files: Files):
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        for turns in range(4):
            for path in (tmp_path / "small", tmp_path / "absent"):
                waiting = [files.open(path), files.read_file(path), files.stat(path)]
                for one in waiting:
                    one.send(None)
                for _ in range(turns):
                    await asyncio.sleep(0)
                if turns == 3:
                    time.sleep(0.05)  # complete before the loop looks again
                for one in waiting:
                    one.close()
                await files.stat(tmp_path)
        for _ in range(10):
            await files.stat(tmp_path)
        gc.collect()
        while (tmp_path / "small") in opened_paths():
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(run_in(work), LIMIT_S))
    assert not said


def test_files_that_are_read_in_parts_or_have_no_length_are_read_to_their_end():
    """A read of /proc returns about a page, however much is asked for."""
    program = "import json, asyncio; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        path = Path(f"/proc/{child.pid}/maps")
        maps = path.read_bytes()
        assert len(maps) > 8192

        async def work(files: Files):
            async with files.open(path) as file:
                assert await file.read() == maps
                assert await file.pread(10**6, 0) == maps
                assert await file.pread(6000, 0) == maps[:6000]
            async with files.open("/proc/version") as file:
                assert await file.read() == Path("/proc/version").read_bytes()

        run(work)
        child.stdin.close()


def test_a_walk_lists_links_that_lead_nowhere_or_to_themselves(tmp_path: Path):
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "long").symlink_to("x" * 300)
    (tmp_path / "absent").symlink_to("nothing")
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").write_text("x")

    async def work(files: Files):
        walked = [(path, sorted(a), sorted(b)) async for path, a, b in files.walk(tmp_path)]
        plain = [(path, sorted(a), sorted(b)) for path, a, b in os.walk(tmp_path)]
        assert walked == plain

    run(work)


@pytest.mark.parametrize("seconds", [10_413_792_000, 2**33, -2_000_000_000, -(2**34), 0])
def test_times_far_from_now_are_those_of_os(tmp_path: Path, seconds: int):
    for folder in (tmp_path, Path("/dev/shm")):  # file systems have different limits
        path = folder / f"trapless-times-{os.getpid()}"
        path.write_text("x")
        try:
            os.utime(path, ns=(seconds * 10**9 + 7, seconds * 10**9 + 5))
            wanted = os.stat(path)
            found = [run(lambda files, path=path: files.stat(path))]
            found += libtrapless.stat_files([path])
            for one in found:
                assert one == wanted
                assert one.st_mtime_ns == wanted.st_mtime_ns
                assert one.st_atime_ns == wanted.st_atime_ns
        finally:
            path.unlink()


def test_names_of_other_libraries_are_answered_with_those_of_this_one(tmp_path: Path):
    """Programs that come from os, open() and aiofiles meet these first."""

    async def work(files: Any):
        async with files.open(tmp_path / "new", "w+b") as file:
            for name, remedy in (
                ("seek", "pread"), ("write", "pwrite"), ("readline", "async for"),
                ("readinto", "pread"), ("mode", "$"),
            ):  # fmt: skip
                with pytest.raises(AttributeError, match=f"{name}.*{remedy}"):
                    getattr(file, name)
            with pytest.raises(TypeError, match=r"the whole file: use pread\(5, offset\)"):
                await file.read(5)
            assert (await file.read(-1), file.name) == (b"", tmp_path / "new")
            assert repr(file) == f"<File {tmp_path / 'new'!r}>"
            with pytest.raises(TypeError, match=r"text\.encode"):
                await file.pwrite("text", 0)
            with pytest.raises(OSError, match=r"Invalid argument \(count=-1\)"):
                await file.pread(-1, 0)
            for request in (file.pread(1, -2), file.pwrite(b"", -2)):
                with pytest.raises(OSError, match=r"Invalid argument \(offset=-2\)"):
                    await request
        with pytest.raises(AttributeError, match="follow_symlinks=False"):
            files.lstat("/")
        for name, remedy in (
            ("makedirs", r"asyncio\.to_thread\(os\.makedirs"), ("read_text", "read_file"),
            ("read_bytes", "read_file"), ("write_text", "write_file"), ("is_dir", "use stat"),
            ("touch", "append=True"), ("fsync", "sync=True"), ("rmtree", r"shutil\.rmtree"),
            ("scantree", r"to_thread\(list, libtrapless\.scantree"),
        ):  # fmt: skip
            with pytest.raises(AttributeError, match=f"'{name}': .*{remedy}"):
                getattr(files, name)
        with pytest.raises(AttributeError, match=r"no attribute 'chroot'$"):
            files.chroot("/")
        for kind in (files.open(tmp_path / "new"), files, file, AsyncBatch()):
            with pytest.raises(TypeError, match="use `async with`"), kind:
                pass
        with pytest.raises(TypeError, match="async with"):
            async for _ in files.open(tmp_path / "new"):
                pass
        assert repr(file) == f"<File {tmp_path / 'new'!r}, closed>"
        for mode in ("rt", "q", ""):  # where it is called, and not where it is awaited
            with pytest.raises(ValueError, match=rf"'{mode}'.* for bytes"):
                files.open(tmp_path / "new", mode)
        with (
            pytest.warns(RuntimeWarning, match="never awaited"),
            pytest.raises(AttributeError, match=r"'read': open the file first, `async with"),
        ):
            files.open(tmp_path / "new").read()
        for mode, written in (("a+", b"12"), ("x+b", b"2")):
            path = tmp_path / f"of {mode}"
            path.write_bytes(b"1") if mode == "a+" else None
            async with files.open(path, mode) as file:
                await file.pwrite(b"2", 0)
                assert await file.read() == written

    run(work)
    workers: Any = "4"
    with pytest.raises(TypeError, match=r"workers='4'.*1 to 4096"):
        Files(workers=workers)
    backend: Any = "x"
    with pytest.raises(ValueError, match=r"backend='x': it is Backend\.PLAIN, Backend\.MODULE"):
        Files(backend=backend)


def test_arguments_of_other_functions_are_answered_with_those_of_this_one(tmp_path: Path):
    (tmp_path / "new").touch()

    async def work(files: Any):
        with pytest.raises(TypeError, match=r"mode 5: it is text, such as 'r'"):
            files.open(tmp_path / "new", 5)
        with pytest.raises(TypeError, match="no encoding, errors: its files have bytes only"):
            files.open(tmp_path / "new", encoding="utf-8", errors="strict")
        with pytest.raises(TypeError, match=r"mode='a': it is permissions.*append=True appends"):
            await files.write_file(tmp_path / "new", "x", mode="a")
        for entry in await files.scandir(tmp_path):
            for question in ("is_dir", "is_file", "is_symlink"):
                with pytest.raises(TypeError, match=rf"`if await entry\.{question}\(\):`"):
                    bool(getattr(entry, question)())

    run(work)


def test_files_show_whether_they_are_closed():
    files = Files(workers=3)
    opened, closed = "<Files workers=3>", "<Files workers=3, closed>"

    async def work():
        shown = [repr(files)]
        async with files:
            await files.stat("/")
            shown.append(repr(files))
            shown.append(await asyncio.to_thread(repr, files))
        return [*shown, repr(files)]

    for _ in range(2):  # the next loop begins anew
        assert asyncio.run(work()) == [opened, opened, opened, closed]
        assert repr(files) == closed
    files = Files(workers=3)
    assert repr(files) == opened
    files.close()
    assert repr(files) == closed


@pytest.mark.parametrize("mode", [None, 0o600])
def test_an_error_of_the_new_file_beside_another_says_which_it_is(tmp_path: Path, mode: int | None):
    """/proc/version is there, and /proc takes no new file."""

    async def work(files: Files):
        for path in ("/proc/version", tmp_path / "absent/file"):
            with pytest.raises(FileNotFoundError, match=r"for the new file in the same") as caught:
                await files.write_file(path, b"x", replace=True, mode=mode)
            assert caught.value.filename == path
        with pytest.raises(FileNotFoundError, match="directory: "):
            await files.write_file(tmp_path / "absent/file", b"x", mode=mode)

    run(work)


def test_a_copy_to_the_same_file_is_refused_as_by_shutil(tmp_path: Path):
    one, link, other_name = tmp_path / "one", tmp_path / "link", tmp_path / "other"
    one.write_text("kept")
    link.symlink_to("one")
    os.link(one, other_name)

    async def work(files: Files):
        for target in (one, link, other_name, f"{tmp_path}/./one"):
            with pytest.raises(shutil.SameFileError, match=r"one'\)? and .* are the same file"):
                await files.copy(one, target)
        with pytest.raises(FileNotFoundError, match="absent"):
            await files.copy(tmp_path / "absent", one)

    run(work)
    assert link.is_symlink() and one.stat().st_nlink == 2 and one.read_text() == "kept"


def test_a_file_that_is_forgotten_is_told_of_as_pythons_own(tmp_path: Path):
    (tmp_path / "target").write_bytes(b"")

    async def work(files: Files):
        file = await files.open(tmp_path / "target")
        with pytest.warns(ResourceWarning, match=r"unclosed file .*target"):
            del file
        assert (tmp_path / "target") not in opened_paths()
        file = await files.open(tmp_path / "target")
        await file.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del file

    run(work)


def test_a_package_that_was_not_compiled_says_how(tmp_path: Path):
    source = Path(__file__).resolve().parents[3] / "lib/bindings/python/libtrapless"
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(source, tmp_path / "libtrapless", ignore=left_out)
    refused = subprocess.run(
        [sys.executable, "-c", "import libtrapless.aio"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ModuleNotFoundError: libtrapless was not compiled" in refused.stderr
    assert "`make lib`" in refused.stderr


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (7, 7))", "ulimit -n"),
        ("os.environ['TRAPLESS_BACKEND'] = 'fast'", "auto, plain or module"),
    ],
)
def test_an_engine_that_cannot_be_made_says_what_helps(before: str, said: str):
    program = f"""
import asyncio, os, resource
from libtrapless.aio import Files

async def work():
    {before}
    await Files().stat("/")

asyncio.run(work())
"""
    done = run_python("-c", program)
    assert done.returncode == 1 and said in done.stderr.splitlines()[-1], done.stderr


def test_a_temporary_file_is_named_as_the_page_says_and_goes_after_an_error(tmp_path: Path):
    seen = set()
    (tmp_path / "sub").mkdir()

    async def work(files: Files):
        writes = [
            asyncio.ensure_future(files.write_file(tmp_path / name, bytes(2_000_000), replace=True))
            for name in ("small", "sub", "other")
        ]
        while not all(write.done() for write in writes):
            seen.update(set(os.listdir(tmp_path)) - before)
            await asyncio.sleep(0)
        assert isinstance(writes[1].exception(), IsADirectoryError)

    before = {"small", "sub", "other"}
    for _ in range(50):
        run(work)
    assert seen and all(re.fullmatch(r"\.[0-9a-f]{16}\.tmp", name) for name in seen)
    assert set(os.listdir(tmp_path)) == before
