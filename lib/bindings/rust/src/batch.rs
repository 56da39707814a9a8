// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! A batch of the C library, and the crossing.
//!
//! It owns the ring and the rule that keeps it safe: calls stand in the ring only while a flush is
//! under way. If a flush ends early for good, the ring is given back with what it holds, and a new
//! one takes its place.

use crate::request::{Jump, Request};
use crate::sys;
use std::io;
use std::os::raw::{c_int, c_uint};
use std::ptr::{self, NonNull};

const EINTR: c_int = 4;
const ETIME: c_int = 62;

/// Who makes the calls of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The library, by plain system calls.
    Plain,
    /// The kernel module, by one crossing.
    Module,
}

/// A ring of calls, which [`Batch::calls`] queues and flushes.
#[derive(Debug)]
pub struct Batch {
    ring: NonNull<sys::tl_batch>,
    entries: u32,
    flags: c_uint,
    /// The ring holds calls of a flush that is not over.
    unfinished: bool,
    pub(crate) requests: Vec<Request>,
    pub(crate) jumps: Vec<Jump>,
    /// Boxed: the kernel is given their addresses.
    #[allow(clippy::vec_box)]
    pub(crate) pipes: Vec<Box<[i32; 2]>>,
    pub(crate) results: Vec<i64>,
}

// SAFETY: one thread at a time may use a batch of the library, and `&mut` sees to that.
unsafe impl Send for Batch {}

pub(crate) fn error_of(result: i64) -> io::Error {
    io::Error::from_raw_os_error(-result as i32)
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(error_of(result.into()))
    } else {
        Ok(result)
    }
}

fn create(entries: u32, flags: c_uint) -> io::Result<NonNull<sys::tl_batch>> {
    let mut ring = ptr::null_mut();
    // SAFETY: `ring` is a place for the pointer that the library stores on success.
    checked(unsafe { sys::tl_batch_create(&mut ring, entries, flags) })?;
    NonNull::new(ring).ok_or_else(|| io::Error::from(io::ErrorKind::Other))
}

impl Batch {
    /// A batch of up to `entries` calls, a power of two up to 4096, by the module where it is.
    pub fn new(entries: u32) -> io::Result<Batch> {
        Batch::with_flags(entries, 0)
    }

    /// A batch that this backend makes.
    pub fn on(entries: u32, backend: Backend) -> io::Result<Batch> {
        let flags = match backend {
            Backend::Plain => sys::TL_PLAIN,
            Backend::Module => sys::TL_MODULE,
        };
        Batch::with_flags(entries, flags)
    }

    fn with_flags(entries: u32, flags: c_uint) -> io::Result<Batch> {
        Ok(Batch {
            ring: create(entries, flags)?,
            entries,
            flags,
            unfinished: false,
            requests: Vec::new(),
            jumps: Vec::new(),
            pipes: Vec::new(),
            results: Vec::new(),
        })
    }

    /// Returns how many calls the batch takes.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns who makes the calls.
    pub fn backend(&self) -> Backend {
        // SAFETY: the ring is alive as long as `self`.
        if unsafe { sys::tl_batch_backend(self.ring.as_ptr()) } == sys::TL_BACKEND_MODULE {
            Backend::Module
        } else {
            Backend::Plain
        }
    }

    /// Returns counts since the batch was created.
    pub fn stats(&self) -> io::Result<sys::tl_stats> {
        let size = std::mem::size_of::<sys::tl_stats>() as u32;
        let mut stats = sys::tl_stats {
            size,
            ..Default::default()
        };
        // SAFETY: `stats` has the size that it says.
        checked(unsafe { sys::tl_batch_get_stats(self.ring.as_ptr(), &mut stats) })?;
        Ok(stats)
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.jumps.clear();
        self.pipes.clear();
        self.results.clear();
    }

    /// Moves the queued calls into the ring.
    ///
    /// # Safety
    /// What the calls point to stays valid until `cross` has returned true, or another `fill`.
    pub(crate) unsafe fn fill(&mut self) -> io::Result<()> {
        if self.unfinished {
            let fresh = create(self.entries, self.flags)?;
            sys::tl_batch_destroy(std::mem::replace(&mut self.ring, fresh).as_ptr());
        }
        let ring = self.ring.as_ptr();
        self.unfinished = true;
        for request in &self.requests {
            let [a0, a1, a2, a3, a4, a5] = request.args;
            checked(sys::tl_batch_add(ring, request.nr, a0, a1, a2, a3, a4, a5))?;
        }
        let end = self.requests.len() as u32;
        for jump in &self.jumps {
            let target = jump.target.unwrap_or(end);
            checked(sys::tl_batch_jump(
                ring,
                jump.slot,
                jump.condition as c_int,
                target,
            ))?;
        }
        Ok(())
    }

    /// Makes the calls in the ring. Returns whether all are complete, or their budget is used up.
    ///
    /// # Safety
    /// What `fill` asks for.
    pub(crate) unsafe fn cross(&mut self, steps: u64) -> io::Result<bool> {
        let ring = self.ring.as_ptr();
        loop {
            match sys::tl_batch_flush_steps(ring, steps) {
                made if made == -ETIME => return Ok(false),
                made if made == -EINTR => {} // a signal handler has run: go on
                made => {
                    checked(made)?;
                }
            }
            if sys::tl_batch_queued(ring) == 0 {
                break;
            }
        }
        self.unfinished = false;
        for slot in 0..self.requests.len() as c_uint {
            self.results.push(sys::tl_batch_result(ring, slot));
        }
        Ok(true)
    }

    /// Returns the slot with which the next flush begins.
    pub(crate) fn at(&self) -> u32 {
        // SAFETY: the ring is alive as long as `self`.
        unsafe { sys::tl_batch_at(self.ring.as_ptr()) }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: the ring is alive, and nothing uses it behind this.
        unsafe { sys::tl_batch_destroy(self.ring.as_ptr()) }
    }
}
