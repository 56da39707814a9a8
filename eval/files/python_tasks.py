# SPDX-License-Identifier: GPL-2.0-only
"""The workload of experiment files in Python: the same work by each way, a row of JSON each.

It runs on its own, in a guest or on this machine, with the library for Python in PYTHONPATH. It
owns the ways and the checks. Counted: nanoseconds of a guest's clock that advances by one an
instruction. Measured: CPU time of all threads of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from libtrapless import Backend, Batch, read_files, stat_files
from libtrapless.aio import Files

aiofiles: Any
try:
    aiofiles = importlib.import_module("aiofiles")
    importlib.import_module("aiofiles.os")
except ImportError:
    aiofiles = None

TASKS = 64
BYTES = 3000
IN_A_BATCH = 32
FOLDER_FILES = 50
POOL_THREADS = 4  # as many as libuv has; asyncio's own number depends on the machine

One = Callable[[str], Awaitable[int]]
"""What a task does with a path; it returns the number of bytes."""


def plain_read(path: str) -> int:
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, 65536)
    os.close(fd)
    return len(data)


def whole_read(path: str) -> int:
    with open(path, "rb") as file:
        return len(file.read())


def plain_stat(path: str) -> int:
    return os.stat(path).st_size


def lengths(files: Sequence[bytes | OSError]) -> int:
    """The bytes of all files. A file that could not be read has none, which a check notices."""
    return sum(len(data) for data in files if isinstance(data, bytes))


def sizes(files: Sequence[os.stat_result | OSError]) -> int:
    return sum(status.st_size for status in files if isinstance(status, os.stat_result))


async def by_tasks(one: One, paths: Sequence[str]) -> int:
    """TASKS tasks take the next path until there is none."""
    rest = iter(paths)

    async def task() -> int:
        return sum([await one(path) for path in rest])

    return sum(await asyncio.gather(*(task() for _ in range(TASKS))))


def of_pool(function: Callable[[str], int]) -> One:
    return lambda path: asyncio.to_thread(function, path)


async def read_by_calls(path: str) -> int:
    fd = await asyncio.to_thread(os.open, path, os.O_RDONLY)
    data = await asyncio.to_thread(os.read, fd, 65536)
    await asyncio.to_thread(os.close, fd)
    return len(data)


async def read_by_aiofiles(path: str) -> int:
    async with aiofiles.open(path, "rb") as file:
        return len(await file.read())


async def stat_by_aiofiles(path: str) -> int:
    return int((await aiofiles.os.stat(path)).st_size)


def of_files(files: Files) -> dict[str, One]:
    async def read(path: str) -> int:
        return len(await files.read_file(path))

    async def stat(path: str) -> int:
        return (await files.stat(path)).st_size

    return {"read": read, "stat": stat}


class Batched:
    """The calls of 32 files by one crossing, or none where there is no module."""

    def __init__(self, backend: Backend | None) -> None:
        self.batch = Batch(4 * IN_A_BATCH, backend=backend)
        self.buffers = [bytearray(65536) for _ in range(IN_A_BATCH)]

    def read(self, paths: Sequence[str]) -> int:
        batch, size = self.batch, 0
        for at in range(0, len(paths), IN_A_BATCH):
            reads = []
            for path, buffer in zip(paths[at : at + IN_A_BATCH], self.buffers, strict=False):
                file = batch.openat(path)
                reads.append(batch.read(file, buffer))
                batch.close_file(file)
            batch.flush()
            size += sum(read.result() for read in reads)
        return size

    def getppid(self, paths: Sequence[str]) -> int:
        batch = self.batch
        for _ in range(0, len(paths), IN_A_BATCH):
            calls = [batch.add("getppid") for _ in range(IN_A_BATCH)]
            batch.flush()
            for call in calls:
                call.result()
        return len(paths)


def getppid(paths: Sequence[str]) -> int:
    for _ in paths:
        os.getppid()
    return len(paths)


Way = Callable[[Sequence[str]], int | Coroutine[Any, Any, int]]


def ways(backends: Sequence[tuple[str, Backend]]) -> dict[tuple[str, str], Way]:
    """(call, mechanism) -> the way, which takes all paths."""
    tasks: dict[tuple[str, str], One] = {
        ("read", "pool"): of_pool(whole_read),
        ("read", "pool-calls"): read_by_calls,
        ("stat", "pool"): of_pool(plain_stat),
    }
    if aiofiles:
        tasks |= {("read", "aiofiles"): read_by_aiofiles, ("stat", "aiofiles"): stat_by_aiofiles}
    found: dict[tuple[str, str], Way] = {
        ("read", "os"): lambda paths: sum(map(plain_read, paths)),
        ("stat", "os"): lambda paths: sum(map(plain_stat, paths)),
        ("getppid", "os"): getppid,
    }
    for suffix, backend in backends:
        files, batched = Files(backend=backend), Batched(backend)
        tasks |= {(call, f"files{suffix}"): one for call, one in of_files(files).items()}
        found |= {
            ("read", f"read_files{suffix}"): many(files),
            ("read", f"batch{suffix}"): batched.read,
            ("getppid", f"batch{suffix}"): batched.getppid,
        }
    found |= {
        ("read", "many"): lambda paths: lengths(read_files(paths)),
        ("stat", "many"): lambda paths: sizes(stat_files(paths)),
    }
    for key, one in tasks.items():
        found[key] = partial(by_tasks, one)
    return found


def many(files: Files) -> Way:
    async def way(paths: Sequence[str]) -> int:
        return lengths(await files.read_files(paths))

    return way


def make_tree(directory: Path, count: int) -> list[str]:
    paths = []
    for number in range(count):
        folder = directory / str(number // FOLDER_FILES)
        folder.mkdir(exist_ok=True)
        path = folder / f"file-{number}"
        path.write_bytes(b"a" * BYTES)
        paths.append(str(path))
    return paths


async def run(options: argparse.Namespace, paths: Sequence[str]) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(POOL_THREADS))
    counted = options.kind == "counted"
    clock = time.perf_counter_ns if counted else time.process_time_ns
    backends = [("", Backend.MODULE)] if counted else []
    found = ways([*backends, ("-plain", Backend.PLAIN)])
    order = list(found)
    for repeat in range(-1, options.repeats):
        if not counted:
            random.shuffle(order)
        for call, mechanism in order:
            begin = clock()
            size = found[call, mechanism](paths)
            if not isinstance(size, int):
                size = await size
            value = clock() - begin
            wanted = len(paths) * (1 if call == "getppid" else BYTES)
            if size != wanted:
                print(json.dumps({"failure": f"{call} by {mechanism}: {size}, not {wanted}"}))
                sys.exit(1)
            if repeat >= 0:  # the first is to warm up
                row = {
                    "kind": options.kind,
                    "call": f"python-{call}",
                    "mechanism": mechanism,
                    "unit": "instructions" if counted else "cpu-ns",
                    "value": value,
                    "ops": len(paths),
                    "n": TASKS,
                    "repeat": repeat,
                }
                print(json.dumps(row))
        print(json.dumps({"progress": repeat + 2, "total": options.repeats + 1}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("counted", "measured"), default="measured")
    parser.add_argument("--files", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("/tmp"))
    parser.add_argument("--modules", action="store_true", help="print which files this needs")
    options = parser.parse_args()
    if options.modules:
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        print(json.dumps(sorted(str(Path(file).resolve()) for file in files if file)))
        return
    random.seed(1)
    asyncio.run(run(options, make_tree(options.directory, options.files)))
    print(json.dumps({"complete": True}))


if __name__ == "__main__":
    main()
