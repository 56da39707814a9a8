// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// What the crate shows, and its page, which is README.md.

#![doc = include_str!("../README.md")]

mod directory;
mod engine;
mod file;
mod files;
mod metadata;
mod sys;

pub use directory::{DirEntry, ReadDir};
pub use file::File;
pub use files::Files;
pub use metadata::{FileType, Metadata};
