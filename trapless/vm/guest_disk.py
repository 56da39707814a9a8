# SPDX-License-Identifier: GPL-2.0-only
"""A small file system of the usual kind in a guest's memory, for workloads that read files.

The guest's root is tmpfs, which is not what programs read from: since about 2023 it also makes
io_uring hand every read to a thread of its own. Owns the disk's size and how it is made.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def modules(kernel: str, progress: Progress) -> tuple[tuple[str, str], ...]:
    """For LabConfig.modules: what the kernel called `kernel` needs to have the file system."""
    folder = kernels.resolve(kernel, progress).modules_dir
    index = folder / "modules.dep" if folder is not None else None
    if index is not None and f"/{CHECKSUMS}.ko" in index.read_text(encoding="utf-8"):
        return (*DRIVERS, (CHECKSUMS, ""))
    return DRIVERS


def command(argv: Sequence[str]) -> list[str]:
    """`argv`, run in the guest with the file system at MOUNT_POINT."""
    return ["/bin/sh", "-c", SCRIPT, "sh", *argv]
