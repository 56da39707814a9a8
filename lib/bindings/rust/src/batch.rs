// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! A batch of the C library, and the crossing.
//!
//! It owns the ring and the rule that keeps it safe: calls stand in the ring only while a flush is
//! under way. If a flush ends early for good, the ring is given back with what it holds, and a new
//! one takes its place.
//!
//! It also owns the descriptors that the calls opened, until somebody takes them: however a flush
//! ends, the others are closed.

use crate::descriptors;
use crate::request::{Call, Jump, Request, Role};
use crate::sys;
use std::ffi::CStr;
use std::io;
use std::os::raw::{c_char, c_int, c_uint};
use std::os::unix::io::{FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

const EINTR: c_int = 4;
const ETIME: c_int = 62;
const ECANCELED: i64 = 125;

/// The number of the last flush of this process.
static FLUSHES: AtomicU64 = AtomicU64::new(0);

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
    /// The number of the flush to which `requests` belong.
    flush: u64,
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

/// Returns the error of a function that creates something, with its reason in words. `flags` are 0
/// where the variable TRAPLESS_BACKEND chooses who makes the calls.
pub fn creation_error(result: c_int, flags: c_uint) -> io::Error {
    const MISSING: &str = "the module is not loaded (/dev/trapless is missing)";
    let error = error_of(result.into());
    let variable = std::env::var_os("TRAPLESS_BACKEND").filter(|_| flags == 0);
    let variable = variable.unwrap_or_default();
    let text = match (error.kind(), &*variable.to_string_lossy()) {
        (io::ErrorKind::InvalidInput, "" | "auto" | "plain" | "module") => return error,
        (io::ErrorKind::InvalidInput, other) => {
            format!("TRAPLESS_BACKEND={other}: it may be auto, plain or module")
        }
        (io::ErrorKind::NotFound, "module") => format!("TRAPLESS_BACKEND=module: {MISSING}"),
        (io::ErrorKind::NotFound, _) => MISSING.to_owned(),
        (_, "module") => format!("TRAPLESS_BACKEND=module: {error}"),
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

fn create(entries: u32, flags: c_uint) -> io::Result<NonNull<sys::tl_batch>> {
    if !(1..=sys::TL_ENTRIES_MAX).contains(&entries) {
        let most = sys::TL_ENTRIES_MAX;
        let text = format!("a batch takes 1 to {most} calls, and not {entries}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut ring = ptr::null_mut();
    // SAFETY: `ring` is a place for the pointer that the library stores on success.
    let result = unsafe { sys::tl_batch_create(&mut ring, entries, flags) };
    if result < 0 {
        return Err(creation_error(result, flags));
    }
    NonNull::new(ring).ok_or_else(|| io::Error::from(io::ErrorKind::Other))
}

/// Returns a text of the library, or `None` for a null pointer.
///
/// # Safety
/// The text is static.
pub(crate) unsafe fn static_text(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    CStr::from_ptr(text).to_str().ok()
}

impl Batch {
    /// A batch of up to `entries` calls, 1 to 4096 and rounded up to a power of two, by the module
    /// where it is.
    pub fn new(entries: u32) -> io::Result<Batch> {
        Batch::with_flags(entries, 0)
    }

    /// A batch whose calls this backend makes.
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
            entries: entries.next_power_of_two(),
            flags,
            unfinished: false,
            flush: 0,
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

    /// Returns why the library makes calls itself, one by one. `None`: the module has made all.
    pub fn reason(&self) -> Option<&'static str> {
        // SAFETY: the ring is alive as long as `self`, and the library's text for ever.
        unsafe { static_text(sys::tl_batch_reason(self.ring.as_ptr())) }
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

    /// Forgets the calls of the last flush. A program may have forgotten its results, too.
    pub(crate) fn clear(&mut self) {
        self.close_opened();
        self.requests.clear();
        self.jumps.clear();
        self.pipes.clear();
        self.results.clear();
        self.flush = FLUSHES.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Returns the handle of a slot.
    pub(crate) fn call(&self, slot: u32) -> Call {
        let flush = self.flush;
        Call { slot, flush }
    }

    /// Returns the place of a queued call in `requests`, or `None` if it is of another flush.
    pub(crate) fn slot(&self, call: Call) -> Option<usize> {
        let slot = call.slot as usize;
        (call.flush == self.flush && slot < self.requests.len()).then(|| slot)
    }

    /// Moves the queued calls into the ring.
    ///
    /// # Safety
    /// What the calls point to stays valid until `cross` has returned true, or another `fill`.
    pub(crate) unsafe fn fill(&mut self) -> io::Result<()> {
        // The child of a fork may use no ring of its parent, and must not get a new one here.
        checked(sys::tl_batch_barrier(self.ring.as_ptr()))?;
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
    /// The conditions of `fill` hold.
    pub(crate) unsafe fn cross(&mut self, steps: u64) -> io::Result<bool> {
        let made = self.flush_queued(steps);
        self.unfinished = !matches!(made, Ok(true));
        let (ring, complete) = (self.ring.as_ptr(), !self.unfinished);
        self.results.resize(self.requests.len(), -ECANCELED);
        for (slot, result) in (0..).zip(&mut self.results) {
            if complete || sys::tl_batch_done(ring, slot) {
                *result = sys::tl_batch_result(ring, slot);
            }
        }
        made
    }

    unsafe fn flush_queued(&mut self, steps: u64) -> io::Result<bool> {
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
                return Ok(true);
            }
        }
    }

    // ---- Descriptors -------------------------------------------------------------------------

    /// Forgets what the batch has opened and closed again.
    pub(crate) fn forget_closed(&mut self) {
        let end = self.requests.len() as u32;
        let at = if self.unfinished { self.at() } else { end };
        for close in 0..self.results.len() {
            if let Role::Closes(open) = self.requests[close].role {
                // It may be jumped over, and then has closed nothing.
                let made = self.results[close] != -ECANCELED;
                if made && descriptors::is_closed(open, close, at) {
                    self.requests[open as usize].role = Role::Other;
                }
            }
        }
    }

    /// Takes the descriptor that the call in a slot opened, once.
    pub(crate) fn take(&mut self, slot: usize) -> Option<OwnedFd> {
        let fd = *self.results.get(slot)?;
        if fd < 0 || self.requests[slot].role != Role::Opens {
            return None;
        }
        self.requests[slot].role = Role::Other;
        // SAFETY: the call has opened it, none has closed it, and it is taken once.
        Some(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// Takes both ends of a pipe, once.
    pub(crate) fn take_pipe(&mut self, slot: usize) -> Option<(OwnedFd, OwnedFd)> {
        let made = *self.results.get(slot)? == 0;
        let number = match self.requests[slot].role {
            Role::Pipes(number) if made => number,
            _ => return None,
        };
        self.requests[slot].role = Role::Other;
        let [reader, writer] = *self.pipes[number];
        // SAFETY: the call has made the pipe, and it is taken once.
        Some(unsafe { (OwnedFd::from_raw_fd(reader), OwnedFd::from_raw_fd(writer)) })
    }

    /// Closes what nobody has taken.
    pub(crate) fn close_opened(&mut self) {
        self.forget_closed();
        for slot in 0..self.results.len() {
            drop(self.take(slot));
            drop(self.take_pipe(slot));
        }
    }

    /// Returns the slot with which the next flush begins.
    pub(crate) fn at(&self) -> u32 {
        // SAFETY: the ring is alive as long as `self`.
        unsafe { sys::tl_batch_at(self.ring.as_ptr()) }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.close_opened();
        // SAFETY: the ring is alive, and nothing uses it behind this.
        unsafe { sys::tl_batch_destroy(self.ring.as_ptr()) }
    }
}

/// A batch in whose ring the calls of a flush are: what they opened is closed with it.
#[derive(Debug)]
pub(crate) struct Guard<'b>(pub(crate) &'b mut Batch);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.close_opened();
    }
}
