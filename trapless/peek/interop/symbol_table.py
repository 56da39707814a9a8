# SPDX-License-Identifier: GPL-2.0-only
"""Writes the symbol table of a kernel for volatility3, from the parts that the sandbox describes.

Owns the file: the sections, what is said of its producer, and its compression. isf.py has the
entries.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from trapless import __version__
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.interop.core_writer import created
from trapless.peek.sandbox.isf import SECTIONS

if TYPE_CHECKING:
    from trapless.peek.sandbox.client import SandboxedTarget

FORMAT = "6.2.0"
PACKED = ".xz"


def write(target: SandboxedTarget, path: Path) -> int:
    """Write the table into a file, which must not be there, packed if its name ends in .xz; the
    number of symbols. A file that does not become whole is removed."""
    with created(path) as file:
        if path.suffix != PACKED:
            return _write(target, file)
        with lzma.open(file, "wb", preset=1) as packed:
            return _write(target, cast(BinaryIO, packed))


def _write(target: SandboxedTarget, file: BinaryIO) -> int:
    symbols = [{"kind": "symtab", "name": f"kallsyms of {target.release}"}]
    metadata = {
        "linux": {"symbols": symbols, "types": []},
        "producer": {"name": "trapless", "version": __version__},
        "format": FORMAT,
    }
    file.write(b'{"metadata":' + _json(metadata))
    count = 0
    for section in SECTIONS:
        file.write(b",\n" + _json(section) + b":{")
        entries = _entries(target, section)
        if section == SECTIONS[0]:  # those that every table has may be there twice
            entries = iter(dict(entries).items())
        count = 0
        for count, (name, entry) in enumerate(entries, 1):
            file.write((b",\n" if count > 1 else b"\n") + _json(name) + b":" + _json(entry))
        file.write(b"}")
    file.write(b"}\n")
    return count


def _entries(target: SandboxedTarget, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    start = 0
    for _ in range(limits.TABLE_PARTS_MAX):
        following, entries = target.isf(section, start)
        yield from entries
        if not following:
            return
        if following <= start:
            break
        start = following
    raise PeekError(f"{target.memory.name} has more types than any kernel: it is damaged")


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
