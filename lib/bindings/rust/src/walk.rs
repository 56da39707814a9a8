// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! A walk through a tree, whose entries have their attributes. It owns the iterator; the library
//! reads directories, by compound calls where the module makes them.

use crate::batch::{static_text, Backend, Batch};
use crate::sys;
use std::ffi::{CString, OsStr};
use std::os::raw::c_uint;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, ptr, slice};

const CURRENT_FOLDER: i32 = -100; // AT_FDCWD

/// What an entry of a walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file. If it is a folder, what is in it follows, unless [`Walk::skip_folder`] is called.
    Entry,
    /// A folder once more, after everything in it: [`WalkOptions::leave`].
    Left,
    /// A folder that is its own ancestor. It is not entered.
    Cycle,
    /// A folder that could not be opened or read to its end.
    Unreadable,
}

/// The attributes of a file, as statx has them: `error` is 0, or what statx returned.
pub type Attributes = sys::tl_scan_entry;

/// An entry of a walk.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    pub path: PathBuf,
    /// 0 is the root.
    pub depth: usize,
    pub kind: Kind,
    pub attributes: Attributes,
    name_bytes: usize,
    error: i32,
}

impl WalkEntry {
    /// Returns the name in its folder; for the root, its path.
    pub fn name(&self) -> &OsStr {
        let path = self.path.as_os_str().as_bytes();
        OsStr::from_bytes(&path[path.len() - self.name_bytes..])
    }

    /// Returns why the attributes, or the folder, could not be read.
    pub fn error(&self) -> Option<io::Error> {
        (self.error != 0).then(|| io::Error::from_raw_os_error(-self.error))
    }

    /// Returns the size of the file in bytes.
    #[allow(clippy::len_without_is_empty)] // std::fs::Metadata has none
    pub fn len(&self) -> u64 {
        self.attributes.bytes
    }

    fn is_of_type(&self, kind: u16) -> bool {
        self.attributes.mode & 0o170000 == kind
    }

    /// Returns whether it is a folder, and no link to one.
    pub fn is_dir(&self) -> bool {
        self.is_of_type(0o040000)
    }

    /// Returns whether it is a regular file, and no link to one.
    pub fn is_file(&self) -> bool {
        self.is_of_type(0o100000)
    }

    /// Returns whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.is_of_type(0o120000)
    }

    /// Returns when the file was written last, or why its attributes could not be read.
    pub fn modified(&self) -> io::Result<SystemTime> {
        let of = &self.attributes;
        if of.error != 0 {
            return Err(io::Error::from_raw_os_error(-i32::from(of.error)));
        }
        let seconds = Duration::from_secs(of.mtime_sec.unsigned_abs());
        let whole = if of.mtime_sec < 0 {
            UNIX_EPOCH - seconds
        } else {
            UNIX_EPOCH + seconds
        };
        Ok(whole + Duration::from_nanos(of.mtime_nsec.into()))
    }
}

/// How a walk goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkOptions {
    flags: c_uint,
    descriptors: c_uint,
}

impl WalkOptions {
    pub fn new() -> Self {
        Self::default()
    }

    fn with(self, flag: c_uint) -> Self {
        Self {
            flags: self.flags | flag,
            ..self
        }
    }

    /// All entries of a depth come before those of the next.
    pub fn breadth_first(self) -> Self {
        self.with(sys::TL_WALK_BREADTH_FIRST)
    }

    /// A folder comes once more after everything in it.
    pub fn leave(self) -> Self {
        self.with(sys::TL_WALK_LEAVE)
    }

    /// Folders of other file systems are not entered.
    pub fn one_device(self) -> Self {
        self.with(sys::TL_WALK_ONE_DEVICE)
    }

    /// Every symbolic link is taken for what it leads to.
    pub fn follow_links(self) -> Self {
        self.with(sys::TL_WALK_FOLLOW)
    }

    /// The entries of a folder come in the order of their names' bytes.
    pub fn by_name(self) -> Self {
        self.with(sys::TL_WALK_BY_NAME)
    }

