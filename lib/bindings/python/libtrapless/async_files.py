# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Files for asyncio: what all tasks ask for in one turn of the loop goes to few workers together.

It owns the functions of Files, and the link between a loop and its engine. The engine, in
the extension, owns operations and their memory. libtrapless.aio shows what is for users.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import stat as modes
from typing import TYPE_CHECKING, Any, AnyStr, Final, Literal, cast, overload

from libtrapless._absent_names import OF_FILES, absent
from libtrapless._awaited import OnlyAsyncWith, Opening
from libtrapless._direntry import DirEntry
from libtrapless._file import BYTES, NUMBER, STATUS, File
from libtrapless._ring import Engine, Queue
from libtrapless.abi import Backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from typing import Never, Self

    from _typeshed import ReadableBuffer, StrOrBytesPath

DESCRIPTOR: Final = 4
SYNC: Final = 1
REPLACE: Final = 2
MODE: Final = 4
WORKERS_MAX: Final = 4096
AT_FDCWD: Final = -100
AT_SYMLINK_NOFOLLOW: Final = 0x100
AT_REMOVEDIR: Final = 0x200

_FLAGS: Final = {None: 0, Backend.PLAIN: 1, Backend.MODULE: 2}
_MODES: Final = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


class _Link:
    """The engine of one loop. Nothing but the loop's thread uses it."""

    __slots__ = ("create_future", "engine", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: int, flags: int) -> None:
        self.loop = loop
        self.create_future = loop.create_future
        self.engine = Engine(loop.call_soon, workers, flags)
        loop.add_reader(self.engine.fileno(), self.engine.take)

    async def outcome(self, future: asyncio.Future[Any], number: int) -> Any:
        try:
            return await future
        except (asyncio.CancelledError, GeneratorExit):
            self.drop(number, future)
            raise

    def drop(self, number: int, future: asyncio.Future[Any]) -> None:
        """Nobody awaits it any more: its task was cancelled, or its coroutine was closed."""
        self.engine.cancel(number, future)
        # In a closed loop the future would let go of its task, and that closes the coroutine that
        # runs this.
        if not self.loop.is_closed():
            future.cancel()

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.remove_reader(self.engine.fileno())
        self.engine.close()


