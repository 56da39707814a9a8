// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! libtrapless for Rust: many system calls by one crossing into the kernel.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! let mut batch = trapless::Batch::new(32)?;
//! let path = std::ffi::CString::new("/etc/passwd")?;
//! let mut stat = trapless::Stat::default();
//! let mut buffer = [0; 4096];
//!
//! let mut calls = batch.calls();
//! let file = calls.open(&path, trapless::open::READ, 0)?;
//! calls.fstat(file, &mut stat)?;
//! let read = calls.read(file, &mut buffer)?;
//! calls.close(file)?;
//! let results = calls.flush()?;
//!
//! let count = results.get(read)?;
//! drop(results);
//! assert_eq!(count, buffer.len().min(stat.size() as usize));
//! # Ok(())
//! # }
//! ```
//!
//! Calls are queued in [`Calls`], which borrows the memory and the descriptors that they use until
//! [`Calls::flush`] has made them. They reach the ring only in the flush: a [`Calls`] that is dropped
//! or forgotten makes none of them. A call may use what an earlier one of the same batch returns
//! ([`Opened`], [`Read`]) and may jump ([`Calls::jump`]): then the batch is a program.
//!
//! The compiler refuses a program that uses what is borrowed too early:
//!
//! ```compile_fail,E0506
//! # fn main() -> std::io::Result<()> {
//! let mut batch = trapless::Batch::new(32)?;
//! let (stdin, mut buffer) = (std::io::stdin(), [0; 4096]);
//! let mut calls = batch.calls();
//! calls.read(&stdin, &mut buffer)?;
//! buffer[0] = 1;
//! calls.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! Without the module the library makes the same calls one by one, with the same results.

mod batch;
mod calls;
pub mod number;
mod request;
mod results;
mod stat;
pub mod sys;

pub use batch::{Backend, Batch};
pub use calls::{Calls, Flushed, Stopped};
pub use request::{Argument, Call, Condition, Fd, Opened, Piped, Read, Value};
pub use results::Results;
pub use stat::Stat;

/// Flags of [`Calls::open`]. Every descriptor is close-on-exec.
pub mod open {
    pub const READ: i32 = 0;
    pub const WRITE: i32 = 0o1;
    pub const READ_WRITE: i32 = 0o2;
    pub const CREATE: i32 = 0o100;
    pub const EXCLUSIVE: i32 = 0o200;
    pub const TRUNCATE: i32 = 0o1000;
    pub const APPEND: i32 = 0o2000;
    pub const NONBLOCKING: i32 = 0o4000;
    pub const FOLDER: i32 = 0o200000;
    pub(crate) const CLOSE_ON_EXEC: i32 = 0o2000000;
}
