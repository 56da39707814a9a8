# SPDX-License-Identifier: GPL-2.0-only
"""Packs chosen programs of a root, with the libraries they need, into one archive for a guest.

While a counted guest waits for a file of the host, its clock runs ahead, and the guest does and
counts whatever becomes due then; how often that happens depends on how busy the host is. So a
counted program finds its files in the guest's memory. This file owns how files are found and
packed. The experiments choose them; real_programs.py makes the root.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from trapless.base import elf
from trapless.base.console import TraplessError

LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
LOADER = "lib64/ld-linux-x86-64.so.2"
LINKS_MAX = 8  # one after another, before a link counts as a circle


def pack(root: Path, archive: Path, programs: Iterable[str], folders: Iterable[str] = ()) -> Path:
    """Write `archive`: programs of `root` with their loader and libraries, and the files (not the
    folders) in some folders. Links become what they lead to."""
    names = {LOADER}
    for program in programs:
        names |= {program, *libraries(root, program)}
    for folder in folders:
        files = (path for path in (root / folder).iterdir() if path.is_file())
        names |= {f"{folder}/{path.name}" for path in files}
    with tarfile.open(archive, "w", dereference=True) as tar:
        for name in sorted(names):
            tar.add(inside(root, name), arcname=name, recursive=False)
    return archive


def libraries(root: Path, name: str) -> Iterator[str]:
    """The libraries of a program or library, and the libraries of these."""
    for needed in elf.needs(inside(root, name)).libraries:
        places = (f"{folder}/{needed}" for folder in LIBRARIES)
        library = next((place for place in places if inside(root, place).is_file()), None)
        if library is None and needed != Path(LOADER).name:
            raise TraplessError(f"{name} needs {needed}, which is not among the programs' files")
        if library is not None:
            yield library
            yield from libraries(root, library)


def inside(root: Path, name: str) -> Path:
    """The path of a file of the root, with links followed inside the root."""
    path = root / name
    for _ in range(LINKS_MAX):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return path