class Files(OnlyAsyncWith):
    """File functions for asyncio. Any number of tasks, loops and threads may use one object; it
    needs neither root nor the module.

    Each loop that uses it starts `workers` threads of the C library, 1 to 4096. Few of them are
    awake while calls are quick, and a call that blocks delays no other one as long as one is left.
    Errors are those of os, and name the path. `backend` says who makes the calls:
    libtrapless.Backend.MODULE (OSError with ENODEV if it is not loaded), Backend.PLAIN (the
    library), or None, the module where it is loaded.

    If a task is cancelled whose request has not begun, the request is not made. A request that has
    begun is made to its end: only its result is dropped. Its memory lives until then.
    """

    def __init__(self, *, workers: int = 64, backend: Backend | None = None) -> None:
        if not isinstance(workers, int):
            raise TypeError(f"workers={workers!r}: it is a number, 1 to {WORKERS_MAX}")
        if not 1 <= workers <= WORKERS_MAX:
            raise ValueError(f"workers={workers}: it is 1 to {WORKERS_MAX}")
        if backend not in (None, *Backend):
            raise ValueError(f"backend={backend!r}: it is Backend.PLAIN, Backend.MODULE or None")
        if backend == Backend.MODULE:
            Queue(1, backend=backend).close()  # raises what would else come with the first request
        self._workers = workers
        self._flags = _FLAGS[backend]
        self._links: dict[asyncio.AbstractEventLoop, _Link | None] = {}  # None: closed
        self._latest: _Link | None = None
        self._closed = False  # for all loops

    if not TYPE_CHECKING:

        def __getattr__(self, name: str):
            """Raise AttributeError, which says what to use in place of a name of os."""
            raise absent(self, name, OF_FILES)

    def __repr__(self) -> str:
        links = self._links.values()
        try:
            closed = self._is_closed(asyncio.get_running_loop())
        except RuntimeError:
            closed = self._closed or (bool(links) and not any(links))
        return f"<Files workers={self._workers}{', closed' if closed else ''}>"

    async def read_file(self, path: StrOrBytesPath) -> bytes:
        """The bytes of a file."""
        link = self._link()
        future: asyncio.Future[bytes] = link.create_future()
        number = link.engine.read(future, path)
        try:
            return await future
        except (asyncio.CancelledError, GeneratorExit):
            link.drop(number, future)
            raise

    async def write_file(
        self,
        path: StrOrBytesPath,
        data: ReadableBuffer | str,
        *,
        append: bool = False,
        replace: bool = False,
        sync: bool = False,
        mode: int | None = None,
    ) -> int:
        """Write a whole file, and return the number of bytes; text is written as UTF-8. With `sync`
        they are on the disk then. A new file has `mode`, or 0o666, without the bits of the umask. A
        file that exists keeps its permissions; it is emptied first, unless `append` is given.

        With `replace` the bytes go to a new file, which takes the old one's place when it is whole.
        It has `mode`, or the permissions of the old file if none is given. It does not have the old
        one's owner, and a link is replaced, not followed. Meanwhile the new file's name is "." with
        16 hexadecimal digits and ".tmp", in the same folder; after an error it is removed."""
        if append and replace:
            raise ValueError("append and replace exclude each other")
        if isinstance(mode, str):
            raise TypeError(f"mode={mode!r}: it is permissions, as 0o644; append=True appends")
        if isinstance(data, str):
            data = data.encode()
        flags = os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
        how = REPLACE * replace | SYNC * sync
        if replace and mode is None:
            with contextlib.suppress(FileNotFoundError):
                mode = (await self.stat(path)).st_mode & 0o777
                how |= MODE
        return await self._write(path, data, flags, 0o666 if mode is None else mode, how)

    async def _write(
        self, path: StrOrBytesPath, data: ReadableBuffer, flags: int, mode: int, how: int
    ) -> int:
        link = self._link()
        future: asyncio.Future[int] = link.create_future()
        number = link.engine.write(future, path, data, flags, mode, how)
        try:
            return cast("int", await link.outcome(future, number))
        except OSError as error:
            if how & REPLACE and error.errno in (errno.ENOENT, errno.EACCES, errno.EROFS):
                text = f"{error.strerror} (for the new file in the same folder)"
                raise OSError(error.errno, text, path) from None
            raise

    async def stat(self, path: StrOrBytesPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """os.stat() of a path."""
        link = self._link()
        future: asyncio.Future[os.stat_result] = link.create_future()
        number = link.engine.stat(future, path, 0 if follow_symlinks else AT_SYMLINK_NOFOLLOW)
        try:
            return await future
        except (asyncio.CancelledError, GeneratorExit):
            link.drop(number, future)
            raise

    @overload
    async def scandir(self, path: Literal["."] = ".") -> list[DirEntry[str]]: ...
    @overload
    async def scandir(self, path: AnyStr | os.PathLike[AnyStr]) -> list[DirEntry[AnyStr]]: ...
    async def scandir(self, path: str | bytes | os.PathLike[Any] = ".") -> list[DirEntry[Any]]:
        """The entries of a folder, without "." and "..". Their methods are awaited."""
        link = self._link()
        future: asyncio.Future[Any] = link.create_future()
        names = await link.outcome(future, link.engine.list(future, path))
        folder: Any = os.fspath(path)
        if isinstance(folder, bytes):
            names = [(os.fsencode(name), kind) for name, kind in names]
        return [DirEntry(self.stat, folder, name, kind) for name, kind in names]

    async def walk(
        self,
        top: AnyStr | os.PathLike[AnyStr],
        *,
        onerror: Callable[[OSError], object] | None = None,
    ) -> AsyncIterator[tuple[AnyStr, list[AnyStr], list[AnyStr]]]:
        """What os.walk() yields from the top down. A caller that removes names of folders leaves
        those folders out. It follows no link. `onerror` is called with the OSError of a folder that
        cannot be listed, and without it that is left out, also `top`."""
        waiting = [os.fspath(top)]
        while waiting:
            path = waiting.pop()
            try:
                entries = await self.scandir(path)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            folders: list[AnyStr] = []
            others: list[AnyStr] = []
            links = set()
            for entry in entries:
                is_folder = False
                with contextlib.suppress(OSError):  # a link to itself is no folder
                    is_folder = await entry.is_dir()
                    if is_folder and await entry.is_symlink():
                        links.add(entry.name)
                (folders if is_folder else others).append(entry.name)
            yield path, folders, others
            waiting += [os.path.join(path, name) for name in reversed(folders) if name not in links]

    def open(
        self, path: StrOrBytesPath, mode: str = "r", permissions: int = 0o666, **of_text: Never
    ) -> Opening:
        """Open a file for bytes, with a mode as of open(): r, w, a or x, with or without + and b.
        `await` the result, or use it in `async with`, which closes the file. A new file has
        `permissions`, 0o666 by default, without the bits of the umask."""
        if of_text:
            raise TypeError(f"open() has no {', '.join(of_text)}: its files have bytes only")
        if not isinstance(mode, str):
            raise TypeError(f"mode {mode!r}: it is text, such as 'r'")
        flags = _MODES.get(mode.replace("b", ""))
        if flags is None:
            known = ", ".join(_MODES)
            raise ValueError(f"mode {mode!r}: {known} are known, for bytes, with or without b")
        return Opening(self._open(path, mode, flags, permissions))

    async def _open(self, path: StrOrBytesPath, mode: str, flags: int, permissions: int) -> File:
        link = self._link()
        future: asyncio.Future[int] = link.create_future()
        number = link.engine.call(
            future, DESCRIPTOR, path, "openat", AT_FDCWD, path, flags | os.O_CLOEXEC, permissions
        )
        try:
            fd = await link.outcome(future, number)
        except BaseException:  # also GeneratorExit, of a task whose loop is closed
            if future.done() and not future.cancelled() and not future.exception():
                os.close(future.result())
            raise
        return File(self, fd, path, mode)

    async def unlink(self, path: StrOrBytesPath) -> None:
        """Remove a file or a link."""
        await self._number(path, "unlinkat", AT_FDCWD, path, 0)

    async def mkdir(self, path: StrOrBytesPath, mode: int = 0o777) -> None:
        """Make a folder with `mode`, 0o777 by default, without the bits of the umask. Its parent
        must be there."""
        await self._number(path, "mkdirat", AT_FDCWD, path, mode)

    async def rmdir(self, path: StrOrBytesPath) -> None:
        """Remove an empty folder."""
        await self._number(path, "unlinkat", AT_FDCWD, path, AT_REMOVEDIR)

    async def rename(self, source: StrOrBytesPath, target: StrOrBytesPath) -> None:
        """Give a file another name. A file that has that name is replaced."""
        await self._number(source, "renameat", AT_FDCWD, source, AT_FDCWD, target)

    async def copy(self, source: StrOrBytesPath, target: StrOrBytesPath) -> int:
        """Copy the bytes and the permissions of a file; the target is whole or as it was. Returns
        the number of bytes. shutil.SameFileError: both are one file, also by links."""
        found, old = await self.stat_files([source, target])
        if isinstance(found, OSError):
            raise found
        if not isinstance(old, OSError) and os.path.samestat(found, old):
            raise shutil.SameFileError(f"{source!r} and {target!r} are the same file")
        data = await self.read_file(source)
        mode = modes.S_IMODE(found.st_mode)
        return await self._write(target, data, os.O_CREAT, mode, REPLACE | MODE)

    # ---- Many ----

    async def read_files(self, paths: Iterable[StrOrBytesPath]) -> list[bytes | OSError]:
        """The bytes of many files, in their order, with an OSError in the place of each that could
        not be read. 64 are under way at a time."""
        return await self._many(paths, BYTES)

    async def stat_files(
        self, paths: Iterable[StrOrBytesPath], *, follow_symlinks: bool = True
    ) -> list[os.stat_result | OSError]:
        """os.stat() of many files, in their order, with an OSError in the place of each for which
        it failed. 64 are under way at a time."""
        return await self._many(paths, STATUS, 0 if follow_symlinks else AT_SYMLINK_NOFOLLOW)

    async def _many(self, paths: Iterable[StrOrBytesPath], kind: int, flags: int = 0) -> list[Any]:
        """No task and no future for each file."""
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise TypeError("a list of paths, and not one path")
        link = self._link()
        future: asyncio.Future[list[Any]] = link.create_future()
        link.engine.many(future, list(paths), kind, flags)
        try:
            return await future
        except BaseException:
            link.engine.stop(future)
            raise

    # ---- The engine ----

    async def _call(self, path: StrOrBytesPath, kind: int, name: str, *arguments: object) -> Any:
        link = self._link()
        future: asyncio.Future[Any] = link.create_future()
        number = link.engine.call(future, kind, path, name, *arguments)
        return await link.outcome(future, number)

    async def _number(self, path: StrOrBytesPath, name: str, *arguments: object) -> int:
        return cast("int", await self._call(path, NUMBER, name, *arguments))

    def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        link = self._latest
        if link is not None and link.loop is loop:
            return link
        if self._is_closed(loop):
            raise ValueError("the files are closed: `async with` opens them again")
        link = self._links.get(loop)
        if link is None:
            self._close([other for other in list(self._links) if other.is_closed()])
            link = self._links[loop] = _Link(loop, self._workers, self._flags)
        self._latest = link
        return link

    def _is_closed(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._closed or (loop in self._links and self._links[loop] is None)

    def _close(
        self,
        loops: Iterable[asyncio.AbstractEventLoop],
        own: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._latest = None
        for loop in loops:
            link = self._links.pop(loop, None)
            if link is None:
                continue
            if loop is not own and loop.is_running():  # in another thread, which alone may use it
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(link.close)
                    continue
            link.close()

    def close(self) -> None:
        """End the threads of the running loop; in a thread without a loop, those of all loops. What
        a loop has that runs in another thread ends in that loop's next turn. Tasks that wait are
        cancelled, and later requests raise ValueError, until another `async with`.

        It waits up to 0.2 s for calls that are under way."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._closed = True
            self._close(list(self._links))
        else:
            self._close([loop], loop)
            self._links[loop] = None

    async def __aenter__(self) -> Self:
        self._closed = False
        self._latest = None
        loop = asyncio.get_running_loop()
        if self._links.get(loop) is None:
            self._links.pop(loop, None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
