# SPDX-License-Identifier: GPL-2.0-only
"""Packs make and a C compiler, with all files that they open, for a guest's memory.

This file owns the choice of files, which are those of trapless/stock/real_programs.py; why they
come along, and how, is trapless/stock/program_archive.py's business. Enough to compile, not to
link.
"""

from __future__ import annotations

from pathlib import Path

from trapless.stock import program_archive

COMPILER = "usr/lib/gcc/x86_64-linux-gnu/12"
PROGRAMS = (
    *("bin/sh", "bin/rm", "usr/bin/tail"),
    *("usr/bin/make", "usr/bin/gcc-12", "usr/bin/as", f"{COMPILER}/cc1"),
)
HEADERS = (
    "usr/include",
    *(
        f"usr/include/x86_64-linux-gnu/{name}"
        for name in ("asm", "bits", "bits/types", "gnu", "sys")
    ),
    "usr/include/asm-generic",
    "usr/include/linux",
    f"{COMPILER}/include",
)
"""Folders; of those in them, none but these is needed."""

ARCHIVE = "toolchain.tar"
ROOT = "/tmp/toolchain"
PREPARE = (
    f"mkdir -p {ROOT}/tmp {ROOT}/dev; tar -x -m --warning=none -C {ROOT} -f /tmp/{ARCHIVE}; "
    f"for place in tmp dev; do busybox mount --bind /$place {ROOT}/$place; done"
)
"""Lines of the shell that unpack it, inside the root of programs."""


def pack(root: Path, folder: Path) -> Path:
    """The archive, in `folder`, from a root of programs."""
    return program_archive.pack(root, folder / ARCHIVE, PROGRAMS, HEADERS)
