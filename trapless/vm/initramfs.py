# SPDX-License-Identifier: GPL-2.0-only
"""Writes a cpio archive in the "newc" form that the kernel unpacks as its first root.

This file owns the format (Documentation/driver-api/early-userspace/buffer-format.rst) and the rule
that /bin, /sbin, /lib and /lib64 are links into /usr, as on Debian: a file added at /lib/x has both
names. guest_tree.py chooses the files.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

MERGED = ("bin", "sbin", "lib", "lib64")
NAME_BYTES_MAX = 4095  # PATH_MAX without its NUL: the kernel skips entries with longer names
FILE_BYTES_MAX = (1 << 32) - 1  # eight hexadecimal digits


@dataclass(frozen=True)
class Entry:
    """One member: `content` is bytes, or the host's file to copy when the archive is written."""

    mode: int  # type and permissions, as in stat
    uid: int = 0
    content: bytes | Path = b""

    def size(self) -> int:
        """Bytes of content."""
        if isinstance(self.content, Path):
            return self.content.stat().st_size
        return len(self.content)


class Tree(Protocol):
    """An archive that the kernel can unpack as its first root."""

    def size(self) -> int:
        """Its size in bytes."""

    def write(self, archive: BinaryIO) -> None:
        """Write the archive."""


@dataclass(frozen=True)
class Packed:
    """A tree as the bytes that were written before, maybe on another machine."""

    archive: bytes

    def size(self) -> int:
        return len(self.archive)

    def write(self, archive: BinaryIO) -> None:
        archive.write(self.archive)


class Initramfs:
    """A tree to be written. Parents are added by themselves; the last of two equal paths counts."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        for name in MERGED:
            self.directory(f"/usr/{name}")
            self._entries[name] = Entry(stat.S_IFLNK | 0o777, content=f"usr/{name}".encode())

    def __contains__(self, path: str) -> bool:
        return self._name(path) in self._entries

    def directory(self, path: str, mode: int = 0o755, uid: int = 0) -> None:
        """A directory, and its parents with mode 755."""
        self._put(path, Entry(stat.S_IFDIR | mode, uid))

    def file(self, path: str, content: bytes | Path, mode: int = 0o644, uid: int = 0) -> None:
        """A regular file with the given bytes or a copy of the host's file."""
        self._put(path, Entry(stat.S_IFREG | mode, uid, content))

    def symlink(self, path: str, target: str) -> None:
        """A symbolic link."""
        self._put(path, Entry(stat.S_IFLNK | 0o777, content=target.encode()))

    def files(self, suffix: str) -> list[tuple[str, Path]]:
        """The copies of the host's files whose names end with `suffix`: path here, path there."""
        return [
            (f"/{name}", entry.content)
            for name, entry in self._entries.items()
            if isinstance(entry.content, Path) and name.endswith(suffix)
        ]

    def size(self) -> int:
        """Bytes the contents take, without headers."""
        return sum(entry.size() for entry in self._entries.values())

    def write(self, archive: BinaryIO) -> None:
        """Write all entries, parents first, and the trailer."""
        for number, (name, entry) in enumerate(sorted(self._entries.items()), start=1):
            _write_entry(archive, number, name, entry)
        _write_entry(archive, 0, "TRAILER!!!", Entry(0))

    def unpack(self, folder: Path) -> None:
        """Make the entries in a folder that has none of them, as the kernel would in its root."""
        for name, entry in sorted(self._entries.items()):
            path = folder / name
            if stat.S_ISDIR(entry.mode):
                path.mkdir()
            elif stat.S_ISLNK(entry.mode):
                assert isinstance(entry.content, bytes)
                path.symlink_to(entry.content.decode())
                continue
            elif isinstance(entry.content, Path):
                shutil.copyfile(entry.content, path)
            else:
                path.write_bytes(entry.content)
            os.chown(path, entry.uid, entry.uid)
            path.chmod(stat.S_IMODE(entry.mode))

    def _put(self, path: str, entry: Entry) -> None:
        name = self._name(path)
        if not name or name in MERGED:
            return  # the root and the links are there already
        if len(name.encode()) > NAME_BYTES_MAX:
            raise ValueError(f"path of more than {NAME_BYTES_MAX} bytes: {name[:60]}...")
        if entry.size() > FILE_BYTES_MAX:
            raise ValueError(f"{path} is larger than the 4 GiB that an initramfs can hold")
        for parent in list(PurePosixPath(name).parents)[:-1]:
            self._entries.setdefault(str(parent), Entry(stat.S_IFDIR | 0o755))
        self._entries[name] = entry

    @staticmethod
    def _name(path: str) -> str:
        parts = [part for part in PurePosixPath(path).parts if part not in ("/", ".")]
        if ".." in parts:
            raise ValueError(f"path with '..': {path}")
        if len(parts) > 1 and parts[0] in MERGED:
            parts.insert(0, "usr")
        return "/".join(parts)


def _write_entry(archive: BinaryIO, inode: int, name: str, entry: Entry) -> None:
    size = entry.size()
    encoded = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (inode, entry.mode, entry.uid, entry.uid, links, 0, size, 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    archive.write(_padded(header))
    if isinstance(entry.content, Path):
        with entry.content.open("rb") as source:
            shutil.copyfileobj(source, archive, 1 << 20)
        archive.write(b"\0" * (-size % 4))
    else:
        archive.write(_padded(entry.content))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
