// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! What calls open is taken or closed, however their flush ends; and a handle is good for its own
//! flush alone. One test at a time runs, because they count descriptors.

use std::ffi::{CStr, CString};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::{fs, mem, process, thread};
use trapless::{number, open, Argument, Batch, Call, Calls, Condition, Flushed, Opened, Piped};

static ALONE: Mutex<()> = Mutex::new(());

extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|error| error.into_inner())
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn root() -> &'static CStr {
    // SAFETY: it ends with a zero byte and lives for ever.
    unsafe { CStr::from_ptr(b"/\0".as_ptr().cast()) }
}

type Opens<'a> = &'a dyn Fn(&mut Calls<'_, 'static>) -> std::io::Result<()>;

fn opening(calls: &mut Calls, nr: u32, arguments: &[u64]) -> std::io::Result<()> {
    let arguments: Vec<_> = arguments.iter().copied().map(Argument::Plain).collect();
    // SAFETY: the calls below return a new descriptor, and their addresses live for ever.
    unsafe { calls.add_opening(nr, &arguments) }.map(drop)
}

fn each_way_to_open(test: impl Fn(&str, Opens)) {
    test("open", &|calls| calls.open(root(), 0, 0).map(drop));
    test("pipe", &|calls| calls.pipe().map(drop));
    test("socket pair", &|calls| calls.socket_pair(1, 1, 0).map(drop));
    test("eventfd", &|calls| {
        opening(calls, number::EVENTFD2, &[0, 0])
    });
    test("epoll", &|calls| {
        opening(calls, number::EPOLL_CREATE1, &[0])
    });
    test("dup", &|calls| opening(calls, number::DUP, &[0]));
    let name = root().as_ptr() as u64;
    test("memfd", &|calls| {
        opening(calls, number::MEMFD_CREATE, &[name, 0])
    });
}

/// Queues calls that open something, and a loop without an end behind them.
fn endless<'a>(batch: &'a mut Batch, opens: Opens) -> Calls<'a, 'static> {
    let mut calls = batch.calls();
    opens(&mut calls).unwrap();
    let again = calls.getppid().unwrap();
    calls.jump(again, Condition::Always, again).unwrap();
    calls
}

fn stopped(flushed: Flushed) {
    assert!(matches!(flushed, Flushed::Stopped(_)));
}

#[test]
fn a_program_that_is_given_up_leaves_nothing_open() {
    let _alone = alone();
    each_way_to_open(|name, opens| {
        let mut batch = Batch::new(8).unwrap();
        let before = descriptors();
        let error = endless(&mut batch, opens).flush().unwrap_err();
        assert_eq!((error.raw_os_error(), descriptors()), (Some(62), before));
        stopped(endless(&mut batch, opens).flush_steps(5).unwrap());
        assert_eq!(descriptors(), before, "{name}: Stopped is dropped");
        match endless(&mut batch, opens).flush_steps(5).unwrap() {
            Flushed::Stopped(program) => stopped(program.resume(5).unwrap()),
            Flushed::Complete(_) => panic!("a loop without an end"),
        }
        assert_eq!(descriptors(), before, "{name}: it was gone on with");
    });
}

#[test]
fn what_a_program_forgets_is_closed_by_the_next_calls_or_with_the_batch() {
    let _alone = alone();
    each_way_to_open(|name, opens| {
        let before = descriptors();
        let mut batch = Batch::new(8).unwrap();
        let created = descriptors();
        mem::forget(endless(&mut batch, opens).flush_steps(5).unwrap());
        assert!(descriptors() > created, "{name}");
        let mut calls = batch.calls();
        assert_eq!(descriptors(), created, "{name}: a Stopped was forgotten");
        opens(&mut calls).unwrap();
        mem::forget(calls.flush().unwrap());
        drop(batch);
        assert_eq!(descriptors(), before, "{name}: Results were forgotten");
    });
}

