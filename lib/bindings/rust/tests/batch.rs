// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Batches do what they say, with the backend that the environment chooses.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek, Write};
use std::os::unix::io::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{env, process, thread};
use trapless::{open, Argument, Backend, Batch, Condition, Flushed, Stat};

const ECANCELED: i32 = 125;

/// A file of its own for each test, gone at its end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: &[u8]) -> Temporary {
        let path = env::temp_dir().join(format!("trapless-{}-{name}", process::id()));
        fs::write(&path, content).unwrap();
        Temporary(path)
    }

    fn name(&self) -> CString {
        CString::new(self.0.to_str().unwrap()).unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

fn batch() -> Batch {
    Batch::new(32).unwrap()
}

/// What a descriptor of this process is open on.
fn target(fd: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i % 251) as u8).collect()
}

#[test]
fn calls_have_results_and_errors() {
    let absent = CString::new("/absent").unwrap();
    let mut batch = batch();
    let mut calls = batch.calls();
    let parent = calls.getppid().unwrap();
    let file = calls.open(&absent, open::READ, 0).unwrap();
    let results = calls.flush().unwrap();
    assert_eq!(
        results.get(parent).unwrap(),
        std::os::unix::process::parent_id() as usize
    );
    assert_eq!(
        results.get(file).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    assert_eq!(results.raw(file), -2);
}

#[test]
fn a_file_is_read_in_one_crossing() {
    let file = Temporary::new("read", &pattern(5000));
    let (name, mut stat, mut buffer) = (file.name(), Stat::default(), [0; 6000]);
    let mut batch = batch();
    let mut calls = batch.calls();
    let opened = calls.open(&name, open::READ, 0).unwrap();
    calls.fstat(opened, &mut stat).unwrap();
    let read = calls.read(opened, &mut buffer).unwrap();
    let closed = calls.close(opened).unwrap();
    let mut results = calls.flush().unwrap();
    assert_eq!(results.get(read).unwrap(), 5000);
    assert_eq!(results.get(closed).unwrap(), 0);
    assert!(results.opened(opened).is_err(), "it is closed");
    drop(results);
    assert_eq!((stat.size(), stat.is_file()), (5000, true));
    assert_eq!(buffer[..5000], pattern(5000));
    let crossings = batch.stats().unwrap().crossings;
    assert_eq!(
        crossings,
        if batch.backend() == Backend::Module {
            1
        } else {
            4
        }
    );
}

#[test]
fn a_batch_says_why_its_calls_are_plain() {
    let other = batch();
    assert_eq!(other.reason().is_none(), other.backend() == Backend::Module);
    let plain = Batch::on(8, Backend::Plain).unwrap();
    let reason = plain.reason().unwrap();
    assert_eq!(reason, "the program asks for plain calls (TL_PLAIN)");
}

#[test]
fn calls_behind_a_failed_one_are_cancelled() {
    let absent = CString::new("/absent").unwrap();
    let mut buffer = [0; 8];
    let mut batch = batch();
    let mut calls = batch.calls();
    let opened = calls.open(&absent, open::READ, 0).unwrap();
    let read = calls.read(opened, &mut buffer).unwrap();
    let results = calls.flush().unwrap();
    assert_eq!(
        results.get(read).unwrap_err().raw_os_error(),
        Some(ECANCELED)
    );
}

#[test]
fn a_full_batch_refuses_calls_until_a_flush() {
    let mut batch = Batch::new(2).unwrap();
    let mut calls = batch.calls();
    calls.getppid().unwrap();
    calls.getppid().unwrap();
    assert_eq!(calls.room(), 0);
    assert_eq!(
        calls.getppid().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    drop(calls.flush().unwrap());
    assert_eq!(batch.calls().room(), 2);
    assert_eq!(Batch::new(3).unwrap().calls().room(), 4);
    assert_eq!(Batch::new(4096).unwrap().entries(), 4096);
    for entries in [0, 4097] {
        let error = Batch::new(entries).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let text = format!("a batch takes 1 to 4096 calls, and not {entries}");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn calls_that_were_not_flushed_are_not_made() {
    let file = Temporary::new("unflushed", b"");
    let opened = fs::OpenOptions::new().append(true).open(&file.0).unwrap();
    let mut batch = batch();
    {
        let bytes = vec![b'x'; 100];
        batch.calls().write(&opened, &bytes).unwrap();
    }
    let calls = batch.calls();
    assert!(calls.is_empty());
    drop(calls.flush().unwrap());
    assert_eq!(fs::read(&file.0).unwrap(), b"");
}

#[test]
fn an_opened_descriptor_is_taken_or_closed() {
    let (root, usr) = (CString::new("/").unwrap(), CString::new("/usr").unwrap());
    let mut batch = batch();
    let mut calls = batch.calls();
    let taken = calls.open(&root, open::READ | open::FOLDER, 0).unwrap();
    let left = calls.open(&usr, open::READ, 0).unwrap();
    let mut results = calls.flush().unwrap();
    let fd = results.opened(taken).unwrap();
    assert!(results.opened(taken).is_err(), "it was taken");
    let other = results.get(left).unwrap() as i32;
    let kept = fd.as_raw_fd();
    assert_eq!(target(kept), Some(PathBuf::from("/")));
    drop(results);
    assert_eq!(target(kept), Some(PathBuf::from("/")));
    // Another test may have opened a file by this number since, but no folder of these.
    assert_ne!(target(other), Some(PathBuf::from("/usr")));
    drop(fd);
}

#[test]
fn a_closed_descriptor_is_not_used_again() {
    let root = CString::new("/").unwrap();
    let mut batch = batch();
    let (mut stat, mut calls) = (Stat::default(), batch.calls());
    let opened = calls.open(&root, open::READ, 0).unwrap();
    let asked = calls.fstat(opened, &mut stat).unwrap();
    let closed = calls.close(opened).unwrap();
    assert!(calls.close(opened).is_err());
    assert!(calls.fsync(opened).is_err());
    // A second round of the loop would close what the first has closed already.
    calls.jump(closed, Condition::Success, asked).unwrap();
    assert_eq!(
        calls.flush().unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

#[test]
fn handles_of_other_batches_are_refused() {
    let root = CString::new("/").unwrap();
    let (mut one, mut other) = (batch(), batch());
    let (mut buffer, out) = ([0; 8], io::stdout());
    let mut calls = one.calls();
    let opened = calls.open(&root, open::READ, 0).unwrap();
    let read = calls.read(opened, &mut buffer).unwrap();
    let mut calls = other.calls();
    let parent = calls.getppid().unwrap();
    assert!(calls.close(opened).is_err());
    assert!(calls.write_read(&out, read).is_err());
    assert!(calls.jump(read, Condition::Always, parent).is_err());
}

/// Copies a file by a loop in one program; returns how many calls were made.
fn copy(batch: &mut Batch, from: &File, to: &File, step: usize) -> u64 {
    let mut buffer = vec![0; step];
    let before = batch.stats().unwrap().executed;
    let mut calls = batch.calls();
    let read = calls.read(from, &mut buffer).unwrap();
    let written = calls.write_read(to, read).unwrap();
    calls.jump(written, Condition::Positive, read).unwrap();
    let results = calls.flush().unwrap();
    assert_eq!(results.get(written).unwrap(), 0);
    drop(results);
    batch.stats().unwrap().executed - before
}

#[test]
fn a_loop_copies_a_file_in_one_crossing() {
    let (from, to) = (
        Temporary::new("from", &pattern(100_000)),
        Temporary::new("to", b""),
    );
    let mut batch = batch();
    let source = File::open(&from.0).unwrap();
    let target = fs::OpenOptions::new().write(true).open(&to.0).unwrap();
    assert_eq!(copy(&mut batch, &source, &target, 4096), 2 * 26);
    assert!(fs::read(&to.0).unwrap() == pattern(100_000));
    if batch.backend() == Backend::Module {
        assert_eq!(batch.stats().unwrap().crossings, 1);
    }
}

#[test]
fn words_are_read_when_the_call_is_made() {
    let (from, to) = (
        Temporary::new("words", &pattern(10_000)),
        Temporary::new("words-to", b""),
    );
    let source = File::open(&from.0).unwrap();
    let target = fs::OpenOptions::new().write(true).open(&to.0).unwrap();
    let (offset, rounds, mut buffer) = (AtomicU64::new(0), AtomicU64::new(7), [0; 1024]);
    let mut batch = batch();
    let mut calls = batch.calls();
    let reset = calls.store(&rounds, 0).unwrap();
    let read = calls.pread(&source, &mut buffer, &offset).unwrap();
    calls.jump_to_end(read, Condition::Zero).unwrap();
    let written = calls.pwrite_read(&target, read, &offset).unwrap();
    calls.increase(&offset, written).unwrap();
    let again = calls.increase(&rounds, 1).unwrap();
    calls.jump(again, Condition::Always, read).unwrap();
    let results = calls.flush().unwrap();
    assert_eq!((results.raw(reset), results.get(again).unwrap()), (0, 10));
    drop(results);
    assert_eq!((offset.load(Relaxed), rounds.load(Relaxed)), (10_000, 10));
    assert!(fs::read(&to.0).unwrap() == pattern(10_000));
}

#[test]
fn a_pipe_is_used_by_the_calls_behind_it() {
    let mut buffer = [0; 16];
    let mut batch = batch();
    let mut calls = batch.calls();
    let pipe = calls.pipe().unwrap();
    calls.write(pipe.writer(), b"through").unwrap();
    let read = calls.read(pipe.reader(), &mut buffer).unwrap();
    let mut results = calls.flush().unwrap();
    assert_eq!(results.get(read).unwrap(), 7);
    let (reader, writer) = results.pipe(pipe).unwrap();
    assert!(results.pipe(pipe).is_err(), "it was taken");
    drop(results);
    assert_eq!(&buffer[..7], b"through");
    File::from(writer).write_all(b"later").unwrap();
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    assert_eq!(text, "later");
}

#[test]
fn a_program_stops_at_its_budget_and_goes_on() {
    let count = AtomicU64::new(0);
    let mut batch = batch();
    let mut calls = batch.calls();
    let counted = calls.increase(&count, 1).unwrap();
    calls.jump(counted, Condition::Positive, counted).unwrap();
    let stopped = match calls.flush_steps(100).unwrap() {
        Flushed::Stopped(stopped) => stopped,
        Flushed::Complete(_) => panic!("a loop without an end"),
    };
    assert_eq!((stopped.at(), count.load(Relaxed)), (counted, 100));
    assert!(matches!(stopped.resume(50).unwrap(), Flushed::Stopped(_)));
    // The next calls find a ring that knows nothing of the program.
    let mut calls = batch.calls();
    let parent = calls.getppid().unwrap();
    assert!(calls.flush().unwrap().get(parent).is_ok());
    assert_eq!(count.load(Relaxed), 150);
}

#[test]
fn a_program_without_an_end_is_given_up() {
    let mut batch = batch();
    let mut calls = batch.calls();
    let parent = calls.getppid().unwrap();
    calls.jump(parent, Condition::Always, parent).unwrap();
    assert_eq!(calls.flush().unwrap_err().raw_os_error(), Some(62));
    assert_eq!(
        batch.stats().unwrap().executed,
        trapless::sys::TL_STEPS_DEFAULT
    );
}

#[test]
fn a_connection_is_accepted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"hello").unwrap();
    let mut buffer = [0; 8];
    let mut batch = batch();
    let mut calls = batch.calls();
    let accepted = calls.accept(&listener).unwrap();
    let read = calls.read(accepted, &mut buffer).unwrap();
    let mut results = calls.flush().unwrap();
    assert_eq!(results.get(read).unwrap(), 5);
    let mut server = File::from(results.opened(accepted).unwrap());
    server.write_all(b"world").unwrap();
    drop((server, results));
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!((&buffer[..5], answer.as_str()), (&b"hello"[..], "world"));
}

#[test]
fn any_other_call_can_be_added() {
    let mut batch = batch();
    let name: &CStr = unsafe { CStr::from_ptr(b"trapless\0".as_ptr().cast()) };
    let mut calls = batch.calls();
    // SAFETY: the name lives for ever, and the descriptor is made here.
    let made = unsafe {
        let arguments = [Argument::Plain(name.as_ptr() as u64), Argument::Plain(1)];
        calls
            .add(trapless::number::MEMFD_CREATE, &arguments)
            .unwrap()
    };
    // SAFETY: what it returns is the descriptor that was made.
    unsafe {
        let length = [Argument::Result(made), Argument::Plain(77)];
        calls.add(trapless::number::FTRUNCATE, &length).unwrap();
    }
    let results = calls.flush().unwrap();
    let fd = results.get(made).unwrap() as i32;
    // SAFETY: nobody else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    assert_eq!(file.seek(io::SeekFrom::End(0)).unwrap(), 77);
}

#[test]
fn a_batch_may_be_sent_to_another_thread() {
    let mut batch = batch();
    let made = thread::spawn(move || {
        let mut calls = batch.calls();
        let parent = calls.getppid().unwrap();
        calls.flush().unwrap().get(parent).is_ok()
    });
    assert!(made.join().unwrap());
}

#[test]
fn a_borrowed_descriptor_is_passed_as_it_is() {
    let file = Temporary::new("borrowed", b"1234");
    let opened = File::open(&file.0).unwrap();
    // SAFETY: the file is open until the end of the test.
    let borrowed = unsafe { BorrowedFd::borrow_raw(opened.as_raw_fd()) };
    let mut stat = Stat::default();
    let mut batch = batch();
    let mut calls = batch.calls();
    calls.fstat(&borrowed, &mut stat).unwrap();
    drop(calls.flush().unwrap());
    assert_eq!(stat.size(), 4);
}
