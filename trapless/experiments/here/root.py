# SPDX-License-Identifier: GPL-2.0-only
"""A small root in memory in which a workload runs on this machine, with the files of a lab's guest.

This file owns mounts: all of them are in a namespace of this process, so that nobody else sees
them, and they are gone with it, however it ends. Nothing is written to a disk.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trapless.base.console import Silent, TraplessError
from trapless.vm import guest_tree
from trapless.vm.initramfs import Initramfs

CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
SIZE = "size=1g,mode=755"
"""The most memory that a root may take; it takes what its files do."""
SHARED = ("dev", "proc", "sys")
OWN = (("dev/shm", "mode=1777"), ("run", "mode=755"))

_libc = ctypes.CDLL(None, use_errno=True)


def leave_namespace() -> None:
    """Give this thread, and what it starts, a mount namespace of its own."""
    _call("unshare", CLONE_NEWNS)
    _call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)


@contextmanager
def made(plan: guest_tree.GuestPlan) -> Iterator[tuple[Path, str | None]]:
    """The root for a plan, and the path of its command in there; see guest_tree.add_system()."""
    tree = Initramfs()
    program = guest_tree.add_system(tree, plan, Silent())
    folder = Path(tempfile.mkdtemp(prefix="trapless-here-"))
    try:
        _mount("tmpfs", folder, SIZE)
        tree.unpack(folder)
        for name in SHARED:
            (folder / name).mkdir(exist_ok=True)
            _call("mount", f"/{name}", str(folder / name), None, MS_BIND | MS_REC, None)
        for name, options in OWN:
            (folder / name).mkdir(exist_ok=True)
            _mount("tmpfs", folder / name, options)
        yield folder, program
    finally:
        _libc.umount2(os.fsencode(folder), MNT_DETACH)
        folder.rmdir()


def _mount(kind: str, where: Path, options: str) -> None:
    _call("mount", kind, str(where), kind, 0, options)


def _call(name: str, *arguments: str | bytes | int | None) -> None:
    """One of the C library's functions; a TraplessError where it fails."""
    words = [os.fsencode(one) if isinstance(one, str) else one for one in arguments]
    if getattr(_libc, name)(*words) != 0:
        number = ctypes.get_errno()
        raise TraplessError(
            f"{name} {' '.join(str(one) for one in arguments if one)}: {os.strerror(number)}; "
            "`evaluate --here` mounts a small root in memory, which takes root outside of any "
            "container"
        )
