// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! What the calls of a flush returned.
//!
//! It owns how a program gets at results, and at the descriptors that the calls opened.

use crate::batch::{error_of, Guard};
use crate::request::{Call, Opened, Piped};
use std::io;
use std::os::unix::io::OwnedFd;

const EBADF: i32 = 9;

/// The results of a flush. What the calls borrowed is free again.
#[derive(Debug)]
pub struct Results<'b> {
    flush: Guard<'b>,
}

impl<'b> Results<'b> {
    pub(crate) fn new(flush: Guard<'b>) -> Self {
        flush.0.forget_closed();
        Results { flush }
    }

    fn slot(&self, call: Call) -> io::Result<usize> {
        let of_another = || {
            let text = "the call was queued for another flush";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        self.flush.0.slot(call).ok_or_else(of_another)
    }

    /// Returns what the call returned, or its error. A call that was jumped over has ECANCELED; one
    /// that was queued for another flush has the kind `InvalidInput`.
    pub fn get(&self, call: impl Into<Call>) -> io::Result<usize> {
        match self.flush.0.results[self.slot(call.into())?] {
            error if (-4095..0).contains(&error) => Err(error_of(error)),
            result => Ok(result as usize),
        }
    }

    /// Returns what the call returned, an error as a negative number.
    ///
    /// # Panics
    /// The call was queued for another flush.
    pub fn raw(&self, call: impl Into<Call>) -> i64 {
        match self.slot(call.into()) {
            Ok(slot) => self.flush.0.results[slot],
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes the descriptor that a call opened and the batch did not close.
    pub fn opened(&mut self, opened: Opened) -> io::Result<OwnedFd> {
        self.get(opened)?;
        let taken = self.flush.0.take(opened.0.slot as usize);
        taken.ok_or_else(|| io::Error::from_raw_os_error(EBADF))
    }

    /// Takes both ends of a pipe: what is read from, what is written to. Of a pair of sockets both
    /// are alike.
    pub fn pipe(&mut self, piped: Piped) -> io::Result<(OwnedFd, OwnedFd)> {
        self.get(piped)?;
        let taken = self.flush.0.take_pipe(piped.0.slot as usize);
        taken.ok_or_else(|| io::Error::from_raw_os_error(EBADF))
    }
}
