# SPDX-License-Identifier: GPL-2.0-only
"""Reads a kernel that is given by a path: an image, a build tree, or an unpacked root.

It changes nothing there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from trapless.base import cache
from trapless.base.console import TraplessError
from trapless.stock.kernel import Kernel, find_image

TREE_IMAGE = Path("arch/x86/boot/bzImage")

# The x86 boot protocol (Documentation/arch/x86/boot.rst)
HEADER_BYTES = 0x10000
MAGIC_OFFSET = 0x202
VERSION_POINTER_OFFSET = 0x20E
SETUP_BASE = 0x200


def from_path(path: str) -> Kernel:
    """The kernel at `path`: IMAGE, IMAGE:BUILD_DIR, a build tree or an unpacked root."""
    given = Path(path)
    build_dir = None
    if not given.exists() and ":" in path:
        image, _, build = path.rpartition(":")
        given, build_dir = Path(image), Path(build).absolute()
        if not (build_dir / "Makefile").exists():
            raise TraplessError(f"{build_dir} has no Makefile: no kernel build tree", status=2)
    if not given.exists():
        raise TraplessError(f"no kernel at {given}: there is no such file or folder", status=2)
    given = given.absolute()
    if given.is_file():
        return _from_image(path, given, build_dir)
    if (given / TREE_IMAGE).exists():
        return _from_image(path, given / TREE_IMAGE, given)
    return _from_root(path, given)


def _from_image(name: str, image: Path, build_dir: Path | None) -> Kernel:
    release = image_release(image)
    roots = [parent for parent in image.parents if (parent / "lib" / "modules" / release).is_dir()]
    modules_dir = roots[0] / "lib" / "modules" / release if roots else None
    build_dir = build_dir or _build_dir(image, release)
    return Kernel(
        name=name,
        release=release,
        image=image,
        build_dir=build_dir,
        modules_dir=modules_dir,
        provenance={"image": f"sha256:{cache.sha256_file(image)}"},
        build_root=_own_tools(build_dir, roots),
    )


def _own_tools(build_dir: Path | None, roots: Sequence[Path]) -> Path | None:
    """The root, other than this machine's, that holds both the headers and tools to build with."""
    for root in roots:
        tools = (root / "usr" / "bin" / "make").exists() and root != Path("/")
        if tools and build_dir is not None and build_dir.is_relative_to(root):
            return root
    return None


def _from_root(name: str, root: Path) -> Kernel:
    modules = root / "lib" / "modules"
    releases = {p.name.removeprefix("vmlinuz-") for p in (root / "boot").glob("vmlinuz-*")}
    releases |= {p.parent.name for p in modules.glob("*/vmlinuz")}
    if not releases:
        raise TraplessError(
            f"{root} holds no kernel: neither {TREE_IMAGE} (a build tree), nor boot/vmlinuz-* or "
            f"lib/modules/*/vmlinuz (an unpacked root)",
            status=2,
        )
    if len(releases) > 1:
        images = ", ".join(str(find_image(root, release)) for release in sorted(releases))
        raise TraplessError(f"{root} holds more than one kernel; name one of {images}", status=2)
    return _from_image(name, find_image(root, releases.pop()), None)


def _build_dir(image: Path, release: str) -> Path | None:
    """Headers or a build tree that belong to `image`, in the folders above it."""
    for parent in image.parents:
        if parent / TREE_IMAGE == image:
            return parent
        for candidate in (
            parent / "usr" / "src" / f"linux-headers-{release}",
            parent / "lib" / "modules" / release / "build",
            parent / f"linux-headers-{release}",
        ):
            if (candidate / "Makefile").exists():
                return candidate
    return None


def image_release(image: Path) -> str:
    """The release string that an x86 kernel image carries in its boot header."""
    try:
        with image.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise TraplessError(f"cannot read the kernel image {image}: {error.strerror}") from error
    if header[MAGIC_OFFSET : MAGIC_OFFSET + 4] != b"HdrS":
        raise TraplessError(
            f"{image} is not a bootable x86 kernel image (no HdrS at {MAGIC_OFFSET:#x}); give a "
            f"bzImage or vmlinuz, not vmlinux",
            status=2,
        )
    (pointer,) = struct.unpack_from("<H", header, VERSION_POINTER_OFFSET)
    start = pointer + SETUP_BASE
    text = header[start : header.find(b"\0", start)] if pointer else b""
    release = text.split(b" ")[0].decode("ascii", "replace")
    if not release:
        raise TraplessError(f"the kernel image {image} does not say which release it is", status=2)
    return release
