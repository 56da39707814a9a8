// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Attributes of a file, with the methods of std::fs::Metadata, which only std can make.

use std::fmt;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use crate::sys::{statx, statx_timestamp};

const FORMAT: u32 = 0o170000;
const FOLDER: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const LINK: u32 = 0o120000;
const BLOCK_DEVICE: u32 = 0o060000;
const CHARACTER_DEVICE: u32 = 0o020000;
const FIFO: u32 = 0o010000;
const SOCKET: u32 = 0o140000;
const BORN: u32 = 0x800;

/// What kind of file it is, with the methods of `std::fs::FileType` and `FileTypeExt`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileType(pub(crate) u32);

impl FileType {
    pub fn is_dir(&self) -> bool {
        self.0 & FORMAT == FOLDER
    }

    pub fn is_file(&self) -> bool {
        self.0 & FORMAT == REGULAR
    }

    pub fn is_symlink(&self) -> bool {
        self.0 & FORMAT == LINK
    }

    pub fn is_block_device(&self) -> bool {
        self.0 & FORMAT == BLOCK_DEVICE
    }

    pub fn is_char_device(&self) -> bool {
        self.0 & FORMAT == CHARACTER_DEVICE
    }

    pub fn is_fifo(&self) -> bool {
        self.0 & FORMAT == FIFO
    }

    pub fn is_socket(&self) -> bool {
        self.0 & FORMAT == SOCKET
    }
}

impl fmt::Debug for FileType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("FileType")
            .field("is_file", &self.is_file())
            .field("is_dir", &self.is_dir())
            .field("is_symlink", &self.is_symlink())
            .finish_non_exhaustive()
    }
}

/// Attributes of a file, with the methods of `std::fs::Metadata` and of
/// `std::os::unix::fs::MetadataExt`, which need no `use` here.
#[derive(Clone)]
pub struct Metadata(pub(crate) Box<statx>);

impl Metadata {
    pub fn file_type(&self) -> FileType {
        FileType(self.mode())
    }

    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    #[allow(clippy::len_without_is_empty)] // std's has none
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }

    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }

    pub fn modified(&self) -> io::Result<SystemTime> {
        Ok(time(&self.0.stx_mtime))
    }

    pub fn accessed(&self) -> io::Result<SystemTime> {
        Ok(time(&self.0.stx_atime))
    }

    /// An error where the file system does not keep it.
    pub fn created(&self) -> io::Result<SystemTime> {
        if self.0.stx_mask & BORN == 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "no creation time is kept here",
            ));
        }
        Ok(time(&self.0.stx_btime))
    }

    pub fn dev(&self) -> u64 {
        device(self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    pub fn mode(&self) -> u32 {
        self.0.stx_mode.into()
    }

    pub fn ino(&self) -> u64 {
        self.0.stx_ino
    }

    pub fn nlink(&self) -> u64 {
        self.0.stx_nlink.into()
    }

    pub fn uid(&self) -> u32 {
        self.0.stx_uid
    }

    pub fn gid(&self) -> u32 {
        self.0.stx_gid
    }

    pub fn rdev(&self) -> u64 {
        device(self.0.stx_rdev_major, self.0.stx_rdev_minor)
    }

    pub fn size(&self) -> u64 {
        self.0.stx_size
    }

    pub fn atime(&self) -> i64 {
        self.0.stx_atime.tv_sec
    }

    pub fn atime_nsec(&self) -> i64 {
        self.0.stx_atime.tv_nsec.into()
    }

    pub fn mtime(&self) -> i64 {
        self.0.stx_mtime.tv_sec
    }

    pub fn mtime_nsec(&self) -> i64 {
        self.0.stx_mtime.tv_nsec.into()
    }

    pub fn ctime(&self) -> i64 {
        self.0.stx_ctime.tv_sec
    }

    pub fn ctime_nsec(&self) -> i64 {
        self.0.stx_ctime.tv_nsec.into()
    }

    pub fn blksize(&self) -> u64 {
        self.0.stx_blksize.into()
    }

    pub fn blocks(&self) -> u64 {
        self.0.stx_blocks
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Metadata")
            .field("permissions", &self.permissions())
            .field("file_type", &self.file_type())
            .field("len", &self.len())
            .field("modified", &self.modified())
            .field("accessed", &self.accessed())
            .field("created", &self.created())
            .finish_non_exhaustive()
    }
}

/// A device's number as `dev_t` has it: the upper and the lower bits of both parts alternate.
fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & !0xfff) << 32 | (major & 0xfff) << 8 | (minor & !0xff) << 12 | minor & 0xff
}

fn time(stamp: &statx_timestamp) -> SystemTime {
    let fraction = Duration::from_nanos(stamp.tv_nsec.into());
    let seconds = Duration::from_secs(stamp.tv_sec.unsigned_abs());
    let whole = if stamp.tv_sec < 0 {
        SystemTime::UNIX_EPOCH - seconds
    } else {
        SystemTime::UNIX_EPOCH + seconds
    };
    whole + fraction
}
