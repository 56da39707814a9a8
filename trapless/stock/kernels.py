# SPDX-License-Identifier: GPL-2.0-only
"""The kernels that Trapless runs on: their names, and the files behind a name or a path.

This file owns the one list of supported kernels, and makes each of them of packages. Nothing else
in Python names a version. packages.py fetches packages, local_kernel.py reads a kernel that is
given by a path, and kbuild.py builds modules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trapless.base import cache, tools
from trapless.base.architecture import AMD64, ARM64, Architecture
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import cache_dir
from trapless.stock import debug_kernel, local_kernel
from trapless.stock.kernel import Kernel, find_image, load, save
from trapless.stock.packages import Archive, Package, opened
from trapless.stock.stores import obtain


@dataclass(frozen=True)
class KernelSpec:
    """A kernel by name, and where Debian keeps it."""

    name: str
    suites: tuple[str, ...]  # asked together
    metas: tuple[str, ...]  # packages that depend on the current image, best first
    series: str  # what the release begins with; empty takes any
    own_tools: bool = False  # its modules are built in an unpacked root with its own compiler
    image_only: bool = False  # without headers: it is a guest that peek reads
    arch: Architecture = AMD64

    def of(self, arch: Architecture) -> KernelSpec:
        """The same kernel of another architecture, whose name ends the names of packages."""
        metas = tuple(meta.removesuffix(self.arch.name) + arch.name for meta in self.metas)
        return replace(self, metas=metas, arch=arch)

    @property
    def key(self) -> str:
        """Its name in the cache."""
        return self.name if self.arch == AMD64 else f"{self.name}-{self.arch.name}"


BOOKWORM = ("bookworm", "bookworm-security", "bookworm-backports")

SUPPORTED: tuple[KernelSpec, ...] = (
    KernelSpec("6.1", BOOKWORM, ("linux-image-amd64",), "6.1."),
    KernelSpec("6.12", BOOKWORM, ("linux-image-6.12-amd64", "linux-image-amd64"), "6.12."),
    KernelSpec("newest", ("sid",), ("linux-image-amd64",), "", own_tools=True),
)

OTHERS: tuple[KernelSpec, ...] = (
    KernelSpec("6.1-rt", BOOKWORM, ("linux-image-rt-amd64",), "6.1."),
    KernelSpec("6.1-cloud", BOOKWORM, ("linux-image-cloud-amd64",), "6.1."),
    KernelSpec("6.12-rt", BOOKWORM, ("linux-image-6.12-rt-amd64",), "6.12."),
    KernelSpec("6.12-cloud", BOOKWORM, ("linux-image-6.12-cloud-amd64",), "6.12."),
)
"""Flavours of the same kernels, which `make matrix-all` tries: PREEMPT_RT, and for clouds."""

OF_ARM64 = (
    SUPPORTED[1].of(ARM64),
    KernelSpec("6.12-16k", BOOKWORM, ("linux-image-arm64-16k",), "6.12.", arch=ARM64),
    SUPPORTED[2].of(ARM64),
)
OF_OTHERS = {ARM64.name: {spec.name: spec for spec in OF_ARM64}}
"""By architecture; the first is run where none is asked for. 16k: pages of 16 KiB."""


def default(arch: Architecture = AMD64) -> str:
    """The default kernel: the first and oldest of those for an architecture."""
    return next(iter(OF_OTHERS.get(arch.name, (SUPPORTED[0].name,))))


BULLSEYE = ("bullseye", "bullseye-security")
TRIXIE = ("trixie", "trixie-security")

GUESTS: tuple[KernelSpec, ...] = (
    KernelSpec("5.10", BULLSEYE, ("linux-image-amd64",), "5.10.", own_tools=True),
    KernelSpec("5.10-rt", ("bullseye",), ("linux-image-rt-amd64",), "5.10.", image_only=True),
    KernelSpec("5.10-cloud", BULLSEYE, ("linux-image-cloud-amd64",), "5.10.", image_only=True),
    KernelSpec("6.12-deb13", TRIXIE, ("linux-image-amd64",), "6.12.", image_only=True),
    KernelSpec("newest-rt", ("sid",), ("linux-image-rt-amd64",), "", image_only=True),
    KernelSpec("newest-cloud", ("sid",), ("linux-image-cloud-amd64",), "", image_only=True),
)
"""Kernels that the module is not built for, and that `trapless peek` reads. One of them has headers
for the modules of tests."""

DEBUG_SOURCES = {
    "debug": debug_kernel.Source(BOOKWORM, "linux-source-6.1"),
    "kcsan": debug_kernel.Source(BOOKWORM, "linux-source-6.1"),
    "kcfi": debug_kernel.Source(BOOKWORM, "linux-source-6.12"),
}
"""What the kernels of debug_kernel.py are built from."""

KERNEL_PACKAGES = re.compile(r"linux-(base|image|binary|modules|headers|kbuild)-\d")
"""The packages with the kernel's own files, among the dependencies of image and headers."""

