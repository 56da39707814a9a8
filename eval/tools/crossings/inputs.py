# SPDX-License-Identifier: GPL-2.0-only
"""Inputs of counted commands: the kernel's headers as a tree to walk, and programs of this machine.

It owns where they come from and how the tree is packed. The experiments choose the commands.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection
from trapless.stock import kernels

TREE = "/tree"
"""Where a guest has the tree after it has unpacked the archive in its root."""


def headers(run: Collection) -> Path:
    """A real tree that every supported kernel brings: the headers that it is compiled with."""
    build_dir = kernels.resolve(run.kernel, run.progress).build_dir
    if build_dir is None:
        raise TraplessError(f"kernel {run.kernel} has no headers, which are the tree to walk")
    common = sorted(build_dir.parent.glob("linux-headers-*-common/include"))
    return common[0] if common else build_dir / "include"


def pack_tree(folder: Path, archive: Path) -> int:
    """An archive of the folder that is the same whenever it is made; returns its entries."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(folder, TREE.lstrip("/"), filter=plain)
        return len(tar.getmembers())


def host_program(name: str) -> Path:
    """The file of a program of this machine."""
    path = shutil.which(name)
    if path is None:
        raise TraplessError(f"{name} is not on this machine; counted commands are compared with it")
    return Path(path).resolve()


def version_of(name: str) -> str:
    """What a program of this machine says its version is."""
    done = subprocess.run([host_program(name), "--version"], capture_output=True, text=True)
    return done.stdout.partition("\n")[0]
