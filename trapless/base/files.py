# SPDX-License-Identifier: GPL-2.0-only
"""Writes a file so that its readers see the old content or the new content, never a part of it.

This file owns that one promise. What a file contains, and when it is written, is its caller's.
"""

from __future__ import annotations

import os
from pathlib import Path

from trapless.base.console import TraplessError


def replace_file(path: Path, text: str) -> None:
    """Write `text` into a new file beside `path`, then rename it to `path`."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise TraplessError(f"{path}: cannot be written: {error.strerror}") from error
