# SPDX-License-Identifier: GPL-2.0-only
"""Takes what was fetched or built before out of the cache, or makes it there, once.

This file owns the order of steps that kernels and programs share, and TRAPLESS_REFRESH. The caller
says how a thing is made and how it is read; trapless/base/cache.py owns locks and folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trapless.base import cache
from trapless.base.console import Progress, TraplessError

REFRESH_VARIABLE = "TRAPLESS_REFRESH"
_refreshed: set[str] = set()  # names made anew by this process: once is enough

T = TypeVar("T")


def obtain(
    name: str,
    folder: Path,
    load: Callable[[], T | None],
    make: Callable[[Path], None],
    doing: str,
    progress: Progress,
) -> T:
    """The result of `load` for `folder`. If it has none, `make` fills a new folder first.

    `doing` is what other processes that want the same are told to wait for. If the user asked for
    a refresh, `name` is made anew once in each process.
    """
    item = None if _wants_refresh(name) else load()
    if item is None:
        with cache.locked(folder.with_name(f"{folder.name}.lock"), doing, progress):
            item = None if _wants_refresh(name) else load()
            if item is None:  # nobody made it while we waited
                with cache.assembling(folder, progress) as part:
                    make(part)
                _refreshed.add(name)
                item = load()
        progress.done()
    if item is None:
        raise TraplessError(f"somebody changed {folder} while it was in use; run again")
    return item


def _wants_refresh(name: str) -> bool:
    return os.environ.get(REFRESH_VARIABLE, "") not in ("", "0") and name not in _refreshed
