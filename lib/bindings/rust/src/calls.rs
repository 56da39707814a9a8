// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Queueing calls, with what they borrow.
//!
//! It owns what makes the functions safe: lengths are those of slices, memory and descriptors are
//! borrowed until the flush is over, and a descriptor that a batch closes is used nowhere behind.

use crate::batch::Batch;
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
#[derive(Debug)]
pub struct Stopped<'b, 'm>(Calls<'b, 'm>);

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

    fn queue(&mut self, nr: u32, arguments: &[Argument], role: Role) -> io::Result<u32> {
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
            let (bits, source) = argument.bits(position);
            request.args[position] = bits;
            request.nr |= source;
        }
        self.batch.requests.push(request);
        Ok(self.len() as u32 - 1)
    }

    fn role(&self, slot: u32) -> Option<Role> {
        Some(self.batch.requests.get(slot as usize)?.role)
    }

    fn descriptor(&self, fd: Fd<'m>) -> io::Result<Argument> {
        match fd {
            Fd::Open(open) => Ok(open.into()),
            Fd::Opened(opened) => {
                if self.role(opened.0) != Some(Role::Opens) {
                    return Err(wrong("the descriptor is opened in another batch"));
                }
                if self
                    .batch
                    .requests
                    .iter()
                    .any(|one| one.role == Role::Closes(opened.0))
                {
                    return Err(wrong("the descriptor is closed by an earlier call"));
                }
                Ok(Argument::Result(opened.into()))
            }
            Fd::PipeEnd(piped, end) => match self.role(piped.0) {
                Some(Role::Pipes(number)) if end < 2 => {
                    let ends: *const i32 = &self.batch.pipes[number][end];
                    Ok(Argument::Word32(ends.cast()))
                }
                _ => Err(wrong("the pipe is made in another batch")),
            },
        }
    }

    fn value(&self, value: Value<'m>) -> io::Result<Argument> {
        match value {
            Value::Result(call) if call.0 as usize >= self.len() => {
                Err(wrong("the call is queued in another batch"))
            }
            value => Ok(value.into()),
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
        let ends = Box::new([-1; 2]);
        let arguments = [address(ends.as_ptr()), plain(CLOSE_ON_EXEC as u32)];
        let slot = self.queue(
            number::PIPE2,
            &arguments,
            Role::Pipes(self.batch.pipes.len()),
        )?;
        self.batch.pipes.push(ends);
        Ok(Piped(slot))
    }

    /// Closes what an earlier call of this batch opens.
    pub fn close(&mut self, opened: Opened) -> io::Result<Call> {
        let fd = self.descriptor(opened.into())?;
        self.queue(number::CLOSE, &[fd], Role::Closes(opened.0))
            .map(Call)
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
        let (fd, offset) = (self.descriptor(fd.into())?, self.value(offset.into())?);
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
        self.queue(number::WRITE, &arguments, Role::Other).map(Call)
    }

    /// Writes bytes at a position.
    pub fn pwrite(
        &mut self,
        fd: impl Into<Fd<'m>>,
        bytes: &'m [u8],
        offset: impl Into<Value<'m>>,
    ) -> io::Result<Call> {
        let (fd, offset) = (self.descriptor(fd.into())?, self.value(offset.into())?);
        let arguments = [fd, address(bytes.as_ptr()), plain(bytes.len()), offset];
        self.queue(number::PWRITE64, &arguments, Role::Other)
            .map(Call)
    }

    /// Writes what an earlier call of this batch has read: its buffer, as far as it was filled.
    pub fn write_read(&mut self, fd: impl Into<Fd<'m>>, read: Read) -> io::Result<Call> {
        let (fd, buffer) = (self.descriptor(fd.into())?, self.buffer_of(read)?);
        let arguments = [fd, buffer, Argument::Result(read.into())];
        self.queue(number::WRITE, &arguments, Role::Other).map(Call)
    }

    /// Does so at a position.
    pub fn pwrite_read(
        &mut self,
        fd: impl Into<Fd<'m>>,
        read: Read,
        offset: impl Into<Value<'m>>,
    ) -> io::Result<Call> {
        let (fd, offset) = (self.descriptor(fd.into())?, self.value(offset.into())?);
        let arguments = [
            fd,
            self.buffer_of(read)?,
            Argument::Result(read.into()),
            offset,
        ];
        self.queue(number::PWRITE64, &arguments, Role::Other)
            .map(Call)
    }

    fn buffer_of(&self, read: Read) -> io::Result<Argument> {
        if self.role(read.0) != Some(Role::Reads) {
            return Err(wrong("the read is queued in another batch"));
        }
        Ok(Argument::Plain(
            self.batch.requests[read.0 as usize].args[1],
        ))
    }

    /// Asks what a file is.
    pub fn fstat(&mut self, fd: impl Into<Fd<'m>>, stat: &'m mut Stat) -> io::Result<Call> {
        let fd = self.descriptor(fd.into())?;
        self.queue(number::FSTAT, &[fd, address(stat)], Role::Other)
            .map(Call)
    }

    /// Asks what the file with this name is.
    pub fn stat(&mut self, path: &'m CStr, stat: &'m mut Stat) -> io::Result<Call> {
        let arguments = [address(path.as_ptr()), address(stat)];
        self.queue(number::STAT, &arguments, Role::Other).map(Call)
    }

    /// Waits until the file is on the disk.
    pub fn fsync(&mut self, fd: impl Into<Fd<'m>>) -> io::Result<Call> {
        let fd = self.descriptor(fd.into())?;
        self.queue(number::FSYNC, &[fd], Role::Other).map(Call)
    }

    /// Waits until the data of the file is on the disk.
    pub fn fdatasync(&mut self, fd: impl Into<Fd<'m>>) -> io::Result<Call> {
        let fd = self.descriptor(fd.into())?;
        self.queue(number::FDATASYNC, &[fd], Role::Other).map(Call)
    }

    /// Asks for the parent's process ID.
    pub fn getppid(&mut self) -> io::Result<Call> {
        self.queue(number::GETPPID, &[], Role::Other).map(Call)
    }

    /// Queues any other call: `nr` is of [`crate::number`].
    ///
    /// # Safety
    /// The call must do nothing that Rust forbids: memory that it is given must be valid, and not
    /// used otherwise, until the flush is over; descriptors that it closes must be the caller's.
    pub unsafe fn add(&mut self, nr: u32, arguments: &[Argument]) -> io::Result<Call> {
        if nr > sys::TL_NR_MASK || arguments.len() > 6 {
            return Err(wrong("no such call, or more than 6 arguments"));
        }
        self.queue(nr, arguments, Role::Other).map(Call)
    }

    // ---- Programs ----------------------------------------------------------------------------

    /// A step that writes `value` to a word, and returns it.
    pub fn store(&mut self, word: &'m AtomicU64, value: impl Into<Value<'m>>) -> io::Result<Call> {
        let value = self.value(value.into())?;
        self.queue(sys::TL_NR_STORE, &[address(word), value], Role::Other)
            .map(Call)
    }

    /// A step that adds `value` to a word, and returns the sum.
    pub fn increase(
        &mut self,
        word: &'m AtomicU64,
        value: impl Into<Value<'m>>,
    ) -> io::Result<Call> {
        let value = self.value(value.into())?;
        self.queue(sys::TL_NR_INCREASE, &[address(word), value], Role::Other)
            .map(Call)
    }

    /// After `call`, go on with `target` if the condition is true of its result. A call has one
    /// jump at most; a second one replaces the first.
    pub fn jump(
        &mut self,
        call: impl Into<Call>,
        condition: Condition,
        target: impl Into<Call>,
    ) -> io::Result<()> {
        self.jump_to(call.into(), condition, Some(target.into().0))
    }

    /// After `call`, end the program if the condition is true of its result.
    pub fn jump_to_end(&mut self, call: impl Into<Call>, condition: Condition) -> io::Result<()> {
        self.jump_to(call.into(), condition, None)
    }

    fn jump_to(&mut self, call: Call, condition: Condition, to: Option<u32>) -> io::Result<()> {
        let end = self.len() as u32;
        if call.0 >= end || to.map_or(false, |target| target >= end) {
            return Err(wrong("a jump is from a queued call to a queued call"));
        }
        self.batch.jumps.retain(|jump| jump.slot != call.0);
        self.batch.jumps.push(Jump {
            slot: call.0,
            condition,
            target: to,
        });
        Ok(())
    }

    /// A jump that comes between an open and its close from elsewhere would use the descriptor of
    /// an earlier round, which is closed and may be another file's by now.
    fn check_jumps(&self) -> io::Result<()> {
        for (close, request) in self.batch.requests.iter().enumerate() {
            let (open, close) = match request.role {
                Role::Closes(open) => (open, close as u32),
                _ => continue,
            };
            for jump in &self.batch.jumps {
                let inside = jump.target.map_or(false, |to| open < to && to <= close);
                if inside && !(open <= jump.slot && jump.slot < close) {
                    return Err(wrong("a jump leads between an open and its close"));
                }
            }
        }
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

    /// Makes all queued calls, with a budget of steps for a program.
    pub fn flush_steps(self, steps: u64) -> io::Result<Flushed<'b, 'm>> {
        self.check_jumps()?;
        // SAFETY: `self` borrows for 'm what its calls point to, and 'm is not over before this
        // function returns, or the program stopped and is gone on with or given up.
        unsafe { self.batch.fill()? };
        Stopped(self).resume(steps)
    }
}

impl<'b, 'm> Stopped<'b, 'm> {
    /// Returns the call with which the program goes on.
    pub fn at(&self) -> Call {
        Call(self.0.batch.at())
    }

    /// Goes on, with a budget of its own.
    pub fn resume(self, steps: u64) -> io::Result<Flushed<'b, 'm>> {
        // SAFETY: as in flush_steps().
        if unsafe { self.0.batch.cross(steps)? } {
            Ok(Flushed::Complete(Results::new(self.0.batch)))
        } else {
            Ok(Flushed::Stopped(self))
        }
    }
}
