// SPDX-License-Identifier: GPL-2.0-only
//! Reads a directory by `std::fs::read_dir`, or a tree by the crate walkdir, with the attributes of
//! each entry, and prints a row of JSON a run, with the sum that scan_runs.c makes as well.
//!
//! Usage: rust-ways CALL N PATH REPEATS; of the CALL `tree` PATH is a tree.

use std::fs::{read_dir, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use walkdir::WalkDir;

const WARM_UPS: u32 = 1;

#[derive(Default)]
struct Job {
    entries: u64,
    sum: u64,
}

impl Job {
    /// As add() of ways.c.
    fn add(&mut self, name: &[u8], of: &Metadata) {
        let all = (of.ino().wrapping_mul(31))
            .wrapping_add(of.size().wrapping_mul(7))
            .wrapping_add(of.mtime() as u64);
        self.entries += 1;
        self.sum = self.sum.wrapping_add(all ^ u64::from(name[0]));
    }
}

fn directory(path: &str) -> io::Result<Job> {
    let mut job = Job::default();
    for entry in read_dir(path)? {
        let entry = entry?;
        job.add(entry.file_name().as_bytes(), &entry.metadata()?);
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
        job.add(name, &entry.metadata()?);
    }
    Ok(job)
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, call, n, path, repeats] = &words[..] else {
        return Err(io::Error::other("usage: rust-ways CALL N PATH REPEATS"));
    };
    let repeats: u32 = repeats.parse().map_err(io::Error::other)?;
    for run in 0..WARM_UPS + repeats {
        let begin = Instant::now();
        let (way, job) = match call.as_str() {
            "tree" => ("walkdir", tree(path)?),
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
