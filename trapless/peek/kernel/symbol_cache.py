# SPDX-License-Identifier: GPL-2.0-only
"""Kernels that were seen before: their decoded symbols in the cache, by build-id.

Owns `peek/BUILD-ID/` in the cache: a System.map as linked, and the digest of the tables that it
was decoded from. What is found is used only when that digest is the one of the tables in the
target's memory, so neither a damaged cache nor a build-id that lies can give wrong symbols. A
cache that cannot be written costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

from trapless.base import cache
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import cache_dir
from trapless.peek.kernel.kallsyms import RawTables, Symbols

MAP, DIGEST = "System.map", "digest"
_BUILD_ID = re.compile(r"[0-9a-f]{16,128}")  # it comes out of the target and becomes a path


def _folder(build_id: str) -> Path | None:
    return cache_dir() / "peek" / build_id if _BUILD_ID.fullmatch(build_id) else None


def load(build_id: str, raw: RawTables, shift: int) -> Symbols | None:
    """The symbols of these tables, if they were decoded before."""
    folder = _folder(build_id)
    if folder is None:
        return None
    try:
        digest = (folder / DIGEST).read_text()
        text = (folder / MAP).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    if digest != _digest(raw, text):
        return None
    words = text.split()
    addresses = tuple(int(word, 16) for word in words[::3])
    return Symbols(addresses, tuple(words[2::3]), "".join(words[1::3]), shift)


def save(build_id: str, raw: RawTables, symbols: Symbols) -> None:
    """Keep decoded symbols for the next time, where that is possible."""
    folder = _folder(build_id)
    if folder is None:
        return
    lines = zip(symbols.addresses, symbols.kinds, symbols.names, strict=True)
    text = "".join(f"{address:016x} {kind} {name}\n" for address, kind, name in lines)
    if len(text.split()) != 3 * len(symbols):  # a name with a space in it: not for a System.map
        return
    with (
        contextlib.suppress(TraplessError, OSError),
        cache.locked(folder.with_name(f"{build_id}.lock"), "keeping symbols", Silent()),
        cache.assembling(folder) as part,
    ):
        (part / MAP).write_text(text)
        (part / DIGEST).write_text(_digest(raw, text))


def _digest(raw: RawTables, text: str) -> str:
    """Of the tables in memory and of what the cache has of them."""
    return f"{raw.digest()} {hashlib.sha256(text.encode()).hexdigest()}\n"
