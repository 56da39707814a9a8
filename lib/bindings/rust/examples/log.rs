// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! A log with group commit: threads append records, and a record is on the disk when append() is
//! over.
//!
//! While one commit is under way, threads queue records; the next commit writes all of these and
//! makes them durable by one crossing. If a write fails, the calls behind it are not made.
//!
//!     log FILE THREADS RECORDS

#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::{env, io, thread};
use trapless::{Batch, Condition};

/// Records of one commit: with fdatasync they fill a batch of 64 calls.
const RECORDS: usize = 63;

struct Record {
    bytes: Vec<u8>,
    durable: Sender<Result<(), String>>,
}

/// What threads append by.
#[derive(Clone)]
struct Log(Sender<Record>);

impl Log {
    /// Returns when the record is on the disk.
    fn append(&self, bytes: Vec<u8>) -> Result<(), String> {
        let (durable, commit) = channel();
        self.0
            .send(Record { bytes, durable })
            .map_err(|error| error.to_string())?;
        commit.recv().map_err(|error| error.to_string())?
    }
}

/// Writes all records and makes them durable, by one crossing.
fn commit(batch: &mut Batch, file: &File, records: &[Record]) -> io::Result<()> {
    let mut writes = Vec::new();
    let mut calls = batch.calls();
    for record in records {
        writes.push(calls.write(file, &record.bytes)?);
    }
    let synced = calls.fdatasync(file)?;
    for write in &writes {
        calls.jump_to_end(*write, Condition::Error)?;
    }
    let results = calls.flush()?;
    for (write, record) in writes.iter().zip(records) {
        if results.get(*write)? != record.bytes.len() {
            return Err(io::Error::from(io::ErrorKind::WriteZero));
        }
    }
    results.get(synced).map(drop)
}

/// Commits until no thread is left that could append. Returns the numbers of commits and crossings.
fn commit_all(mut batch: Batch, file: &File, arrived: &Receiver<Record>) -> io::Result<(u32, u64)> {
    let mut commits = 0;
    while let Ok(first) = arrived.recv() {
        let mut records = vec![first];
        records.extend(arrived.try_iter().take(RECORDS - 1));
        let outcome = commit(&mut batch, file, &records).map_err(|error| error.to_string());
        commits += 1;
        for record in records {
            // A thread that waits no longer needs no answer.
            let _ = record.durable.send(outcome.clone());
        }
    }
    Ok((commits, batch.stats()?.crossings))
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().collect();
    let number = |i: usize| {
        arguments[i]
            .parse::<usize>()
            .expect("usage: log FILE THREADS RECORDS")
    };
    let (threads, records) = (number(2), number(3));
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&arguments[1])?;
    let (sender, arrived) = channel();
    let log = Log(sender);
    let writers: Vec<_> = (0..threads)
        .map(|thread| {
            let log = log.clone();
            let append = move |i| log.append(format!("task {thread} record {i}\n").into_bytes());
            thread::spawn(move || (0..records).try_for_each(append))
        })
        .collect();
    drop(log);
    let (commits, crossings) = commit_all(Batch::new(RECORDS as u32 + 1)?, &file, &arrived)?;
    for writer in writers {
        writer
            .join()
            .expect("a thread panicked")
            .map_err(|error| io::Error::new(io::ErrorKind::Other, error))?;
    }
    println!(
        "{} records, {commits} commits, {crossings} crossings",
        threads * records
    );
    Ok(())
}
