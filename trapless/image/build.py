# SPDX-License-Identifier: GPL-2.0-only
"""Makes an image: checks first, fetches and builds what it is made of, puts it in place at the end.

This file owns the order, the mark of an image, and what is refused. A run that ends early leaves
neither a part of an image nor a temporary folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base import built_programs, cache
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import repo_root
from trapless.base.tools import interrupts_deferred
from trapless.image import disc, runtime, system
from trapless.image.station import boot_order
from trapless.stock import kbuild, kernels
from trapless.stock.kernel import Kernel

NEED_BYTES = 500_000_000
"""The disk space for making an image: the system, plain and compressed, and the image itself."""


OF_EXPERIMENTS = (("eval/memory_hierarchy", "hierarchy.ko"), ("eval/programs", "array.ko"))
"""Modules of experiments, which `evaluate --here` looks for beside ours."""


@dataclass(frozen=True)
class Image:
    """A finished image."""

    path: Path
    release: str
    mark: str
    size_bytes: int


def make(out: Path, kernel_name: str, words: str, progress: Progress) -> Image:
    """Make the image `out`; `words` are added to the kernel's command line in every menu entry."""
    _check(out, words)
    disc.require_tools()
    kernel = kernels.resolve(kernel_name, progress)
    modules = [kbuild.module_for(kernel, progress)]
    for folder_name, name in OF_EXPERIMENTS:
        modules.append(kbuild.module_for(kernel, progress, repo_root() / folder_name, name))
    built_programs.build(progress)
    python = runtime.unpacked(progress).root
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
    try:
        image, mark = _make_in(folder, kernel, modules, python, words, progress)
        # A link, unlike a rename, never replaces a file that was made meanwhile.
        os.link(image, out)
    except FileExistsError as error:
        raise _exists(out) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(out) from error
        raise TraplessError(f"{out}: {error.strerror}") from error
    except TraplessError as error:
        if shutil.disk_usage(folder).free < cache.FULL_BYTES:  # a tool's own words then mislead
            raise _no_space(out) from error
        raise
    finally:
        with interrupts_deferred():
            cache.remove_tree(folder)
        progress.done()
    return Image(out, kernel.release, mark, out.stat().st_size)


def _make_in(
    folder: Path,
    kernel: Kernel,
    modules: Sequence[Path],
    python: Path,
    words: str,
    progress: Progress,
) -> tuple[Path, str]:
    scratch, plain, initrd = folder / "compiled", folder / "initramfs", folder / "initramfs.zst"
    log = folder / "log"
    scratch.mkdir()
    tree = system.make(kernel, modules, python, scratch, progress)
    with plain.open("wb") as archive:
        tree.write(archive)
    progress.step(f"compressing {cache.megabytes(plain.stat().st_size)}")
    disc.compress(plain, initrd, log)
    plain.unlink()
    mark = cache.sha256_files(folder, [initrd], cache.sha256_file(kernel.image), words)[:8].upper()
    image = disc.make(folder, kernel.image, initrd, kernel.release, mark, words, log, progress)
    image.chmod(0o666 & ~_umask())
    return image, mark


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _check(out: Path, words: str) -> None:
    if any(sign in words for sign in "\n\"'\\$`;{}"):
        raise TraplessError(f"words for the kernel are plain words, not {words!r}", status=2)
    if complaints := boot_order.parse(words).complaints:
        raise TraplessError(f"--append {'; '.join(complaints)}", status=2)
    if out.is_block_device():
        raise TraplessError(
            f"{out} is a disk; make the image as a file, and then copy it onto the stick: "
            f"dd if=trapless.iso of={out} bs=4M oflag=direct",
            status=2,
        )
    if out.is_symlink() or out.exists():
        raise _exists(out)
    if not out.parent.is_dir():
        raise TraplessError(f"there is no folder {out.parent} for {out.name}", status=2)
    if not os.access(out.parent, os.W_OK):
        raise TraplessError(f"{out.parent} may not be written to; name another file")
    if shutil.disk_usage(out.parent).free < NEED_BYTES:
        raise _no_space(out)


def _exists(out: Path) -> TraplessError:
    return TraplessError(f"{out} is there already; remove it or name another file", status=2)


def _no_space(out: Path) -> TraplessError:
    return TraplessError(
        f"the disk of {out.parent} is full or nearly so: an image takes "
        f"{cache.megabytes(NEED_BYTES)} there while it is made, and a tenth of it then"
    )
