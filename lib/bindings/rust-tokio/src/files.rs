// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The functions of tokio::fs on the engine, with the same names.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::raw::{c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use trapless::number;

use crate::engine::{Held, Kind, Operation, Shared, Value};
use crate::{sys, File, Metadata, ReadDir};

const HERE: c_int = -100; // AT_FDCWD
const HERE_ARGUMENT: u64 = HERE as i64 as u64;
const NO_FOLLOW: c_int = 0x100; // AT_SYMLINK_NOFOLLOW
const REMOVE_FOLDER: u64 = 0x200; // AT_REMOVEDIR
const BASIC_AND_BIRTH: c_uint = 0xfff;
const READ_ONLY: c_int = 0;
const WRITE_ONLY: c_int = 1;
const READ_WRITE: c_int = 2;
const CREATE: c_int = 0o100;
const TRUNCATE: c_int = 0o1000;
const CLOSE_ON_EXEC: c_int = 0o2000000;
const FILE_MODE: u32 = 0o666;
const FOLDER_MODE: u64 = 0o777;
const PERMISSIONS: u32 = 0o777;

/// File functions for the tokio runtime in which it was created. Clones are the same engine.
#[derive(Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

impl fmt::Debug for Files {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Files")
            .field("is_module", &self.is_module())
            .finish_non_exhaustive()
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path has a NUL byte"))
}

/// The value of an operation of this kind.
pub(crate) async fn value(operation: Operation) -> io::Result<(Value, Held)> {
    let (result, held) = operation.await;
    Ok((result?, held))
}

pub(crate) async fn number_of(operation: Operation) -> io::Result<i64> {
    match value(operation).await?.0 {
        Value::Number(number) => Ok(number),
        _ => unreachable!("it was asked for a number"),
    }
}

pub(crate) async fn bytes_of(operation: Operation) -> io::Result<Vec<u8>> {
    match value(operation).await?.0 {
        Value::Bytes(bytes) => Ok(bytes),
        _ => unreachable!("it was asked for bytes"),
    }
}

pub(crate) async fn metadata_of(operation: Operation) -> io::Result<Metadata> {
    match value(operation).await?.0 {
        Value::Status(status) => Ok(Metadata(status)),
        _ => unreachable!("it was asked for attributes"),
    }
}

impl Files {
    /// An engine with 64 workers: so many threads are started at once, and those that are not
    /// needed sleep. The module's workers are used where it is loaded.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, as `tokio::spawn` does, and in a runtime without
    /// [`enable_io`](tokio::runtime::Builder::enable_io).
    pub fn new() -> io::Result<Files> {
        Self::with_workers(sys::TL_FILES_WORKERS)
    }

    /// The same with another number of workers, 1 to 4096. As many calls may block before others
    /// have to wait.
    ///
    /// # Panics
    ///
    /// Where [`Files::new`] does.
    pub fn with_workers(workers: u32) -> io::Result<Files> {
        Ok(Files {
            shared: Shared::new(workers)?,
        })
    }

    /// Whether workers of the module make the calls.
    pub fn is_module(&self) -> bool {
        self.shared.is_module()
    }

