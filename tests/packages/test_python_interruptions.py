# SPDX-License-Identifier: GPL-2.0-only
"""libtrapless for Python where something comes in between: handlers that raise or use the batch,
tasks that are cancelled. test_python_ends.py has forks and the end of the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import random
import signal
import threading
import time

import pytest

from libtrapless import Batch, Condition, Stat, Word
from libtrapless.aio import AsyncBatch
from tests import descriptors

LIMIT_S = 600
"""For what hangs."""


class Interruption(Exception):  # noqa: N818
    pass


class Alarm:
    """Raises Interruption once, after a while, inside the action and nowhere else."""

    def __init__(self) -> None:
        self.armed = False
        self.before = signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            raise Interruption

    def interrupts(self, action, after_s: float) -> bool:
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, after_s)
            action()
            self.armed = False
        except Interruption:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False


@pytest.fixture
def alarm():
    fresh = Alarm()
    yield fresh
    signal.signal(signal.SIGALRM, fresh.before)


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


# ---- Handlers that raise -----------------------------------------------------------------------


def finish(batch, pipe) -> None:
    """Make what an interrupted flush has left."""
    if len(batch):
        os.write(pipe[1], b"x")
        batch.flush()


def test_results_of_an_interrupted_flush_go_to_its_own_calls(alarm, pipe):
    """The call that the handler interrupted was the last one: with plain calls the flush is over
    then, and nobody was told; by the module it may wait for the next flush."""
    with Batch(8) as batch:
        old = [batch.add("getppid"), batch.read(pipe[0], bytearray(8))]
        assert alarm.interrupts(batch.flush, 0.1)
        finish(batch, pipe)
        assert len(batch) == 0 and batch.at is None
        assert old[0].value == os.getppid() and old[1].value in (1, -errno.EINTR)
        new = [batch.add("getpid"), batch.close_file(-1)]
        assert batch.at is new[0]
        assert batch.flush() == 2
        assert [call.value for call in new] == [os.getpid(), -errno.EBADF]
        assert old[1].value in (1, -errno.EINTR)


def test_an_interrupted_program_leaves_its_jumps_to_nobody(alarm, pipe):
    with Batch(8) as batch:
        start = batch.add("getppid")
        batch.jump(batch.read(pipe[0], bytearray(8)), Condition.ZERO, start)
        assert alarm.interrupts(batch.flush, 0.1)
        finish(batch, pipe)
        first = batch.close_file(-1)
        batch.jump(first, Condition.ERROR)
        skipped = batch.add("getppid")
        assert batch.flush(steps=1000) == 2
        assert (first.value, skipped.value) == (-errno.EBADF, -errno.ECANCELED)


class Disturbed:
    """Rounds of random calls of which each knows its result. A round is interrupted at random; what
    it has queued is made then, and no other memory may be written."""

    SIZE = 20_000
    SLOTS = 16

    def __init__(self, seed: int, path) -> None:
        self.random = random.Random(seed)
        self.content = self.random.randbytes(1 << 18)
        path.write_bytes(self.content)
        self.file = os.open(path, os.O_RDONLY)
        self.null = os.open("/dev/null", os.O_WRONLY)
        self.batch = Batch(self.SLOTS)
        self.calls: list[tuple] = []

    def one(self) -> None:
        draw, batch = self.random.randrange(6), self.batch
        size = self.random.randrange(1, self.SIZE)
        if draw < 3:
            at = self.random.randrange(len(self.content) - size)
            buffer = bytearray(size)
            self.calls.append((batch.pread(self.file, buffer, at), size, buffer, at))
        elif draw == 3:
            self.calls.append((batch.write(self.null, bytes(size)), size))
        elif draw == 4:
            self.calls.append((batch.add("getppid"), os.getppid()))
        else:
            word = Word(bytearray(8))
            stored = batch.store(word, size)
            self.calls.append((stored, size))
            batch.jump(stored, Condition.ERROR)

    def act(self) -> None:
        for _ in range(self.random.randrange(1, self.SLOTS)):
            self.one()
            if self.random.random() < 0.1:
                self.batch.flush()
        if self.random.random() < 0.5:
            self.batch.flush()
        if self.random.random() < 0.1:
            self.batch.close()

    def settle(self) -> None:
        """Make what is queued while memory that was just given back is somebody else's."""
        mine = [bytearray(b"m" * size) for size in (self.SIZE, 9_000, 5_000, 1_000, 64) * 2]
        if not self.batch.closed:
            self.batch.flush()
            assert len(self.batch) == 0
        for block in mine:
            assert block.count(b"m") == len(block), "memory that no call was given was written"
        for call, value, *memory in self.calls:
            if self.batch.closed and not call.done:
                continue
            assert call.value == value, f"{call!r} has the result of another call, not {value}"
            if memory:
                buffer, at = memory
                assert buffer == self.content[at : at + value]
                buffer.append(0)  # nothing keeps it
        self.calls.clear()
        if self.batch.closed:
            self.batch = Batch(self.SLOTS)

    def end(self) -> None:
        self.batch.close()
        os.close(self.file)
        os.close(self.null)


def disturb(interruptions: int, alarm: Alarm, path, seed: int = 1) -> None:
    rounds = Disturbed(seed, path)
    own = rf"{path}|/dev/null"
    before = len(descriptors.of(own))
    seen = tries = 0
    while seen < interruptions:
        tries += 1
        assert tries < 50 * interruptions + 1000, "no handler ran: nothing was tried"
        seen += alarm.interrupts(rounds.act, rounds.random.randrange(1, 150) * 1e-6)
        rounds.settle()
    gc.collect()
    assert len(descriptors.of(own)) == before
    rounds.end()


