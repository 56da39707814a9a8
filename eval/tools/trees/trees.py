# SPDX-License-Identifier: GPL-2.0-only
"""Packs a tree of files and programs of this machine for guests in which commands are counted.

This file owns how the tree is packed and unpacked, and the two ways in which kernels handle fresh
memory. Which commands run on the tree is the experiments' business.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection
from trapless.stock import kernels

ARCHIVE, TREE = "/tree.tar", "/tree"

STOCK, UNZEROED = "counted", "counted-unzeroed"
UNZEROED_APPEND = "init_on_alloc=0"
"""The labels of boots: the kernel as it is, and without its zeroing of fresh memory."""

FAIL = 'fail() { echo "{\\"failure\\": \\"$*\\"}"; exit 1; }'
PREPARE = (
    "set -e",
    FAIL,
    f"tar -x -f {ARCHIVE} -C /; rm {ARCHIVE}; mkdir /out",
)
"""Lines of the guest's shell that unpack the tree and define `fail`."""


FILES_EACH = 50
"""Empty files in each folder of a tree that is made in place."""


def made(folders: int) -> tuple[str, ...]:
    """Lines of the shell that make the tree in place, where there is none to be packed."""
    each = f'for i in $(seq {FILES_EACH}); do : > "$folder/file-$i.h"; done'
    return (
        "set -e",
        FAIL,
        f"mkdir {TREE} /out",
        f'for f in $(seq {folders}); do folder={TREE}/folder-$f; mkdir "$folder"; {each}; done',
    )


def entries(folders: int) -> int:
    """The entries of such a tree."""
    return 1 + folders * (1 + FILES_EACH)


def is_installed(name: str) -> bool:
    """Whether this machine has a program that could be brought along."""
    return shutil.which(name) is not None


def headers(run: Collection) -> Path:
    """A real tree that comes with every supported kernel: the headers to compile modules with."""
    build_dir = kernels.resolve(run.kernel, run.progress).build_dir
    if build_dir is None:
        raise TraplessError(f"kernel {run.kernel} has no headers, which are the tree to walk")
    common = sorted(build_dir.parent.glob("linux-headers-*-common/include"))
    return common[0] if common else build_dir / "include"


def pack(folder: Path, archive: Path) -> int:
    """Archive the folder, with the same bytes at every call; return the number of entries."""

    def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(folder, TREE.lstrip("/"), filter=without_owner)
        return len(tar.getmembers())


def host_program(name: str) -> Path:
    """A program of this machine; a TraplessError if it is not installed."""
    path = shutil.which(name)
    if path is None:
        raise TraplessError(f"{name} is not on this machine; it is run on the tree")
    return Path(path).resolve()


def version_of(name: str) -> str:
    """The first line of what a program of this machine prints with --version."""
    done = subprocess.run([host_program(name), "--version"], capture_output=True, text=True)
    return done.stdout.partition("\n")[0]
