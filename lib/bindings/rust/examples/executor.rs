// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! An executor whose tasks share crossings. Each task is written as if it were alone: it opens a
//! file and reads it to its end. When every task waits for a call, one crossing makes the calls of
//! all of them.
//!
//! A task gives the memory of a call away and gets it back with the result, because a future may be
//! forgotten while its call is queued. Nothing here is unsafe.
//!
//!     executor FILE...

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::future::Future;
use std::mem;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::io::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::{env, io};
use trapless::{Batch, Opened, Read};

const CALLS: usize = 64;

/// A call, with all that it uses.
enum Operation {
    Open(CString),
    Read(Rc<OwnedFd>, Vec<u8>),
}

/// What becomes of it.
enum Outcome {
    Opened(io::Result<OwnedFd>),
    Read(io::Result<usize>, Vec<u8>),
}

enum State {
    New(Operation),
    Queued(Waker),
    Done(Outcome),
    Taken,
}

/// A call that a task waits for.
struct Submission {
    state: Rc<RefCell<State>>,
    queue: Queue,
}

type Queue = Rc<RefCell<VecDeque<(Operation, Rc<RefCell<State>>)>>>;

impl Future for Submission {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.state.borrow_mut();
        match mem::replace(&mut *state, State::Taken) {
            State::New(operation) => {
                self.queue
                    .borrow_mut()
                    .push_back((operation, Rc::clone(&self.state)));
                *state = State::Queued(context.waker().clone());
                Poll::Pending
            }
            State::Done(outcome) => Poll::Ready(outcome),
            State::Queued(_) => {
                *state = State::Queued(context.waker().clone());
                Poll::Pending
            }
            State::Taken => panic!("polled after its end"),
        }
    }
}

/// What tasks make calls by.
#[derive(Clone)]
struct Ring(Queue);

impl Ring {
    fn submit(&self, operation: Operation) -> Submission {
        let state = Rc::new(RefCell::new(State::New(operation)));
        Submission {
            state,
            queue: Rc::clone(&self.0),
        }
    }

    async fn open(&self, path: CString) -> io::Result<OwnedFd> {
        match self.submit(Operation::Open(path)).await {
            Outcome::Opened(opened) => opened,
            Outcome::Read(..) => unreachable!("an open was asked for"),
        }
    }

    async fn read(&self, file: &Rc<OwnedFd>, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match self.submit(Operation::Read(Rc::clone(file), buffer)).await {
            Outcome::Read(count, buffer) => (count, buffer),
            Outcome::Opened(_) => unreachable!("a read was asked for"),
        }
    }
}

/// Makes the calls that are queued, by one crossing, and wakes the tasks that wait for them.
fn cross(batch: &mut Batch, queue: &Queue) -> io::Result<()> {
    enum Handle {
        Opened(Opened),
        Read(Read),
    }
    let n = queue.borrow().len().min(CALLS);
    let mut submissions: Vec<_> = queue.borrow_mut().drain(..n).collect();
    let mut handles = Vec::new();
    let mut calls = batch.calls();
    for (operation, _) in &mut submissions {
        handles.push(match operation {
            Operation::Open(path) => Handle::Opened(calls.open(path, trapless::open::READ, 0)?),
            Operation::Read(file, buffer) => Handle::Read(calls.read(&**file, buffer)?),
        });
    }
    let mut results = calls.flush()?;
    let mut outcomes = Vec::new();
    for handle in handles {
        outcomes.push(match handle {
            Handle::Opened(opened) => Outcome::Opened(results.opened(opened)),
            Handle::Read(read) => Outcome::Read(results.get(read), Vec::new()),
        });
    }
    drop(results);
    for ((operation, state), mut outcome) in submissions.into_iter().zip(outcomes) {
        if let (Operation::Read(_, memory), Outcome::Read(_, buffer)) = (operation, &mut outcome) {
            *buffer = memory;
        }
        if let State::Queued(waker) = state.replace(State::Done(outcome)) {
            waker.wake();
        }
    }
    Ok(())
}

/// The numbers of tasks that can go on.
type Ready = Arc<Mutex<VecDeque<usize>>>;

struct TaskWaker {
    task: usize,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready
            .lock()
            .expect("no task panicked")
            .push_back(self.task);
    }
}

/// Runs tasks until all have ended.
fn run(batch: &mut Batch, ring: &Ring, mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>) {
    let ready: Ready = Arc::new(Mutex::new((0..tasks.len()).collect()));
    let wakers: Vec<Waker> = (0..tasks.len())
        .map(|task| {
            Arc::new(TaskWaker {
                task,
                ready: Arc::clone(&ready),
            })
            .into()
        })
        .collect();
    let mut left = tasks.len();
    while left > 0 {
        let next = ready.lock().expect("no task panicked").pop_front();
        match next {
            Some(task) => {
                let mut context = Context::from_waker(&wakers[task]);
                left -= usize::from(tasks[task].as_mut().poll(&mut context).is_ready());
            }
            None => cross(batch, &ring.0).expect("the batch takes that many calls"),
        }
    }
}

async fn size_of(ring: Ring, path: OsString) -> io::Result<u64> {
    let file = Rc::new(ring.open(CString::new(path.into_vec())?).await?);
    let (mut size, mut buffer) = (0, vec![0; 4096]);
    loop {
        let (count, memory) = ring.read(&file, buffer).await;
        buffer = memory;
        match count? {
            0 => return Ok(size),
            count => size += count as u64,
        }
    }
}

async fn show(ring: Ring, path: OsString) {
    match size_of(ring, path.clone()).await {
        Ok(size) => println!("{size} {}", path.to_string_lossy()),
        Err(error) => println!("{}: {error}", path.to_string_lossy()),
    }
}

fn main() -> io::Result<()> {
    let mut batch = Batch::new(CALLS as u32)?;
    let ring = Ring(Queue::default());
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for path in env::args_os().skip(1) {
        tasks.push(Box::pin(show(ring.clone(), path)));
    }
    run(&mut batch, &ring, tasks);
    let stats = batch.stats()?;
    eprintln!("{} calls, {} crossings", stats.executed, stats.crossings);
    Ok(())
}
