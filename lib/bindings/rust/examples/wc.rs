// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Counts lines, words and bytes of each file of a tree, as wc(1) does in the C locale.
//!
//! 32 files are opened, looked at, read and closed by one crossing: the descriptor that an open
//! returns is an argument of the calls behind it, which are not made if it fails. A file that is
//! larger than its buffer is read once more, as a whole, by plain calls.
//!
//!     wc TREE

#![forbid(unsafe_code)]

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use trapless::{Batch, Opened, Read, Stat};

const FILES: usize = 32;
const BYTES: usize = 65536;

#[derive(Clone, Copy, Default)]
struct Counts {
    lines: usize,
    words: usize,
    bytes: usize,
}

impl Counts {
    fn of(text: &[u8]) -> Counts {
        // A vertical tab parts words, too, which is_ascii_whitespace() does not know.
        let space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        Counts {
            lines: text.iter().filter(|byte| **byte == b'\n').count(),
            words: text.split(space).filter(|word| !word.is_empty()).count(),
            bytes: text.len(),
        }
    }

    fn add(&mut self, other: Counts) {
        self.lines += other.lines;
        self.words += other.words;
        self.bytes += other.bytes;
    }
}

/// Adds the regular files of a folder to `files`, in the order of their names, then its folders'.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    let mut folders = Vec::new();
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            folders.push(entry.path());
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    folders.iter().try_for_each(|one| walk(one, files))
}

/// The counts of some files, or why one cannot be read.
fn count(
    batch: &mut Batch,
    buffers: &mut [Vec<u8>],
    paths: &[CString],
) -> io::Result<Vec<io::Result<Counts>>> {
    let mut stats = vec![Stat::default(); paths.len()];
    let mut queued = Vec::new();
    let mut calls = batch.calls();
    for ((path, buffer), stat) in paths.iter().zip(buffers.iter_mut()).zip(&mut stats) {
        let file = calls.open(path, trapless::open::READ, 0)?;
        calls.fstat(file, stat)?;
        queued.push((file, calls.read(file, buffer)?));
        calls.close(file)?;
    }
    let results = calls.flush()?;
    let counted = |((file, read), i): ((Opened, Read), usize)| {
        results.get(file)?;
        let count = results.get(read)?;
        if count as u64 == stats[i].size() {
            return Ok(Counts::of(&buffers[i][..count]));
        }
        let name = PathBuf::from(OsString::from_vec(paths[i].to_bytes().to_vec()));
        Ok(Counts::of(&fs::read(name)?))
    };
    Ok(queued.into_iter().zip(0..).map(counted).collect())
}

fn main() -> io::Result<()> {
    let tree = env::args_os().nth(1).expect("usage: wc TREE");
    let mut files = Vec::new();
    walk(Path::new(&tree), &mut files)?;
    let mut batch = Batch::new(4 * FILES as u32)?;
    let mut buffers = vec![vec![0; BYTES]; FILES];
    let mut total = Counts::default();
    for some in files.chunks(FILES) {
        let names = some
            .iter()
            .map(|path| path.clone().into_os_string().into_vec());
        let paths = names.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        for (path, counted) in some.iter().zip(count(&mut batch, &mut buffers, &paths)?) {
            match counted {
                Ok(one) => {
                    println!(
                        "{} {} {} {}",
                        one.lines,
                        one.words,
                        one.bytes,
                        path.display()
                    );
                    total.add(one);
                }
                Err(error) => eprintln!("wc: {}: {error}", path.display()),
            }
        }
    }
    println!("{} {} {} total", total.lines, total.words, total.bytes);
    let stats = batch.stats()?;
    eprintln!(
        "{} files, {} calls, {} crossings",
        files.len(),
        stats.executed,
        stats.crossings
    );
    Ok(())
}