#[test]
fn a_forgotten_program_writes_no_memory_that_is_gone() {
    let _alone = alone();
    let (mut peer, socket) = UnixStream::pair().unwrap();
    let mut batch = Batch::new(8).unwrap();
    let mut buffer = vec![7; 64];
    let mut calls = batch.calls();
    let again = calls.getppid().unwrap();
    let read = calls.read(&socket, &mut buffer).unwrap();
    calls.jump(again, Condition::Always, again).unwrap();
    mem::forget(calls.flush_steps(3).unwrap());
    peer.write_all(b"overwritten").unwrap();
    let mut calls = batch.calls();
    let parent = calls.getppid().unwrap();
    let results = calls.flush().unwrap();
    assert!(results.get(parent).is_ok() && results.get(read).is_err());
    assert_eq!(buffer, [7; 64]);
}

#[test]
fn a_loop_that_opens_and_closes_may_stop_anywhere() {
    let _alone = alone();
    let mut batch = Batch::new(8).unwrap();
    let before = descriptors();
    for steps in 0..12 {
        let mut calls = batch.calls();
        let opened = calls.open(root(), open::READ, 0).unwrap();
        calls.fsync(opened).unwrap();
        calls.close(opened).unwrap();
        let last = calls.getppid().unwrap();
        calls.jump(last, Condition::Always, opened).unwrap();
        let flushed = calls.flush_steps(steps).unwrap();
        assert_eq!(
            descriptors(),
            before + usize::from(steps % 4 == 1 || steps % 4 == 2)
        );
        stopped(flushed);
        assert_eq!(descriptors(), before, "after {steps} steps");
    }
}

/// What a flush says of calls that open, and jump by `condition` from the call that is numbered
/// first to the one that is numbered second; -1 is the end.
fn said_of(close: bool, jumps: &[(usize, Condition, isize)]) -> Option<String> {
    let mut batch = Batch::new(8).unwrap();
    let mut calls = batch.calls();
    let opened = calls.open(root(), open::READ, 0).unwrap();
    let mut all = vec![opened.into(), calls.fsync(opened).unwrap()];
    all.push(if close {
        calls.close(opened).unwrap()
    } else {
        calls.getppid().unwrap()
    });
    all.push(calls.getppid().unwrap());
    for (from, condition, to) in jumps {
        match all.get(*to as usize) {
            Some(target) => calls.jump(all[*from], *condition, *target),
            None => calls.jump_to_end(all[*from], *condition),
        }
        .unwrap();
    }
    let said = calls.flush_steps(20).map(drop);
    said.err().map(|error| error.to_string())
}

#[test]
fn a_program_that_could_lose_a_descriptor_is_refused() {
    use Condition::{Always, Error, Success};
    let _alone = alone();
    let before = descriptors();
    let said = |close, jumps: &[_]| said_of(close, jumps).unwrap_or_default();
    let again = "a loop opens a descriptor again before it is closed";
    assert_eq!(said(false, &[(3, Always, 0)]), again);
    assert_eq!(said(false, &[(0, Success, 0)]), again);
    assert_eq!(said(true, &[(1, Error, 3), (3, Always, 0)]), again);
    let leaves = "a jump leaves a loop between an open and its close";
    assert_eq!(said(true, &[(1, Error, -1), (3, Always, 0)]), leaves);
    let leads = "a jump leads between an open and its close";
    assert_eq!(said(true, &[(3, Success, 1)]), leads);
    // These lose nothing: the loop always closes, the descriptor is opened once, or it stays open.
    assert_eq!(said(true, &[(1, Error, 2), (3, Always, 0)]), "");
    assert_eq!(said(true, &[(1, Error, -1)]), "");
    assert_eq!(said(false, &[(3, Always, 1)]), "");
    let mut batch = Batch::new(8).unwrap();
    let mut calls = batch.calls();
    let piped = calls.pipe().unwrap();
    calls.jump(piped, Condition::Success, piped).unwrap();
    assert_eq!(calls.flush().unwrap_err().to_string(), again);
    assert_eq!(
        descriptors(),
        before + usize::from(batch.backend() == trapless::Backend::Module)
    );
}

