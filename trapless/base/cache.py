# SPDX-License-Identifier: GPL-2.0-only
"""Puts a folder into the cache: complete, once, and by one process at a time.

This file owns locking, the temporary folder that a rename puts in place, and checksums. It does not
know what is cached; tools.py runs the programs that fill the folder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trapless.base.console import Progress, Silent, TraplessError
from trapless.base.paths import CACHE_VARIABLE
from trapless.base.tools import interrupts_deferred

FULL_BYTES = 1_000_000
"""A disk with less than this free is full: the last block is rarely used."""


@contextmanager
def locked(path: Path, doing: str, progress: Progress) -> Iterator[None]:
    """Hold the lock `path`; wait, saying so, while another process is `doing` the same."""
    descriptor = _lock(path, doing, progress)
    try:
        yield
    finally:
        os.close(descriptor)  # which also unlocks


def _lock(path: Path, doing: str, progress: Progress) -> int:
    while True:
        descriptor = _open_lock(path)
        try:
            if not _try_lock(descriptor):
                progress.step(f"waiting for another trapless that is {doing}")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_current(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # somebody removed the cache meanwhile: another lock is in force


def _open_lock(path: Path) -> int:
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the file that we have locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def assembling(target: Path, progress: Progress | None = None) -> Iterator[Path]:
    """A temporary folder beside `target` that replaces it when the block ends without an error.

    Whatever ends the block early (an error, a full disk, Ctrl-C) leaves `target` as it was and no
    temporary folder; what a kill -9 left is removed by the next call. Removing gigabytes may take a
    minute: a user who interrupts is told so, and cannot interrupt the removal. The caller holds a
    lock.
    """
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        for stale in target.parent.glob(f".{target.name}.*.part"):
            remove_tree(stale)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        try:
            part.chmod(0o755)
            yield part
            _replace(part, target)
        except TraplessError as error:
            if shutil.disk_usage(part).free < FULL_BYTES:  # then a tool's own words mislead
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(part)) from error
            raise
        except KeyboardInterrupt:
            watcher = progress if progress is not None else Silent()
            watcher.step(f"interrupted: removing what was half made in {part}")
            raise
        finally:
            with interrupts_deferred():
                remove_tree(part)


def _replace(part: Path, target: Path) -> None:
    """Rename `part` to `target`; an old `target` is removed only after that."""
    if not target.exists():
        part.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    target.rename(old / "old")
    try:
        part.rename(target)
    except BaseException:
        (old / "old").rename(target)
        raise
    finally:
        remove_tree(old)


def remove_tree(path: Path) -> None:
    """Remove a folder of ours, also where packages have made folders in it unwritable."""

    def retry_writable(function: Callable[[str], object], name: str, _error: object) -> None:
        parent = os.path.dirname(name)
        for folder in (parent, name):
            if os.path.isdir(folder) and not os.path.islink(folder):
                os.chmod(folder, 0o700)
        function(name)

    if path.exists():
        shutil.rmtree(path, onerror=retry_writable)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the errors that a path of the cache meets into ones that name it and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TraplessError(
                f"the disk is full while writing to {path.parent}; free some space there or name "
                f"another folder with {CACHE_VARIABLE}=DIR, then run again"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise TraplessError(
                f"cannot write to the cache: {error.filename}: {error.strerror}; name a folder "
                f"that you may write to with {CACHE_VARIABLE}=DIR"
            ) from error
        if error.errno == errno.ENOENT and str(error.filename).startswith(f"{path.parent}/"):
            raise TraplessError(
                f"somebody removed {error.filename} from the cache while it was in use; run again"
            ) from error
        raise


def need_space(folder: Path, need_bytes: int) -> None:
    """Raise TraplessError where the disk that holds `folder` has less than `need_bytes` free."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free_bytes = shutil.disk_usage(there).free
    if free_bytes < need_bytes:
        raise TraplessError(
            f"{folder} needs {megabytes(need_bytes)} and its disk has {megabytes(free_bytes)} "
            f"free; free some space or name another folder with {CACHE_VARIABLE}=DIR"
        )


def need_plain_path(folder: Path) -> None:
    """Refuse early a path with a space, at which make splits: the kernel's build does not accept
    it."""
    found = re.search(r"[\s:]", str(folder))
    if found is not None:
        raise TraplessError(
            f"the kernel's build takes no path with {found[0]!r} in it: {folder}; name a cache "
            f"without by {CACHE_VARIABLE}=DIR"
        )


def megabytes(count_bytes: int) -> str:
    """A number of bytes as text: 480 MB, 12 kB."""
    return f"{count_bytes / 1e6:,.0f} MB" if count_bytes >= 1e6 else f"{count_bytes / 1e3:.0f} kB"


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(root: Path, files: Iterable[Path], *more: str) -> str:
    """One SHA-256 over the names (below `root`) and contents of `files` and over `more`."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}\0{sha256_file(path)}\n".encode())
    for text in more:
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()
