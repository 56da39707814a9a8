// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The engine of asynchronous files as trapless_files.h declares it. It owns no behaviour.

#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

pub const TL_FILES_WORKERS: c_uint = 64;
pub const TL_FILES_ROOM: usize = 65536;
pub const TL_FILES_SYNC: c_uint = 1 << 0;
pub const TL_FILES_REPLACE: c_uint = 1 << 1;
pub const TL_FILES_MODE: c_uint = 1 << 2;

#[repr(C)]
pub struct tl_files {
    private: [u8; 0],
}

#[repr(C)]
pub struct tl_files_op {
    private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct tl_request {
    pub nr: u32,
    pub state: u8,
    pub condition: u8,
    pub target: u16,
    pub args: [u64; 6],
    pub result: i64,
}

#[repr(C)]
pub struct tl_files_result {
    pub user_data: u64,
    pub result: i64,
    pub data: *mut c_void,
    pub op: *mut tl_files_op,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct statx_timestamp {
    pub tv_sec: i64,
    pub tv_nsec: u32,
    pub reserved: i32,
}

/// struct statx of linux/stat.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct statx {
    pub stx_mask: u32,
    pub stx_blksize: u32,
    pub stx_attributes: u64,
    pub stx_nlink: u32,
    pub stx_uid: u32,
    pub stx_gid: u32,
    pub stx_mode: u16,
    pub spare0: u16,
    pub stx_ino: u64,
    pub stx_size: u64,
    pub stx_blocks: u64,
    pub stx_attributes_mask: u64,
    pub stx_atime: statx_timestamp,
    pub stx_btime: statx_timestamp,
    pub stx_ctime: statx_timestamp,
    pub stx_mtime: statx_timestamp,
    pub stx_rdev_major: u32,
    pub stx_rdev_minor: u32,
    pub stx_dev_major: u32,
    pub stx_dev_minor: u32,
    pub spare: [u64; 14],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct tl_files_status {
    pub result: i64,
    pub x: statx,
}

extern "C" {
    pub fn tl_files_create(out: *mut *mut tl_files, workers: c_uint, flags: c_uint) -> c_int;
    pub fn tl_files_destroy(files: *mut tl_files) -> c_int;
    pub fn tl_files_backend(files: *const tl_files) -> c_int;
    pub fn tl_files_fd(files: *mut tl_files) -> c_int;
    pub fn tl_files_submit(files: *mut tl_files) -> c_int;
    pub fn tl_files_next(files: *mut tl_files, result: *mut tl_files_result) -> c_int;
    pub fn tl_files_release(files: *mut tl_files, op: *mut tl_files_op);
    pub fn tl_files_cancel(files: *mut tl_files, op: *mut tl_files_op);
    pub fn tl_files_call(
        files: *mut tl_files,
        call: *const tl_request,
        strings: c_uint,
        rooms: c_uint,
        user_data: u64,
        op: *mut *mut tl_files_op,
    ) -> c_int;
    pub fn tl_files_read(
        files: *mut tl_files,
        dirfd: c_int,
        path: *const c_char,
        user_data: u64,
        op: *mut *mut tl_files_op,
    ) -> c_int;
    pub fn tl_files_list(
        files: *mut tl_files,
        dirfd: c_int,
        path: *const c_char,
        user_data: u64,
        op: *mut *mut tl_files_op,
    ) -> c_int;
    pub fn tl_files_stat(
        files: *mut tl_files,
        dirfd: c_int,
        paths: *const *const c_char,
        n: c_uint,
        flags: c_int,
        mask: c_uint,
        user_data: u64,
        op: *mut *mut tl_files_op,
    ) -> c_int;
    pub fn tl_files_write(
        files: *mut tl_files,
        dirfd: c_int,
        path: *const c_char,
        data: *const c_void,
        bytes: usize,
        open_flags: c_int,
        mode: c_uint,
        flags: c_uint,
        user_data: u64,
        op: *mut *mut tl_files_op,
    ) -> c_int;
}

/// Proof that the layouts are those of C.
const _: () = {
    assert!(std::mem::size_of::<tl_request>() == 64);
    assert!(std::mem::size_of::<statx>() == 256);
    assert!(std::mem::size_of::<tl_files_status>() == 264);
};
