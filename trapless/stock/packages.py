# SPDX-License-Identifier: GPL-2.0-only
"""Fetches, verifies and unpacks Debian packages through a private apt, without installing them.

This file owns the private apt configuration and the way from a package name to an unpacked tree
with verified checksums. apt verifies the signature of the mirror's index, and every download
against that index; the checksums in it are verified once more before unpacking, and handed to the
caller. This file names no package and no release. It needs no root and writes nothing outside the
cache.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trapless.base import cache, tools
from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import cache_dir
from trapless.stock.apt_sources import MIRROR_VARIABLE, Index, Mirror, machine_mirror

UNPACKED_RATIO = 6
"""Bytes of the packages and of their unpacked files, to bytes of the packages; 4 to 5.5
measured."""

TOOLS = {
    "apt-get": "apt",
    "apt-cache": "apt",
    "dpkg-deb": "dpkg",
}

# `#clear` works only in a file, and only one read after the machine's own: hence `apt-get -c`.
# The machine's proxies and credentials stay in force; its hooks (which may touch system folders)
# and its preferences do not. The sandbox user could not read a cache in a private home.
CONFIGURATION = """\
Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Default-Release "";
APT::Install-Recommends "false";
APT::Get::AllowUnauthenticated "false";
APT::Sandbox::User "root";
Acquire::AllowInsecureRepositories "false";
Acquire::ForceHash "SHA256";
Acquire::GzipIndexes "true";
Acquire::Languages "none";
Acquire::Retries "2";
"""


REMEDIES = {
    "is expired": "the mirror is out of date or this machine's clock is wrong: set the clock, or "
    f"name a current mirror with {MIRROR_VARIABLE}=URI",
    "NO_PUBKEY": "this machine's keyring is too old for the mirror: update the package "
    "debian-archive-keyring",
    "resolving": "this machine reaches no name server: check the network",
}
"""What helps, by a word of apt's complaint."""

OTHER_REMEDY = "check the network and the mirror"


@dataclass(frozen=True)
class Package:
    """One package as the mirror's signed index describes it."""

    name: str
    version: str
    size_bytes: int
    sha256: str

    @property
    def exact(self) -> str:
        """The name that makes apt take this version and no other."""
        return f"{self.name}={self.version}"


@contextmanager
def opened(
    suites: Sequence[str],
    progress: Progress,
    mirror: Mirror | None = None,
    index: Index = Index.PACKAGES,
    need_bytes: int = 0,
    arch: Architecture = AMD64,
) -> Iterator[Archive]:
    """The current package lists of `suites`, under a lock that keeps other processes out.

    `need_bytes` says roughly how much will be fetched and unpacked. A disk without room for it is
    refused at once.
    """
    cache.need_space(cache_dir(), need_bytes)
    tools.require_tools(TOOLS, "fetching kernel packages")
    archive = Archive(suites, mirror or machine_mirror(), index, arch)
    with cache.locked(archive.lock, "fetching Debian packages", progress):
        archive.update(progress)
        yield archive


