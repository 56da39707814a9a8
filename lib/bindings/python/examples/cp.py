# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Copies a tree, as `cp -r SOURCE TARGET` does, by programs of calls.

To open a file and its copy, to read and write until the end, and to close both takes an unknown
number of calls, each with results of others. Here 32 files of any size are copied by one crossing.

    python cp.py SOURCE TARGET
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from libtrapless import Batch, Call, Condition

FILES = 32
CALLS = 6
BYTES = 65536
CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

failures: list[OSError] = []


@dataclass
class File:
    """A file on its way: its names, and the calls that copy it."""

    source: str
    target: str
    opened: Call
    created: Call
    read: Call
    written: Call

    def check(self) -> None:
        """Raises OSError where it was not copied. It is complete when its last read returned 0."""
        for call, name in ((self.opened, self.source), (self.created, self.target)):
            error_of(call, name)
        error_of(self.read, self.source)
        if self.read.result():
            error_of(self.written, self.target)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.target)


def error_of(call: Call, name: str) -> None:
    if call.value < 0:
        raise OSError(-call.value, os.strerror(-call.value), name)


def queue(batch: Batch, source: str, target: str, mode: int, buffer: bytearray) -> File:
    """All calls for one file. All files may share a buffer: they are copied one after the other."""
    opened = batch.openat(source)
    created = batch.openat(target, CREATE, mode)
    read = batch.read(opened, buffer)
    written = batch.write(created, buffer, read)
    closed = batch.close_file(created)
    last = batch.close_file(opened)
    batch.jump(opened, Condition.ERROR, last)
    batch.jump(created, Condition.ERROR, closed)
    batch.jump(read, Condition.ZERO, closed)
    batch.jump(written, Condition.FULL, read)
    return File(source, target, opened, created, read, written)


def complain(error: OSError) -> None:
    failures.append(error)
    print(f"cp: {error.filename}: {error.strerror}", file=sys.stderr)


def files(source: str, target: str) -> Iterator[tuple[str, str, int]]:
    """The regular files: name, name of the copy, mode. On the way it makes folders and links."""
    for folder, folders, names in os.walk(source, onerror=complain):
        copy = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        os.makedirs(copy, exist_ok=True)
        for name in [*folders, *names]:
            path, new = os.path.join(folder, name), os.path.join(copy, name)
            if os.path.islink(path):
                os.symlink(os.readlink(path), new)
            elif os.path.isfile(path):
                yield path, new, os.stat(path).st_mode & 0o777
            elif not os.path.isdir(path):
                complain(OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path))


def main(source: str, target: str) -> int:
    batch, buffer = Batch(256), bytearray(BYTES)  # of FILES * CALLS calls, to a power of two
    waiting, number = files(source, target), 0
    while some := [queue(batch, *one, buffer) for one in islice(waiting, FILES)]:
        batch.flush(steps=1 << 62)
        for file in some:
            try:
                file.check()
                number += 1
            except OSError as error:
                complain(error)
    stats = batch.stats
    print(f"{number} files, {stats.executed} calls, {stats.crossings} crossings")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: cp.py SOURCE TARGET")
    sys.exit(main(*sys.argv[1:]))
