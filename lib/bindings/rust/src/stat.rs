// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! struct stat, which fstat and its kin write.

/// The attributes of a file. Times are seconds and nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    pub st_dev: u64,
    pub st_ino: u64,
    #[cfg(target_arch = "x86_64")]
    pub st_nlink: u64,
    pub st_mode: u32,
    #[cfg(target_arch = "aarch64")]
    pub st_nlink: u32,
    pub st_uid: u32,
    pub st_gid: u32,
    #[cfg(target_arch = "x86_64")]
    reserved: u32,
    pub st_rdev: u64,
    #[cfg(target_arch = "aarch64")]
    reserved: u64,
    pub st_size: i64,
    #[cfg(target_arch = "x86_64")]
    pub st_blksize: i64,
    #[cfg(target_arch = "aarch64")]
    pub st_blksize: i32,
    #[cfg(target_arch = "aarch64")]
    reserved_middle: i32,
    pub st_blocks: i64,
    pub st_atime: i64,
    pub st_atime_ns: i64,
    pub st_mtime: i64,
    pub st_mtime_ns: i64,
    pub st_ctime: i64,
    pub st_ctime_ns: i64,
    #[cfg(target_arch = "x86_64")]
    reserved_end: [i64; 3],
    #[cfg(target_arch = "aarch64")]
    reserved_end: [i32; 2],
}

impl Stat {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.st_size as u64
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.st_mode & 0o170000 == 0o100000
    }
}
