# SPDX-License-Identifier: GPL-2.0-only
"""libtrapless.aio.Files: what tasks see, against what os says of the same files.

tests/unit/lib/backends asserts what the engine does; this file owns loops, tasks that are
cancelled, forks and the end of the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import gc
import io
import os
import random
import termios
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

from libtrapless import Backend, Batch
from libtrapless.aio import Files
from tests import descriptors
from tests.packages.conftest import run_python

LARGE = bytes(range(256)) * 1200  # more than one request reads


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "large").write_bytes(LARGE)
    (tmp_path / "link").symlink_to("small")
    (tmp_path / "sub/below").mkdir(parents=True)
    (tmp_path / "sub/file").write_text("x")
    (tmp_path / "sub/loop").symlink_to("..")
    return tmp_path


def opened_paths() -> list[Path]:
    return [Path(link) for link in descriptors.of(".*")]


def open_files(folder: Path) -> int:
    """How many pipes, which engines have, and files of the folder are open here."""
    return len(descriptors.of(rf"pipe:.*|{folder}.*"))


def run(coroutine_of):
    async def main():
        async with Files() as files:
            return await coroutine_of(files)

    return asyncio.run(main())


def test_files_are_read_and_written_whole(folder: Path):
    async def work(files: Files):
        for name in ("small", "empty", "large", "link"):
            assert await files.read_file(folder / name) == (folder / name).read_bytes()
        assert (await files.read_file("/proc/version")).startswith(b"Linux")
        for options in ({}, {"replace": True}, {"sync": True}, {"replace": True, "sync": True}):
            for data in ("grüße", b"", LARGE, bytearray(b"xyz"), memoryview(LARGE)[::1]):
                wanted = data.encode() if isinstance(data, str) else bytes(data)
                assert await files.write_file(folder / "new", data, **options) == len(wanted)
                assert (folder / "new").read_bytes() == wanted
        await files.write_file(os.fsencode(folder / "new"), b"more", append=True)
        assert (folder / "new").read_bytes() == LARGE + b"more"
        assert await files.copy(folder / "small", folder / "copy") == 5
        assert (folder / "copy").read_text() == "hello"
        await files.write_file(folder / "private", "x", mode=0o600)
        assert (folder / "private").stat().st_mode & 0o777 == 0o600

    run(work)


def test_attributes_and_folders_are_those_of_os(folder: Path):
    async def work(files: Files):
        assert await files.stat(folder / "link") == os.stat(folder / "small")
        assert await files.stat(folder / "link", follow_symlinks=False) == os.lstat(folder / "link")
        entries = {entry.name: entry for entry in await files.scandir(folder)}
        assert entries.keys() == set(os.listdir(folder))
        for wanted in os.scandir(folder):
            entry = entries[wanted.name]
            assert os.fspath(entry) == os.fspath(wanted)
            assert await entry.is_dir() == wanted.is_dir()
            assert await entry.is_file() == wanted.is_file()
            assert await entry.is_symlink() == wanted.is_symlink()
            for question in (entry.is_dir, entry.is_file, entry.is_symlink):
                with pytest.raises(TypeError, match="must be awaited"):
                    assert question()
            assert await entry.stat(follow_symlinks=False) == wanted.stat(follow_symlinks=False)
        tops: tuple[Any, ...] = (folder, os.fspath(folder), os.fsencode(folder))
        for top in tops:
            walked = [(path, sorted(a), sorted(b)) async for path, a, b in files.walk(top)]
            plain = [(path, sorted(a), sorted(b)) for path, a, b in os.walk(top)]
            assert sorted(walked) == sorted(plain)
        in_bytes = os.fsencode(folder)
        names = sorted((entry.name, entry.path) for entry in await files.scandir(in_bytes))
        assert names == sorted((entry.name, entry.path) for entry in os.scandir(in_bytes))

    run(work)


def test_a_replacement_keeps_the_permissions_unless_a_mode_is_given(folder: Path):
    async def work(files: Files):
        path = folder / "kept"
        for mode in (0o600, 0o664, 0o777, 0o444):  # also bits that the umask would take
            path.write_text("old")
            path.chmod(mode)
            await files.write_file(path, "new", replace=True)
            assert (path.read_text(), path.stat().st_mode & 0o7777) == ("new", mode)
            await files.copy(path, folder / "copy")
            assert (folder / "copy").stat().st_mode & 0o7777 == mode
            path.unlink()
        await files.write_file(path, "new", replace=True)
        assert path.stat().st_mode & 0o7777 == 0o644
        await files.write_file(path, "new", replace=True, mode=0o660)
        assert path.stat().st_mode & 0o7777 == 0o640
        await files.write_file(folder / "link", "new", replace=True)
        assert not (folder / "link").is_symlink()
        assert (folder / "small").read_text() == "hello"

    before = os.umask(0o022)
    try:
        run(work)
    finally:
        os.umask(before)


def test_arguments_that_contradict_or_are_out_of_bounds_are_refused(folder: Path):
    async def work(files: Files):
        with pytest.raises(ValueError, match="append and replace"):
            await files.write_file(folder / "small", b"x", append=True, replace=True)
        assert (folder / "small").read_text() == "hello"
        for one in (str(folder / "small"), os.fsencode(folder / "small"), folder / "small"):
            with pytest.raises(TypeError, match="a list of paths"):
                await files.read_files(one)
            with pytest.raises(TypeError, match="a list of paths"):
                await files.stat_files(one)
        async with files.open(folder / "small") as file:
            for count, offset in ((-5, 0), (5, -1), (0, -1)):
                with pytest.raises(OSError, match="Invalid argument") as caught:
                    await file.pread(count, offset)
                with pytest.raises(OSError, match="Invalid argument") as of_os:
                    os.pread(file.fileno(), count, offset)
                assert caught.value.errno == of_os.value.errno
            assert await file.pread(0, 0) == b""
            for refused in (file.pwrite(b"", 0), file.truncate(0)):
                with pytest.raises(io.UnsupportedOperation, match=r"for writing \(mode 'r'\)"):
                    await refused
        async with files.open(folder / "small", "ab") as file:
            with pytest.raises(io.UnsupportedOperation, match=r"for reading \(mode 'ab'\).*small"):
                await file.read()
        with pytest.raises(ValueError, match="closed"):
            await file.pread(0, 0)
        with pytest.raises(ValueError, match="closed"):
            await file.pwrite(b"", 0)

    run(work)
    for workers in (0, -1, 4097):
        with pytest.raises(ValueError, match=rf"workers={workers}: it is 1 to 4096"):
            Files(workers=workers)


@pytest.mark.skipif(os.path.exists("/dev/trapless"), reason="the module is loaded")
def test_a_module_that_is_not_loaded_is_named():
    """At once, and not as a file of the program's that is absent."""
    said = r"the module is not loaded \(/dev/trapless is missing\): load it, or .*backend=None"
    for kind in (Batch, Files):
        with pytest.raises(OSError, match=said) as caught:
            kind(backend=Backend.MODULE)
        assert (type(caught.value), caught.value.errno) == (OSError, errno.ENODEV)


