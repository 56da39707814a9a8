# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Batches for asyncio. It is a module of its own because asyncio takes long to import.

queue.py owns the calls and their memory.
"""

from __future__ import annotations

import asyncio
import ctypes
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from libtrapless import abi
from libtrapless.queue import Queue

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from libtrapless.abi import Backend


class AsyncBatch(Queue):
    """A batch for asyncio: `await batch.flush()` waits in a thread of its own, and the event loop
    goes on. Until the flush is over, nothing can be queued.

    If the task that waits is cancelled, the calls are made all the same, and the memory that they
    point to lives until then.
    """

    def __init__(
        self, entries: int = 32, *, backend: Backend | None = None, unordered: bool = False
    ) -> None:
        super().__init__(entries, backend=backend, unordered=unordered)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="libtrapless")
        self._flushing: Future[int] | None = None

    async def flush(self, steps: int = abi.STEPS_DEFAULT) -> int:
        """Make all queued calls, and return their number. It raises what Batch.flush() does."""
        self._use()
        self._flushing = self._thread.submit(self._flush, steps)
        # The flush may have begun, so a task that is cancelled must not cancel it.
        return await asyncio.shield(asyncio.wrap_future(self._flushing))

    def close(self) -> None:
        """Give the batch back, once the flush that is under way is over."""
        if not self.closed:
            self.closed = True
            self._thread.submit(self._destroy)
            self._thread.shutdown(wait=False)

    def _use(self) -> ctypes.c_void_p:
        if self._flushing is not None and not self._flushing.done():
            raise RuntimeError("a flush is under way: await it first")
        return super()._use()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._flushing is not None and not self._flushing.done():
            await asyncio.wait([asyncio.wrap_future(self._flushing)])
        self.close()
