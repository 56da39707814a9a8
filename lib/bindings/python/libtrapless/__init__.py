# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""libtrapless for Python: many system calls by one crossing into the kernel.

>>> import os, libtrapless
>>> with libtrapless.Batch() as batch:
...     parent = batch.add("getppid")
...     closed = batch.close_file(-1)
...     made = batch.flush()
>>> made, parent.result() == os.getppid()
(2, True)
>>> closed.result()
Traceback (most recent call last):
    ...
OSError: [Errno 9] Bad file descriptor (close)

A call may take the result of another one of the same batch as an argument, or a word of memory, and
may jump: then the batch is a program. Without the module the library makes the same calls one by
one, with the same results. libtrapless.aio has batches for asyncio. read_files(), stat_files(),
unlink_files() and walk() do what their names say to whole lists, without the interpreter's lock.
scandir() and scantree() give the entries of a folder and of a tree with their attributes.
"""

try:
    from libtrapless._ring import (
        Batch,
        Call,
        DirEntry,
        Stat,
        Word,
        number,
        read_files,
        scandir,
        scantree,
        stat_files,
        unlink_files,
    )
except ModuleNotFoundError as error:
    if error.name == "libtrapless._ring":
        error.msg = (
            "libtrapless was not compiled for this Python: run `make lib` in the checkout, or "
            "install it, `pip install ./lib/bindings/python`"
        )
    raise
from libtrapless._walk import walk
from libtrapless.abi import Backend, Condition
from libtrapless.counts import Stats

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "Batch",
    "Call",
    "Condition",
    "DirEntry",
    "Stat",
    "Stats",
    "Word",
    "number",
    "read_files",
    "scandir",
    "scantree",
    "stat_files",
    "unlink_files",
    "walk",
]

for _shown in (
    Backend, Condition, Stats, number, read_files, scandir, scantree, stat_files, unlink_files, walk
):  # fmt: skip
    _shown.__module__ = __name__  # where programs import them from
