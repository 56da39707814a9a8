# SPDX-License-Identifier: GPL-2.0-only
"""The raw files of an experiment: their names, how they are read, and the messages for missing and
damaged ones.

A run writes them as they are; published ones are packed by xz. collection.py says what is in them.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trapless.base import json_text
from trapless.base.console import TraplessError

RAW_FILE = "raw.jsonl"
META_FILE = "meta.json"
PACKED = ".xz"
"""A raw file may also be saved as xz packs it, its name followed by this."""


def is_saved(path: Path) -> bool:
    """Whether a raw file is there, packed or not."""
    return path.exists() or _packed(path).exists()


def _packed(path: Path) -> Path:
    return path.with_name(path.name + PACKED)


def saved_bytes(path: Path) -> bytes:
    """The content of a raw file; a packed one is read where the file itself is not there."""
    packed = _packed(path)
    try:
        if path.exists() or not packed.exists():
            return path.read_bytes()
        return lzma.decompress(packed.read_bytes())
    except FileNotFoundError as error:
        raise TraplessError(f"{path}: no such file; `trapless evaluate` writes it") from error
    except lzma.LZMAError as error:
        raise TraplessError(f"{packed}: cannot be read: {error}") from error
    except OSError as error:
        raise TraplessError(f"{path}: cannot be read: {error}") from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a raw file, packed or not; a TraplessError names the line that is no row."""
    rows: list[dict[str, Any]] = []
    try:
        text = saved_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraplessError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json_text.parse(line)
        except ValueError as error:
            raise TraplessError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TraplessError(f"{path}, line {number}: not an object")
        rows.append(row)
    return rows


def json_lines(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as the text of a raw file: one JSON object a line."""
    return "".join(json.dumps(row) + "\n" for row in rows)