def test_a_file_opens_with_one_word_or_two(folder: Path):
    async def work(files: Files):
        async with files.open(folder / "small") as file:
            assert await file.read() == b"hello"
        with pytest.raises(ValueError, match="closed"):
            file.fileno()
        async with await files.open(folder / "small") as file:
            assert await file.read() == b"hello"
        file = await asyncio.create_task(files.open(folder / "small"))
        await file.close()
        with pytest.raises(FileNotFoundError, match="absent"):
            async with files.open(folder / "absent"):
                pass
        task = asyncio.create_task(files.open(folder / "fifo"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    os.mkfifo(folder / "fifo")
    run(work)
    assert (folder / "small") not in opened_paths()


def test_a_request_that_has_begun_is_made_although_its_task_is_cancelled(folder: Path):
    """The calls that follow are made, too: both reads take what a writer gives."""
    os.mkfifo(folder / "fifo")

    async def opened_for_writing() -> int:
        while True:
            with contextlib.suppress(OSError):  # ENXIO: the reader has not come yet
                return os.open(folder / "fifo", os.O_WRONLY | os.O_NONBLOCK)
            await asyncio.sleep(0.001)

    async def work(files: Files):
        task = asyncio.create_task(files.read_file(folder / "fifo"))
        writer = await opened_for_writing()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(2):
            os.write(writer, b"lost")
            waiting = bytearray(b"full")
            while any(waiting):
                fcntl.ioctl(writer, termios.FIONREAD, waiting)
                await asyncio.sleep(0.001)
        os.close(writer)

    run(work)


def test_closed_files_take_no_request(folder: Path):
    files = Files()

    async def work():
        async with files:
            assert await files.read_file(folder / "small") == b"hello"
            file = await files.open(folder / "small")
        for request in (files.read_file(folder / "small"), files.stat_files([folder])):
            with pytest.raises(ValueError, match="the files are closed: `async with` opens them"):
                await request
        await file.close()
        assert (folder / "small") not in opened_paths()

    for _ in range(2):  # the next loop begins anew
        asyncio.run(work())
    files.close()

    async def later():
        await files.stat(folder)

    with pytest.raises(ValueError, match="the files are closed"):
        asyncio.run(later())


def test_an_open_file_is_shared_by_tasks(folder: Path):
    async def work(files: Files):
        async with await files.open(folder / "large", "r+") as file:
            parts = await asyncio.gather(*(file.pread(1000, i * 1000) for i in range(300)))
            assert b"".join(parts) == LARGE[:300_000]
            assert await file.pread(10**6, 100) == LARGE[100:]
            assert await file.pwrite(LARGE, 10) == len(LARGE)
            await file.truncate(20)
            await file.fsync()
            assert await file.read() == LARGE[:10] + LARGE[:10]
            assert (await file.stat()).st_size == 20
        with pytest.raises(ValueError, match="closed"):
            await file.pread(1, 0)
        text = b"a\nb\r\nc\rd\n" + b"e" * 70_000 + b"\n\nlast"
        (folder / "lines").write_bytes(text)
        async with await files.open(folder / "lines") as file:
            assert [line async for line in file] == list((folder / "lines").open("rb"))

    run(work)


def test_errors_name_the_path_and_lead_to_the_line(folder: Path):
    async def asker(files: Files):
        await files.read_file(folder / "absent")

    async def work(files: Files):
        with pytest.raises(FileNotFoundError) as caught:
            await asker(files)
        assert caught.value.filename == folder / "absent"
        assert "asker" in "".join(traceback.format_exception(caught.value))
        with pytest.raises(FileNotFoundError) as caught:
            await files.rename("absent", "other")
        assert str(caught.value).endswith("'absent' -> 'other'")
        for call, error in (
            (files.stat(folder / "absent"), FileNotFoundError),
            (files.scandir(folder / "small"), NotADirectoryError),
            (files.read_file(folder), IsADirectoryError),
            (files.mkdir(folder / "sub"), FileExistsError),
            (files.unlink(folder / "absent"), FileNotFoundError),
            (files.rename(folder / "absent", folder / "x"), FileNotFoundError),
            (files.write_file(folder / "sub", "x", replace=True), IsADirectoryError),
            (files.open(folder / "small", "x"), FileExistsError),
            (files.read_file("nul\0"), ValueError),
            (files.read_file(17), TypeError),
        ):
            with pytest.raises(error):
                await call
        assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]

    run(work)


def test_many_files_come_in_their_order(folder: Path):
    async def work(files: Files):
        names = [folder / ("absent" if i % 5 == 3 else "small") for i in range(1000)]
        contents = await files.read_files(names)
        found = await files.stat_files(names)
        for i, name in enumerate(names):
            if i % 5 == 3:
                assert isinstance(contents[i], FileNotFoundError)
                assert contents[i].filename == name
                assert isinstance(found[i], FileNotFoundError)
            else:
                assert contents[i] == b"hello"
                assert found[i].st_size == 5

    run(work)


def test_tasks_that_are_cancelled_cost_no_other_one_its_result(folder: Path):
    async def work(files: Files):
        chance = random.Random(7)
        tasks = [asyncio.create_task(files.read_file(folder / "large")) for _ in range(2000)]
        while not all(task.done() for task in tasks):
            for task in chance.sample(tasks, 50):
                task.cancel()
            await asyncio.sleep(0.001)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) or one == LARGE for one in results)
        assert await files.read_file(folder / "small") == b"hello"

    before = open_files(folder)
    run(work)
    assert open_files(folder) == before


