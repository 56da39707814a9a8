# SPDX-License-Identifier: GPL-2.0-only
"""Packages come verified or not at all: the private apt against a signed repository in a folder.

It owns the tests of packages.py and apt_sources.py. No network, no root, nothing of the machine's
own apt state is read but its configuration.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.stock.debian_repository import Repository, needs_apt
from trapless.base import cache, tools
from trapless.base.console import Silent, TraplessError
from trapless.stock import packages
from trapless.stock.apt_sources import (
    MIRROR_VARIABLE,
    Source,
    machine_mirror,
    machine_sources,
    parse_lines,
    parse_stanzas,
)
from trapless.stock.packages import Archive, Package, parse_uris


@pytest.fixture
def mirror(repository: Repository) -> Repository:
    """A mirror with a tool, the data that it needs, and two versions of a package of packages."""
    repository.add("tool", "2:1.0-1", {"usr/bin/tool": b"tool"}, depends="data (= 1.0)")
    repository.add("data", "1.0", {"usr/share/data": b"data" * 1000})
    needs = "thing-1.0-amd64 (= 1), data | tool"
    repository.add("meta", "1", {"usr/share/meta": b"1"}, depends=needs)
    repository.add("meta", "2", {"usr/share/meta": b"2"}, depends="thing-2.0-amd64 (= 2)")
    repository.publish()
    return repository


@pytest.fixture
def archive(mirror: Repository) -> Archive:
    with packages.opened(["teststable"], Silent(), mirror.mirror) as opened:
        return opened


def unpacked(archive: Archive, root: Path) -> Path:
    root.mkdir()
    archive.fetch(archive.closure(["tool"]), root, Silent(), what="a test")
    return root


@needs_apt
def test_a_package_is_unpacked_with_its_dependencies(archive: Archive, tmp_path: Path) -> None:
    root = unpacked(archive, tmp_path / "root")
    assert (root / "usr/bin/tool").read_bytes() == b"tool"
    assert (root / "usr/share/data").read_bytes() == b"data" * 1000
    assert sorted(path.name for path in root.iterdir()) == ["usr"]


@needs_apt
def test_versions_and_checksums_are_those_of_the_index(archive: Archive) -> None:
    packages = {package.name: package for package in archive.closure(["tool"])}
    assert set(packages) == {"tool", "data"}
    assert packages["tool"].version == "2:1.0-1"
    assert all(len(package.sha256) == 64 for package in packages.values())


@needs_apt
def test_the_highest_version_of_a_metapackage_comes_first(archive: Archive) -> None:
    assert archive.dependencies("meta") == [
        ["thing-2.0-amd64"],
        ["thing-1.0-amd64", "data", "tool"],
    ]
    assert archive.dependencies("no-such-package") == []


@needs_apt
def test_an_unknown_package_is_named(archive: Archive) -> None:
    with pytest.raises(TraplessError, match=r"no no-such-package in the suites teststable"):
        archive.closure(["no-such-package"])


@needs_apt
def test_a_package_changed_on_the_mirror_is_refused(
    archive: Archive, mirror: Repository, tmp_path: Path
) -> None:
    deb = mirror.folder / "pool" / "data_1.0_amd64.deb"
    content = bytearray(deb.read_bytes())
    content[-1] ^= 1
    deb.write_bytes(bytes(content))
    with pytest.raises(TraplessError, match="could not download"):
        unpacked(archive, tmp_path / "root")
    assert not (tmp_path / "root" / "usr").exists()


@needs_apt
def test_a_package_absent_from_the_mirror_is_an_error(
    archive: Archive, mirror: Repository, tmp_path: Path
) -> None:
    (mirror.folder / "pool" / "data_1.0_amd64.deb").unlink()
    with pytest.raises(TraplessError, match="could not download"):
        unpacked(archive, tmp_path / "root")


@needs_apt
def test_a_file_damaged_after_download_is_refused(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = Archive._download

    def damage(self: Archive, wanted: object, folder: Path, advance: object) -> None:
        download(self, wanted, folder, advance)
        with (folder / "data_1.0_amd64.deb").open("ab") as file:
            file.write(b"x")

    monkeypatch.setattr(Archive, "_download", damage)
    with pytest.raises(TraplessError, match=r"data_1\.0_amd64\.deb is damaged"):
        unpacked(archive, tmp_path / "root")


@needs_apt
@pytest.mark.parametrize("broken", ["index", "signature"])
def test_an_index_that_the_keyring_does_not_vouch_for_is_not_used(
    mirror: Repository, broken: str
) -> None:
    dist = mirror.folder / "dists" / "teststable"
    if broken == "index":
        index = dist / packages_file()
        index.write_text(index.read_text().replace("Version: 1.0", "Version: 6.6"))
    else:
        signed = dist / "InRelease"
        signed.write_text(signed.read_text().replace("Suite: teststable", "Suite: testother"))
    archive = Archive(["teststable"], mirror.mirror)
    archive.update(Silent())
    with pytest.raises(TraplessError, match="apt says"):
        archive.closure(["data"])


def packages_file() -> str:
    return "main/binary-amd64/Packages"


@needs_apt
def test_an_outdated_mirror_is_told_from_an_absent_one(
    mirror: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = (
        packages.CONFIGURATION + 'Acquire::Check-Valid-Until "true";Acquire::Check-Date "true";'
    )
    monkeypatch.setattr(packages, "CONFIGURATION", strict)
    mirror.publish("Valid-Until: Fri, 02 Jan 2026 00:00:00 UTC\n")
    outdated = pytest.raises(TraplessError, match=r"out of date or this machine's clock")
    with packages.opened(["teststable"], Silent(), mirror.mirror) as archive, outdated:
        archive.closure(["data"])


@needs_apt
def test_a_suite_the_mirror_lacks_does_not_hide_the_others(mirror: Repository) -> None:
    archive = Archive(["teststable", "testmissing"], mirror.mirror)
    archive.update(Silent())
    assert [package.name for package in archive.closure(["data"])] == ["data"]
    with pytest.raises(TraplessError, match="testmissing"):
        archive.closure(["no-such-package"])


def test_too_little_space_is_refused_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path))
    with pytest.raises(TraplessError, match="free some space"):
        cache.need_space(tmp_path / "not" / "there", 1 << 60)


def test_a_machine_without_apt_is_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "tool_path", lambda: str(tmp_path))
    missing = pytest.raises(TraplessError, match=r"apt-get.*dpkg-deb.*apt-get install apt dpkg")
    with missing, packages.opened(["teststable"], Silent()):
        pass


def test_uris_are_read_as_apt_prints_them() -> None:
    digest = "ab" * 32
    text = f"Reading...\n'http://x/p/l_1%3a2_amd64.deb' l_1%3a2-3+b1_amd64.deb 42 SHA256:{digest}\n"
    assert parse_uris(text) == [Package("l", "1:2-3+b1", 42, digest)]


def test_a_uri_without_sha256_is_refused() -> None:
    with pytest.raises(TraplessError, match="cannot be verified"):
        parse_uris("'http://x/p/l_1_amd64.deb' l_1_amd64.deb 42 MD5Sum:00\n")


ONE_LINE = """\
# deb http://commented.invalid/debian stable main
deb-src http://source.invalid/debian stable main
deb [ arch=amd64 signed-by=/keys/a.gpg ] http://mirror.invalid/debian/ stable main contrib # why
deb http://security.invalid/debian-security stable-security main
deb http://other.invalid/apt stable stable
"""

DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://mirror.invalid/debian
# another in the middle
Suites: stable stable-updates
Components: main
Signed-By: /keys/b.gpg

Types: deb
Enabled: no
URIs: http://disabled.invalid/debian
Suites: stable
Components: main

Types: deb
URIs: http://security.invalid/debian-security
Suites: stable-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEabc
 -----END PGP PUBLIC KEY BLOCK-----
"""


