# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Files and batches for asyncio. It is a module of its own because asyncio takes long to import.

`Files` reads, writes and lists files for any number of tasks. `AsyncBatch` makes the system calls
that one task queues.

This module owns batches, and the thread in which a flush of one waits. async_files.py owns the
files and their way back to the loop. The extension owns the calls and their memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import operator
import os
import threading
import weakref
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING

from libtrapless import abi
from libtrapless._awaited import OnlyAsyncWith
from libtrapless._direntry import DirEntry
from libtrapless._file import File
from libtrapless._ring import Queue
from libtrapless.async_files import Files

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from libtrapless.abi import Backend

__all__ = ["AsyncBatch", "DirEntry", "File", "Files"]

for _shown in (DirEntry, File, Files):
    _shown.__module__ = __name__  # where programs import them from


class _Flush:
    """One flush. The thread that takes it makes it, and no other thread does."""

    def __init__(self, batch: Queue, steps: int) -> None:
        self.future: Future[int] = Future()
        self.waiter: asyncio.Future[int] | None = None
        """What the task awaits. It is over before the flush if the task is cancelled."""
        self._work = [(batch, steps)]

    def make(self) -> None:
        try:
            batch, steps = self._work.pop()
        except IndexError:
            return
        try:
            made = batch._flush(steps)
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(made)

    @property
    def awaited(self) -> bool:
        waiter = self.waiter
        return waiter is not None and not waiter.done() and not waiter.get_loop().is_closed()


class AsyncBatch(OnlyAsyncWith, Queue):
    """A batch for asyncio: `await batch.flush()` waits in a thread of its own, and the event loop
    goes on. Until the flush is over, nothing can be queued.

    If the task that waits is cancelled, the calls are made all the same, and the memory that they
    point to lives until then. Another `await batch.flush()` then waits for that flush.
    """

    def __init__(
        self, entries: int = 32, *, backend: Backend | None = None, unordered: bool = False
    ) -> None:
        super().__init__(entries, backend=backend, unordered=unordered)
        self._work: SimpleQueue[_Flush | None] | None = None
        self._flushing: _Flush | None = None
        self._pid = os.getpid()

    async def flush(self, steps: int = abi.STEPS_DEFAULT) -> int:
        """Make all queued calls, and return their number. It raises what Batch.flush() does.

        After a flush whose task was cancelled, it waits for that flush."""
        flush = self._under_way()
        if flush is None:
            if self.closed:
                raise ValueError("the batch is closed")
            flush = _Flush(self, operator.index(steps))
        elif flush.awaited:
            raise RuntimeError("a flush is under way: await it first")
        waiter = asyncio.shield(asyncio.wrap_future(flush.future))
        flush.waiter = waiter
        # From here on the flush is under way. If an exception comes in between, the flush is handed
        # over a second time, but made only once.
        self._flushing = flush
        self._busy = True
        self._thread().put(flush)
        made = await waiter
        if self._flushing is flush:
            self._busy = False
        return made

    def close(self) -> None:
        """Give the batch back, once the flush that is under way is over."""
        super().close()
        if self._work is not None:
            self._work.put(None)

    def _under_way(self) -> _Flush | None:
        flush = self._flushing
        if self._pid != os.getpid():
            text = f"{os.strerror(errno.EPERM)} (a batch belongs to the process that made it)"
            raise PermissionError(errno.EPERM, text)
        return None if flush is None or flush.future.done() else flush

    def _thread(self) -> SimpleQueue[_Flush | None]:
        """The queue from which the flushing thread takes its work. The thread ends with the batch.
        It is a daemon, because a call that blocks for ever must not keep the program from
        ending."""
        if self._work is None:
            work: SimpleQueue[_Flush | None] = SimpleQueue()
            threading.Thread(target=_serve, args=(work,), name="libtrapless", daemon=True).start()
            weakref.finalize(self, work.put, None).atexit = False
            self._work = work
        return self._work

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for a flush that is under way, and close the batch. After an exception, such as a
        cancellation, it does not wait: the call that blocks may never return."""
        flush = None
        try:
            with contextlib.suppress(PermissionError):  # in the child of a fork nothing goes on
                flush = self._under_way() if error is None else None
            if flush is not None:
                over = asyncio.wrap_future(flush.future)
                await asyncio.wait([over])
                over.exception()  # whoever awaited the flush has been told
        finally:
            self.close()


def _serve(work: SimpleQueue[_Flush | None]) -> None:
    while (flush := work.get()) is not None:
        flush.make()
        del flush