#[test]
fn both_ends_of_a_pair_of_sockets_are_taken() {
    let _alone = alone();
    let mut batch = Batch::new(8).unwrap();
    let mut calls = batch.calls();
    let pair = calls.socket_pair(1, 1, 0).unwrap();
    calls.write(pair.writer(), b"over").unwrap();
    let (one, other) = calls.flush().unwrap().pipe(pair).unwrap();
    let mut text = [0; 4];
    UnixStream::from(one).read_exact(&mut text).unwrap();
    assert_eq!(&text, b"over");
    drop(other);
}

/// Handles of a flush that is over: none is taken for the call that has its slot now.
fn handles(batch: &mut Batch, buffer: &mut [u8]) -> (Opened, trapless::Read, Piped, Call) {
    let mut calls = batch.calls();
    let opened = calls.open(root(), open::READ, 0).unwrap();
    let read = calls.read(opened, buffer).unwrap();
    let (piped, parent) = (calls.pipe().unwrap(), calls.getppid().unwrap());
    drop(calls.flush().unwrap());
    (opened, read, piped, parent)
}

#[test]
fn a_handle_of_an_earlier_flush_is_refused() {
    let _alone = alone();
    let (mut old, mut new, mut batch) = ([0; 8], [0; 8], Batch::new(8).unwrap());
    let (opened, read, piped, parent) = handles(&mut batch, &mut old);
    let stdout = std::io::stdout();
    let mut calls = batch.calls();
    let mine = calls.open(root(), open::READ, 0).unwrap();
    calls.read(mine, &mut new).unwrap();
    calls.pipe().unwrap();
    calls.getppid().unwrap();
    assert!(calls.fsync(opened).is_err() && calls.close(opened).is_err());
    assert!(calls.write_read(&stdout, read).is_err());
    assert!(calls.write(piped.writer(), b"lost").is_err());
    assert!(calls
        .pwrite(&stdout, b"lost", trapless::Value::from(parent))
        .is_err());
    assert!(calls.jump(parent, Condition::Zero, mine).is_err());
    assert!(calls.jump(mine, Condition::Zero, parent).is_err());
    // SAFETY: nothing is queued.
    let added = unsafe { calls.add(number::FSYNC, &[Argument::Result(parent)]) };
    assert_eq!(added.unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut results = calls.flush().unwrap();
    assert_eq!(
        results.get(parent).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert!(results.opened(opened).is_err() && results.pipe(piped).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| results.raw(read))).is_err());
    assert!(results.opened(mine).is_ok());
}

/// How the child of a fork ends.
fn status_in_a_child(run: impl FnOnce() -> i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child uses its own memory alone, and leaves by exit.
    unsafe {
        let child = fork();
        if child == 0 {
            process::exit(catch_unwind(AssertUnwindSafe(run)).unwrap_or(99));
        }
        assert_eq!(waitpid(child, &mut status, 0), child);
    }
    status >> 8
}

#[test]
fn every_flush_in_a_child_is_refused() {
    let _alone = alone();
    let mut batch = Batch::new(8).unwrap();
    for queued in 0..3 {
        let made = status_in_a_child(|| {
            let flush = |batch: &mut Batch| {
                let mut calls = batch.calls();
                for _ in 0..queued {
                    calls.getppid().unwrap();
                }
                calls.flush().map(drop)
            };
            let errors = (0..3).map(|_| flush(&mut batch).err().and_then(|e| e.raw_os_error()));
            errors.filter(|error| *error != Some(1)).count() as i32
        });
        assert_eq!(made, 0, "{queued} calls");
    }
    let mut calls = batch.calls();
    let parent = calls.getppid().unwrap();
    assert!(calls.flush().unwrap().get(parent).is_ok());
}

