# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""An entry of a folder for asyncio. It owns what an entry knows of itself; async_files.py, which
lists folders, gives it the function that asks for attributes."""

from __future__ import annotations

import os
import stat as modes
from typing import TYPE_CHECKING, Any, AnyStr, Generic

from libtrapless._awaited import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


class DirEntry(Generic[AnyStr]):
    """An entry of a folder, like os.DirEntry, but its methods are awaited."""

    __slots__ = ("_folder", "_stat", "_type", "name")

    def __init__(
        self,
        stat: Callable[..., Awaitable[os.stat_result]],
        folder: AnyStr,
        name: AnyStr,
        kind: int,
    ) -> None:
        self._stat = stat
        self._folder: AnyStr = folder
        self._type = kind
        self.name: AnyStr = name

    @property
    def path(self) -> AnyStr:
        return os.path.join(self._folder, self.name)

    def __fspath__(self) -> AnyStr:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    async def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return await self._stat(self.path, follow_symlinks=follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> Coroutine[Any, Any, bool]:
        return Answer(self._is(modes.S_IFDIR, follow_symlinks), "is_dir")

    def is_file(self, *, follow_symlinks: bool = True) -> Coroutine[Any, Any, bool]:
        return Answer(self._is(modes.S_IFREG, follow_symlinks), "is_file")

    def is_symlink(self) -> Coroutine[Any, Any, bool]:
        return Answer(self._is(modes.S_IFLNK, False), "is_symlink")

    async def _is(self, kind: int, follow: bool) -> bool:
        known = self._type << 12  # DT_* are S_IF* without their lower bits
        if not known or (follow and known == modes.S_IFLNK):
            try:
                known = modes.S_IFMT((await self.stat(follow_symlinks=follow)).st_mode)
            except FileNotFoundError:
                return False
        return known == kind
