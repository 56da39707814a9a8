# SPDX-License-Identifier: GPL-2.0-only
"""A Debian repository in a folder, signed with a key made for it: for tests without a network.

It owns the making of packages, index and signature, as a real mirror has them. It owns no test.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from trapless.stock.apt_sources import Mirror

TOOLS = ("apt-get", "dpkg-deb", "gpg", "gpgv")
ARCHITECTURES = ("amd64", "arm64")
SOURCE_COMPONENT = "main/source"


needs_apt = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in TOOLS), reason="needs apt, dpkg-deb and gpg"
)


class Signer:
    """A key made for the tests, in a keyring of its own."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "gpg"
        self._home.mkdir(mode=0o700)
        self._gpg("--quick-generate-key", "test", "ed25519", "sign", "never")
        self.public = folder / "key.asc"
        self.public.write_bytes(self._gpg("--armor", "--export", "test"))

    def sign(self, file: Path, signed: Path) -> None:
        signed.unlink(missing_ok=True)
        self._gpg("--clearsign", "--output", str(signed), str(file))

    def close(self) -> None:
        """End the key agent that gpg left running."""
        subprocess.run(["gpgconf", "--homedir", str(self._home), "--kill", "all"], check=False)

    def _gpg(self, *arguments: str) -> bytes:
        argv = ["gpg", "--homedir", str(self._home), "--batch", "--passphrase", "", *arguments]
        return subprocess.run(argv, check=True, capture_output=True).stdout


class Repository:
    """Packages are added with `add`; `publish` writes and signs the index of one suite."""

    def __init__(self, folder: Path, suite: str, signer: Signer) -> None:
        self.folder = folder
        self.suite = suite
        self._signer = signer
        self._stanzas: dict[str, list[str]] = {arch: [] for arch in ARCHITECTURES}
        self._sources: list[str] = []

    @property
    def mirror(self) -> Mirror:
        return Mirror(f"file:{self.folder}", None, str(self._signer.public))

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, bytes],
        *,
        depends: str = "",
        arch: str = "amd64",
    ) -> Path:
        """Make a package that holds `files`; its path in the pool."""
        tree = self.folder / "trees" / f"{name}_{version}_{arch}"
        for path, content in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: {arch}\n"
            f"Maintainer: nobody <nobody@invalid>\nDescription: for a test\n"
            + (f"Depends: {depends}\n" if depends else "")
        )
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (tree / "DEBIAN").chmod(0o755)
        (tree / "DEBIAN" / "control").write_text(control)
        pool = self.folder / "pool"
        pool.mkdir(parents=True, exist_ok=True)
        deb = pool / f"{name}_{version.replace(':', '%3a')}_{arch}.deb"
        subprocess.run(
            ["dpkg-deb", "--build", "-Znone", tree, deb], check=True, capture_output=True
        )
        content = deb.read_bytes()
        self._stanzas[arch].append(
            f"{control}Filename: pool/{deb.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
        return deb

    def add_source(self, name: str, version: str, files: Mapping[str, bytes]) -> Path:
        """Make a source package whose original tarball holds `files`; the tarball's path."""
        pool = self.folder / "pool"
        pool.mkdir(parents=True, exist_ok=True)
        tarball = pool / f"{name}_{version}.orig.tar.gz"
        with tarfile.open(tarball, "w:gz") as archive:
            for path, content in files.items():
                member = tarfile.TarInfo(f"{name}-{version}/{path}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        description = pool / f"{name}_{version}-1.dsc"
        description.write_text(f"Format: 1.0\nSource: {name}\n")
        sums = "".join(
            f"\n {hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_size} {file.name}"
            for file in (description, tarball)
        )
        self._sources.append(
            f"Package: {name}\nVersion: {version}-1\nArchitecture: any\nFormat: 1.0\n"
            f"Binary: {name}\nDirectory: pool\nChecksums-Sha256:{sums}\n"
        )
        return tarball

    def publish(self, more: str = "") -> None:
        """Write Packages and a signed InRelease, with `more` fields."""
        dist = self.folder / "dists" / self.suite
        sums = ""
        for component, index, stanzas in (
            *((f"main/binary-{arch}", "Packages", self._stanzas[arch]) for arch in ARCHITECTURES),
            (SOURCE_COMPONENT, "Sources", self._sources),
        ):
            (dist / component).mkdir(parents=True, exist_ok=True)
            text = "\n".join(stanzas).encode()
            (dist / component / index).write_bytes(text)
            sums += f" {hashlib.sha256(text).hexdigest()} {len(text)} {component}/{index}\n"
        release = (
            f"Origin: test\nSuite: {self.suite}\nCodename: {self.suite}\n"
            f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nArchitectures: {' '.join(ARCHITECTURES)}\n"
            f"Components: main\n{more}"
            f"SHA256:\n{sums}"
        )
        (dist / "Release").write_text(release)
        self._signer.sign(dist / "Release", dist / "InRelease")
