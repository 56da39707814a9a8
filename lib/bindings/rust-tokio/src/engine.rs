// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Operations as futures: the engine under a lock, the task that takes completions and submits, and
//! memory that stays until the kernel is done with it. files.rs and file.rs own what users see.
//!
//! A future that is dropped leaves its operation: what has not begun is canceled, and buffer and
//! descriptor stay with the operation until it is complete.

use std::future::{poll_fn, Future};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::raw::c_int;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

use trapless::number;

use crate::sys;

/// What the result of an operation is, beside its number.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Number,
    /// A descriptor, which is closed if nobody takes it.
    Descriptor,
    Bytes,
    Status,
}

pub(crate) enum Value {
    Number(i64),
    Descriptor(OwnedFd),
    Bytes(Vec<u8>),
    Status(Box<sys::statx>),
}

/// What an operation uses and nobody may free before it is complete.
#[derive(Default)]
pub(crate) struct Held {
    pub bytes: Option<Vec<u8>>,
    #[allow(dead_code)] // it is held, so that its descriptor stays open
    pub file: Option<Arc<Descriptor>>,
}

struct Slot {
    kind: Kind,
    op: *mut sys::tl_files_op,
    waker: Option<Waker>,
    done: Option<io::Result<Value>>,
    held: Held,
    abandoned: bool,
}

// SAFETY: `op` is only used by who has the engine's lock.
unsafe impl Send for Slot {}

struct Engine {
    files: *mut sys::tl_files,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    added: bool,
    driver: Option<Waker>,
}

// SAFETY: the C library lets any thread use the engine, one at a time; the lock sees to that.
unsafe impl Send for Engine {}

pub(crate) struct Shared(Mutex<Engine>);

pub(crate) fn error(result: i64) -> io::Error {
    io::Error::from_raw_os_error(-result as i32)
}

/// Adds one operation to the engine, with the number by which it is known.
pub(crate) type Add<'a> =
    &'a mut dyn FnMut(*mut sys::tl_files, &Held, u64, *mut *mut sys::tl_files_op) -> c_int;

