# SPDX-License-Identifier: GPL-2.0-only
"""Python for the image: Debian's packages, unpacked into the cache, and everything compiled.

The image has a Python of its own, so that it is the same on whatever machine it is built. This file
owns the list of packages and what of their files is left out.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from trapless.base.console import Progress, TraplessError
from trapless.stock import program_archive, real_programs
from trapless.vm.initramfs import Initramfs

PACKAGES = (
    "coreutils",  # with findutils, commands that experiments run
    "findutils",
    "python3",
    "python3-click",
    "python3-pyelftools",
    "python3-rich",
)
NAME = "image"
PROGRAM = "usr/bin/python3.11"
FOLDERS = ("bin", "lib", "lib64", "usr/bin", "usr/lib")
LEFT_OUT = frozenset(
    ("__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests", "turtledemo")
)
"""Folders of which nothing runs here: other programs, and tests."""

COMPILE = """\
import py_compile, sys
for number, line in enumerate(sys.stdin):
    source, target, name = line.rstrip("\\n").split("\\t")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(source, target, name, doraise=True, invalidation_mode=mode)
    print(number, flush=True)
"""


def unpacked(progress: Progress) -> real_programs.Programs:
    """The packages, from the cache or fetched."""
    return real_programs.unpacked(progress, PACKAGES, (), NAME)


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Each file and link of the runtime with its path in the image."""
    for folder in FOLDERS:
        for at, folders, names in os.walk(root / folder):
            folders[:] = sorted(set(folders) - LEFT_OUT)
            for name in sorted([*names, *(f for f in folders if (Path(at) / f).is_symlink())]):
                path = Path(at) / name
                yield f"/{path.relative_to(root)}", path


def add(tree: Initramfs, root: Path) -> None:
    """Put the runtime into the image."""
    for target, path in files(root):
        if path.is_symlink():
            tree.symlink(target, os.readlink(path))
        else:
            tree.file(target, path, path.stat().st_mode & 0o777)


def add_compiled(tree: Initramfs, root: Path, scratch: Path, progress: Progress) -> None:
    """Compile all Python that is in the image, so that a start on it does not take a minute."""
    jobs: list[tuple[Path, Path, str, str]] = []
    for name, source in sorted(tree.files(".py")):
        stem = name.rpartition("/")[2].removesuffix(".py")
        compiled = f"{name.rpartition('/')[0]}/__pycache__/{stem}.cpython-311.pyc"
        jobs.append((source, scratch / f"{len(jobs)}.pyc", name, compiled))
    listing = scratch / "listing"
    listing.write_text("".join(f"{source}\t{to}\t{name}\n" for source, to, name, _ in jobs))
    progress.step(f"compiling {len(jobs)} files of Python")
    with (
        listing.open("rb") as names,
        (scratch / "complaints").open("w+b") as complaints,
        subprocess.Popen(
            _python(root, "-c", COMPILE),
            stdin=names,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={"PYTHONHOME": str(root / "usr"), "LC_ALL": "C.UTF-8"},
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            progress.advance(int(line) + 1, len(jobs))
        if process.wait():
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip()
            raise TraplessError(f"the image's Python cannot compile its files: {said}")
    for _, made, _, compiled in jobs:
        tree.file(compiled, made)


def _python(root: Path, *arguments: str) -> Sequence[str]:
    """The command that runs the image's Python on this machine, whatever its own libraries are."""
    loader = program_archive.inside(root, program_archive.LOADER)
    libraries = ":".join(str(root / folder) for folder in program_archive.LIBRARIES)
    return [str(loader), "--library-path", libraries, str(root / PROGRAM), "-S", *arguments]
