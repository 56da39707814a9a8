# SPDX-License-Identifier: GPL-2.0-only
"""make and a C compiler, with all that they open, for a guest's memory.

A counted guest that waits for a file of the host's has its clock run ahead meanwhile, and whatever
else is due then is done and counted; how often depends on how busy this machine is. So what a build
reads comes along in one archive. Owns the choice of files; they are those of
trapless/stock/programs.py. Enough to compile, not to link.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

from trapless.console import TraplessError
from trapless.vm import elf

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

LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
LOADER = "lib64/ld-linux-x86-64.so.2"

ARCHIVE = "toolchain.tar"
ROOT = "/tmp/toolchain"
PREPARE = (
    f"mkdir -p {ROOT}/tmp {ROOT}/dev; tar -x -m --warning=none -C {ROOT} -f /tmp/{ARCHIVE}; "
    f"for place in tmp dev; do busybox mount --bind /$place {ROOT}/$place; done"
)
"""Lines of the shell that unpack it, inside the root of programs."""


def pack(root: Path, folder: Path) -> Path:
    """The archive, in `folder`, from a root of programs."""
    archive = folder / ARCHIVE
    with tarfile.open(archive, "w", dereference=True) as tar:
        for name in sorted(set(files(root))):
            tar.add(inside(root, name), arcname=name, recursive=False)
    return archive


def files(root: Path) -> Iterator[str]:
    yield LOADER
    for program in PROGRAMS:
        yield program
        yield from libraries(root, program)
    for folder in HEADERS:
        for path in sorted((root / folder).iterdir()):
            if path.is_file():
                yield f"{folder}/{path.name}"


def libraries(root: Path, name: str) -> Iterator[str]:
    """What a program or library is linked with, and what that is."""
    for needed in elf.needs(inside(root, name)).libraries:
        places = (f"{folder}/{needed}" for folder in LIBRARIES)
        found = next((place for place in places if inside(root, place).is_file()), None)
        if found is None and needed != Path(LOADER).name:
            raise TraplessError(f"{name} needs {needed}, which is not among the programs' files")
        if found is not None:
            yield found
            yield from libraries(root, found)


def inside(root: Path, name: str) -> Path:
    """A file of the root; links lead nowhere out of it."""
    path = root / name
    for _ in range(8):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return path
