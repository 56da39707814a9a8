# SPDX-License-Identifier: GPL-2.0-only
"""Keeps the decoded symbols of kernels in the cache, by build-id.

Owns `peek/BUILD-ID/` in the cache: a System.map as linked, and the digest of the tables that it was
decoded from. The symbols are used only where the tables in the target's memory have that digest, so
neither a damaged cache nor a wrong build-id can give wrong symbols. Without a cache that can be
written, each opening decodes the symbols again.
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
    """The symbols of these tables; None where the cache does not have them."""
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
    """Store decoded symbols in the cache, where that is possible."""
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
    """The digests of the tables in memory and of the text in the cache."""
    return f"{raw.digest()} {hashlib.sha256(text.encode()).hexdigest()}\n"
