// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Compares tokio::fs with this crate: 64 tasks ask for attributes and read whole files, by turns.
//!
//! It prints a row of JSON for each turn, with the CPU time of all threads. The experiment `files`
//! reads them. Usage: tasks DIRECTORY FILES ROUNDS

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use trapless_tokio::Files;

const TASKS: usize = 64;
const BYTES: usize = 3000;
const FOLDER_FILES: usize = 50;

type Paths = Arc<Vec<String>>;

/// User and system time of this process so far; proc(5) counts in hundredths of a second.
fn cpu_ns() -> u128 {
    #[repr(C)]
    struct timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    extern "C" {
        fn clock_gettime(clock: i32, now: *mut timespec) -> i32;
    }
    let mut now = timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: it writes to `now`. 2 is CLOCK_PROCESS_CPUTIME_ID.
    assert_eq!(unsafe { clock_gettime(2, &mut now) }, 0);
    now.seconds as u128 * 1_000_000_000 + now.nanoseconds as u128
}

/// 64 tasks take the next path until there is none. Returns the bytes of all.
async fn by_tasks<F, T>(paths: &Paths, one: F) -> io::Result<usize>
where
    F: Fn(usize) -> T + Clone + Send + 'static,
    T: Future<Output = io::Result<usize>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let n = paths.len();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (next, one) = (next.clone(), one.clone());
            tokio::spawn(async move {
                let mut bytes = 0;
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= n {
                        return io::Result::Ok(bytes);
                    }
                    bytes += one(at).await?;
                }
            })
        })
        .collect();
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await.map_err(io::Error::other)??;
    }
    Ok(bytes)
}

async fn way(call: &str, mechanism: &str, paths: &Paths, files: &Files) -> io::Result<usize> {
    let (all, files) = (paths.clone(), files.clone());
    match (call, mechanism) {
        ("stat", "pool") => {
            by_tasks(paths, move |at| {
                let path = all[at].clone();
                async move { Ok(tokio::fs::metadata(path).await?.len() as usize) }
            })
            .await
        }
        ("stat", _) => {
            by_tasks(paths, move |at| {
                let (path, files) = (all[at].clone(), files.clone());
                async move { Ok(files.metadata(path).await?.len() as usize) }
            })
            .await
        }
        ("read", "pool") => {
            by_tasks(paths, move |at| {
                let path = all[at].clone();
                async move { Ok(tokio::fs::read(path).await?.len()) }
            })
            .await
        }
        ("read", _) => {
            by_tasks(paths, move |at| {
                let (path, files) = (all[at].clone(), files.clone());
                async move { Ok(files.read(path).await?.len()) }
            })
            .await
        }
        (_, "pool") => {
            by_tasks(paths, move |at| {
                let path = all[at].clone();
                async move {
                    let mut bytes = Vec::new();
                    tokio::fs::File::open(path)
                        .await?
                        .read_to_end(&mut bytes)
                        .await
                }
            })
            .await
        }
        _ => {
            by_tasks(paths, move |at| {
                let (path, files) = (all[at].clone(), files.clone());
                async move {
                    let mut bytes = Vec::new();
                    files.open(path).await?.read_to_end(&mut bytes).await
                }
            })
            .await
        }
    }
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, count, rounds] = arguments.as_slice() else {
        return Err(io::Error::other("usage: tasks DIRECTORY FILES ROUNDS"));
    };
    let (count, rounds): (usize, i32) = (
        count.parse().map_err(io::Error::other)?,
        rounds.parse().map_err(io::Error::other)?,
    );
    let mut paths = Vec::new();
    for at in 0..count {
        let folder = format!("{directory}/{}", at / FOLDER_FILES);
        std::fs::create_dir_all(&folder)?;
        paths.push(format!("{folder}/file-{at}"));
        std::fs::write(&paths[at], [b'a'; BYTES])?;
    }
    let (paths, files) = (Arc::new(paths), Files::new()?);
    for round in -1..rounds {
        for call in ["stat", "read", "open-read"] {
            let first = round.rem_euclid(2) as usize; // by turns
            for mechanism in [["pool", "files"][first], ["files", "pool"][first]] {
                let begin = cpu_ns();
                let bytes = way(call, mechanism, &paths, &files).await?;
                let value = cpu_ns() - begin;
                if bytes != count * BYTES {
                    println!(r#"{{"failure": "{call} by {mechanism}: {bytes} bytes"}}"#);
                    std::process::exit(1);
                }
                if round >= 0 {
                    println!(
                        concat!(
                            r#"{{"kind": "measured", "call": "rust-{}", "mechanism": "{}", "#,
                            r#""unit": "cpu-ns", "value": {}, "ops": {}, "n": {}, "repeat": {}}}"#
                        ),
                        call, mechanism, value, count, TASKS, round
                    );
                }
            }
        }
    }
    println!(r#"{{"complete": true}}"#);
    Ok(())
}