def test_a_cancelled_task_whose_call_is_complete_cancels_no_other_call(folder: Path):
    async def work(files: Files):
        link = files._link()
        first = link.create_future()
        number = link.engine.stat(first, folder, 0)
        await first
        second = asyncio.create_task(files.stat(folder))  # in the place of the first
        await asyncio.sleep(0)
        link.engine.cancel(number, first)
        assert (await second).st_ino == folder.stat().st_ino

    run(work)


def test_no_descriptor_of_a_cancelled_open_is_left(folder: Path):
    async def work(files: Files):
        for turns in range(60):
            task = asyncio.create_task(files.open(folder / "small"))
            for _ in range(turns % 6):
                await asyncio.sleep(0)
            if turns % 2:
                while (folder / "small") not in opened_paths():
                    await asyncio.sleep(0)
            task.cancel()
            for one in await asyncio.gather(task, return_exceptions=True):
                if not isinstance(one, asyncio.CancelledError):
                    await one.close()
        await files.stat(folder)

    before = open_files(folder)
    run(work)
    assert open_files(folder) == before


def test_tasks_that_wait_as_files_close_are_cancelled(folder: Path):
    os.mkfifo(folder / "fifo")

    async def work():
        files = Files()
        one = asyncio.create_task(files.read_file(folder / "fifo"))
        many = asyncio.create_task(files.read_files([folder / "fifo"] * 100))
        await asyncio.sleep(0.1)
        files.close()
        results = await asyncio.gather(one, many, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2
        async with files:  # begins anew
            assert await files.read_file(folder / "small") == b"hello"

    asyncio.run(work())


def test_an_engine_ends_when_its_loop_is_closed_and_another_one_comes(folder: Path):
    files = Files()

    async def work():
        assert await files.read_file(folder / "small") == b"hello"
        return open_files(folder), len(os.listdir("/proc/self/task"))

    asyncio.run(work())
    few = asyncio.run(work())
    for _ in range(3):
        asyncio.run(work())
    while (left := asyncio.run(work())) > few:  # threads end after their engine
        time.sleep(0.01)
    assert left <= few
    files.close()


def test_a_file_whose_loop_is_closed_is_closed(folder: Path):
    async def opens(files: Files):
        async with await files.open(folder / "small"):
            await asyncio.Event().wait()

    before = open_files(folder)
    files, loop = Files(), asyncio.new_event_loop()
    task = loop.create_task(opens(files))
    while (folder / "small") not in opened_paths():
        loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    files.close()
    del task
    gc.collect()
    assert (folder / "small") not in opened_paths()
    while open_files(folder) > before:
        time.sleep(0.01)


def test_one_object_serves_loops_in_threads_one_after_the_other_and_at_once(folder: Path):
    files = Files()

    async def work():
        texts = await asyncio.gather(*(files.read_file(folder / "small") for _ in range(100)))
        assert texts == [b"hello"] * 100

    for _ in range(2):
        asyncio.run(work())
    failures: list[BaseException] = []

    def guarded():
        try:
            asyncio.run(work())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    files.close()
    gc.collect()


def test_a_call_that_blocks_delays_neither_others_nor_the_end(folder: Path):
    os.mkfifo(folder / "fifo")
    program = f"""
import asyncio, os
from libtrapless.aio import Files
files = Files()
async def main():
    blocked = [asyncio.create_task(files.read_file({str(folder / "fifo")!r})) for _ in range(8)]
    await asyncio.sleep(0.1)
    for _ in range(100):
        assert await files.read_file({str(folder / "small")!r}) == b"hello"
    print("quick")
    for task in blocked:
        task.cancel()
asyncio.run(main())
print("end")
"""
    done = run_python("-c", program)
    assert (done.returncode, done.stdout) == (0, "quick\nend\n"), done.stderr


def test_the_child_of_a_fork_has_engines_of_its_own(folder: Path):
    files = Files()

    async def work():
        return await files.read_file(folder / "small")

    async def forks():
        await work()
        return os.fork()

    child = asyncio.run(forks())
    if not child:
        status = 1
        try:
            status = int(asyncio.run(work()) != b"hello")
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(work()) == b"hello"
