// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The entries of a folder, named as in tokio::fs. All of them are read by one operation.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{FileType, Files, Metadata};

const NAME_AT: usize = 19; // struct linux_dirent64: inode, offset, length, type, name

/// The entries that [`Files::read_dir`] has read.
pub struct ReadDir {
    files: Files,
    folder: Arc<Path>,
    records: Vec<u8>,
    at: usize,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = &self.folder;
        to.debug_struct("ReadDir")
            .field("folder", folder)
            .finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(crate) fn new(files: Files, folder: &Path, records: Vec<u8>) -> ReadDir {
        ReadDir {
            files,
            folder: folder.into(),
            records,
            at: 0,
        }
    }

    /// The next entry, without "." and "..".
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        Ok(self.next())
    }

    fn next(&mut self) -> Option<DirEntry> {
        while self.at + NAME_AT < self.records.len() {
            let record = &self.records[self.at..];
            let length = u16::from_ne_bytes([record[16], record[17]]) as usize;
            let name = record[NAME_AT..length].split(|byte| *byte == 0).next()?;
            let entry = DirEntry {
                files: self.files.clone(),
                folder: self.folder.clone(),
                name: OsStr::from_bytes(name).to_owned(),
                kind: u32::from(record[18]) << 12, // DT_* are S_IF* without their lower bits
                ino: u64::from_ne_bytes(record[..8].try_into().ok()?),
            };
            self.at += length;
            if entry.name != "." && entry.name != ".." {
                return Some(entry);
            }
        }
        None
    }
}

/// An entry of a folder.
#[derive(Debug)]
pub struct DirEntry {
    files: Files,
    folder: Arc<Path>,
    name: OsString,
    kind: u32,
    ino: u64,
}

impl DirEntry {
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// It makes a call only where the file system does not say the type in its folders.
    pub async fn file_type(&self) -> io::Result<FileType> {
        if self.kind != 0 {
            return Ok(FileType(self.kind));
        }
        Ok(self.metadata().await?.file_type())
    }

    /// Of the entry itself, if it is a link.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.files.symlink_metadata(self.path()).await
    }
}
