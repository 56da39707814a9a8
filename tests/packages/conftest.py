# SPDX-License-Identifier: GPL-2.0-only
"""The option that says on which Debian the packages are tried, and clean roots of those. Also how
a program in Python finds the library in the checkout.

A root is made by mmdebstrap from this machine's own mirror, once, into the cache; each test session
works on a copy. What apt fetches for it stays in the cache, too. Both take root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.make import EXTENSION, make
from trapless.base.paths import cache_dir
from trapless.stock.apt_sources import machine_mirror

ROOT = Path(__file__).resolve().parents[2]
BINDING = ROOT / "lib/bindings/python"
WITH_BINDING = {"PYTHONPATH": str(BINDING)}
SUITES = {"12": "bookworm", "13": "trixie"}
NEEDS = {"mmdebstrap": "mmdebstrap", "lintian": "lintian", "unshare": "util-linux"}
LIMIT_S = 1800
OF_PACKAGES_TEST = ("test_debian.py", "test_bounds.py", "test_clean_machine.py")
"""Files that take too long for `make test`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--debian",
        default="",
        metavar="12|13|all",
        help="try the Debian packages in a clean root of these releases (takes root and minutes; "
        "without it they are not tried)",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = config.getoption("--debian", default="")
    return True if collection_path.name in OF_PACKAGES_TEST and not wanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Packages are built and installed: each of these takes up to LIMIT_S."""
    for item in items:
        if item.path.name in OF_PACKAGES_TEST:
            item.add_marker(pytest.mark.timeout(3 * LIMIT_S))


def pytest_collect_file(file_path: Path) -> None:
    """Tests of the library for Python import it."""
    if file_path.name.startswith("test_python_"):
        make(EXTENSION)


def run_python(*words: str | Path, limit_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which finds the library in the checkout."""
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | WITH_BINDING,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--debian")
        releases = list(SUITES) if wanted == "all" else wanted.split()
        metafunc.parametrize("release", releases, scope="module")


def build(checkout: Path, *version: str) -> list[Path]:
    """The Debian packages of a checkout."""
    words = [checkout / "scripts/deb", *version]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="session")
def packages() -> list[Path]:
    return build(ROOT)


@dataclass(frozen=True)
class Root:
    """A Debian system below a folder, which commands are run in."""

    folder: Path
    archives: Path

    def run(self, command: str, status: int = 0, **bound: Path) -> str:
        """Run a shell's command as root of it; `bound` are folders of ours that it sees in /mnt.
        Returns both its outputs."""
        inside = {self.archives: "/var/cache/apt/archives", cache_dir(): "/root/.cache/trapless"}
        inside |= {path: f"/mnt/{name}" for name, path in bound.items()}
        mounts = [f"mount --rbind /dev {self._inside('/dev')}"]
        mounts.append(f"mount -t proc proc {self._inside('/proc')}")
        for path, place in inside.items():
            (self.folder / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
            mounts.append(f"mount --bind {shlex.quote(str(path))} {self._inside(place)}")
        pip = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("PIP_")]
        clean = (
            f"env -i {shlex.join(pip)} PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8"
        )
        enter = f"exec {clean} DEBIAN_FRONTEND=noninteractive chroot {self._inside('/')}"
        script = " && ".join([*mounts, f'{enter} sh -c "$0"'])
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def _inside(self, place: str) -> str:
        return shlex.quote(str(self.folder / place.lstrip("/")))

    def files(self, *tops: str) -> set[str]:
        """Every file and folder below `tops`."""
        found: set[str] = set()
        for top in tops:
            for folder, folders, files in os.walk(self.folder / top):
                at = Path(folder).relative_to(self.folder)
                found |= {str(at / name) for name in (*folders, *files)}
        return found


@pytest.fixture(scope="module")
def root(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """A clean root of a release, gone afterwards."""
    if os.geteuid() != 0:
        pytest.fail("clean Debian roots take root: run this with sudo", pytrace=False)
    absent = " ".join(package for tool, package in NEEDS.items() if shutil.which(tool) is None)
    if absent:
        pytest.fail(f"this test needs more: apt-get install {absent}", pytrace=False)
    archive = cache_dir() / "roots" / f"debian-{release}.tar"
    if not archive.exists():
        _bootstrap(SUITES[release], archive)
    folder = tmp_path_factory.mktemp(f"debian-{release}")
    folder.chmod(0o755)
    subprocess.run(["tar", "-x", "-f", archive, "-C", folder], check=True)
    _reach_as_here(folder)
    keep = 'APT::Keep-Downloaded-Packages "true"; APT::Install-Recommends "false";\n'
    (folder / "etc/apt/apt.conf.d/90trapless").write_text(keep + _acquire())
    # A root that is gone in minutes need not survive a power cut: dpkg waits for no disk.
    (folder / "etc/dpkg/dpkg.cfg.d/90trapless").write_text("force-unsafe-io\n")
    archives = archive.with_name(f"debian-{release}.archives")
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    found = Root(folder, archives)
    found.run("apt-get -q update")
    yield found
    shutil.rmtree(folder)


def _bootstrap(suite: str, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part.tar")
    sources = machine_mirror().sources([suite], archive.parent)
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=apt", "--mode=root", suite, part, "-"],
        input=sources.replace("target=Packages", "").replace("[]", ""),
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    part.rename(archive)


def _reach_as_here(folder: Path) -> None:
    """Names, certificates and pip's index are this machine's. Of the certificates, the package
    ca-certificates makes one file, of its own and of those in /usr/local."""
    own = [Path("/etc/resolv.conf"), Path("/etc/pip.conf")]
    own += [Path("/etc/ssl/certs/ca-certificates.crt")]
    own += Path("/usr/local/share/ca-certificates").glob("*.crt")
    for path in filter(Path.exists, own):
        target = folder / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _acquire() -> str:
    """How this machine's apt reaches its mirror: proxies."""
    said = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True).stdout
    return "".join(f"{line}\n" for line in said.splitlines() if "proxy" in line.lower())