#[test]
fn a_child_cannot_go_on_with_a_program_and_closes_its_own_copies() {
    let _alone = alone();
    each_way_to_open(|name, opens| {
        let mut batch = Batch::new(8).unwrap();
        let before = descriptors();
        let mut program = Some(endless(&mut batch, opens).flush_steps(5).unwrap());
        let open = descriptors();
        let left = status_in_a_child(|| {
            match program.take() {
                Some(Flushed::Stopped(program)) => assert!(program.resume(5).is_err()),
                _ => panic!("a loop without an end"),
            }
            (descriptors() - before) as i32
        });
        assert_eq!((left, descriptors()), (0, open), "{name}");
        drop(program);
        assert_eq!(descriptors(), before, "{name}");
    });
}

#[test]
fn a_panic_between_queueing_and_flushing_makes_no_call() {
    let _alone = alone();
    let mut batch = Batch::new(8).unwrap();
    let before = descriptors();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let name = CString::new("/").unwrap();
        let mut calls = batch.calls();
        calls.open(&name, open::READ, 0).unwrap();
        panic!("as a program does");
    }));
    assert!(panicked.is_err());
    drop(batch.calls().flush().unwrap());
    assert_eq!(
        (descriptors(), batch.stats().unwrap().executed),
        (before, 0)
    );
}

#[test]
fn a_stopped_program_may_be_dropped_by_another_thread() {
    let _alone = alone();
    let mut batch = Batch::new(8).unwrap();
    let before = descriptors();
    let open = |calls: &mut Calls<'_, 'static>| calls.open(root(), 0, 0).map(drop);
    let flushed = endless(&mut batch, &open).flush_steps(5).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || drop(flushed));
    });
    assert_eq!(descriptors(), before);
}

/// Numbers that look random, and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) as usize % n
    }
}

/// What a loop has counted: a jump may be made in its second round, and not in its first.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Queues calls that open, use and close, with jumps between them.
fn random_program(calls: &mut Calls<'_, 'static>, numbers: &mut Numbers) -> std::io::Result<()> {
    let conditions = [
        Condition::Always,
        Condition::Success,
        Condition::Error,
        Condition::Zero,
    ];
    let (mut all, mut open): (Vec<Call>, Vec<Opened>) = (Vec::new(), Vec::new());
    for _ in 0..2 + numbers.below(10) {
        match numbers.below(6) {
            0 => open.push(calls.open(root(), open::READ, 0)?),
            1 if !open.is_empty() => {
                let opened = open.swap_remove(numbers.below(open.len()));
                all.push(calls.close(opened)?);
            }
            2 if !open.is_empty() => all.push(calls.fsync(open[0])?),
            3 if numbers.below(8) == 0 => all.push(calls.pipe()?.into()),
            4 => all.push(calls.increase(&COUNT, 1)?),
            _ => all.push(calls.getppid()?),
        }
        all.extend(open.last().map(|opened| Call::from(*opened)));
    }
    for _ in 0..numbers.below(4) {
        let (from, to) = (all[numbers.below(all.len())], all[numbers.below(all.len())]);
        calls.jump(from, conditions[numbers.below(4)], to)?;
    }
    Ok(())
}

#[test]
fn random_programs_leave_nothing_open_wherever_they_stop() {
    let _alone = alone();
    let (mut numbers, mut ends) = (Numbers(1), [0; 3]);
    let mut batch = Batch::new(32).unwrap();
    let before = descriptors();
    for number in 0..3000 {
        COUNT.store(-(numbers.below(3) as i64) as u64, Relaxed);
        let mut calls = batch.calls();
        random_program(&mut calls, &mut numbers).unwrap();
        let mut flushed = calls.flush_steps(numbers.below(40) as u64);
        while numbers.below(2) == 0 {
            flushed = match flushed {
                Ok(Flushed::Stopped(program)) => program.resume(numbers.below(9) as u64),
                other => other,
            };
        }
        ends[match &flushed {
            Ok(Flushed::Complete(_)) => 0,
            Ok(Flushed::Stopped(_)) => 1,
            Err(_) => 2,
        }] += 1;
        drop(flushed);
        assert_eq!(descriptors(), before, "program {number}");
    }
    assert!(ends.iter().all(|end| *end > 100), "{ends:?}");
}
