// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Copies a tree, as `cp -r SOURCE TARGET` does, by programs of calls.
//!
//! To open a file and its copy, to read and write until the end, and to close both takes an unknown
//! number of calls, each with results of others. Here 32 files of any size are copied by one
//! crossing.
//!
//!     cp SOURCE TARGET

#![forbid(unsafe_code)]

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};
use trapless::{open, Batch, Call, Calls, Condition, Flushed, Opened, Read};

const FILES: usize = 32;
const CALLS: u32 = 6;
const BYTES: usize = 65536;
const NO_SPACE: i32 = 28;

/// A file that is to be copied.
struct File {
    source: PathBuf,
    target: PathBuf,
    mode: u32,
}

/// The regular files of a tree, and what could not be copied.
#[derive(Default)]
struct Tree {
    files: Vec<File>,
    failures: usize,
}

impl Tree {
    fn complain(&mut self, path: &Path, error: &io::Error) {
        eprintln!("cp: {}: {error}", path.display());
        self.failures += 1;
    }

    /// Adds the files below a folder, and makes folders and links on the way.
    fn walk(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let entries = fs::read_dir(source)?;
        fs::create_dir_all(target)?;
        for entry in entries {
            let entry = entry?;
            if let Err(error) = self.visit(&entry, target.join(entry.file_name())) {
                self.complain(&entry.path(), &error);
            }
        }
        Ok(())
    }

    fn visit(&mut self, entry: &fs::DirEntry, target: PathBuf) -> io::Result<()> {
        let (source, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            return self.walk(&source, &target);
        }
        if kind.is_symlink() {
            return symlink(fs::read_link(&source)?, &target);
        }
        if !kind.is_file() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mode = entry.metadata()?.permissions().mode() & 0o777;
        self.files.push(File {
            source,
            target,
            mode,
        });
        Ok(())
    }
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(
        path.to_path_buf().into_os_string().into_vec(),
    )?)
}

/// Calls whose results tell what became of a file. It is complete when its last read returned 0.
#[derive(Clone, Copy)]
struct Queued {
    from: Opened,
    to: Opened,
    read: Read,
    written: Call,
}

/// Queues all calls for one file.
fn queue<'m>(
    calls: &mut Calls<'_, 'm>,
    (source, target): &'m (CString, CString),
    mode: u32,
    buffer: &'m mut [u8],
) -> io::Result<Queued> {
    let from = calls.open(source, open::READ, 0)?;
    let to = calls.open(target, open::WRITE | open::CREATE | open::TRUNCATE, mode)?;
    let read = calls.read(from, buffer)?;
    let written = calls.write_read(to, read)?;
    let closed = calls.close(to)?;
    let last = calls.close(from)?;
    calls.jump(from, Condition::Error, last)?;
    calls.jump(to, Condition::Error, closed)?;
    calls.jump(read, Condition::Zero, closed)?;
    calls.jump(written, Condition::Full, read)?;
    Ok(Queued {
        from,
        to,
        read,
        written,
    })
}

/// Copies some files by one crossing; of each, where it failed and why.
fn copy(
    batch: &mut Batch,
    buffers: &mut [Vec<u8>],
    files: &[File],
) -> io::Result<Vec<Result<(), (PathBuf, io::Error)>>> {
    let names = files
        .iter()
        .map(|file| Ok((c_string(&file.source)?, c_string(&file.target)?)))
        .collect::<io::Result<Vec<_>>>()?;
    let mut calls = batch.calls();
    let mut queued = Vec::new();
    for ((file, names), buffer) in files.iter().zip(&names).zip(buffers) {
        queued.push(queue(&mut calls, names, file.mode, buffer)?);
    }
    let mut flushed = calls.flush_steps(u64::MAX)?;
    let results = loop {
        match flushed {
            Flushed::Complete(results) => break results,
            Flushed::Stopped(stopped) => flushed = stopped.resume(u64::MAX)?,
        }
    };
    let outcome = |(file, queued): (&File, Queued)| {
        let at_source = |error| (file.source.clone(), error);
        let at_target = |error| (file.target.clone(), error);
        results.get(queued.from).map_err(at_source)?;
        results.get(queued.to).map_err(at_target)?;
        if results.get(queued.read).map_err(at_source)? > 0 {
            results.get(queued.written).map_err(at_target)?;
            return Err(at_target(io::Error::from_raw_os_error(NO_SPACE))); // it was short
        }
        Ok(())
    };
    Ok(files.iter().zip(queued).map(outcome).collect())
}

fn main() -> io::Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let (source, target) = match &arguments[..] {
        [source, target] => (source, target),
        _ => {
            eprintln!("usage: cp SOURCE TARGET");
            process::exit(2);
        }
    };
    let mut tree = Tree::default();
    if let Err(error) = tree.walk(source, target) {
        tree.complain(source, &error);
    }
    let mut batch = Batch::new((FILES as u32 * CALLS).next_power_of_two())?;
    let mut buffers = vec![vec![0; BYTES]; FILES];
    let (files, mut copied) = (std::mem::take(&mut tree.files), 0);
    for some in files.chunks(FILES) {
        for outcome in copy(&mut batch, &mut buffers, some)? {
            match outcome {
                Ok(()) => copied += 1,
                Err((path, error)) => tree.complain(&path, &error),
            }
        }
    }
    let stats = batch.stats()?;
    println!(
        "{copied} files, {} calls, {} crossings",
        stats.executed, stats.crossings
    );
    process::exit((tree.failures > 0).into())
}
