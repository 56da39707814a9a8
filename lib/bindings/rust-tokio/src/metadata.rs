// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Attributes of a file, with the methods of std::fs::Metadata, which only std can make.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use crate::sys::{statx, statx_timestamp};

const FORMAT: u32 = 0o170000;
const FOLDER: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const LINK: u32 = 0o120000;
const BORN: u32 = 0x800;

/// What kind of file it is, as `std::fs::FileType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// Attributes of a file, as `std::fs::Metadata` and `std::os::unix::fs::MetadataExt`.
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

    pub fn blocks(&self) -> u64 {
        self.0.stx_blocks
    }
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
