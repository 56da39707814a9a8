# SPDX-License-Identifier: GPL-2.0-only
"""Paths of the sources and their headers, of built programs, and of the cache for all the rest.

This file owns the rules by which they are found. Each part keeps a folder of its own in the cache
(docs/kernels.md lists them).
"""

from __future__ import annotations

import os
from pathlib import Path

from trapless.base.console import TraplessError

CACHE_VARIABLE = "TRAPLESS_CACHE"
SYSTEM_HEADERS = ("/usr/local/include/linux", "/usr/include/linux")

PACKAGE = Path(__file__).resolve().parents[1]
CARRIED = PACKAGE / "tree"
"""The sources in a package that pip installed: the module's, the library's, the experiments'."""


def repo_root() -> Path:
    """The tree of sources: the checkout or the installation that holds this package, or what
    the package itself carries."""
    return CARRIED if CARRIED.is_dir() else PACKAGE.parent


def build_dir() -> Path:
    """Where make puts programs: build/ in the tree; the cache, if this user may not write there."""
    root = repo_root()
    own = root / "build"
    if own.is_dir() or (root != CARRIED and os.access(root, os.W_OK)):
        return own
    import hashlib  # every command imports this file

    return cache_dir() / "build" / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def header_path(name: str) -> Path:
    """A header of the binary interface: of this checkout or installation, else of the system."""
    places = [repo_root() / "include" / "uapi" / "linux", *map(Path, SYSTEM_HEADERS)]
    for place in places:
        if (place / name).is_file():
            return place / name
    tried = ", ".join(str(place) for place in places)
    raise TraplessError(f"{name} is in none of {tried}; `make install` puts it there")


def cache_dir() -> Path:
    """$TRAPLESS_CACHE, else $XDG_CACHE_HOME/trapless, else ~/.cache/trapless. May not exist yet."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return _absolute(own)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the XDG specification: a relative value is to be ignored
        return Path(xdg) / "trapless"
    try:
        return Path.home() / ".cache" / "trapless"
    except RuntimeError as error:
        text = f"user {os.getuid()} has no home folder for the cache"
        raise TraplessError(f"{text}; name one with {CACHE_VARIABLE}=DIR") from error


def _absolute(path: str) -> Path:
    try:
        return Path(path).absolute()
    except FileNotFoundError as error:
        text = f"the current folder was removed, and {CACHE_VARIABLE}={path} is relative to it"
        raise TraplessError(f"{text}; change to another folder") from error
