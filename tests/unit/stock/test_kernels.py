# SPDX-License-Identifier: GPL-2.0-only
"""A kernel by name or path becomes files that are proved to be what they were.

It owns the tests of kernels.py, kernel.py and local_kernel.py; a made-up kernel comes from a
repository in a folder, so nothing here needs a network.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.stock.debian_repository import Repository, needs_apt
from trapless.base.architecture import AMD64, ARM64
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import cache_dir
from trapless.stock import debug_kernel, kernels, stores
from trapless.stock import kernel as kernel_record
from trapless.stock.kernel import Kernel
from trapless.stock.kernels import KernelSpec, resolve

RELEASE = "9.9.1+deb99-amd64"
COMMON = "linux-headers-9.9.1+deb99-common"
SPEC = KernelSpec("test", ("teststable",), ("linux-image-amd64",), "9.9.")


def bz_image(release: str) -> bytes:
    """The part of a bzImage that says which release it is."""
    image = bytearray(0x400)
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x20E, 0x100)
    text = f"{release} (somebody@somewhere) #1 SMP\0".encode()
    image[0x300 : 0x300 + len(text)] = text
    return bytes(image)


@pytest.fixture
def mirror(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A mirror that offers two versions of a kernel, with its headers and a few others."""
    monkeypatch.setattr(kernels, "SUPPORTED", (SPEC,))
    another_process(monkeypatch)
    offer(repository, RELEASE, "9.9.1-1")
    return repository


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what only this process knows: that it has fetched a kernel already."""
    monkeypatch.setattr(stores, "_refreshed", set())


def offer(mirror: Repository, release: str, version: str) -> None:
    headers = f"linux-headers-{release}"
    modules = f"lib/modules/{release}"
    mirror.add("initramfs", version, {"etc/not-wanted": b""})
    mirror.add(
        f"linux-image-{release}",
        version,
        {
            f"boot/vmlinuz-{release}": bz_image(release),
            f"{modules}/modules.order": b"",
            f"{modules}/modules.builtin": b"",
        },
        depends=f"initramfs | dracut, kmod | other-{release}",
    )
    mirror.add("kmod", version, {"etc/kmod": b""})
    makefile = f"include /usr/src/{COMMON}/Makefile\n".encode()
    mirror.add(
        headers,
        version,
        {f"usr/src/{headers}/Makefile": makefile},
        depends=f"{COMMON} (= {version})",
    )
    mirror.add(COMMON, version, {f"usr/src/{COMMON}/Makefile": b"modules:\n"})
    mirror.add("linux-image-amd64", version, {"usr/share/m": b""}, depends=f"linux-image-{release}")
    mirror.publish()


def image_of(kernel: Kernel) -> Path:
    assert kernel.image.exists()
    return kernel.image


@needs_apt
def test_a_kernel_is_fetched_once_and_recorded(mirror: Repository) -> None:
    kernel = resolve("test", Silent())
    assert kernel.release == RELEASE
    assert image_of(kernel).name == f"vmlinuz-{RELEASE}"
    assert kernel.build_dir is not None and (kernel.build_dir / "Makefile").exists()
    assert kernel.modules_dir is not None and (kernel.modules_dir / "modules.dep").exists()
    assert {"image", f"linux-image-{RELEASE}", f"linux-headers-{RELEASE}", COMMON} == set(
        kernel.provenance
    )
    assert kernel.provenance[COMMON].startswith("9.9.1-1 sha256:")
    assert not list(kernel.image.parents[1].glob("etc/*"))  # dependencies that hold no kernel


@needs_apt
@pytest.mark.skipif(not ARM64.is_foreign, reason="this machine is of arm64")
def test_modules_for_another_processor_are_built_by_tools_of_this_one(
    mirror: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(SPEC.of(ARM64), own_tools=True)
    monkeypatch.setattr(kernels, "OF_OTHERS", {ARM64.name: {"test": spec}})
    offer_for_arm64(mirror, "9.9.1+deb99-arm64", "9.9.1-1")
    kernel = resolve("test", Silent(), ARM64)
    root = kernel.build_root
    assert root is not None and kernel.build_dir == root / "usr/src" / kernel.image.name.replace(
        "vmlinuz", "linux-headers"
    )
    tools = {path.name: path.read_text() for path in (root / "usr/bin").iterdir()}
    assert tools == dict.fromkeys(("modpost", "gcc", "libc", "awk", *kernels.ROOT_TOOLS), "amd64")
    assert kernel.modules_dir is not None and (kernel.modules_dir / "modules.builtin").exists()
    assert kernel.provenance["gcc-9-aarch64-linux-gnu"].startswith("9.1-2 ")
    assert kernel.provenance["linux-kbuild-9.9.1"].startswith("9.9.1-1 ")


def offer_for_arm64(mirror: Repository, release: str, version: str) -> None:
    """A kernel of arm64, and build tools in the versions that each processor has now."""
    image, headers = f"linux-image-{release}", f"linux-headers-{release}"
    modules = f"lib/modules/{release}"
    files = {f"boot/vmlinuz-{release}": b"", f"{modules}/modules.order": b""}
    base = f"linux-base-{release}"
    needs = "linux-kbuild-9.9.1 (= 9.9.1-1), gcc-9-for-host"
    for name, content, depends in (
        (image, files, base),
        (base, {f"{modules}/modules.builtin": b""}, ""),
        ("linux-image-arm64", {"usr/share/m": b""}, image),
        (headers, {f"usr/src/{headers}/Makefile": b""}, needs),
        ("gcc-9-for-host", {"usr/share/m": b""}, "gcc-9-aarch64-linux-gnu"),
    ):
        mirror.add(name, version, content, depends=depends, arch="arm64")
    for arch, of_compiler in (("arm64", "9.1-1"), ("amd64", "9.1-2")):
        for name, its, program, depends in (
            ("linux-kbuild-9.9.1", version, "modpost", "libc"),
            ("gcc-9-aarch64-linux-gnu", of_compiler, "gcc", "libc"),
            ("libc", version, "libc", ""),
            *((name, version, name, "") for name in kernels.ROOT_TOOLS),
        ):
            content = {f"usr/bin/{program}": arch.encode()}
            mirror.add(name, its, content, depends=depends, arch=arch)
    mirror.add("linux-kbuild-9.9.1", "9.9.2-1", {"usr/bin/modpost": b"another version's"})
    mirror.publish()


@needs_apt
def test_a_cached_kernel_needs_no_mirror(mirror: Repository) -> None:
    first = resolve("test", Silent())
    (mirror.folder / "dists").rename(mirror.folder / "gone")
    assert resolve("test", Silent()) == first


@pytest.mark.slow
@needs_apt
def test_a_refresh_takes_the_mirrors_newest(
    mirror: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = resolve("test", Silent())
    offer(mirror, "9.9.2+deb99-amd64", "9.9.2-1")
    assert resolve("test", Silent()).release == old.release
    monkeypatch.setenv("TRAPLESS_REFRESH", "1")
    another_process(monkeypatch)
    assert resolve("test", Silent()).release == "9.9.2+deb99-amd64"
    offer(mirror, "9.9.3+deb99-amd64", "9.9.3-1")
    assert resolve("test", Silent()).release == "9.9.2+deb99-amd64"  # once for a process


@pytest.mark.slow
@needs_apt
def test_a_refresh_that_fails_keeps_what_was_there(
    mirror: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = resolve("test", Silent())
    monkeypatch.setenv("TRAPLESS_REFRESH", "1")
    another_process(monkeypatch)
    for deb in (mirror.folder / "pool").glob("linux-image-*"):
        deb.unlink()
    with pytest.raises(TraplessError, match="could not download"):
        resolve("test", Silent())
    monkeypatch.delenv("TRAPLESS_REFRESH")
    assert resolve("test", Silent()) == old
    names = {path.name for path in (cache_dir() / "kernels").iterdir()}
    assert names == {"test", "test.lock"}


@pytest.mark.slow
@needs_apt
def test_a_damaged_cache_is_fetched_again(mirror: Repository) -> None:
    kernel = resolve("test", Silent())
    folder, build_dir = cache_dir() / "kernels" / "test", kernel.build_dir
    assert build_dir is not None
    for harm in (
        lambda: kernel.image.write_bytes(kernel.image.read_bytes() + b"x"),
        lambda: (folder / "kernel.json").write_text("{"),
        lambda: build_dir.rename(folder / "elsewhere"),
    ):
        (folder / "of-the-damaged").touch()
        harm()
        assert resolve("test", Silent()) == kernel
        assert not (folder / "elsewhere").exists() and not (folder / "of-the-damaged").exists()


@needs_apt
def test_a_cached_kernel_without_headers_is_fetched_again_once_modules_are_built_for_it(
    mirror: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SUPPORTED", (replace(SPEC, image_only=True),))
    assert resolve("test", Silent()).build_dir is None
    monkeypatch.setattr(kernels, "SUPPORTED", (SPEC,))
    assert resolve("test", Silent()).build_dir is not None


@needs_apt
def test_a_series_that_the_mirror_lacks_is_named(
    mirror: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        kernels, "SUPPORTED", (KernelSpec("test", ("teststable",), ("linux-image-amd64",), "8."),)
    )
    with pytest.raises(TraplessError, match="no kernel image for test in the suites teststable"):
        resolve("test", Silent())
    names = {path.name for path in (cache_dir() / "kernels").iterdir()}
    assert names == {"test.lock"}


def test_a_record_of_another_format_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "kernel.json").write_text(json.dumps({"format": 0}))
    assert kernel_record.load(tmp_path, Silent()) is None


def test_supported_kernels_have_distinct_names() -> None:
    names = [spec.name for spec in (*kernels.SUPPORTED, *kernels.OTHERS, *kernels.GUESTS)]
    assert len(set(names)) == len(names)
    assert not debug_kernel.SPECS.keys() & set(names)


@pytest.mark.parametrize("name", ["6.2", ""])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(TraplessError, match=rf"'{name}'.*6\.1, 6\.12, newest, .*debug") as caught:
        resolve(name, Silent())
    assert caught.value.status == 2


def unpacked_root(root: Path, *releases: str) -> Path:
    for release in releases:
        (root / "boot").mkdir(parents=True, exist_ok=True)
        (root / "boot" / f"vmlinuz-{release}").write_bytes(bz_image(release))
        (root / "lib/modules" / release).mkdir(parents=True)
        headers = root / "usr/src" / f"linux-headers-{release}"
        headers.mkdir(parents=True)
        (headers / "Makefile").write_text("modules:\n")
    return root


def test_an_unpacked_root_is_a_kernel(tmp_path: Path) -> None:
    root = unpacked_root(tmp_path, "7.7.7-x")
    kernel = resolve(str(root), Silent())
    assert kernel.release == "7.7.7-x"
    assert kernel.image == root / "boot" / "vmlinuz-7.7.7-x"
    assert kernel.modules_dir == root / "lib/modules/7.7.7-x"
    assert kernel.build_dir == root / "usr/src/linux-headers-7.7.7-x"
    assert kernel.build_root is None
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/make").touch()
    assert resolve(str(root), Silent()).build_root == root


def test_an_image_finds_its_headers_beside_it(tmp_path: Path) -> None:
    root = unpacked_root(tmp_path, "7.7.7-x")
    kernel = resolve(str(root / "boot" / "vmlinuz-7.7.7-x"), Silent())
    assert kernel.build_dir == root / "usr/src/linux-headers-7.7.7-x"
    lonely = tmp_path / "far" / "bzImage"
    lonely.parent.mkdir()
    lonely.write_bytes(bz_image("5.5.5"))
    assert resolve(str(lonely), Silent()).build_dir is None
    given = resolve(f"{lonely}:{kernel.build_dir}", Silent())
    assert (given.image, given.build_dir) == (lonely, kernel.build_dir)
    with pytest.raises(TraplessError, match="no kernel build tree"):
        resolve(f"{lonely}:{tmp_path}/far", Silent())


def test_a_build_tree_is_a_kernel(tmp_path: Path) -> None:
    image = tmp_path / "arch/x86/boot/bzImage"
    image.parent.mkdir(parents=True)
    image.write_bytes(bz_image("6.6.6-own"))
    (tmp_path / "Makefile").touch()
    for given in (tmp_path, image):
        kernel = resolve(str(given), Silent())
        assert (kernel.release, kernel.image, kernel.build_dir) == ("6.6.6-own", image, tmp_path)


def test_a_root_with_two_kernels_asks_which(tmp_path: Path) -> None:
    unpacked_root(tmp_path, "7.7.7-x", "7.7.8-x")
    with pytest.raises(TraplessError, match=r"vmlinuz-7\.7\.7-x.*vmlinuz-7\.7\.8-x"):
        resolve(str(tmp_path), Silent())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF" + bytes(0x400), "not vmlinux"),
        (b"", "not a bootable"),
        (bz_image("")[:0x20E] + bytes(2), "does not say"),
    ],
)
def test_what_is_no_image_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(TraplessError, match=message):
        resolve(str(tmp_path / "file"), Silent())


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraplessError, match="there is no such"):
        resolve(f"{tmp_path}{os.sep}nothing", Silent())
    with pytest.raises(TraplessError, match="holds no kernel"):
        resolve(str(tmp_path), Silent())


@pytest.mark.parametrize("release, told", [
    ("6.1.0-56-amd64", ""), ("6.12.90+deb13-amd64", ""), ("7.2-amd64", "cryptomgr.notests"),
    ("6.12.117+deb12-arm64", "cryptomgr.notests"),
])  # fmt: skip
def test_kernels_that_test_ciphers_beside_programs_leave_them(release: str, told: str) -> None:
    arch = release.rpartition("-")[2]
    kernel = Kernel(release, release, Path("vmlinuz"), None, None, arch=arch)
    assert kernels.parameters(kernel) == told


def test_debug_kernels_have_four_levels_of_page_tables() -> None:
    kernel = Kernel("debug", "6.1.192", Path("vmlinuz"), None, None, debug=True)
    assert kernels.parameters(kernel) == "no5lvl"


def test_kernel_that_another_process_was_given_is_the_same():
    """The lab of tests of peek runs in a process of its own, which gets its configuration."""
    for spec in kernels.SUPPORTED:
        copy = pickle.loads(pickle.dumps(spec))
        assert copy.key == spec.key
    arch = pickle.loads(pickle.dumps(AMD64))
    with pytest.raises(TraplessError, match="unknown kernel 'nothing'"):
        kernels.resolve("nothing", Silent(), arch)
