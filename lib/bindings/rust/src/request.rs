// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! A queued call, and what its arguments may be.
//!
//! It owns the handles that queueing returns. A handle is a slot of one flush, and says by its type
//! what the call in the slot returns; who is given a handle checks that it is of the same flush.

use crate::sys;
use std::os::unix::io::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU64;

/// Any queued call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub(crate) slot: u32,
    /// No two flushes of a process have the same number.
    pub(crate) flush: u64,
}

/// A call that opens a file or accepts a connection: as an argument it is the new descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened(pub(crate) Call);

/// A call that reads into a buffer: its bytes may be written by a later call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read(pub(crate) Call);

/// A call that makes a pipe, or a pair of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piped(pub(crate) Call);

impl Piped {
    /// The end that is read from, as an argument of a later call.
    pub fn reader(self) -> Fd<'static> {
        Fd::PipeEnd(self, 0)
    }

    /// The end that is written to.
    pub fn writer(self) -> Fd<'static> {
        Fd::PipeEnd(self, 1)
    }
}

impl From<Opened> for Call {
    fn from(opened: Opened) -> Call {
        opened.0
    }
}

impl From<Read> for Call {
    fn from(read: Read) -> Call {
        read.0
    }
}

impl From<Piped> for Call {
    fn from(piped: Piped) -> Call {
        piped.0
    }
}

/// A descriptor: an open one, which stays open until the flush is over, or one that an earlier call
/// of the same batch makes.
#[derive(Clone, Copy, Debug)]
pub enum Fd<'m> {
    Open(BorrowedFd<'m>),
    Opened(Opened),
    PipeEnd(Piped, usize),
}

impl<'m, T: AsFd> From<&'m T> for Fd<'m> {
    fn from(file: &'m T) -> Fd<'m> {
        Fd::Open(file.as_fd())
    }
}

impl From<Opened> for Fd<'_> {
    fn from(opened: Opened) -> Self {
        Fd::Opened(opened)
    }
}

/// A number: known now, the result of an earlier call, or a word that is read when the call is
/// made.
#[derive(Clone, Copy, Debug)]
pub enum Value<'m> {
    Number(u64),
    Result(Call),
    Word(&'m AtomicU64),
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl<'m> From<&'m AtomicU64> for Value<'m> {
    fn from(word: &'m AtomicU64) -> Value<'m> {
        Value::Word(word)
    }
}

impl From<Call> for Value<'_> {
    fn from(call: Call) -> Self {
        Value::Result(call)
    }
}

impl From<Read> for Value<'_> {
    fn from(read: Read) -> Self {
        Value::Result(read.into())
    }
}

/// An argument of [`crate::Calls::add`], which checks no address.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A number or an address.
    Plain(u64),
    /// The result of an earlier call.
    Result(Call),
    /// 32 bits of memory, read when the call is made.
    Word32(*const u32),
    /// 64 bits of memory.
    Word64(*const u64),
}

impl Argument {
    /// The bits, and where the kernel takes the value from, as bits of the number.
    pub(crate) fn bits(self, position: usize) -> (u64, u32) {
        match self {
            Argument::Plain(number) => (number, 0),
            Argument::Result(call) => (call.slot.into(), sys::tl_result(position)),
            Argument::Word32(word) => (word as u64, sys::tl_word32(position)),
            Argument::Word64(word) => (word as u64, sys::tl_word64(position)),
        }
    }
}

impl From<Value<'_>> for Argument {
    fn from(value: Value<'_>) -> Argument {
        match value {
            Value::Number(number) => Argument::Plain(number),
            Value::Result(call) => Argument::Result(call),
            Value::Word(word) => Argument::Word64((word as *const AtomicU64).cast()),
        }
    }
}

impl From<BorrowedFd<'_>> for Argument {
    fn from(fd: BorrowedFd<'_>) -> Argument {
        Argument::Plain(fd.as_raw_fd() as u64)
    }
}

/// The results for which a jump is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Condition {
    Always = 0,
    Error = 1,
    Success = 2,
    Zero = 3,
    Positive = 4,
    /// Not negative and below the third argument, as of a short read or write.
    Short = 5,
    /// Equal to the third argument.
    Full = 6,
}

/// What a call means for descriptors and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Other,
    /// Returns a descriptor, which is open and not taken yet.
    Opens,
    /// Closes what the call in this slot opened.
    Closes(u32),
    Reads,
    /// Makes the pipe with this number.
    Pipes(usize),
}

/// A call as it waits for a flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub nr: u32,
    pub args: [u64; 6],
    pub role: Role,
}

/// After `slot`, go on with `target` if the condition is true; `None` is the program's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jump {
    pub slot: u32,
    pub condition: Condition,
    pub target: Option<u32>,
}
