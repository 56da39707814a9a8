# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""A tree of folders, folder by folder. The extension reads each of them without the interpreter's
lock; whole lists of files are its business, too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, AnyStr

from libtrapless._ring import list_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def walk(
    top: AnyStr | os.PathLike[AnyStr],
    onerror: Callable[[OSError], object] | None = None,
    followlinks: bool = False,
) -> Iterator[tuple[AnyStr, list[AnyStr], list[AnyStr]]]:
    """What os.walk() yields from the top down: a folder's path, the names of the folders in it, and
    those of its other files. A caller that removes names of folders leaves those folders out.
    `onerror` is called with the OSError of a folder that cannot be read, and without it that is
    left out, also `top`.
    """
    waiting = [os.fspath(top)]
    while waiting:
        path = waiting.pop()
        try:
            folders, files, links = list_folder(path)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        yield path, folders, files
        left_out = () if followlinks else set(links)
        waiting += [os.path.join(path, name) for name in reversed(folders) if name not in left_out]
