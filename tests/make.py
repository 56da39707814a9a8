# SPDX-License-Identifier: GPL-2.0-only
"""Brings what tests run up to date, by make."""

from __future__ import annotations

import subprocess
from pathlib import Path

from trapless.base.console import TraplessError

ROOT = Path(__file__).resolve().parents[1]
EXTENSION = ROOT / "lib/bindings/python/libtrapless/_ring.abi3.so"
"""Of the library for Python: the checkout's package loads it."""

LIMIT_S = 900
"""For a make that hangs, seconds."""


def make(*words: str | Path) -> None:
    """Run make in the checkout with targets (a path may be absolute) and variables."""
    relative = [str(w.relative_to(ROOT) if isinstance(w, Path) else w) for w in words]
    command = ["make", "--no-print-directory", "-s", *relative]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise TraplessError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
