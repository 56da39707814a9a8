# SPDX-License-Identifier: GPL-2.0-only
"""A small ext4 file system in a guest's memory, for workloads that read files.

The guest's root is tmpfs, from which programs seldom read; since about 2023 io_uring also hands
each read from it to a thread of its own. This file owns the size of the disk and how it is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress
from trapless.stock import kernels

MOUNT_POINT = "/data"
SIZE_KB = 8192
DRIVERS = (("brd", f"rd_nr=1 rd_size={SIZE_KB}"), ("ext4", ""))
"""ext4 also drives the ext2 that busybox can make."""
CHECKSUMS = "crc32c_generic"
"""ext4 asks for it by name at mount; newer kernels have it in the library that ext4 depends on."""

SCRIPT = f"""\
mke2fs -b 4096 /dev/ram0 >/dev/null && mkdir {MOUNT_POINT} &&
mount -t ext2 -o relatime /dev/ram0 {MOUNT_POINT} && exec "$@"
echo "cannot make a file system in memory" >&2; exit 1
"""


def modules(
    kernel: str, progress: Progress, arch: Architecture = AMD64
) -> tuple[tuple[str, str], ...]:
    """The modules of the kernel called `kernel` for the file system; see LabConfig.modules."""
    folder = kernels.resolve(kernel, progress, arch).modules_dir
    index = folder / "modules.dep" if folder is not None else None
    if index is not None and f"/{CHECKSUMS}.ko" in index.read_text(encoding="utf-8"):
        return (*DRIVERS, (CHECKSUMS, ""))
    return DRIVERS


def command(argv: Sequence[str]) -> list[str]:
    """The command that makes the file system at MOUNT_POINT and then runs `argv`."""
    return ["/bin/sh", "-c", SCRIPT, "sh", *argv]
