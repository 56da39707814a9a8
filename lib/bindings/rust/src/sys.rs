// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The interface of libtrapless-ffi as C declares it: numbers, structures and functions.
//!
//! It owns no behaviour. tests/abi/test_bindings.py compares all of it with include/trapless.h.

#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint};

pub use crate::counts::tl_stats;

pub const TL_PLAIN: c_uint = 1 << 0;
pub const TL_MODULE: c_uint = 1 << 1;
pub const TL_UNORDERED: c_uint = 1 << 2;
pub const TL_ENTRIES_MAX: c_uint = 4096;
pub const TL_STEPS_DEFAULT: u64 = 1048576;

pub const TL_BACKEND_PLAIN: c_int = 0;
pub const TL_BACKEND_MODULE: c_int = 1;

pub const TL_WALK_BREADTH_FIRST: c_uint = 1 << 8;
pub const TL_WALK_LEAVE: c_uint = 1 << 9;
pub const TL_WALK_ONE_DEVICE: c_uint = 1 << 10;
pub const TL_WALK_FOLLOW_ROOT: c_uint = 1 << 11;
pub const TL_WALK_FOLLOW: c_uint = 1 << 12;
pub const TL_WALK_BY_NAME: c_uint = 1 << 13;
pub const TL_WALK_BY_INODE: c_uint = 1 << 14;

pub const TL_WALK_LEFT: c_int = 1;
pub const TL_WALK_CYCLE: c_int = 2;
pub const TL_WALK_UNREADABLE: c_int = 3;

pub const TL_NR_MASK: u32 = 0xfff;
pub const TL_NR_STORE: u32 = 0xfff;
pub const TL_NR_INCREASE: u32 = 0xffe;

/// Argument number `argument` is a slot, and its result is passed.
pub const fn tl_result(argument: usize) -> u32 {
    1 << (12 + 2 * argument)
}

/// The argument is the address of 32 bits, which are passed.
pub const fn tl_word32(argument: usize) -> u32 {
    2 << (12 + 2 * argument)
}

/// The argument is the address of 64 bits, which are passed.
pub const fn tl_word64(argument: usize) -> u32 {
    3 << (12 + 2 * argument)
}

/// A batch; the library owns what is in it.
#[repr(C)]
pub struct tl_batch {
    private: [u8; 0],
}

/// An entry of a directory: numbers, and from `mask` on what statx says of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_scan_entry {
    /// Of this record with its name. The size of the file is `bytes`.
    pub size: u16,
    /// Where the name begins in this record.
    pub name_at: u16,
    /// Without the zero byte.
    pub name_bytes: u16,
    /// Of statx: 0 or a negative number.
    pub error: i16,
    /// As getdents64 has it; `ino` is that of statx.
    pub d_ino: u64,
    /// Where the next entry is, for lseek.
    pub d_off: i64,
    /// STATX_*: which fields are valid.
    pub mask: u32,
    /// The block size for reads and writes.
    pub blksize: u32,
    /// STATX_ATTR_*.
    pub attributes: u64,
    pub attributes_mask: u64,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Type and permissions.
    pub mode: u16,
    /// DT_*, as getdents64 has it.
    pub r#type: u8,
    pub reserved: u8,
    pub ino: u64,
    /// The size of the file.
    pub bytes: u64,
    /// Of 512 bytes each, on the disk.
    pub blocks: u64,
    pub atime_sec: i64,
    pub btime_sec: i64,
    pub ctime_sec: i64,
    pub mtime_sec: i64,
    pub atime_nsec: u32,
    pub btime_nsec: u32,
    pub ctime_nsec: u32,
    pub mtime_nsec: u32,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub mnt_id: u64,
}

/// What tl_walk_next() returns.
#[repr(C)]
pub struct tl_walk_entry {
    pub kind: c_int,
    pub error: c_int,
    pub depth: u32,
    pub name_bytes: u32,
    pub path_bytes: usize,
    pub path: *const c_char,
    pub name: *const c_char,
    pub attributes: *const tl_scan_entry,
}

/// The counts of a walk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct tl_walk_stats {
    pub size: u32,
    pub reserved: u32,
    /// Returned by `tl_walk_next()`.
    pub entries: u64,
    /// Opened to be read.
    pub directories: u64,
    /// For many entries, that the module has answered.
    pub requests: u64,
    /// Plain system calls.
    pub calls: u64,
    /// Into the kernel, for calls and requests.
    pub crossings: u64,
}

/// A walk; the library owns what is in it.
#[repr(C)]
pub struct tl_walk {
    private: [u8; 0],
}

extern "C" {
    pub fn tl_batch_create(batch: *mut *mut tl_batch, entries: c_uint, flags: c_uint) -> c_int;
    pub fn tl_batch_destroy(batch: *mut tl_batch);
    pub fn tl_batch_backend(batch: *const tl_batch) -> c_int;
    pub fn tl_batch_reason(batch: *const tl_batch) -> *const c_char;
    pub fn tl_batch_add(
        batch: *mut tl_batch,
        nr: u32,
        a0: u64,
        a1: u64,
        a2: u64,
        a3: u64,
        a4: u64,
        a5: u64,
    ) -> c_int;
    pub fn tl_batch_flush(batch: *mut tl_batch) -> c_int;
    pub fn tl_batch_flush_all(batch: *mut tl_batch) -> c_int;
    pub fn tl_batch_flush_steps(batch: *mut tl_batch, steps: u64) -> c_int;
    pub fn tl_batch_barrier(batch: *mut tl_batch) -> c_int;
    pub fn tl_batch_queued(batch: *const tl_batch) -> u32;
    pub fn tl_batch_result(batch: *const tl_batch, slot: c_uint) -> i64;
    pub fn tl_batch_set_data(batch: *mut tl_batch, slot: c_uint, user_data: u64) -> c_int;
    pub fn tl_batch_data(batch: *const tl_batch, slot: c_uint) -> u64;
    pub fn tl_batch_done(batch: *const tl_batch, slot: c_uint) -> bool;
    pub fn tl_batch_jump(
        batch: *mut tl_batch,
        slot: c_uint,
        condition: c_int,
        target: c_uint,
    ) -> c_int;
    pub fn tl_batch_next(batch: *const tl_batch) -> c_uint;
    pub fn tl_batch_at(batch: *const tl_batch) -> c_uint;
    pub fn tl_batch_get_stats(batch: *const tl_batch, stats: *mut tl_stats) -> c_int;
    pub fn tl_call_get_class(
        nr: u32,
        name: *mut *const c_char,
        reason: *mut *const c_char,
    ) -> c_int;
    pub fn tl_walk_create(
        walk: *mut *mut tl_walk,
        dirfd: c_int,
        path: *const c_char,
        mask: c_uint,
        flags: c_uint,
        descriptors: c_uint,
    ) -> c_int;
    pub fn tl_walk_destroy(walk: *mut tl_walk);
    pub fn tl_walk_next(walk: *mut tl_walk, entry: *mut *const tl_walk_entry) -> c_int;
    pub fn tl_walk_skip(walk: *mut tl_walk);
    pub fn tl_walk_fd(walk: *mut tl_walk) -> c_int;
    pub fn tl_walk_backend(walk: *const tl_walk) -> c_int;
    pub fn tl_walk_reason(walk: *const tl_walk) -> *const c_char;
    pub fn tl_walk_get_stats(walk: *const tl_walk, stats: *mut tl_walk_stats) -> c_int;
}
