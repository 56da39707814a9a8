# SPDX-License-Identifier: GPL-2.0-only
"""Experiment scan: directories and trees with the attributes of all entries, by compound calls.

This file owns the question, the method and the limits, in words, and the sizes and repeats.
part_scan.py owns what is run, the metrics and the tables.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import Spec, part

SIZES: Extent[tuple[int, ...]] = Extent((10, 100, 1000, 10000, 100000), (10, 1000))
"""Entries of a directory on tmpfs."""
EXT4_SIZES: Extent[tuple[int, ...]] = Extent((10, 1000, 10000, 100000), (1000,))
"""The same on ext4, whose larger directories have an index of names (htree)."""
COMMON_SIZES: Extent[tuple[int, ...]] = Extent((10, 1000, 10000), (1000,))
"""The same on other file systems."""
AT = 1000
"""The size that is also counted on the kernel as it is, and with cold caches."""
WIDTHS: Extent[tuple[int, ...]] = Extent((18,), (6,))
"""Directories in each directory of a tree, in three levels: 18 makes 58,663 entries."""
THREADS = 300
REPEATS = Extent(3, 2)

SPEC = Spec(
    name="scan",
    paper="wrapped-system-call",
    question="What does it take to read a directory, or a tree, with all entries' attributes?",
    method=(
        "Directories of 10 to 100,000 entries on tmpfs, ext4, overlayfs and procfs are opened, "
        "read with the attributes of each entry, and closed: by tl_scan with the module and "
        "without, by getdents64 and statx, by batches and io_uring with 64 statx at once, and by "
        "the C library's readdir and fstatat, Python's os.scandir and Rust's read_dir. A tree is "
        "read by tl_walk with the module and without, by the C library's fts, Python's os.scandir "
        "and Rust's walkdir. Python also reads both by libtrapless, and Rust the tree. Counted are "
        "the instructions of user and kernel side, after two runs that fill the caches. Every way "
        "adds up names, inodes, sizes and times, and all sums must be the same."
    ),
    limits=(
        "A count knows nothing of what a trap or a cache miss costs a processor.",
        "io_uring hands each statx to a thread of the kernel, whose instructions are counted.",
        "Figures without a suffix are of a kernel that neither clears fresh memory "
        "(init_on_alloc=0) nor copies by rep instructions (clearcpuid=erms,fsrm), because the "
        "emulator counts those a byte each; stock is the kernel as it is.",
        "ext4 drives the ext2 format that busybox makes, without a journal and extents, on a disk "
        "in memory. There, cold caches cost instructions and no time.",
    ),
    parts=(part("scan", "scan"),),
    minutes=(4, 17),
    needs="it counts instructions, which takes an emulator",
    quick_by_name=True,
)
