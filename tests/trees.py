# SPDX-License-Identifier: GPL-2.0-only
"""Random trees of files, for tests of programs that walk them: the same seed, the same tree."""

from __future__ import annotations

import os
import random
from pathlib import Path


def grow(folder: Path, generator: random.Random, depth: int) -> list[Path]:
    """A random tree of every kind of file; returns its regular files."""
    files: list[Path] = []
    for i in range(generator.randrange(1, 12)):
        path = folder / f"{generator.choice('abc -.')}{i}"
        what = generator.random()
        if what < 0.35 and depth:
            path.mkdir()
            files += grow(path, generator, depth - 1)
        elif what < 0.75:
            path.write_bytes(b"x" * generator.choice([0, 1, 4096, 4097, 70000]))
            files.append(path)
        elif what < 0.85:
            path.symlink_to(generator.choice(["..", ".", "nowhere", "/", "a0"]))
        elif what < 0.9:
            os.mkfifo(path)
        elif files:
            os.link(generator.choice(files), path)
    return files
