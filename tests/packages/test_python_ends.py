# SPDX-License-Identifier: GPL-2.0-only
"""libtrapless for Python where something ends: the interpreter, a program that waits, or, in the
child of a fork, everything that it has inherited.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from libtrapless import Batch
from libtrapless.aio import AsyncBatch
from tests.packages.conftest import WITH_BINDING, run_python

LIMIT_S = 600
"""For what hangs."""


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def python(program: str, *arguments: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess:
    words = ("-X", "dev", "-c", textwrap.dedent(program), *arguments)
    done = run_python(*words, limit_s=limit_s)
    assert done.returncode == 0, (done.returncode, done.stdout + done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return done


USE = """
import asyncio, atexit, os, sys, threading, time
from libtrapless import Batch
from libtrapless.aio import AsyncBatch

def use(batch):
    parent = batch.add("getppid")
    assert batch.flush() == 1 and parent.result() == os.getppid()
    os.write(1, b"used\\n")
"""


def test_a_batch_may_be_used_when_the_interpreter_ends():
    said = python(
        USE
        + """
atexit.register(lambda: use(batch))
batch = Batch(8)
class Log:
    def __init__(self):
        self.batch = Batch(8)
    def __del__(self):
        use(self.batch)
log, ring = Log(), [Log()]
ring.append(ring)
"""
    )
    assert said.stdout == "used\n" * 3


def test_an_event_loops_batch_may_be_closed_when_the_interpreter_ends():
    python(
        USE
        + """
async def main(batch):
    batch.add("getppid")
    await batch.flush()
one, other, third = AsyncBatch(8), AsyncBatch(8), AsyncBatch(8)
asyncio.run(main(one))
atexit.register(one.close)
atexit.register(other.close)
asyncio.run(main(third))
"""
    )


def test_threads_that_flush_for_ever_do_not_hold_up_the_end():
    program = (
        USE
        + """
def busy(batch, zero, buffer):
    while True:
        for _ in range(16):
            batch.read(zero, buffer)
        batch.flush()
batches = [Batch(16) for _ in range(3)]
zero = os.open("/dev/zero", 0)
for batch in batches:
    threading.Thread(target=busy, args=(batch, zero, bytearray(1 << 20)), daemon=True).start()
time.sleep(0.1)
"""
    )
    for _ in range(5):
        python(program)


@pytest.mark.parametrize("ending", ["batch.close()", "pass", "batch = None; gc.collect()"])
def test_a_call_that_blocks_does_not_hold_up_the_end(ending):
    python(
        USE
        + f"""
import gc
end, buffer = os.pipe()[0], bytearray(8)
batch = AsyncBatch(8)
async def main():
    batch.read(end, buffer)
    try:
        await asyncio.wait_for(batch.flush(), 0.1)
    except TimeoutError:
        pass
asyncio.run(main())
{ending}
"""
    )


def test_one_interrupt_ends_a_program_whose_call_blocks():
    program = (
        USE
        + """
async def main():
    async with AsyncBatch(8) as batch:
        batch.read(os.pipe()[0], bytearray(8))
        print("waits", flush=True)
        await batch.flush()
asyncio.run(main())
"""
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(
        words, env=os.environ | WITH_BINDING, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout.readline() == b"waits\n"
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=LIMIT_S)[1]
    assert running.returncode == -signal.SIGINT and b"KeyboardInterrupt" in said


def child_of_a_fork(action) -> int:
    """The status of a child that does it; it is ended where it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S // 10)
        status = 9
        try:
            status = action()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("flushed", [False, True])
def test_in_a_child_everything_about_an_event_loops_batch_says_so_at_once(flushed, pipe):
    async def flush(batch):
        return await batch.flush()

    async def leave(batch):
        async with batch:
            pass

    def use() -> int:
        seen = 0
        for action in (
            lambda: asyncio.run(flush(batch)), lambda: batch.add("getppid"), lambda: len(batch),
            lambda: batch.backend, lambda: batch.stats, lambda: batch.at,
        ):  # fmt: skip
            try:
                action()
            except OSError:
                seen += 1
        asyncio.run(leave(batch))
        batch.close()
        return 0 if seen == 6 and batch.closed else 1

    batch = AsyncBatch(8)
    read = batch.read(pipe[0], bytearray(8))
    if flushed:
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(batch.flush(), 0.05))
    assert child_of_a_fork(use) == 0
    os.write(pipe[1], b"abc")
    asyncio.run(flush(batch))
    assert read.value == 3
    batch.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_makes_batches_of_its_own():
    inherited = Batch(8)
    left = inherited.add("getppid")

    def use() -> int:
        inherited.close()
        with Batch(8) as own:
            call = own.add("getpid")
            return 0 if own.flush() == 1 and call.value == os.getpid() else 1

    assert child_of_a_fork(use) == 0
    assert inherited.flush() == 1 and left.value == os.getppid()
    inherited.close()
