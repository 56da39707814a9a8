# SPDX-License-Identifier: GPL-2.0-only
"""The engine of libtrapless.aio.Files where other code comes in between: that of a path's
`__fspath__`, of a loop whose functions raise, of a garbage collection, and where memory runs out.

test_python_async_files.py owns what tasks see of requests, loops and threads.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from libtrapless.aio import Files
from tests.packages.async_files.test_python_async_files import open_files
from tests.packages.test_python_ends import python


@pytest.mark.parametrize(
    ("requested", "allocator"),
    [("read_files(['/dev/null', Closes()])", "malloc"), ("stat(Leaves())", "debug")],
)
def test_a_path_whose_code_closes_the_files_is_refused(
    monkeypatch: pytest.MonkeyPatch, requested: str, allocator: str
):
    """Each allocator is the one that notices the use of memory that was freed."""
    monkeypatch.setenv("PYTHONMALLOC", allocator)
    python(
        f"""
        import asyncio
        from libtrapless.aio import Files

        class Closes:
            def __fspath__(self):
                files.close()
                return "/dev/null"

        class Text(bytes):
            def __del__(self):
                files.close()

        class Leaves:
            def __fspath__(self):
                return Text(b"/dev/null")

        files = Files(workers=1)

        async def main():
            await files.stat("/")
            try:
                await files.{requested}
            except (ValueError, asyncio.CancelledError):
                print("refused")

        asyncio.run(main())
        """
    )


def test_a_path_whose_code_asks_for_completions_gets_none(tmp_path: Path):
    class Takes:
        def __fspath__(self) -> str:
            taken.append(files._link().engine.take())
            return os.fspath(tmp_path)

    async def work():
        async with files:
            found = await files.stat_files([Takes() for _ in range(100)])
            assert {status.st_ino for status in found} == {tmp_path.stat().st_ino}

    taken: list[None] = []
    files = Files()
    asyncio.run(work())
    assert taken == [None] * 100


class RefusingLoop(asyncio.SelectorEventLoop):
    """A loop that calls `refuses` first when a callback is to be called soon."""

    refuses: Callable[[], None] = staticmethod(lambda: None)

    def call_soon(self, *args, **options):  # type: ignore[override]
        self.refuses()
        return super().call_soon(*args, **options)


@pytest.mark.parametrize("closes", [False, True])
def test_an_exception_of_the_loop_costs_no_other_task_its_result(tmp_path: Path, closes: bool):
    """The exception is that of a signal handler, which may run in any function of the loop."""
    said: list[BaseException | None] = []

    futures: list[asyncio.Future[os.stat_result]] = []

    def raise_once() -> None:
        if not any(future.done() for future in futures):
            return
        loop.refuses = lambda: None
        if closes:
            files.close()
        raise TimeoutError("from a signal handler")

    async def work():
        link = files._link()
        futures.extend(link.create_future() for _ in range(20))
        for future in futures:
            future.add_done_callback(lambda future: None)
            link.engine.stat(future, tmp_path, 0)
        link.engine.submit()
        time.sleep(0.1)  # all are complete before the loop looks
        loop.refuses = raise_once
        while not all(future.done() for future in futures):
            await asyncio.sleep(0.001)
        assert [type(error) for error in said] == [TimeoutError]
        assert sum(future.cancelled() for future in futures) == (19 if closes else 0)

    files = Files(workers=4)
    loop = RefusingLoop()
    loop.set_exception_handler(lambda _, context: said.append(context.get("exception")))
    loop.run_until_complete(asyncio.wait_for(work(), 300))
    loop.close()


@pytest.mark.parametrize("request_of", ["read_files", "read_file"])
def test_an_engine_whose_tasks_still_wait_as_the_loop_ends_is_collected(
    tmp_path: Path, request_of: str
):
    """Also where the paths are entries of a folder, which lead to the files."""

    async def work(files: Files):
        entries = await files.scandir(tmp_path)
        paths = entries[0] if request_of == "read_file" else entries
        waiting.append(asyncio.create_task(getattr(files, request_of)(paths)))
        await asyncio.sleep(0)

    waiting: list[asyncio.Task[Any]] = []
    for name in range(3):
        (tmp_path / str(name)).write_text("x")
    gc.collect()
    before = len(os.listdir("/proc/self/task")), open_files(tmp_path)
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(work(Files(workers=8)))
        loop.close()
        waiting.clear()
    del loop
    gc.collect()
    limit = time.monotonic() + 300
    while (len(os.listdir("/proc/self/task")), open_files(tmp_path)) > before:
        assert time.monotonic() < limit, "its threads are left"
        time.sleep(0.01)


def test_a_coroutine_that_ends_after_its_loop_ends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """At the interpreter's end coroutines are closed in any order, here the inner one first."""

    async def outer(operation: Coroutine[Any, Any, bytes]) -> bytes:
        return await operation

    os.mkfifo(tmp_path / "pipe")
    notes: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", notes.append)
    files = Files(workers=1)
    loop = asyncio.new_event_loop()
    operation = files.read_file(tmp_path / "pipe")
    task = loop.create_task(outer(operation))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    del task
    operation.close()
    assert not notes
    os.close(os.open(tmp_path / "pipe", os.O_RDWR))
    files.close()


def test_a_file_too_large_for_memory_ends_the_reading_of_many(tmp_path: Path):
    """The limit grows until the file is read. With some limits there is memory for the operation,
    and none for the object of Python."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(48 << 20)
    said = python(
        f"""
        import asyncio, resource
        from libtrapless.aio import Files

        def size():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[0]) * resource.getpagesize()

        async def main():
            async with Files(workers=1) as files:
                await files.stat("/")
                begun = size()
                for megabytes in range(16, 1024, 16):
                    limit = begun + (megabytes << 20)
                    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
                    paths = [{str(tmp_path / "large")!r}]
                    try:
                        contents = await asyncio.wait_for(files.read_files(paths), 120)
                    except MemoryError:
                        print("MemoryError")
                    else:
                        print(type(contents[0]).__name__)
                        if isinstance(contents[0], bytes):
                            return

        asyncio.run(main())
        """
    )
    assert said.stdout.split()[-1] == "bytes"
    assert "MemoryError" in said.stdout.split()


def test_files_that_a_thread_without_a_loop_closes_end_in_the_thread_of_their_loop(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    files, said = Files(), []
    begun = threading.Event()

    async def work():
        task = asyncio.create_task(files.read_file(tmp_path / "fifo"))
        await asyncio.sleep(0)
        begun.set()
        await asyncio.wait([task])
        said.append(task.cancelled())
        with pytest.raises(ValueError, match="closed"):
            await files.stat(tmp_path)

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    assert begun.wait(300)
    time.sleep(0.1)  # its loop sleeps
    files.close()
    thread.join(300)
    assert said == [True]
