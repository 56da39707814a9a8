# SPDX-License-Identifier: GPL-2.0-only
"""Real programs for experiments: packages of Debian in a root of their own, in the cache.

This file owns the list of packages and sources, and the record of the root. Packages are unpacked
and not installed, so that no daemon starts on this machine and every machine runs the same builds.
Guests reach the root by chroot. packages.py and sources.py fetch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress
from trapless.base.paths import cache_dir
from trapless.stock import sources as sources_of
from trapless.stock.apt_sources import Index
from trapless.stock.packages import Package, opened
from trapless.stock.stores import obtain

NAME = "programs"
SUITES = ("bookworm", "bookworm-security")
PACKAGES = (
    "apache2-bin",
    "binutils",
    "busybox-static",
    "coreutils",
    "cpp-12",  # cc1, the C compiler proper
    "dash",
    "diffutils",
    "findutils",
    "fzf",  # written in Go
    "gcc-12",
    "git",
    "grep",
    "gzip",
    "libc6-dev",  # with libgcc-12-dev: what C programs include
    "libgcc-12-dev",
    "luajit",
    "make",
    "nginx",
    "nodejs",
    "python3",
    "redis-tools",  # redis-check-rdb is the server, too, under the server's name
    "sed",
    "sqlite3",
    "strace",
    "tar",
    "wrk",
)
SOURCES = ("lua5.4",)
"""Sources as their authors released them, unpacked into SOURCE_FOLDER of the root."""

SOURCE_FOLDER = "usr/src"
FOLDERS = ("dev", "proc", "sys", "tmp", "run")  # to mount on
NEED_BYTES = 750_000_000  # packages, what comes out of them, and package lists
RECORD = "programs.json"
RECORD_FORMAT = 2


Wanted = dict[str, list[str]]
"""Names of packages and of sources."""


@dataclass(frozen=True)
class Programs:
    """An unpacked root, and the version of each package and source in it."""

    root: Path
    versions: dict[str, str]


def unpacked(
    progress: Progress,
    packages: Sequence[str] = PACKAGES,
    sources: Sequence[str] = SOURCES,
    name: str = NAME,
    arch: Architecture = AMD64,
    suites: Sequence[str] = (),
) -> Programs:
    """The root with `packages` and `sources`, which are fetched where the cache lacks them.

    `name` is that of the root in the cache: one with other packages has another name. Packages are
    of SUITES where `suites` names no others."""
    folder = cache_dir() / name
    wanted = {"packages": sorted(packages), "sources": sorted(sources)}
    return obtain(
        name,
        folder,
        lambda: _load(folder, wanted),
        lambda part: _fetch(part, wanted, arch, suites or SUITES, progress),
        "fetching programs",
        progress,
    )


def foreign_busybox(arch: Architecture, progress: Progress) -> Path:
    """Debian's busybox for another architecture, linked statically."""
    package = "busybox-static"
    programs = unpacked(progress, (package,), (), f"{package}-{arch.name}", arch)
    return programs.root / "bin/busybox"


def foreign_libraries(arch: Architecture, progress: Progress) -> Path:
    """The root with the libraries that programs for another architecture are linked with, beside
    those of its cross compiler: liburing, which the experiments compare with."""
    package = "liburing-dev"
    return unpacked(progress, (package,), (), f"{package}-{arch.name}", arch).root


def _fetch(
    folder: Path, wanted: Wanted, arch: Architecture, suites: Sequence[str], progress: Progress
) -> None:
    root = folder / "root"
    root.mkdir()
    need_bytes = NEED_BYTES if wanted["sources"] else 0
    with opened(suites, progress, need_bytes=need_bytes, arch=arch) as archive:
        packages = archive.closure(wanted["packages"])
        archive.fetch(packages, root, progress, what=f"programs, {len(packages)} packages")
    for name in FOLDERS:
        (root / name).mkdir(exist_ok=True)
    made_from = []
    if wanted["sources"]:
        with opened(SUITES, progress, index=Index.SOURCES) as archive:
            for name in wanted["sources"]:
                place = root / SOURCE_FOLDER / name
                place.mkdir(parents=True)
                made_from.append(sources_of.fetch(archive, name, place, progress))
    record = {
        "format": RECORD_FORMAT,
        "wanted": wanted,
        "packages": [asdict(package) for package in packages],
        "sources": [asdict(source) for source in made_from],
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def _load(folder: Path, wanted: Wanted) -> Programs | None:
    """The root in `folder`, if it has what is wanted."""
    try:
        record = json.loads((folder / RECORD).read_text())
        if record["format"] != RECORD_FORMAT or record["wanted"] != wanted:
            return None
        packages = [Package(**fields) for fields in (*record["packages"], *record["sources"])]
    except (FileNotFoundError, LookupError, TypeError, ValueError):
        return None
    return Programs(folder / "root", {package.name: package.version for package in packages})
