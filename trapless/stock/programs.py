# SPDX-License-Identifier: GPL-2.0-only
"""Real programs to try things on: packages of Debian in a root of their own, in the cache.

Owns the list of packages and the root's record. They are unpacked, not installed: no daemon of
theirs is ever started on this machine, every machine tries the same builds, and the lab's guests
reach them by chroot. It owns no way of fetching (packages.py) and runs nothing (the guest does).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trapless import cache
from trapless.console import Progress
from trapless.paths import cache_dir
from trapless.stock.kernel import refreshed, wants_refresh
from trapless.stock.packages import Package, opened

NAME = "programs"
SUITES = ("bookworm", "bookworm-security")
PACKAGES = (
    "busybox-static",
    "coreutils",
    "cpp-12",  # cc1, the C compiler proper
    "dash",
    "diffutils",
    "findutils",
    "fzf",  # written in Go
    "git",
    "grep",
    "gzip",
    "libc6-dev",  # with libgcc-12-dev: what C programs include
    "libgcc-12-dev",
    "luajit",
    "nginx",
    "nodejs",
    "python3",
    "redis-tools",  # redis-check-rdb is the server, too, under the server's name
    "sed",
    "sqlite3",
    "tar",
    "wrk",
)
FOLDERS = ("dev", "proc", "sys", "tmp", "run")  # to mount on
RECORD = "programs.json"
RECORD_FORMAT = 1


@dataclass(frozen=True)
class Programs:
    """An unpacked root, and the version of each package in it."""

    root: Path
    versions: dict[str, str]


def unpacked(progress: Progress, packages: Sequence[str] = PACKAGES) -> Programs:
    """The root with `packages`, fetched when the cache lacks it."""
    folder = cache_dir() / NAME
    wanted = sorted(packages)
    found = None if wants_refresh(NAME) else _load(folder, wanted)
    if found is None:
        lock = folder.with_name(f"{NAME}.lock")
        with cache.locked(lock, "fetching programs", progress):
            if wants_refresh(NAME) or (found := _load(folder, wanted)) is None:
                with cache.assembling(folder) as part:
                    _fetch(part, wanted, progress)
                refreshed(NAME)
                found = _load(folder, wanted)
        progress.done()
    assert found is not None  # assembling() put it there, and we held the lock
    return found


def _fetch(folder: Path, wanted: Sequence[str], progress: Progress) -> None:
    root = folder / "root"
    root.mkdir()
    with opened(SUITES, progress) as archive:
        packages = archive.closure(wanted)
        archive.fetch(packages, root, progress, what=f"programs, {len(packages)} packages")
    for name in FOLDERS:
        (root / name).mkdir(exist_ok=True)
    record = {"format": RECORD_FORMAT, "wanted": wanted, "packages": [asdict(p) for p in packages]}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def _load(folder: Path, wanted: Sequence[str]) -> Programs | None:
    """What `folder` holds, if that is what is wanted."""
    try:
        record = json.loads((folder / RECORD).read_text())
        if record["format"] != RECORD_FORMAT or record["wanted"] != list(wanted):
            return None
        packages = [Package(**fields) for fields in record["packages"]]
    except (FileNotFoundError, LookupError, TypeError, ValueError):
        return None
    return Programs(folder / "root", {package.name: package.version for package in packages})
