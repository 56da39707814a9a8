# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""struct stat of x86-64, which fstat and its kin write."""

from __future__ import annotations

from ctypes import Structure, c_int64, c_uint32, c_uint64


class Stat(Structure):
    """struct stat. Times are seconds and nanoseconds."""

    st_dev: int
    st_ino: int
    st_nlink: int
    st_mode: int
    st_uid: int
    st_gid: int
    st_rdev: int
    st_size: int
    st_blksize: int
    st_blocks: int
    _fields_ = (
        ("st_dev", c_uint64),
        ("st_ino", c_uint64),
        ("st_nlink", c_uint64),
        ("st_mode", c_uint32),
        ("st_uid", c_uint32),
        ("st_gid", c_uint32),
        ("reserved", c_uint32),
        ("st_rdev", c_uint64),
        ("st_size", c_int64),
        ("st_blksize", c_int64),
        ("st_blocks", c_int64),
        ("st_atime", c_int64),
        ("st_atime_ns", c_int64),
        ("st_mtime", c_int64),
        ("st_mtime_ns", c_int64),
        ("st_ctime", c_int64),
        ("st_ctime_ns", c_int64),
        ("reserved_end", c_int64 * 3),
    )
