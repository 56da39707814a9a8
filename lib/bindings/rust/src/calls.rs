// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Queueing calls, with what they borrow.
//!
//! It owns what makes the functions safe: lengths are those of slices, memory and descriptors are
//! borrowed until the flush is over, and a descriptor that a batch closes is used nowhere behind.

use crate::batch::{Batch, Guard};
use crate::descriptors;
use crate::number;
use crate::open::CLOSE_ON_EXEC;
use crate::request::{
    Argument, Call, Condition, Fd, Jump, Opened, Piped, Read, Request, Role, Value,
};
use crate::results::Results;
use crate::stat::Stat;
use crate::sys;
use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

const AT_FDCWD: u64 = -100i64 as u64;

/// Calls that wait for a flush, and what they borrow for `'m`.
#[derive(Debug)]
pub struct Calls<'b, 'm> {
    batch: &'b mut Batch,
    memory: PhantomData<&'m mut [u8]>,
}

/// How a flush with a budget ended.
#[derive(Debug)]
pub enum Flushed<'b, 'm> {
    /// All calls have a result.
    Complete(Results<'b>),
    /// The program has used up its budget.
    Stopped(Stopped<'b, 'm>),
}

/// A program that is not at its end. It still borrows what its calls use.
/// Dropping it gives the program up, and closes what it has opened.
#[derive(Debug)]
pub struct Stopped<'b, 'm> {
    flush: Guard<'b>,
    memory: PhantomData<&'m mut [u8]>,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn plain(number: impl TryInto<u64>) -> Argument {
    Argument::Plain(number.try_into().unwrap_or(u64::MAX))
}

fn address<T: ?Sized>(place: *const T) -> Argument {
    Argument::Plain(place.cast::<u8>() as u64)
}

impl Batch {
    /// Begins to queue calls.
    pub fn calls<'m>(&mut self) -> Calls<'_, 'm> {
        self.clear();
        Calls {
            batch: self,
            memory: PhantomData,
        }
    }
}

impl<'b, 'm> Calls<'b, 'm> {
    /// Returns how many calls are queued.
    pub fn len(&self) -> usize {
        self.batch.requests.len()
    }

    /// Returns whether no call is queued.
    pub fn is_empty(&self) -> bool {
        self.batch.requests.is_empty()
    }

    /// Returns how many more calls the batch takes.
    pub fn room(&self) -> usize {
        self.batch.entries() as usize - self.len()
    }

    fn queue(&mut self, nr: u32, arguments: &[Argument], role: Role) -> io::Result<Call> {
        if self.room() == 0 {
            let text = format!("all {} calls of the batch are queued: flush", self.len());
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        }
        let mut request = Request {
            nr,
            args: [0; 6],
            role,
        };
        for (position, argument) in arguments.iter().enumerate() {
            if let Argument::Result(call) = argument {
                self.slot(*call)?;
            }
            let (bits, source) = argument.bits(position);
            request.args[position] = bits;
            request.nr |= source;
        }
        self.batch.requests.push(request);
        Ok(self.batch.call(self.len() as u32 - 1))
    }

    /// The place of a call that was queued since the last flush.
    fn slot(&self, call: Call) -> io::Result<usize> {
        let slot = self.batch.slot(call);
        slot.ok_or_else(|| wrong("the call was queued for another flush"))
    }

    fn role(&self, call: Call) -> io::Result<Role> {
        Ok(self.batch.requests[self.slot(call)?].role)
    }

    fn descriptor(&self, fd: Fd<'m>) -> io::Result<Argument> {
        match fd {
            Fd::Open(open) => Ok(open.into()),
            Fd::Opened(Opened(call)) => {
                let closes = Role::Closes(self.slot(call)? as u32);
                if self.batch.requests.iter().any(|one| one.role == closes) {
                    return Err(wrong("the descriptor is closed by an earlier call"));
                }
                Ok(Argument::Result(call))
            }
            Fd::PipeEnd(Piped(call), end) => match self.role(call)? {
                Role::Pipes(number) if end < 2 => {
                    let ends: *const i32 = &self.batch.pipes[number][end];
                    Ok(Argument::Word32(ends.cast()))
                }
                _ => Err(wrong("a pipe has the ends 0 and 1")),
            },
        }
    }

