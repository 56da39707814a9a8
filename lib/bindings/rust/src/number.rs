// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The numbers of system calls, for calls that [`crate::Calls`] has no function for.
//!
//! They are those of the processor that the program is built for: a call that this processor lacks,
//! as arm64 lacks `open`, is no constant there.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