def test_the_one_line_form_is_read() -> None:
    assert list(parse_lines(ONE_LINE)) == [
        Source("http://mirror.invalid/debian", ("stable",), ("main", "contrib"), "/keys/a.gpg"),
        Source("http://security.invalid/debian-security", ("stable-security",), ("main",)),
        Source("http://other.invalid/apt", ("stable",), ("stable",)),
    ]


def test_the_deb822_form_is_read() -> None:
    first, second = parse_stanzas(DEB822)
    assert first == Source(
        "http://mirror.invalid/debian", ("stable", "stable-updates"), ("main",), "/keys/b.gpg"
    )
    assert second.uri == "http://security.invalid/debian-security"
    assert second.signed_by.splitlines()[:3] == [
        "-----BEGIN PGP PUBLIC KEY BLOCK-----",
        "",
        "mDMEabc",
    ]


def test_debian_is_told_from_other_archives(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://first.invalid/apt stable main\n" + ONE_LINE)
    (tmp_path / "sources.list.d" / "x.list.disabled").write_text("deb http://no.invalid/ s main")
    mirror = machine_mirror(tmp_path)
    assert mirror.archive == "http://mirror.invalid/debian"
    assert mirror.security == "http://security.invalid/debian-security"
    assert len(list(machine_sources(tmp_path))) == 4


def test_a_key_inside_an_entry_is_handed_to_apt(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        DEB822.replace("Signed-By: /keys/b.gpg", DEB822[DEB822.index("Signed-By:\n") :].rstrip())
    )
    text = machine_mirror(tmp_path).sources(["stable", "stable-security"], tmp_path)
    assert f"{tmp_path}/mirror.asc" in text
    assert "mDMEabc" in (tmp_path / "mirror.asc").read_text()
    assert " http://mirror.invalid/debian stable main" in text
    assert " http://security.invalid/debian-security stable-security main" in text


def test_a_machine_without_a_debian_mirror_is_told_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MIRROR_VARIABLE, raising=False)
    with pytest.raises(TraplessError, match=MIRROR_VARIABLE):
        machine_mirror(tmp_path)
    monkeypatch.setenv(MIRROR_VARIABLE, "http://named.invalid/debian/")
    assert machine_mirror(tmp_path).archive == "http://named.invalid/debian"
    assert machine_mirror(tmp_path).security == "http://named.invalid/debian-security"