    // ---- Files -------------------------------------------------------------------------------

    /// Opens a file, close-on-exec. `flags` are those of [`crate::open`].
    pub fn open(&mut self, path: &'m CStr, flags: i32, mode: u32) -> io::Result<Opened> {
        self.open_from(Argument::Plain(AT_FDCWD), path, flags, mode)
    }

    /// Opens a file below a folder.
    pub fn open_at(
        &mut self,
        folder: impl Into<Fd<'m>>,
        path: &'m CStr,
        flags: i32,
        mode: u32,
    ) -> io::Result<Opened> {
        let folder = self.descriptor(folder.into())?;
        self.open_from(folder, path, flags, mode)
    }

    fn open_from(
        &mut self,
        folder: Argument,
        path: &'m CStr,
        flags: i32,
        mode: u32,
    ) -> io::Result<Opened> {
        let flags = plain((flags | CLOSE_ON_EXEC) as u32);
        let arguments = [folder, address(path.as_ptr()), flags, plain(mode)];
        self.queue(number::OPENAT, &arguments, Role::Opens)
            .map(Opened)
    }

    /// Accepts a connection, close-on-exec.
    pub fn accept(&mut self, listener: impl Into<Fd<'m>>) -> io::Result<Opened> {
        let listener = self.descriptor(listener.into())?;
        let none = Argument::Plain(0);
        let arguments = [listener, none, none, plain(CLOSE_ON_EXEC as u32)];
        self.queue(number::ACCEPT4, &arguments, Role::Opens)
            .map(Opened)
    }

    /// Makes a pipe, close-on-exec.
    pub fn pipe(&mut self) -> io::Result<Piped> {
        self.two_ends(number::PIPE2, &[], &[plain(CLOSE_ON_EXEC as u32)])
    }

    /// Makes a pair of connected sockets, close-on-exec. The arguments are those of socketpair(2).
    pub fn socket_pair(&mut self, domain: i32, kind: i32, protocol: i32) -> io::Result<Piped> {
        let kind = plain((kind | CLOSE_ON_EXEC) as u32);
        let leading = [plain(domain as u32), kind, plain(protocol as u32)];
        self.two_ends(number::SOCKETPAIR, &leading, &[])
    }

    /// A call that writes two descriptors to an address, which stands among its arguments.
    fn two_ends(
        &mut self,
        nr: u32,
        leading: &[Argument],
        trailing: &[Argument],
    ) -> io::Result<Piped> {
        let ends = Box::new([-1; 2]);
        let arguments = [leading, &[address(ends.as_ptr())], trailing].concat();
        let role = Role::Pipes(self.batch.pipes.len());
        let call = self.queue(nr, &arguments, role)?;
        self.batch.pipes.push(ends);
        Ok(Piped(call))
    }

    /// Closes what an earlier call of this batch opens.
    pub fn close(&mut self, opened: Opened) -> io::Result<Call> {
        let fd = self.descriptor(opened.into())?;
        self.queue(number::CLOSE, &[fd], Role::Closes(opened.0.slot))
    }

    /// Reads at most as much as the buffer holds.
    pub fn read(&mut self, fd: impl Into<Fd<'m>>, buffer: &'m mut [u8]) -> io::Result<Read> {
        let fd = self.descriptor(fd.into())?;
        let arguments = [fd, address(buffer.as_mut_ptr()), plain(buffer.len())];
        self.queue(number::READ, &arguments, Role::Reads).map(Read)
    }

    /// Reads from a position.
    pub fn pread(
        &mut self,
        fd: impl Into<Fd<'m>>,
        buffer: &'m mut [u8],
        offset: impl Into<Value<'m>>,
    ) -> io::Result<Read> {
        let (fd, offset) = (self.descriptor(fd.into())?, offset.into().into());
        let arguments = [
            fd,
            address(buffer.as_mut_ptr()),
            plain(buffer.len()),
            offset,
        ];
        self.queue(number::PREAD64, &arguments, Role::Reads)
            .map(Read)
    }

