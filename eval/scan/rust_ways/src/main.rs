// SPDX-License-Identifier: GPL-2.0-only
//! Reads a directory by `std::fs::read_dir`, or a tree by the crate walkdir, with the attributes of
//! each entry, and prints a row of JSON a run, with the sum that scan_runs.c makes as well. Where
//! TRAPLESS_BACKEND is set, the crate trapless reads the tree.
//!
//! Usage: rust-ways CALL N PATH REPEATS; of the CALL `tree` PATH is a tree.

use std::fs::read_dir;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use trapless::Walk;
use walkdir::WalkDir;

const WARM_UPS: u32 = 1;

#[derive(Default)]
struct Job {
    entries: u64,
    sum: u64,
}

impl Job {
    /// As add() of ways.c.
    fn add(&mut self, name: &[u8], inode: u64, bytes: u64, seconds: i64) {
        let all = (inode.wrapping_mul(31))
            .wrapping_add(bytes.wrapping_mul(7))
            .wrapping_add(seconds as u64);
        self.entries += 1;
        self.sum = self.sum.wrapping_add(all ^ u64::from(name[0]));
    }

    fn add_metadata(&mut self, name: &[u8], of: &impl MetadataExt) {
        self.add(name, of.ino(), of.size(), of.mtime());
    }
}

fn directory(path: &str) -> io::Result<Job> {
    let mut job = Job::default();
    for entry in read_dir(path)? {
        let entry = entry?;
        job.add_metadata(entry.file_name().as_bytes(), &entry.metadata()?);
    }
    Ok(job)
}

fn tree(path: &str) -> io::Result<Job> {
    let mut job = Job::default();
    for entry in WalkDir::new(path) {
        let entry = entry?;
        let name = if entry.depth() == 0 {
            path.as_bytes()
        } else {
            entry.file_name().as_bytes()
        };
        job.add_metadata(name, &entry.metadata()?);
    }
    Ok(job)
}

fn tree_by_trapless(path: &str) -> io::Result<Job> {
    let mut job = Job::default();
    for entry in Walk::new(path)? {
        let entry = entry?;
        if let Some(error) = entry.error() {
            return Err(error);
        }
        let of = &entry.attributes;
        job.add(entry.name().as_bytes(), of.ino, of.bytes, of.mtime_sec);
    }
    Ok(job)
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, call, n, path, repeats] = &words[..] else {
        return Err(io::Error::other("usage: rust-ways CALL N PATH REPEATS"));
    };
    let repeats: u32 = repeats.parse().map_err(io::Error::other)?;
    let backend = std::env::var("TRAPLESS_BACKEND").unwrap_or_default();
    for run in 0..WARM_UPS + repeats {
        let begin = Instant::now();
        let (way, job) = match (call.as_str(), backend.as_str()) {
            ("tree", "") => ("walkdir", tree(path)?),
            ("tree", "module") => ("rust-walk", tree_by_trapless(path)?),
            ("tree", _) => ("rust-walk-plain", tree_by_trapless(path)?),
            _ => ("read-dir", directory(path)?),
        };
        let value = begin.elapsed().as_nanos();
        if run >= WARM_UPS {
            println!(
                "{{\"mechanism\": \"{way}\", \"call\": \"{call}\", \"n\": {n}, \
                 \"kind\": \"counted\", \"value\": {value}, \"unit\": \"instructions\", \
                 \"ops\": {}, \"sum\": {}}}",
                job.entries, job.sum
            );
        }
    }
    Ok(())
}
