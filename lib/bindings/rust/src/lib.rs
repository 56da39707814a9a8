// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// What the crate shows, and its page, which is README.md. It owns the flags of open alone.

#![doc = include_str!("../README.md")]

mod batch;
mod calls;
mod counts;
mod descriptors;
pub mod number;
mod request;
mod results;
mod stat;
pub mod sys;
mod walk;

#[doc(hidden)]
pub use batch::creation_error;
pub use batch::{Backend, Batch};
pub use calls::{Calls, Flushed, Stopped};
pub use request::{Argument, Call, Condition, Fd, Opened, Piped, Read, Value};
pub use results::Results;
pub use stat::Stat;
pub use walk::{Attributes, Kind, Walk, WalkEntry, WalkOptions};

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
    #[cfg(target_arch = "x86_64")]
    pub const FOLDER: i32 = 0o200000;
    #[cfg(target_arch = "aarch64")]
    pub const FOLDER: i32 = 0o40000;
    pub(crate) const CLOSE_ON_EXEC: i32 = 0o2000000;
}