class Archive:
    """Some suites of a Debian mirror, seen through an apt state of our own; see `opened`."""

    def __init__(
        self,
        suites: Sequence[str],
        mirror: Mirror,
        index: Index = Index.PACKAGES,
        arch: Architecture = AMD64,
    ) -> None:
        self.suites = tuple(suites)
        self._mirror = mirror
        self._index = index
        self._arch = arch
        name = "+".join(self.suites) + ("+source" if index is Index.SOURCES else "")
        name += "" if arch == AMD64 else f"+{arch.name}"
        self._folder = cache_dir() / "apt" / name
        self._complaints = ""

    @property
    def lock(self) -> Path:
        """The lock that a user of this state holds."""
        return self._folder.with_suffix(".lock")

    def update(self, progress: Progress) -> None:
        """Fetch the suites' indices. A suite that the mirror lacks is no error by itself.

        The complaints of apt are kept: they explain why a package is missing later.
        """
        self._configure()
        progress.step(f"reading Debian's package lists ({', '.join(self.suites)})")
        log = self._folder / "update.log"
        log.unlink(missing_ok=True)
        tools.run_tool(self.command("apt-get", "update"), log)
        lines = log.read_text(errors="replace").splitlines()
        self._complaints = "\n".join(
            f"    {line}" for line in lines if line.startswith(("E:", "W:", "Err:"))
        )

    def dependencies(self, name: str) -> list[list[str]]:
        """The names that each known version of `name` depends on, highest version first."""
        records = self.ask("apt-cache", "show", name)
        return [
            re.findall(r"[a-z0-9][a-z0-9+.-]+(?=[ ,(|]|$)", line.removeprefix("Depends:"))
            for line in records.splitlines()
            if line.startswith("Depends:")
        ]

    def closure(self, names: Sequence[str]) -> list[Package]:
        """`names` and all that they depend on, as on a machine with nothing installed."""
        argv = self.command("apt-get", "install", "-y", "-q", "--print-uris", *names)
        answer = subprocess.run(argv, capture_output=True, text=True, env=_environment())
        if answer.returncode != 0:
            raise self.missing(" ".join(names), answer.stderr)
        return parse_uris(answer.stdout)

    def missing(self, what: str, output: str = "") -> TraplessError:
        """The error for a package that the mirror does not give."""
        details = "\n".join(part.rstrip() for part in (output, self._complaints) if part.strip())
        remedy = next((text for word, text in REMEDIES.items() if word in details), OTHER_REMEDY)
        return TraplessError(
            f"no {what} in the suites {', '.join(self.suites)} of this machine's Debian mirror "
            f"({self._mirror.archive}); {remedy}, then run again"
            + (f". apt says:\n{details}" if details else "")
        )

    def fetch(
        self,
        packages: Sequence[Package],
        root: Path,
        progress: Progress,
        *,
        what: str,
    ) -> None:
        """Download `packages`, verify them and unpack them into `root`, which must exist."""
        total_bytes = sum(package.size_bytes for package in packages)
        cache.need_space(cache_dir(), UNPACKED_RATIO * total_bytes)
        debs = root / ".debs"
        debs.mkdir()
        progress.step(f"downloading {what} ({cache.megabytes(total_bytes)})")
        self._download(packages, debs, lambda done: progress.advance(done, total_bytes))
        files = {package: _verified(package, debs) for package in packages}
        progress.step(f"unpacking {what}")
        for index, (package, deb) in enumerate(files.items()):
            _unpack(package, deb, root)
            deb.unlink()
            progress.advance(index + 1, len(packages))
        cache.remove_tree(debs)

    def _download(
        self, packages: Sequence[Package], folder: Path, advance: Callable[[float], None]
    ) -> None:
        log = folder / "download.log"
        argv = self.command("apt-get", "download", "-q", *(package.exact for package in packages))

        def watch() -> None:
            # apt renames a file away while we look: what is gone counts on the next look
            sizes = (entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
            with contextlib.suppress(FileNotFoundError):
                advance(sum(sizes))

        if tools.run_tool(argv, log, cwd=folder, watch=watch) != 0:
            raise TraplessError(
                f"could not download {', '.join(package.name for package in packages)} from "
                f"{self._mirror.archive}; nothing was kept. Check the network and run again. "
                f"apt says:\n{tools.last_lines(log)}"
            )

    def _configure(self) -> None:
        for name in ("lists/partial", "archives/partial"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()  # empty: nothing is installed
        text = CONFIGURATION.format(folder=self._folder, architecture=self._arch.name)
        (self._folder / "apt.conf").write_text(text)
        sources = self._mirror.sources(self.suites, self._folder, self._index)
        (self._folder / "sources.list").write_text(sources)

    def command(self, tool: str, *arguments: str) -> list[str]:
        """The command line of one of apt's tools that sees these suites only."""
        return [tool, "-c", str(self._folder / "apt.conf"), *arguments]

    def ask(self, tool: str, *arguments: str) -> str:
        """apt's answer from the lists it has; empty when it knows no such package."""
        argv = self.command(tool, *arguments)
        return subprocess.run(argv, capture_output=True, text=True, env=_environment()).stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def parse_uris(text: str) -> list[Package]:
    """Read what `apt-get --print-uris` prints: 'URI' NAME_VERSION_ARCH.deb SIZE SHA256:HEX."""
    packages = []
    for line in text.splitlines():
        match = re.fullmatch(r"'[^']+' ([^_ ]+)_([^_ ]+)_[^_ ]+\.deb (\d+) SHA256:(\w{64})", line)
        if match:
            name, version, size, digest = match.groups()
            packages.append(Package(name, urllib.parse.unquote(version), int(size), digest))
        elif line.startswith("'"):
            raise TraplessError(
                f"apt names no SHA-256 for a package and it cannot be verified: {line}"
            )
    return packages


def _verified(package: Package, folder: Path) -> Path:
    """The downloaded file of `package`, its content proved to be what the index promised."""
    names = sorted(folder.glob(f"{package.name}_*.deb"))
    if len(names) != 1:
        raise TraplessError(f"the download of {package.exact} left {len(names)} files; run again")
    digest = cache.sha256_file(names[0])
    if digest != package.sha256:
        raise TraplessError(
            f"{names[0].name} is damaged: its SHA-256 is {digest} and the mirror's signed index "
            f"says {package.sha256}; nothing was kept. Run again; if it stays, change the mirror"
        )
    return names[0]


def _unpack(package: Package, deb: Path, root: Path) -> None:
    log = deb.with_suffix(".log")
    if tools.run_tool(["dpkg-deb", "-x", str(deb), str(root)], log) != 0:
        raise TraplessError(
            f"cannot unpack {package.exact}; nothing was kept. dpkg-deb says:\n"
            f"{tools.last_lines(log, 3)}"
        )
