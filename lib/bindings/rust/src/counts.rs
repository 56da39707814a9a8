// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The counts of a batch as C declares them.
//!
//! `python -m tests.abi.declarations` makes them from the rows of trapless_fields.h.

/// Counts of a batch since it was created.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct tl_stats {
    pub size: u32,
    pub reserved: u32,
    /// Entries into the module: batch, notify, wait, worker.
    pub crossings: u64,
    /// Requests whose system call was made.
    pub executed: u64,
    /// Requests answered without a call: unknown or not allowed.
    pub refused: u64,
    /// Batches and worker runs ended early by a signal.
    pub interrupted: u64,
    /// Entries answered -EBUSY: the thread is traced or audited.
    pub bypassed: u64,
    /// Times a worker went to sleep.
    pub sleeps: u64,
    /// Times a sleeping worker was woken for requests.
    pub wakeups: u64,
    /// Submitted slot numbers out of range, running or canceled.
    pub dropped: u64,
}