    pub async fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let path = c_path(path.as_ref())?;
        // SAFETY: the path is copied.
        bytes_of(self.shared.begin(
            Kind::Bytes,
            Held::default(),
            &mut |files, _, data, op| unsafe {
                sys::tl_files_read(files, HERE, path.as_ptr(), data, op)
            },
        )?)
        .await
    }

    pub async fn read_to_string(&self, path: impl AsRef<Path>) -> io::Result<String> {
        String::from_utf8(self.read(path).await?).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "stream did not contain valid UTF-8",
            )
        })
    }

    /// Makes the file or empties it, and writes all of `contents`, which is not copied if it is a
    /// `Vec`.
    pub async fn write(
        &self,
        path: impl AsRef<Path>,
        contents: impl Into<Vec<u8>>,
    ) -> io::Result<()> {
        let flags = CREATE | TRUNCATE;
        self.write_as(path.as_ref(), contents.into(), flags, FILE_MODE, 0)
            .await
    }

    /// Writes a new file, makes it durable (fsync) and puts it in the place of `path` (rename):
    /// others see the old content or the new one. It has the permissions of the old file, or those
    /// of any new one, but not the old one's owner. A link is replaced and not followed. The folder
    /// is synchronized, too; if only that fails, the error is returned and the content is new.
    pub async fn replace(
        &self,
        path: impl AsRef<Path>,
        contents: impl Into<Vec<u8>>,
    ) -> io::Result<()> {
        let path = path.as_ref();
        let how = sys::TL_FILES_REPLACE | sys::TL_FILES_SYNC;
        let (mode, how) = match self.metadata(path).await {
            Ok(old) => (old.mode() & PERMISSIONS, how | sys::TL_FILES_MODE),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (FILE_MODE, how),
            Err(error) => return Err(error),
        };
        self.write_as(path, contents.into(), 0, mode, how).await
    }

    async fn write_as(
        &self,
        path: &Path,
        contents: Vec<u8>,
        flags: c_int,
        mode: u32,
        how: c_uint,
    ) -> io::Result<()> {
        let path = c_path(path)?;
        let held = Held {
            bytes: Some(contents),
            file: None,
        };
        let operation = self
            .shared
            .begin(Kind::Number, held, &mut |files, held, data, op| {
                let bytes = held.bytes.as_deref().unwrap_or_default();
                let (at, n) = (bytes.as_ptr().cast(), bytes.len());
                // SAFETY: the operation holds the bytes, and the path is copied.
                unsafe {
                    sys::tl_files_write(
                        files,
                        HERE,
                        path.as_ptr(),
                        at,
                        n,
                        flags,
                        mode,
                        how,
                        data,
                        op,
                    )
                }
            })?;
        number_of(operation).await.map(drop)
    }

    pub async fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.status(path.as_ref(), 0).await
    }

    pub async fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.status(path.as_ref(), NO_FOLLOW).await
    }

    async fn status(&self, path: &Path, flags: c_int) -> io::Result<Metadata> {
        metadata_of(status(&self.shared, HERE, &c_path(path)?, flags, None)?).await
    }

    pub async fn try_exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.metadata(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads all names at once.
    pub async fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = path.as_ref().to_owned();
        let name = c_path(&path)?;
        let listing = self.shared.begin(
            Kind::Bytes,
            Held::default(),
            &mut |files, _, data, op| unsafe {
                // SAFETY: the path is copied.
                sys::tl_files_list(files, HERE, name.as_ptr(), data, op)
            },
        )?;
        Ok(ReadDir::new(self.clone(), &path, bytes_of(listing).await?))
    }

    /// Opens a file to read it.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_as(path.as_ref(), READ_ONLY).await
    }

    /// Makes the file or empties it, to write it.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_as(path.as_ref(), WRITE_ONLY | CREATE | TRUNCATE)
            .await
    }

    /// Opens a file to read and write it, and makes it if it is absent.
    pub async fn open_read_write(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_as(path.as_ref(), READ_WRITE | CREATE).await
    }

    async fn open_as(&self, path: &Path, flags: c_int) -> io::Result<File> {
        let path = c_path(path)?;
        let arguments = [
            HERE_ARGUMENT,
            path.as_ptr() as u64,
            (flags | CLOSE_ON_EXEC) as u64,
            FILE_MODE.into(),
        ];
        let opening = call(
            &self.shared,
            Kind::Descriptor,
            number::OPENAT,
            &arguments,
            1 << 1,
        )?;
        match value(opening).await?.0 {
            Value::Descriptor(fd) => Ok(File::new(fd, self.shared.clone())),
            _ => unreachable!("it was asked for a descriptor"),
        }
    }

    pub async fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.by_path(path.as_ref(), number::UNLINKAT, 0).await
    }

    pub async fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.by_path(path.as_ref(), number::UNLINKAT, REMOVE_FOLDER)
            .await
    }

    pub async fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.by_path(path.as_ref(), number::MKDIRAT, FOLDER_MODE)
            .await
    }

    /// Makes the folder and those that it lies in, as far as they are absent.
    pub async fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let mut absent: Vec<&Path> = Vec::new();
        for folder in path
            .ancestors()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            match self.create_dir(folder).await {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => absent.push(folder),
                Err(_)
                    if self
                        .metadata(folder)
                        .await
                        .is_ok_and(|found| found.is_dir()) =>
                {
                    break
                }
                Err(error) => return Err(error),
            }
        }
        for folder in absent.into_iter().rev() {
            match self.create_dir(folder).await {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => (),
            }
        }
        Ok(())
    }

    async fn by_path(&self, path: &Path, nr: u32, argument: u64) -> io::Result<()> {
        let path = c_path(path)?;
        let arguments = [HERE_ARGUMENT, path.as_ptr() as u64, argument];
        number_of(call(&self.shared, Kind::Number, nr, &arguments, 1 << 1)?)
            .await
            .map(drop)
    }

    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (c_path(from.as_ref())?, c_path(to.as_ref())?);
        let arguments = [
            HERE_ARGUMENT,
            from.as_ptr() as u64,
            HERE_ARGUMENT,
            to.as_ptr() as u64,
        ];
        number_of(call(
            &self.shared,
            Kind::Number,
            number::RENAMEAT,
            &arguments,
            1 << 1 | 1 << 3,
        )?)
        .await
        .map(drop)
    }
}

/// One call without memory of its own; bits of `strings` name arguments that are C strings.
fn call(
    shared: &Arc<Shared>,
    kind: Kind,
    nr: u32,
    arguments: &[u64],
    strings: c_uint,
) -> io::Result<Operation> {
    let mut request = sys::tl_request {
        nr,
        ..Default::default()
    };
    request.args[..arguments.len()].copy_from_slice(arguments);
    shared.begin(kind, Held::default(), &mut |files, _, data, op| {
        // SAFETY: strings are copied, and the call uses no other memory.
        unsafe { sys::tl_files_call(files, &request, strings, 0, data, op) }
    })
}

/// The attributes of a path, or of the file that the operation holds.
pub(crate) fn status(
    shared: &Arc<Shared>,
    dirfd: c_int,
    path: &CString,
    flags: c_int,
    file: Option<Arc<crate::engine::Descriptor>>,
) -> io::Result<Operation> {
    let paths = [path.as_ptr()];
    let held = Held { bytes: None, file };
    shared.begin(Kind::Status, held, &mut |files, _, data, op| {
        // SAFETY: the path is copied.
        unsafe {
            sys::tl_files_stat(
                files,
                dirfd,
                paths.as_ptr(),
                1,
                flags,
                BASIC_AND_BIRTH,
                data,
                op,
            )
        }
    })
}
