# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""A log with group commit: tasks append records, and a record is on the disk when append() is over.

While one commit is under way, tasks go on and queue records; the next commit writes all of these
and makes them durable by one crossing. If a write fails, the calls behind it are not made.

    python log.py FILE TASKS RECORDS
"""

from __future__ import annotations

import asyncio
import os
import sys

from libtrapless import Condition
from libtrapless.aio import AsyncBatch

RECORDS = 63
"""Records of one commit: with fdatasync they fill a batch of 64 calls."""


class Log:
    """Records in the order of append(). One task commits them."""

    def __init__(self, path: str) -> None:
        self.batch = AsyncBatch(RECORDS + 1)
        self.commits = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()
        self._committer = asyncio.create_task(self._commit_all())

    async def append(self, record: bytes) -> None:
        """Returns when the record is on the disk."""
        durable = asyncio.get_running_loop().create_future()
        self._waiting.append((record, durable))
        self._arrived.set()
        await durable

    async def close(self) -> None:
        self._committer.cancel()
        await asyncio.wait([self._committer])
        self.batch.close()
        os.close(self._fd)

    async def _commit_all(self) -> None:
        while True:
            await self._arrived.wait()
            group, self._waiting = self._waiting[:RECORDS], self._waiting[RECORDS:]
            if not self._waiting:
                self._arrived.clear()
            try:
                await self._commit([record for record, _ in group])
            except OSError as error:
                for _, durable in group:
                    durable.set_exception(error)
            else:
                for _, durable in group:
                    durable.set_result(None)

    async def _commit(self, records: list[bytes]) -> None:
        writes = [self.batch.write(self._fd, record) for record in records]
        synced = self.batch.fdatasync(self._fd)
        for write in writes:
            self.batch.jump(write, Condition.ERROR)
        await self.batch.flush()
        for write, record in zip(writes, records, strict=True):
            if write.result() != len(record):
                raise OSError(f"{write.result()} of {len(record)} bytes were written")
        synced.result()
        self.commits += 1


async def main(path: str, tasks: int, records: int) -> None:
    log = Log(path)

    async def append_some(task: int) -> None:
        for i in range(records):
            await log.append(f"task {task} record {i}\n".encode())

    await asyncio.gather(*(append_some(task) for task in range(tasks)))
    stats = log.batch.stats
    print(f"{tasks * records} records, {log.commits} commits, {stats.crossings} crossings")
    await log.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: log.py FILE TASKS RECORDS")
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
