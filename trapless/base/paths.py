# SPDX-License-Identifier: GPL-2.0-only
"""Paths of the checkout, of its headers, and of the cache for everything that is fetched or built.

This file owns the rules by which they are found. Each part keeps a folder of its own in the cache
(docs/kernels.md lists them).
"""

from __future__ import annotations

import os
from pathlib import Path

from trapless.base.console import TraplessError

CACHE_VARIABLE = "TRAPLESS_CACHE"
SYSTEM_HEADERS = ("/usr/local/include/linux", "/usr/include/linux")


def repo_root() -> Path:
    """The checkout that holds this package."""
    return Path(__file__).resolve().parents[2]


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
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the XDG specification: a relative value is to be ignored
        return Path(xdg) / "trapless"
    return Path.home() / ".cache" / "trapless"