    /// The entries of a folder come in the order of their inodes.
    pub fn by_inode(self) -> Self {
        self.with(sys::TL_WALK_BY_INODE)
    }

    /// At most so many folders are open at once.
    pub fn descriptors(self, most: u32) -> Self {
        Self {
            descriptors: most,
            ..self
        }
    }

    /// Begins a walk. A root that is a symbolic link is taken for what it leads to.
    pub fn walk(self, root: impl AsRef<Path>) -> io::Result<Walk> {
        let root = CString::new(root.as_ref().as_os_str().as_bytes())?;
        let mut raw = ptr::null_mut();
        let flags = self.flags | sys::TL_WALK_FOLLOW_ROOT;
        // SAFETY: the path ends with a zero byte, and the library copies it.
        let error = unsafe {
            sys::tl_walk_create(
                &mut raw,
                CURRENT_FOLDER,
                root.as_ptr(),
                0,
                flags,
                self.descriptors,
            )
        };
        if error != 0 {
            Batch::new(1)?; // its error says so if the module is missing, and not the root
            return Err(io::Error::from_raw_os_error(-error));
        }
        Ok(Walk { raw })
    }
}

/// An iterator over all entries of a tree with their attributes, the root first.
///
/// ```
/// let mut bytes = 0;
/// for entry in trapless::Walk::new("/etc")? {
///     bytes += entry?.len();
/// }
/// assert!(bytes > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Walk {
    raw: *mut sys::tl_walk,
}

// SAFETY: one thread at a time uses it, and the library keeps nothing of a thread.
unsafe impl Send for Walk {}

impl Walk {
    /// Begins a walk that is depth first, in the order of the folders.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        WalkOptions::new().walk(root)
    }

    /// The folder that came last is not entered.
    pub fn skip_folder(&mut self) {
        // SAFETY: the walk is there until it is dropped.
        unsafe { sys::tl_walk_skip(self.raw) }
    }

    /// Returns whether folders are read by compound calls.
    pub fn backend(&self) -> Backend {
        // SAFETY: as above.
        match unsafe { sys::tl_walk_backend(self.raw) } {
            sys::TL_BACKEND_MODULE => Backend::Module,
            _ => Backend::Plain,
        }
    }

    /// Returns why folders are read by plain calls; `None` where they are read by compound calls.
    pub fn reason(&self) -> Option<&'static str> {
        // SAFETY: as above, and the library's text is there for ever.
        unsafe { static_text(sys::tl_walk_reason(self.raw)) }
    }

    /// Returns counts since the walk was created.
    pub fn stats(&self) -> sys::tl_walk_stats {
        let mut stats = sys::tl_walk_stats {
            size: std::mem::size_of::<sys::tl_walk_stats>() as u32,
            ..Default::default()
        };
        // SAFETY: as above, and `stats` has the size that it says, which is the only error.
        unsafe { sys::tl_walk_get_stats(self.raw, &mut stats) };
        stats
    }
}

impl Iterator for Walk {
    type Item = io::Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut found = ptr::null();
        // SAFETY: as above; the entry is valid until the next call, and all of it is copied.
        let entry = unsafe {
            match sys::tl_walk_next(self.raw, &mut found) {
                0 => return None,
                1 => &*found,
                error => return Some(Err(io::Error::from_raw_os_error(-error))),
            }
        };
        // SAFETY: the library says how long the path is.
        let path = unsafe { slice::from_raw_parts(entry.path.cast::<u8>(), entry.path_bytes) };
        Some(Ok(WalkEntry {
            path: PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())),
            depth: entry.depth as usize,
            kind: match entry.kind {
                sys::TL_WALK_LEFT => Kind::Left,
                sys::TL_WALK_CYCLE => Kind::Cycle,
                sys::TL_WALK_UNREADABLE => Kind::Unreadable,
                _ => Kind::Entry,
            },
            // SAFETY: the entry has its attributes for as long.
            attributes: unsafe { *entry.attributes },
            name_bytes: entry.name_bytes as usize,
            error: entry.error,
        }))
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { sys::tl_walk_destroy(self.raw) }
    }
}
