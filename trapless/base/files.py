# SPDX-License-Identifier: GPL-2.0-only
"""Writes a file so that its readers see the old content or the new content, never a part of it.

This file owns that one promise, for plain files. What a file contains, and when it is written, is
its caller's.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from trapless.base.console import TraplessError


def replace_file(path: Path, text: str) -> None:
    """Write `text` into a new file beside `path`, then rename it to `path`.

    A device, a pipe, and a link of this user's or of root's, as /dev/stdout, are written to.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        if _stays(path):
            path.write_text(text, encoding="utf-8")
            return
        fresh.unlink(missing_ok=True)
        # In a folder that others can write to, a link is not followed.
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(fresh, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # of a folder that may not be searched
            fresh.unlink(missing_ok=True)
        raise TraplessError(f"{path}: cannot be written: {error.strerror}") from error


def _stays(path: Path) -> bool:
    """Whether a path is something that a new file must not take the place of."""
    if path.is_symlink():
        return path.lstat().st_uid in (0, os.geteuid())
    return path.exists() and not path.is_file()