    /// Writes bytes.
    pub fn write(&mut self, fd: impl Into<Fd<'m>>, bytes: &'m [u8]) -> io::Result<Call> {
        let fd = self.descriptor(fd.into())?;
        let arguments = [fd, address(bytes.as_ptr()), plain(bytes.len())];
        self.queue(number::WRITE, &arguments, Role::Other)
    }

    /// Writes bytes at a position.
    pub fn pwrite(
        &mut self,
        fd: impl Into<Fd<'m>>,
        bytes: &'m [u8],
        offset: impl Into<Value<'m>>,
    ) -> io::Result<Call> {
        let (fd, offset) = (self.descriptor(fd.into())?, offset.into().into());
        let arguments = [fd, address(bytes.as_ptr()), plain(bytes.len()), offset];
        self.queue(number::PWRITE64, &arguments, Role::Other)
    }

    /// Writes what an earlier call of this batch has read: its buffer, as far as it was filled.
    pub fn write_read(&mut self, fd: impl Into<Fd<'m>>, read: Read) -> io::Result<Call> {
        let (fd, buffer) = (self.descriptor(fd.into())?, self.buffer_of(read)?);
        let arguments = [fd, buffer, Argument::Result(read.into())];
        self.queue(number::WRITE, &arguments, Role::Other)
    }

    /// Does so at a position.
    pub fn pwrite_read(
        &mut self,
        fd: impl Into<Fd<'m>>,
        read: Read,
        offset: impl Into<Value<'m>>,
    ) -> io::Result<Call> {
        let (fd, offset) = (self.descriptor(fd.into())?, offset.into().into());
        let arguments = [
            fd,
            self.buffer_of(read)?,
            Argument::Result(read.into()),
            offset,
        ];
        self.queue(number::PWRITE64, &arguments, Role::Other)
    }

    fn buffer_of(&self, read: Read) -> io::Result<Argument> {
        let slot = self.slot(read.0)?;
        Ok(Argument::Plain(self.batch.requests[slot].args[1]))
    }

    /// Asks for the attributes of a file.
    pub fn fstat(&mut self, fd: impl Into<Fd<'m>>, stat: &'m mut Stat) -> io::Result<Call> {
        let fd = self.descriptor(fd.into())?;
        self.queue(number::FSTAT, &[fd, address(stat)], Role::Other)
    }

    /// Asks for the attributes of the file with this name.
    pub fn stat(&mut self, path: &'m CStr, stat: &'m mut Stat) -> io::Result<Call> {
        let folder = Argument::Plain(AT_FDCWD);
        let arguments = [folder, address(path.as_ptr()), address(stat), plain(0)];
        self.queue(number::NEWFSTATAT, &arguments, Role::Other)
    }

    /// Waits until the file is on the disk.
    pub fn fsync(&mut self, fd: impl Into<Fd<'m>>) -> io::Result<Call> {
        let fd = self.descriptor(fd.into())?;
        self.queue(number::FSYNC, &[fd], Role::Other)
    }

    /// Waits until the data of the file is on the disk.
    pub fn fdatasync(&mut self, fd: impl Into<Fd<'m>>) -> io::Result<Call> {
        let fd = self.descriptor(fd.into())?;
        self.queue(number::FDATASYNC, &[fd], Role::Other)
    }

    /// Asks for the parent's process ID.
    pub fn getppid(&mut self) -> io::Result<Call> {
        self.queue(number::GETPPID, &[], Role::Other)
    }

    /// Queues any other call: `nr` is of [`crate::number`]. A descriptor that it opens is the
    /// caller's.
    ///
    /// # Safety
    /// The call must do nothing that Rust forbids: memory that it is given must be valid, and not
    /// used otherwise, until the flush is over; descriptors that it closes must be the caller's.
    pub unsafe fn add(&mut self, nr: u32, arguments: &[Argument]) -> io::Result<Call> {
        self.queue_any(nr, arguments, Role::Other)
    }