def test_a_handler_that_raises_anywhere_costs_no_memory_and_no_result(alarm, tmp_path):
    disturb(2_000, alarm, tmp_path / "file")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_handler_that_raises_anywhere_100000_times(alarm, tmp_path):
    disturb(100_000, alarm, tmp_path / "file", seed=time.time_ns())


# ---- Handlers, and others, that use the batch --------------------------------------------------


def test_a_handler_may_use_the_batch_whose_flush_it_interrupts(alarm, pipe):
    later = []

    def use(*_):
        later.append(batch.add("getppid"))
        os.write(pipe[1], b"x")

    signal.signal(signal.SIGALRM, use)
    with Batch(8) as batch:
        read = batch.read(pipe[0], bytearray(8))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        batch.flush()
        batch.flush()
        assert read.value in (1, -errno.EINTR)
        assert later[0].value == os.getppid()


def test_a_handler_may_close_the_batch_whose_flush_it_interrupts(alarm, pipe):
    batch, stat = Batch(8), Stat()

    def close(*_):
        batch.close()
        gc.collect()
        os.write(pipe[1], b"x")

    signal.signal(signal.SIGALRM, close)
    read = batch.read(pipe[0], bytearray(8))
    last = batch.fstat(pipe[0], stat)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    assert batch.flush() == 2
    assert read.value in (1, -errno.EINTR) and last.value == 0 and stat.st_ino
    with pytest.raises(ValueError, match="closed"):
        batch.add("getppid")


def test_arguments_may_use_the_batch_that_asks_them(pipe):
    class Sly:
        """Uses the batch where it is asked for its number."""

        def __init__(self, action):
            self.action = action

        def __index__(self):
            self.action()
            return 0

    with Batch(4) as batch, open("/etc/passwd", "rb") as file:
        buffer, inner = bytearray(16), []
        outer = batch.pread(file, buffer, Sly(lambda: inner.append(batch.add("getppid"))))
        assert batch.flush() == 2
        assert (inner[0].value, outer.value) == (os.getppid(), 16)
        last = batch.pread(file, buffer, Sly(batch.flush))
        batch.flush()
        assert last.value == 16
    closed = Batch(4)
    with pytest.raises(ValueError, match="closed"):
        closed.pread(0, bytearray(8), Sly(closed.close))


def test_another_thread_is_told_that_a_flush_is_under_way(pipe):
    """The ring is the flushing thread's alone: nothing is queued beside it, and close() waits."""
    batch, stat = Batch(8), Stat()
    read, last = batch.read(pipe[0], bytearray(8)), batch.fstat(pipe[0], stat)
    flushing = threading.Thread(target=batch.flush)
    flushing.start()
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        try:
            len(batch)
        except RuntimeError:
            break
    for use in (
        batch.flush, lambda: batch.add("getppid"), lambda: batch.at, lambda: batch.stats,
        lambda: batch.jump(read, Condition.ALWAYS), batch.barrier,
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="under way"):
            use()
    batch.close()
    assert batch.closed and not read.done
    os.write(pipe[1], b"abc")
    flushing.join()
    assert (read.value, last.value, stat.st_nlink) == (3, 0, 1)
    with pytest.raises(ValueError, match="closed"):
        batch.flush()


# ---- Tasks that are cancelled ------------------------------------------------------------------


def test_after_a_cancelled_flush_another_flush_waits_for_it(pipe):
    async def main():
        batch = AsyncBatch(8)
        read = batch.read(pipe[0], bytearray(8))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batch.flush(), 0.05)
        assert not read.done
        with pytest.raises(RuntimeError, match="under way"):
            batch.add("getppid")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batch.flush(), 0.05)
        os.write(pipe[1], b"abc")
        await batch.flush()
        assert read.value == 3
        batch.add("getppid")
        assert await batch.flush() == 1
        batch.close()

    asyncio.run(main(), debug=True)


def test_a_cancelled_flush_is_awaited_by_the_next_loop(pipe):
    batch = AsyncBatch(8)

    read = batch.read(pipe[0], bytearray(8))

    async def first():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batch.flush(), 0.05)

    async def second():
        os.write(pipe[1], b"abc")
        await batch.flush()

    asyncio.run(first())
    asyncio.run(second())
    assert read.value == 3
    batch.close()


def test_tasks_cancelled_at_random_cost_no_memory_and_no_result(tmp_path):
    content = os.urandom(1 << 16)
    (tmp_path / "file").write_bytes(content)
    draws = random.Random(7)

    async def main():
        with open(tmp_path / "file", "rb") as file:
            for _ in range(150):
                batch, reads = AsyncBatch(8), []
                for _ in range(draws.randrange(1, 8)):
                    size, at = draws.randrange(1, 9000), draws.randrange(1000)
                    reads.append((batch.pread(file, memory := bytearray(size), at), memory, at))
                flush = asyncio.create_task(batch.flush())
                for _ in range(draws.randrange(4)):
                    await asyncio.sleep(0)
                flush.cancel()
                await asyncio.wait([flush])
                if flush.cancelled():
                    await batch.flush()
                for read, memory, at in reads:
                    assert read.value == len(memory)
                    assert memory == content[at : at + len(memory)]
                batch.close()

    asyncio.run(main())


def test_loops_in_several_threads_have_batches_of_their_own():
    results = []

    async def use():
        async with AsyncBatch(8) as batch:
            for _ in range(50):
                call = batch.add("gettid")
                await batch.flush()
                results.append(call.value)

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200 and len(set(results)) == 4