BUILD_TOOLS = "linux-kbuild-"

KERNEL_BYTES = 650_000_000  # fetched and unpacked, with the package lists; measured: 570 MB
OWN_TOOLS_BYTES = 1_300_000_000  # the same with build tools

ROOT_TOOLS = ("base-files", "coreutils", "dash", "grep", "make", "mawk", "sed")
"""What kbuild needs in a root beside the dependencies of the headers."""


CIPHERS_SINCE = (6, 17)


def parameters(kernel: Kernel) -> str:
    """The boot parameters of this kernel in the lab, beside those of all kernels.

    Kernels since about 6.17 test their ciphers in threads of their own, which take two thirds of
    the only processor for seconds after the boot, and are then counted and timed, too. Earlier
    kernels finish the tests before they start programs. Without the tests, programs would start
    before the kernel has chosen its clock, on which the exact beginning of a region depends. On
    arm64 an earlier kernel, too, tests beside them.

    A debug kernel uses four levels of page tables. With five, an interrupt at the wrong moment of
    the boot makes KASAN take a lock for a wild address: while the kernel identifies its first
    processor it does not know that there are five (kasan-dev, June 2026: "kasan: Fix false-positive
    wild-memory-access on x86 under 5-level paging").
    """
    if kernel.debug:
        return "no5lvl"
    numbers = re.match(r"(\d+)\.(\d+)", kernel.release)
    version = tuple(map(int, numbers.groups())) if numbers else (0, 0)
    beside = version >= CIPHERS_SINCE or kernel.arch != AMD64.name
    return "cryptomgr.notests" if beside else ""


def resolve(name: str, progress: Progress, arch: Architecture = AMD64) -> Kernel:
    """The kernel called `name`, or at the path `name`. It is fetched or built where it is
    missing."""
    specs = {spec.name: spec for spec in (*SUPPORTED, *OTHERS, *GUESTS)}
    if arch != AMD64:
        if name not in OF_OTHERS[arch.name]:
            raise TraplessError(
                f"the lab has no kernel {name!r} for {arch.name}; give one of "
                f"{', '.join(OF_OTHERS[arch.name])}",
                status=2,
            )
        cache.need_plain_path(cache_dir())
        return _from_cache(OF_OTHERS[arch.name][name], progress)
    if name in debug_kernel.SPECS or name in specs:
        cache.need_plain_path(cache_dir())
    if name in debug_kernel.SPECS:
        return debug_kernel.resolve(debug_kernel.SPECS[name], DEBUG_SOURCES[name], progress)
    if name in specs:
        return _from_cache(specs[name], progress)
    if name and (os.sep in name or Path(name).exists()):
        return local_kernel.from_path(name)
    names = ", ".join([*specs, *debug_kernel.SPECS])
    raise TraplessError(
        f"unknown kernel {name!r}; give one of {names}, or the path of a kernel image, a kernel "
        f"build tree or an unpacked root",
        status=2,
    )


def _from_cache(spec: KernelSpec, progress: Progress) -> Kernel:
    folder = cache_dir() / "kernels" / spec.key

    def loaded() -> Kernel | None:
        """The kernel in the cache, unless it was fetched when it needed no headers."""
        kernel = load(folder, progress)
        lacks = kernel is not None and kernel.build_dir is None and not spec.image_only
        return None if lacks else kernel

    return obtain(
        spec.key,
        folder,
        loaded,
        lambda part: _fetch(spec, part, progress),
        f"fetching kernel {spec.key}",
        progress,
    )


