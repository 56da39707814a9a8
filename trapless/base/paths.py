# SPDX-License-Identifier: GPL-2.0-only
"""Paths of the checkout, and of the cache for everything that is fetched or built.

This file owns the rules by which both are found. Each part keeps a folder of its own in the cache
(docs/kernels.md lists them).
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "TRAPLESS_CACHE"


def repo_root() -> Path:
    """The checkout that holds this package."""
    return Path(__file__).resolve().parents[2]


def cache_dir() -> Path:
    """$TRAPLESS_CACHE, else $XDG_CACHE_HOME/trapless, else ~/.cache/trapless. May not exist yet."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the XDG specification: a relative value is to be ignored
        return Path(xdg) / "trapless"
    return Path.home() / ".cache" / "trapless"
