# SPDX-License-Identifier: GPL-2.0-only
"""Keeps the decoded symbols of kernels in the cache, by build-id.

Owns `peek/BUILD-ID/` in the cache: a System.map as linked, and the digest of the tables that it was
decoded from. The symbols are used only where the tables in the target's memory have that digest, so
neither a damaged cache nor a wrong build-id can give wrong symbols. Without a cache that can be
written, each opening decodes the symbols again. A guest may be a new kernel after each restart, so
all kernels together have a bound of bytes, and the oldest go. The reader of a guest in its sandbox
may open no files: it asks its parent for these, by the same two functions of a Store.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import re
import shutil
import struct
from pathlib import Path
from typing import Protocol

from trapless.peek.kernel.kallsyms import RawTables, Symbols

MAP, DIGEST, LOCK = "System.map", "digest", "lock"
KEPT_BYTES_MAX = 512 << 20
"""The bound of all kernels' symbols together; a stock kernel's have 8 MB."""
_BUILD_ID = re.compile(r"[0-9a-f]{16,128}")  # it comes out of the target and becomes a path


class Store(Protocol):
    """Keeps two texts by build-id: a digest and a System.map. Neither function fails.

    What is damaged is not kept: load() gives None.
    """

    def load(self, build_id: str) -> tuple[bytes, bytes] | None: ...

    def save(self, build_id: str, digest: bytes, text: bytes) -> None: ...


class FileStore:
    """Keeps them in the cache of this user."""

    def load(self, build_id: str) -> tuple[bytes, bytes] | None:
        folder = _folder(build_id)
        if folder is None:
            return None
        try:
            digest, text = (folder / DIGEST).read_bytes(), (folder / MAP).read_bytes()
        except OSError:
            return None
        return (digest, text) if digest.endswith(_digest_of(text)) else None

    def save(self, build_id: str, digest: bytes, text: bytes) -> None:
        folder = _folder(build_id)
        if folder is None:
            return
        from trapless.base import cache
        from trapless.base.console import Silent, TraplessError

        with (
            contextlib.suppress(TraplessError, OSError),
            cache.locked(folder.with_name(LOCK), "keeping symbols", Silent()),
            cache.assembling(folder) as part,
        ):
            _make_room(folder.parent, part, len(text))
            (part / MAP).write_bytes(text)
            (part / DIGEST).write_bytes(digest)


def _folder(build_id: str) -> Path | None:
    from trapless.base.paths import cache_dir  # not in the sandbox, which begins sooner without

    return cache_dir() / "peek" / build_id if _BUILD_ID.fullmatch(build_id) else None


def _make_room(cached: Path, part: Path, size: int) -> None:
    """Remove the oldest kernels until there is room for so many bytes. The caller holds the
    lock."""
    kernels = [one for one in cached.iterdir() if one != part and one.is_dir()]
    kernels.sort(key=lambda one: one.stat().st_mtime)
    sizes = [sum(file.stat().st_size for file in one.iterdir()) for one in kernels]
    while kernels and sum(sizes) + size > KEPT_BYTES_MAX:
        shutil.rmtree(kernels.pop(0))
        sizes.pop(0)


def load(store: Store, build_id: str, raw: RawTables, shift: int) -> Symbols | None:
    """The symbols of these tables; None where the store does not have them."""
    kept = store.load(build_id)
    if kept is None:
        return None
    digest, text = kept
    if digest.split()[:1] != [raw.digest().encode()]:
        return None
    words = text.split()
    try:  # save() writes sixteen digits each
        digits = b"".join(words[::3])
        addresses = struct.unpack(f">{len(words) // 3}Q", binascii.unhexlify(digits))
        return Symbols(addresses, tuple(words[2::3]), b"".join(words[1::3]), shift)
    except (ValueError, struct.error):
        return None  # nothing that save() has written


def save(store: Store, build_id: str, raw: RawTables, symbols: Symbols) -> None:
    """Keep decoded symbols, where that is possible."""
    lines = zip(symbols.addresses, symbols.kinds, symbols.names, strict=True)
    text = b"".join([b"%016x %c %b\n" % line for line in lines])
    # A name with a space in it is not for a System.map, nor is one that a terminal would obey.
    if len(text.split()) == 3 * len(symbols) and _VISIBLE.fullmatch(text):
        store.save(build_id, _digest(raw, text), text)


_VISIBLE = re.compile(rb"[\n -~]*")


def _digest(raw: RawTables, text: bytes) -> bytes:
    """The digests of the tables in memory and of the text in the cache."""
    return raw.digest().encode() + _digest_of(text)


def _digest_of(text: bytes) -> bytes:
    return f" {hashlib.sha256(text).hexdigest()}\n".encode()