def _fetch(spec: KernelSpec, folder: Path, progress: Progress) -> None:
    """Fill `folder` with the unpacked kernel of `spec` and its record."""
    root = folder / "root"
    root.mkdir()
    need_bytes = OWN_TOOLS_BYTES if spec.own_tools else KERNEL_BYTES
    with opened(spec.suites, progress, need_bytes=need_bytes, arch=spec.arch) as archive:
        release = newest_image(spec, archive).removeprefix("linux-image-")
        packages, programs = wanted_packages(spec, release, archive)
        if not spec.arch.is_foreign:
            packages, programs = [*packages, *programs], []
        what = f"kernel {spec.key}, {len(packages)} packages"
        archive.fetch(packages, root, progress, what=what)
    if programs:
        packages += _fetch_programs(spec, programs, root, progress)
    if spec.own_tools:
        complete_root(root)
    index_modules(root, release, folder, progress)
    kernel = Kernel(
        name=spec.name,
        release=release,
        image=find_image(root, release),
        build_dir=None if spec.image_only else root / "usr/src" / f"linux-headers-{release}",
        modules_dir=root / "lib" / "modules" / release,
        provenance=_provenance(packages),
        build_root=root if spec.own_tools else None,
        arch=spec.arch.name,
    )
    save(kernel, folder)


def _fetch_programs(
    spec: KernelSpec, wanted: Sequence[Package], root: Path, progress: Progress
) -> list[Package]:
    """The build tools of a foreign kernel, which run here: the same version of its own, and a
    cross compiler of the same release, whose package has the same name."""
    names = [package.exact for package in wanted if BUILD_TOOLS in package.name]
    if spec.own_tools:
        compiler = re.compile(rf"gcc-\d+-{spec.arch.triplet}")
        names += [package.name for package in wanted if compiler.fullmatch(package.name)]
        names += ROOT_TOOLS
    with opened(spec.suites, progress) as archive:
        needed = archive.closure(names)
        programs = [one for one in needed if spec.own_tools or BUILD_TOOLS in one.name]
        archive.fetch(programs, root, progress, what=f"build tools of kernel {spec.key}")
    return programs


def newest_image(spec: KernelSpec, archive: Archive) -> str:
    """The package of the newest image of the series, as Debian's metapackages name it."""
    for meta in spec.metas:
        for names in archive.dependencies(meta):
            for name in names:
                if name.startswith(f"linux-image-{spec.series}"):
                    return name
    raise archive.missing(f"kernel image for {spec.name}")


def wanted_packages(
    spec: KernelSpec, release: str, archive: Archive
) -> tuple[list[Package], list[Package]]:
    """The packages to unpack: the kernel's own files, and the tools that build modules for it."""
    image, headers = f"linux-image-{release}", f"linux-headers-{release}"
    names = [image] if spec.image_only else [image, headers]
    kernel = [p for p in archive.closure(names) if KERNEL_PACKAGES.match(p.name)]
    files = [package for package in kernel if BUILD_TOOLS not in package.name]
    tools = archive.closure([headers, *ROOT_TOOLS]) if spec.own_tools else kernel
    return files, [package for package in tools if package not in files]


def _provenance(packages: Sequence[Package]) -> dict[str, str]:
    return {p.name: f"{p.version} sha256:{p.sha256}" for p in packages}


def complete_root(root: Path) -> None:
    """Do what the maintainer scripts of the packages would have done, as far as kbuild needs it:
    choose an awk (update-alternatives), and make folders to mount on."""
    for name in ("dev", "proc", "tmp"):
        (root / name).mkdir(exist_ok=True)
    awk = root / "usr" / "bin" / "awk"
    if not awk.is_symlink() and not awk.exists():
        awk.symlink_to("mawk")


def index_modules(root: Path, release: str, folder: Path, progress: Progress) -> None:
    """Write the module dependency lists, which an installation would have written."""
    tools.require_tools({"depmod": "kmod"}, "unpacking a kernel")
    progress.step(f"indexing the modules of {release}")
    if not (root / "lib").exists():  # since Debian 13, where base-files has the link
        (root / "lib").symlink_to("usr/lib")
    log = folder / "depmod.log"
    if tools.run_tool(["depmod", "-b", str(root), release], log) != 0:
        raise TraplessError(f"depmod failed on {release}:\n{tools.last_lines(log)}")
    log.unlink()