    /// Queues any other call that opens a descriptor and returns it, such as `EVENTFD2`. The
    /// descriptor belongs to [`Results`], as that of [`Calls::open`].
    ///
    /// # Safety
    /// What [`Calls::add`] asks for; and what the call returns must be a new descriptor.
    pub unsafe fn add_opening(&mut self, nr: u32, arguments: &[Argument]) -> io::Result<Opened> {
        self.queue_any(nr, arguments, Role::Opens).map(Opened)
    }

    fn queue_any(&mut self, nr: u32, arguments: &[Argument], role: Role) -> io::Result<Call> {
        if nr > sys::TL_NR_MASK || arguments.len() > 6 {
            return Err(wrong("no such call, or more than 6 arguments"));
        }
        self.queue(nr, arguments, role)
    }

    // ---- Programs ----------------------------------------------------------------------------

    /// A step that writes `value` to a word, and returns it.
    pub fn store(&mut self, word: &'m AtomicU64, value: impl Into<Value<'m>>) -> io::Result<Call> {
        let value = value.into().into();
        self.queue(sys::TL_NR_STORE, &[address(word), value], Role::Other)
    }

    /// A step that adds `value` to a word, and returns the sum.
    pub fn increase(
        &mut self,
        word: &'m AtomicU64,
        value: impl Into<Value<'m>>,
    ) -> io::Result<Call> {
        let value = value.into().into();
        self.queue(sys::TL_NR_INCREASE, &[address(word), value], Role::Other)
    }

    /// After `call`, go on with `target` if the condition is true of its result. A call has one
    /// jump at most; a second one replaces the first.
    pub fn jump(
        &mut self,
        call: impl Into<Call>,
        condition: Condition,
        target: impl Into<Call>,
    ) -> io::Result<()> {
        self.jump_to(call.into(), condition, Some(target.into()))
    }

    /// After `call`, end the program if the condition is true of its result.
    pub fn jump_to_end(&mut self, call: impl Into<Call>, condition: Condition) -> io::Result<()> {
        self.jump_to(call.into(), condition, None)
    }

    fn jump_to(&mut self, call: Call, condition: Condition, to: Option<Call>) -> io::Result<()> {
        let slot = self.slot(call)? as u32;
        let target = match to {
            Some(target) => Some(self.slot(target)? as u32),
            None => None,
        };
        self.batch.jumps.retain(|jump| jump.slot != slot);
        self.batch.jumps.push(Jump {
            slot,
            condition,
            target,
        });
        Ok(())
    }

    // ---- Flushing ----------------------------------------------------------------------------

    /// Makes all queued calls by one crossing. A call that fails is no error here;
    /// [`Results::get`] returns its error. A program that has made a million steps and is not at
    /// its end is given up with ETIME.
    pub fn flush(self) -> io::Result<Results<'b>> {
        match self.flush_steps(sys::TL_STEPS_DEFAULT)? {
            Flushed::Complete(results) => Ok(results),
            Flushed::Stopped(_) => Err(io::Error::from_raw_os_error(62)),
        }
    }

    /// Makes all queued calls, with a budget of steps for a program. A program that could lose a
    /// descriptor, or use one that is closed, is refused.
    pub fn flush_steps(self, steps: u64) -> io::Result<Flushed<'b, 'm>> {
        descriptors::check(&self.batch.requests, &self.batch.jumps).map_err(wrong)?;
        // SAFETY: `self` borrows for 'm what its calls point to, and 'm is not over before this
        // function returns, or the program stopped and is gone on with or given up.
        unsafe { self.batch.fill()? };
        let stopped = Stopped {
            flush: Guard(self.batch),
            memory: PhantomData,
        };
        stopped.resume(steps)
    }
}

impl<'b, 'm> Stopped<'b, 'm> {
    /// Returns the call with which the program goes on.
    pub fn at(&self) -> Call {
        self.flush.0.call(self.flush.0.at())
    }

    /// Goes on, with a budget of its own.
    pub fn resume(self, steps: u64) -> io::Result<Flushed<'b, 'm>> {
        // SAFETY: as in flush_steps().
        if unsafe { self.flush.0.cross(steps)? } {
            Ok(Flushed::Complete(Results::new(self.flush)))
        } else {
            Ok(Flushed::Stopped(self))
        }
    }
}
