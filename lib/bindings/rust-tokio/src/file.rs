// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! An open file: reads and writes that name their place, so that tasks may share it, and AsyncRead
//! with a place of its own.

use std::ffi::CString;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use trapless::number;

use crate::engine::{Descriptor, Held, Kind, Operation, Shared, Value};
use crate::files::{bytes_of, metadata_of, number_of, status, value};
use crate::{sys, Metadata};

const EMPTY_PATH: i32 = 0x1000; // AT_EMPTY_PATH

/// An open file. A worker closes it when the last handle and the last operation are gone.
pub struct File {
    shared: Arc<Shared>,
    descriptor: Arc<Descriptor>,
    // Of AsyncRead.
    place: u64,
    read: Vec<u8>,
    taken: usize,
    reading: Option<Operation>,
}

impl fmt::Debug for File {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("File")
            .field("fd", &self.descriptor.number())
            .finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn new(fd: OwnedFd, shared: Arc<Shared>) -> File {
        let descriptor = Descriptor::new(fd, &shared);
        File {
            shared,
            descriptor,
            place: 0,
            read: Vec::new(),
            taken: 0,
            reading: None,
        }
    }

    fn held(&self, bytes: Option<Vec<u8>>) -> Held {
        Held {
            bytes,
            file: Some(self.descriptor.clone()),
        }
    }

    /// Up to 64 KB from `offset` on.
    fn begin_read(&self, wanted: usize, offset: u64) -> io::Result<Operation> {
        let mut call = sys::tl_request {
            nr: number::PREAD64,
            ..Default::default()
        };
        let wanted = wanted.min(sys::TL_FILES_ROOM) as u64;
        call.args = [self.descriptor.number(), 0, wanted, offset, 0, 0];
        self.shared
            .begin(Kind::Bytes, self.held(None), &mut |files, _, data, op| {
                // SAFETY: the kernel writes to the operation's own memory.
                unsafe { sys::tl_files_call(files, &call, 0, 1 << 1, data, op) }
            })
    }

    /// Up to `wanted` bytes from `offset` on; fewer only at the file's end.
    pub async fn read_at(&self, wanted: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = bytes_of(self.begin_read(wanted, offset)?).await?;
        while bytes.len() < wanted && !bytes.is_empty() {
            let at = offset + bytes.len() as u64;
            let more = bytes_of(self.begin_read(wanted - bytes.len(), at)?).await?;
            if more.is_empty() {
                break;
            }
            bytes.extend(more);
        }
        Ok(bytes)
    }

    /// Writes all of `bytes` at `offset`, and gives the buffer back.
    pub async fn write_at(&self, bytes: impl Into<Vec<u8>>, offset: u64) -> io::Result<Vec<u8>> {
        let (mut bytes, mut done) = (bytes.into(), 0);
        while done < bytes.len() {
            let mut call = sys::tl_request {
                nr: number::PWRITE64,
                ..Default::default()
            };
            let fd = self.descriptor.number();
            let held = self.held(Some(bytes));
            let writing = self
                .shared
                .begin(Kind::Number, held, &mut |files, held, data, op| {
                    let rest = &held.bytes.as_deref().unwrap_or_default()[done..];
                    call.args = [
                        fd,
                        rest.as_ptr() as u64,
                        rest.len() as u64,
                        offset + done as u64,
                        0,
                        0,
                    ];
                    // SAFETY: the operation holds the bytes.
                    unsafe { sys::tl_files_call(files, &call, 0, 0, data, op) }
                })?;
            let (result, held) = value(writing).await?;
            bytes = held.bytes.unwrap_or_default();
            match result {
                Value::Number(0) => return Err(io::ErrorKind::WriteZero.into()),
                Value::Number(n) => done += n as usize,
                _ => unreachable!("it was asked for a number"),
            }
        }
        Ok(bytes)
    }

    async fn number(&self, nr: u32, argument: u64) -> io::Result<()> {
        let mut call = sys::tl_request {
            nr,
            ..Default::default()
        };
        call.args = [self.descriptor.number(), argument, 0, 0, 0, 0];
        let operation =
            self.shared
                .begin(Kind::Number, self.held(None), &mut |files, _, data, op| {
                    // SAFETY: the call uses no memory.
                    unsafe { sys::tl_files_call(files, &call, 0, 0, data, op) }
                })?;
        number_of(operation).await.map(drop)
    }

    pub async fn sync_all(&self) -> io::Result<()> {
        self.number(number::FSYNC, 0).await
    }

    pub async fn sync_data(&self) -> io::Result<()> {
        self.number(number::FDATASYNC, 0).await
    }

    pub async fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.number(number::FTRUNCATE, bytes).await
    }

    pub async fn metadata(&self) -> io::Result<Metadata> {
        let (fd, file) = (
            self.descriptor.number() as i32,
            Some(self.descriptor.clone()),
        );
        metadata_of(status(
            &self.shared,
            fd,
            &CString::default(),
            EMPTY_PATH,
            file,
        )?)
        .await
    }

    /// The file of std; an error while an operation uses it.
    pub fn into_std(self) -> io::Result<std::fs::File> {
        Arc::into_inner(self.descriptor)
            .and_then(Descriptor::take)
            .map(std::fs::File::from)
            .ok_or_else(|| io::Error::other("an operation still uses the file"))
    }
}

impl AsyncRead for File {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.taken == this.read.len() {
            let reading = match this.reading.take() {
                Some(reading) => reading,
                None => this.begin_read(sys::TL_FILES_ROOM, this.place)?,
            };
            let reading = this.reading.insert(reading);
            let Poll::Ready((result, _)) = Pin::new(reading).poll(context) else {
                return Poll::Pending;
            };
            this.reading = None;
            this.taken = 0;
            this.read = match result? {
                Value::Bytes(bytes) => bytes,
                _ => unreachable!("it was asked for bytes"),
            };
            this.place += this.read.len() as u64;
        }
        let rest = &this.read[this.taken..];
        let n = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..n]);
        this.taken += n;
        Poll::Ready(Ok(()))
    }
}
