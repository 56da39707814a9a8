// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! What the calls of a flush returned, and the descriptors that they opened.
//!
//! It owns those descriptors: one that nobody takes is closed.

use crate::batch::{error_of, Batch};
use crate::request::{Call, Opened, Piped, Role};
use std::io;
use std::os::unix::io::{FromRawFd, OwnedFd};

const ECANCELED: i64 = 125;
const EBADF: i32 = 9;

/// The results of a flush. What the calls borrowed is free again.
#[derive(Debug)]
pub struct Results<'b> {
    batch: &'b mut Batch,
}

impl<'b> Results<'b> {
    pub(crate) fn new(batch: &'b mut Batch) -> Self {
        Results { batch }
    }

    /// Returns what the call returned, or its error. A call that was jumped over has ECANCELED.
    pub fn get(&self, call: impl Into<Call>) -> io::Result<usize> {
        match self.raw(call) {
            error if (-4095..0).contains(&error) => Err(error_of(error)),
            result => Ok(result as usize),
        }
    }

    /// Returns what the call returned, an error as a negative number.
    ///
    /// # Panics
    /// The call is of another batch, which was larger.
    pub fn raw(&self, call: impl Into<Call>) -> i64 {
        self.batch.results[call.into().0 as usize]
    }

    /// Takes the descriptor that a call opened and the batch did not close.
    pub fn opened(&mut self, opened: Opened) -> io::Result<OwnedFd> {
        self.get(opened)?;
        self.take(opened.0)
            .ok_or_else(|| io::Error::from_raw_os_error(EBADF))
    }

    /// Takes both ends of a pipe: what is read from, what is written to.
    pub fn pipe(&mut self, piped: Piped) -> io::Result<(OwnedFd, OwnedFd)> {
        self.get(piped)?;
        self.take_pipe(piped.0)
            .ok_or_else(|| io::Error::from_raw_os_error(EBADF))
    }

    fn take(&mut self, slot: u32) -> Option<OwnedFd> {
        let request = self.batch.requests.get_mut(slot as usize)?;
        let fd = *self.batch.results.get(slot as usize)?;
        if request.role != Role::Opens || fd < 0 {
            return None;
        }
        request.role = Role::Other;
        if self.is_closed(slot) {
            return None;
        }
        // SAFETY: a call has opened it, none has closed it, and it is taken once.
        Some(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// Whether a close of what `slot` opened was made. It may be jumped over.
    fn is_closed(&self, slot: u32) -> bool {
        let all = self.batch.requests.iter().zip(&self.batch.results);
        let mut closes = all.filter(|(request, _)| request.role == Role::Closes(slot));
        closes.any(|(_, result)| *result != -ECANCELED)
    }

    fn take_pipe(&mut self, slot: u32) -> Option<(OwnedFd, OwnedFd)> {
        let request = self.batch.requests.get_mut(slot as usize)?;
        match request.role {
            Role::Pipes(number) if self.batch.results[slot as usize] == 0 => {
                request.role = Role::Other;
                let [reader, writer] = *self.batch.pipes[number];
                // SAFETY: a call has made the pipe, and it is taken once.
                Some(unsafe { (OwnedFd::from_raw_fd(reader), OwnedFd::from_raw_fd(writer)) })
            }
            _ => None,
        }
    }
}

impl Drop for Results<'_> {
    fn drop(&mut self) {
        for slot in 0..self.batch.requests.len() as u32 {
            drop(self.take(slot));
            drop(self.take_pipe(slot));
        }
    }
}
