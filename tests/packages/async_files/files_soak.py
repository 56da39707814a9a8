# SPDX-License-Identifier: GPL-2.0-only
"""Asynchronous files under everything at once, natively: 10,000 tasks of Python a pass, of which
many are cancelled at random, while loops are closed, processes fork and callbacks raise; and beside
it the engine's own program under AddressSanitizer. `make soak` runs both for minutes.

Owns what is random in a pass, and the check that no thread and no descriptor is left. A pass that
hangs ends with the stacks of its threads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from libtrapless.aio import Files

ROOT = Path(__file__).resolve().parents[3]
SANITIZED = ROOT / "build/sanitized/tests/unit/lib_files_end_at_random"
BINDING = ROOT / "lib/bindings/python"
LARGE = bytes(range(256)) * 1200
ROUNDS, TASKS = 10, 1000
HANG_S = 600


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Pass:
    """One pass: rounds with a loop each, in one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        (folder / "small").write_bytes(b"hello")
        (folder / "large").write_bytes(LARGE)
        os.mkfifo(folder / "fifo")

    def operation(self, files: Files) -> Awaitable[Any]:
        small, large = self.folder / "small", self.folder / "large"

        async def opened() -> None:
            async with await files.open(large) as file:
                assert await file.pread(10, 256) == LARGE[:10]

        async def read(path: Path, wanted: bytes) -> None:
            assert await files.read_file(path) == wanted

        async def absent() -> None:
            with contextlib.suppress(FileNotFoundError):
                await files.read_file(self.folder / "absent")
                raise AssertionError("an absent file was read")

        async def many() -> None:
            assert await files.read_files([small] * 100) == [b"hello"] * 100

        choices: list[Callable[[], Awaitable[Any]]] = [
            lambda: read(small, b"hello"),
            lambda: read(large, LARGE),
            absent,
            many,
            opened,
            lambda: files.stat(small),
            lambda: files.stat_files([small, large] * 50),
            lambda: files.scandir(self.folder),
            lambda: files.write_file(self.folder / "new", LARGE, replace=True),
        ]
        if self.chance.random() < 0.002:
            return files.read_file(self.folder / "fifo")  # blocks until the round is over
        return self.chance.choice(choices)()

    def fork(self) -> None:
        child = os.fork()
        if not child:
            status = 1
            try:
                asyncio.events._set_running_loop(None)  # the child's own loop is a new one
                text = asyncio.run(Files(workers=2).read_file(self.folder / "small"))
                status = int(text != b"hello")
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0

    async def work(self, files: Files, tasks: list[asyncio.Task[Any]], cancels: float) -> None:
        """Begins tasks and cancels some; their callbacks raise now and then."""

        def raises(_: object) -> None:
            raise ZeroDivisionError

        async def of(operation: Awaitable[Any]) -> Any:
            return await operation

        for number in range(TASKS):
            task = asyncio.ensure_future(of(self.operation(files)))
            tasks.append(task)
            if self.chance.random() < 0.05:
                task.add_done_callback(raises)
            if self.chance.random() < cancels:
                self.chance.choice(tasks).cancel()
            if self.chance.random() < 0.02:
                await asyncio.sleep(self.chance.choice((0, 0, 0.001)))
            if number == TASKS // 2 and self.chance.random() < 0.3:
                self.fork()

    def round(self, files: Files) -> None:
        tasks: list[asyncio.Task[Any]] = []
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(self.handle)
        cancels = self.chance.choice((0, 0.05, 0.3))
        loop.run_until_complete(self.work(files, tasks, cancels))
        end = self.chance.choice(("all", "cancel", "close", "loop"))
        if end == "cancel":
            for task in tasks:
                task.cancel()
        if end == "close":
            loop.run_until_complete(self.close(files))
        if end != "loop":  # there, tasks that wait stay where they are
            loop.run_until_complete(self.all(tasks))
        loop.close()

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if loop.is_closed():  # errors that abandoned tasks did not take
            return
        if error is not None and not isinstance(error, ZeroDivisionError):
            raise SystemExit(f"an exception reached the loop: {error!r}")

    async def all(self, tasks: list[asyncio.Task[Any]]) -> None:
        while not all(task.done() for task in tasks):
            self.release()
            await asyncio.wait(tasks, timeout=0.01)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise error

    @staticmethod
    async def close(files: Files) -> None:
        files.close()

    def release(self) -> bool:
        """Ends calls that block in opening the pipe. Returns whether there was one."""
        try:
            os.close(os.open(self.folder / "fifo", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def run(self) -> None:
        few = (threads(), descriptors())
        for _ in range(ROUNDS):
            files = Files(workers=self.chance.choice((1, 4, 64)))
            self.round(files)
            files.close()
            del files
            gc.collect()
            begin = time.monotonic()
            while (threads(), descriptors()) != few:
                self.release()
                time.sleep(0.001)
                if time.monotonic() - begin > HANG_S:
                    raise SystemExit(f"{threads()} threads, {descriptors()} descriptors, not {few}")
            left = sorted(os.listdir(self.folder))
            assert set(left) <= {"fifo", "large", "new", "small"}, left


def at_random(seed: int, folder: Path) -> None:
    """One pass, and the interpreter's end while operations are under way."""
    logging.disable()  # asyncio tells of tasks that a closed loop has left
    warnings.simplefilter("ignore")  # and so do coroutines that never began
    faulthandler.dump_traceback_later(2 * HANG_S, exit=True)
    one = Pass(folder, seed)
    one.run()
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[Any]] = []
    loop.run_until_complete(one.work(Files(), tasks, 0.1))
    print("ends", flush=True)
    sys.exit()


def one_pass(seed: int) -> str:
    """Makes a pass in an interpreter of its own. Returns what was wrong."""
    with tempfile.TemporaryDirectory(prefix="trapless-soak-") as folder:
        command = [sys.executable, __file__, "--seed", str(seed), "--folder", folder]
        environment = os.environ | {"PYTHONPATH": str(BINDING)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or done.stdout != "ends\n":
        return f"seed {seed}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return ""


def soak(minutes: float) -> int:
    end = time.monotonic() + 60 * minutes
    seed = int(time.time())
    environment = os.environ | {"TL_SOAK_S": str(round(60 * minutes))}
    passes = 0
    with subprocess.Popen([SANITIZED], env=environment) as engine:
        while time.monotonic() < end and not engine.poll():
            wrong = one_pass(seed + passes)
            if wrong:
                engine.kill()
                print(wrong)
                return 1
            passes += 1
    print(
        f"files, natively: {passes * (ROUNDS + 1) * TASKS:,} tasks of Python in {passes} passes; "
        f"the engine under AddressSanitizer ended with status {engine.returncode}"
    )
    return engine.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, help="make one pass with this seed, and no more")
    parser.add_argument("--folder", type=Path, help="an empty folder for that pass")
    options = parser.parse_args()
    if options.seed is None:
        return soak(options.minutes)
    at_random(options.seed, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
