# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""An open file for asyncio. It owns what tasks ask of the file, and when it is closed.
async_files.py, which opens files, has the engine that answers."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from libtrapless._absent_names import OF_FILE, absent
from libtrapless._awaited import OnlyAsyncWith
from libtrapless._ring import FileDescriptor

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator
    from typing import Self

    from _typeshed import ReadableBuffer, StrOrBytesPath

    from libtrapless.async_files import Files

NUMBER: Final = 0
BYTES: Final = 1
STATUS: Final = 2
ROOM: Final = 65536
AT_EMPTY_PATH: Final = 0x1000


class File(OnlyAsyncWith):
    """An open file. Reads and writes name their place, so tasks may share it."""

    _unclosed = False

    def __init__(self, files: Files, fd: int, path: StrOrBytesPath, mode: str) -> None:
        self._files = files
        self._path = path
        self._mode = mode
        self._descriptor = FileDescriptor(fd)  # closed with its last owner, if not before
        self._unclosed = True

    def __del__(self) -> None:
        if self._unclosed:
            text = f"unclosed file {self._path!r}: use `async with files.open(path) as file`"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str):
            """Raise AttributeError, which says what to use in place of a name of other files."""
            raise absent(self, name, OF_FILE)

    def __repr__(self) -> str:
        return f"<File {self._path!r}{'' if self._unclosed else ', closed'}>"

    @property
    def name(self) -> StrOrBytesPath:
        """The path, as it was given to open()."""
        return self._path

    def fileno(self) -> int:
        """The descriptor, as a number. ValueError if the file is closed."""
        return self._descriptor.fileno()

    async def pread(self, count: int, offset: int) -> bytes:
        """Up to `count` bytes from `offset` on; fewer only at the file's end."""
        self._check("reading", count=count, offset=offset)
        parts = []
        while True:
            part = cast("bytes", await self._call(BYTES, "pread64", None, min(count, ROOM), offset))
            parts.append(part)
            count -= len(part)
            offset += len(part)
            if not count or not part:
                return b"".join(parts)

    async def pwrite(self, data: ReadableBuffer, offset: int) -> int:
        """Write all of `data` at `offset`, and return its length."""
        if isinstance(data, str):
            raise TypeError("a file takes bytes: use text.encode()")
        self._check("writing", offset=offset)
        view = memoryview(data).cast("B")
        done = 0
        while True:
            rest = view[done:]
            written: int = await self._call(NUMBER, "pwrite64", rest, len(rest), offset + done)
            done += written
            if done == len(view):
                return done

    async def read(self, size: Literal[-1] = -1) -> bytes:
        """The whole file."""
        if size != -1:
            raise TypeError(f"read() returns the whole file: use pread({size!r}, offset)")
        return await self.pread(sys.maxsize, 0)

    async def stat(self) -> os.stat_result:
        """os.fstat() of the file."""
        found = await self._call(STATUS, "newfstatat", b"", None, AT_EMPTY_PATH)
        return cast("os.stat_result", found)

    async def fsync(self) -> None:
        """Return when what was written is on the disk, as os.fsync()."""
        await self._call(NUMBER, "fsync")

    async def truncate(self, length: int) -> None:
        """Cut the file to `length` bytes, or fill it up with zeros, as os.ftruncate()."""
        self._check("writing", length=length)
        await self._call(NUMBER, "ftruncate", length)

    def _check(self, purpose: str, **numbers: int) -> None:
        """Raise what the kernel would, but say which argument or which mode it is about."""
        self.fileno()  # ValueError if the file is closed
        if "+" not in self._mode and ("r" in self._mode) == (purpose == "writing"):
            text = f"not open for {purpose} (mode {self._mode!r})"
            raise io.UnsupportedOperation(errno.EBADF, text, self._path)
        for name, number in numbers.items():
            if number < 0:
                text = f"{os.strerror(errno.EINVAL)} ({name}={number})"
                raise OSError(errno.EINVAL, text, self._path)

    async def _call(self, kind: int, name: str, *arguments: object) -> Any:
        return await self._files._call(self._path, kind, name, self._descriptor, *arguments)

    async def close(self) -> None:
        """Close the file, or leave that to the last request that is under way: no other file gets
        its descriptor before."""
        self._unclosed = False
        fd = self._descriptor.detach()
        if fd >= 0:
            try:
                link = self._files._link()
                future: asyncio.Future[int] = link.create_future()
                number = link.engine.call(future, NUMBER, self._path, "close", fd)
            except (OSError, RuntimeError, ValueError):  # no loop runs any more, or it is another's
                os.close(fd)
                return
            await link.outcome(future, number)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The lines, each with its end."""
        offset = 0
        begun: list[bytes] = []  # a line whose end has not been read
        while part := await self.pread(ROOM, offset):
            offset += len(part)
            first, *others = part.split(b"\n")
            begun.append(first)
            for other in others:
                yield b"".join(begun) + b"\n"
                begun = [other]
        if any(begun):
            yield b"".join(begun)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
