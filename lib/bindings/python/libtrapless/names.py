# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""The names of system calls and their numbers, as the library's own table has them, and which
arguments are paths."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from libtrapless import abi

_PATHS: Final = {
    (0,): """access acct chdir chmod chown chroot creat execve getxattr lchown lgetxattr
        listxattr llistxattr lremovexattr lsetxattr lstat mkdir mknod open readlink removexattr
        rmdir setxattr stat statfs swapoff swapon truncate umount2 unlink utime utimes""",
    (1,): """execveat faccessat faccessat2 fchmodat fchmodat2 fchownat futimesat inotify_add_watch
        mkdirat mknodat name_to_handle_at newfstatat openat openat2 readlinkat statx unlinkat
        utimensat""",
    (0, 1): "link pivot_root rename symlink",
    (0, 2): "symlinkat",
    (1, 3): "linkat renameat renameat2",
}  # fmt: skip
_PATHS_OF: Final = {name: at for at, names in _PATHS.items() for name in names.split()}


def paths_of(name: str) -> tuple[int, ...]:
    """The arguments of a call that are paths, which Python's errors name."""
    return _PATHS_OF.get(name, ())


@cache
def _numbers() -> dict[str, int]:
    library, numbers = abi.library(), {}
    name = ctypes.c_char_p()
    for nr in range(abi.NR_MASK):
        if library.tl_call_get_class(nr, ctypes.byref(name), None) >= 0 and name.value:
            numbers[name.value.decode()] = nr
    return numbers


def number(name: str) -> int:
    """The number of a system call on x86-64.

    >>> number("openat")
    257
    """
    try:
        return _numbers()[name]
    except KeyError:
        raise ValueError(f"no system call has the name {name!r}") from None


def name_of(nr: int) -> str:
    """The name of a number, for messages."""
    name = ctypes.c_char_p()
    known = abi.library().tl_call_get_class(nr, ctypes.byref(name), None) >= 0
    return name.value.decode() if known and name.value else f"call {nr}"