impl Shared {
    pub fn new(workers: u32) -> io::Result<Arc<Shared>> {
        let most = trapless::sys::TL_ENTRIES_MAX;
        if !(1..=most).contains(&workers) {
            let text = format!("there may be 1 to {most} workers, and not {workers}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut files = ptr::null_mut();
        // SAFETY: the engine is created into our variable. The environment chooses who makes calls.
        let result = unsafe { sys::tl_files_create(&mut files, workers, 0) };
        if result < 0 {
            return Err(trapless::creation_error(result, 0));
        }
        let shared = Arc::new(Shared(Mutex::new(Engine {
            files,
            slots: Vec::new(),
            free: Vec::new(),
            added: false,
            driver: None,
        })));
        // SAFETY: the engine exists. It closes its descriptor, so tokio gets one of its own.
        let fd = unsafe { BorrowedFd::borrow_raw(sys::tl_files_fd(files)) }.try_clone_to_owned()?;
        #[allow(deprecated)] // the new name is not in older versions of tokio
        let ready = AsyncFd::with_interest(fd, Interest::READABLE)?;
        tokio::spawn(drive(Arc::downgrade(&shared), ready));
        Ok(shared)
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Begins an operation. It is submitted together with the others of this turn.
    pub fn begin(self: &Arc<Self>, kind: Kind, held: Held, add: Add) -> io::Result<Operation> {
        let mut engine = self.lock();
        let number = engine.free.pop().unwrap_or(engine.slots.len());
        let mut op = ptr::null_mut();
        let result = add(engine.files, &held, number as u64, &mut op);
        if result < 0 {
            if number < engine.slots.len() {
                engine.free.push(number);
            }
            return Err(error(result.into()));
        }
        let slot = Slot {
            kind,
            op,
            waker: None,
            done: None,
            held,
            abandoned: false,
        };
        if number == engine.slots.len() {
            engine.slots.push(Some(slot));
        } else {
            engine.slots[number] = Some(slot);
        }
        let driver = engine.note_added();
        drop(engine);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(Operation {
            shared: self.clone(),
            number: Some(number),
        })
    }

    pub fn is_module(&self) -> bool {
        // SAFETY: the engine exists as long as self.
        unsafe { sys::tl_files_backend(self.lock().files) == 1 }
    }
}

impl Engine {
    fn note_added(&mut self) -> Option<Waker> {
        if self.added {
            return None;
        }
        self.added = true;
        self.driver.take()
    }

    fn submit(&mut self) {
        if self.added {
            self.added = false;
            // SAFETY: the engine exists. It keeps what it could not hand over for the next call.
            unsafe { sys::tl_files_submit(self.files) };
        }
    }

    /// Takes all that is complete. Returns who waits for it, and what nobody waits for any more.
    fn take(&mut self, wakers: &mut Vec<Waker>, unused: &mut Vec<Slot>) {
        let mut result = sys::tl_files_result {
            user_data: 0,
            result: 0,
            data: ptr::null_mut(),
            op: ptr::null_mut(),
        };
        // SAFETY: the engine exists, and each operation that it returns is released once.
        while unsafe { sys::tl_files_next(self.files, &mut result) } == 1 {
            let number = result.user_data as usize;
            let Some(slot) = self.slots[number].as_mut() else {
                unreachable!("a slot is taken once")
            };
            let value = value_of(slot.kind, &result);
            unsafe { sys::tl_files_release(self.files, result.op) };
            slot.op = ptr::null_mut();
            slot.done = Some(value);
            wakers.extend(slot.waker.take());
            if slot.abandoned {
                unused.extend(self.slots[number].take());
                self.free.push(number);
            }
        }
    }
}

fn value_of(kind: Kind, result: &sys::tl_files_result) -> io::Result<Value> {
    let number = result.result;
    if number < 0 {
        return Err(error(number));
    }
    // SAFETY: the operation's memory holds what its kind says, until it is released.
    Ok(unsafe {
        match kind {
            Kind::Number => Value::Number(number),
            Kind::Descriptor => Value::Descriptor(OwnedFd::from_raw_fd(number as RawFd)),
            Kind::Bytes if number == 0 => Value::Bytes(Vec::new()),
            Kind::Bytes => Value::Bytes(
                std::slice::from_raw_parts(result.data.cast::<u8>(), number as usize).to_vec(),
            ),
            Kind::Status => {
                let status = &*result.data.cast::<sys::tl_files_status>();
                if status.result < 0 {
                    return Err(error(status.result));
                }
                Value::Status(Box::new(status.x))
            }
        }
    })
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the engine.
        if unsafe { sys::tl_files_destroy(self.files) } > 0 {
            // Calls that block have this memory until the process ends.
            for slot in self
                .slots
                .drain(..)
                .flatten()
                .filter(|slot| !slot.op.is_null())
            {
                std::mem::forget(slot.held);
            }
        }
        if let Some(driver) = self.driver.take() {
            driver.wake(); // it finds nothing any more, and ends
        }
    }
}

enum Turn {
    Work,
    End,
}

/// The task of one engine: waits until something is complete or was added.
async fn drive(weak: Weak<Shared>, ready: AsyncFd<OwnedFd>) {
    let (mut wakers, mut unused) = (Vec::new(), Vec::new());
    loop {
        let turn = poll_fn(|context| {
            let Some(shared) = weak.upgrade() else {
                return Poll::Ready(Turn::End);
            };
            let mut engine = shared.lock();
            if let Poll::Ready(Ok(mut guard)) = ready.poll_read_ready(context) {
                guard.clear_ready();
                return Poll::Ready(Turn::Work);
            }
            if engine.added {
                return Poll::Ready(Turn::Work);
            }
            engine.driver = Some(context.waker().clone());
            Poll::Pending
        });
        if let Turn::End = turn.await {
            return;
        }
        let Some(shared) = weak.upgrade() else { return };
        shared.lock().take(&mut wakers, &mut unused);
        unused.clear(); // without the lock: it may close files
        for waker in wakers.drain(..) {
            waker.wake();
        }
        drop(shared);
        // All tasks that can run now add what they have to ask for.
        tokio::task::yield_now().await;
        let Some(shared) = weak.upgrade() else { return };
        shared.lock().submit();
    }
}

/// An operation that was begun.
pub(crate) struct Operation {
    shared: Arc<Shared>,
    number: Option<usize>,
}

impl Future for Operation {
    type Output = (io::Result<Value>, Held);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number.expect("a future is not polled after its end");
        let shared = self.shared.clone();
        let mut engine = shared.lock();
        let slot = engine.slots[number].as_mut().expect("the slot is ours");
        if slot.done.is_none() {
            slot.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let slot = engine.slots[number].take().expect("the slot is ours");
        engine.free.push(number);
        self.number = None;
        Poll::Ready((slot.done.expect("it is done"), slot.held))
    }
}

impl Operation {
    /// Lets the operation go on without anybody who waits for it.
    pub fn detach(mut self) {
        self.leave(false);
    }

    fn leave(&mut self, cancels: bool) {
        let Some(number) = self.number.take() else {
            return;
        };
        let mut engine = self.shared.lock();
        let files = engine.files;
        let slot = engine.slots[number].as_mut().expect("the slot is ours");
        let unused;
        if slot.done.is_some() {
            unused = engine.slots[number].take();
            engine.free.push(number);
        } else {
            slot.abandoned = true;
            unused = None;
            if cancels {
                let op = slot.op;
                // SAFETY: the operation is not released before it is complete.
                unsafe { sys::tl_files_cancel(files, op) };
            }
        }
        drop(engine);
        drop(unused);
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.leave(true);
    }
}

/// An open descriptor. Operations on it hold it, so that its number is not used again meanwhile.
pub(crate) struct Descriptor {
    fd: Option<OwnedFd>,
    shared: Weak<Shared>,
}

impl Descriptor {
    pub fn new(fd: OwnedFd, shared: &Arc<Shared>) -> Arc<Descriptor> {
        Arc::new(Descriptor {
            fd: Some(fd),
            shared: Arc::downgrade(shared),
        })
    }

    pub fn number(&self) -> u64 {
        self.fd
            .as_ref()
            .map_or(u64::MAX, |fd| fd.as_raw_fd() as u64)
    }

    pub fn take(mut self) -> Option<OwnedFd> {
        self.fd.take()
    }
}

impl Drop for Descriptor {
    /// A worker closes it, since close() may block.
    fn drop(&mut self) {
        let (Some(fd), Some(shared)) = (self.fd.take(), self.shared.upgrade()) else {
            return;
        };
        let call = sys::tl_request {
            nr: number::CLOSE,
            ..Default::default()
        };
        let number = fd.as_raw_fd() as u64;
        let closing = shared.begin(Kind::Number, Held::default(), &mut |files, _, data, op| {
            let call = sys::tl_request {
                args: [number, 0, 0, 0, 0, 0],
                ..call
            };
            // SAFETY: the call has no memory.
            unsafe { sys::tl_files_call(files, &call, 0, 0, data, op) }
        });
        if let Ok(closing) = closing {
            std::mem::forget(fd);
            closing.detach();
        }
    }
}
