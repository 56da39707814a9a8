# SPDX-License-Identifier: GPL-2.0-only
"""Fetches sources as their authors released them: the original tarball of a Debian source package.

This file verifies the tarball against the mirror's signed index and unpacks it. It does not apply
Debian's changes and builds nothing. packages.py owns the private apt.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from trapless.base import cache, tools
from trapless.base.console import Progress, TraplessError
from trapless.stock.packages import Archive, Package


@dataclass(frozen=True)
class Tarball:
    """One original tarball; `package` has the release, size and checksum of it."""

    file: str
    package: Package


def parse_tarball(text: str) -> Tarball | None:
    """The original tarball among what `apt-get source --print-uris` prints; None without one.

    >>> parse_tarball(f"'file:/pool/a_1.2.orig.tar.gz' a_1.2.orig.tar.gz 9 SHA256:{'0' * 64}").file
    'a_1.2.orig.tar.gz'
    """
    for line in text.splitlines():
        match = re.fullmatch(
            r"'[^']+' (([^_ ]+)_([^_ ]+)\.orig\.tar\.\w+) (\d+) SHA256:(\w{64})", line
        )
        if match:
            file, name, version, size, digest = match.groups()
            return Tarball(file, Package(name, urllib.parse.unquote(version), int(size), digest))
    return None


def fetch(archive: Archive, name: str, folder: Path, progress: Progress) -> Package:
    """Unpack the original source `name` into `folder`, which must exist; what it was.

    `archive` was opened for sources.
    """
    original = parse_tarball(archive.ask("apt-get", "source", "-q", "--print-uris", name))
    if original is None:
        raise archive.missing(f"source {name}")
    with cache.assembling(folder / ".download") as download:
        progress.step(f"downloading the source of {name}")
        log = download / "download.log"
        argv = archive.command("apt-get", "source", "-q", "--download-only", "--tar-only", name)
        if tools.run_tool(argv, log, cwd=download) != 0:
            raise TraplessError(
                f"could not download the source of {name}; nothing was kept. Check the network "
                f"and run again. apt says:\n{tools.last_lines(log)}"
            )
        tarball = download / original.file
        digest = cache.sha256_file(tarball)
        if digest != original.package.sha256:
            raise TraplessError(
                f"{original.file} is damaged: its SHA-256 is {digest} and the mirror's signed "
                f"index says {original.package.sha256}; nothing was kept. Run again"
            )
        _unpack(tarball, folder, log)
    cache.remove_tree(folder / ".download")
    return original.package


def _unpack(tarball: Path, folder: Path, log: Path) -> None:
    """Unpack the content of the tarball's one folder into `folder`.

    tar does it, because Debian's first Python 3.11 cannot refuse members that lead elsewhere.
    """
    argv = ["tar", "--extract", "--strip-components=1", "--no-same-owner"]
    argv += [f"--directory={folder}", f"--file={tarball}"]
    if tools.run_tool(argv, log) != 0:
        raise TraplessError(
            f"could not unpack {tarball.name}; nothing was kept. tar says:\n{tools.last_lines(log)}"
        )
