// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Compares tokio::fs with this crate: tasks ask for attributes and read whole files, by turns.
//!
//! It prints a table of CPU time (of all threads) and elapsed time. With --json it prints a row for
//! each turn, which the experiment `files` reads. It makes its files in a folder of its own in
//! DIRECTORY, which must exist, and removes them at the end.
//! Usage: tasks DIRECTORY FILES ROUNDS [TASKS] [--json]

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

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

/// The tasks take the next path until there is none. Returns the bytes of all.
async fn by_tasks<F, T>(paths: &Paths, tasks: usize, one: F) -> io::Result<usize>
where
    F: Fn(usize) -> T + Clone + Send + 'static,
    T: Future<Output = io::Result<usize>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let n = paths.len();
    let tasks: Vec<_> = (0..tasks)
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

async fn way(
    call: &str,
    mechanism: &str,
    paths: &Paths,
    files: &Files,
    tasks: usize,
) -> io::Result<usize> {
    let (all, files) = (paths.clone(), files.clone());
    match (call, mechanism) {
        ("stat", "pool") => {
            by_tasks(paths, tasks, move |at| {
                let path = all[at].clone();
                async move { Ok(tokio::fs::metadata(path).await?.len() as usize) }
            })
            .await
        }
        ("stat", _) => {
            by_tasks(paths, tasks, move |at| {
                let (path, files) = (all[at].clone(), files.clone());
                async move { Ok(files.metadata(path).await?.len() as usize) }
            })
            .await
        }
        ("read", "pool") => {
            by_tasks(paths, tasks, move |at| {
                let path = all[at].clone();
                async move { Ok(tokio::fs::read(path).await?.len()) }
            })
            .await
        }
        ("read", _) => {
            by_tasks(paths, tasks, move |at| {
                let (path, files) = (all[at].clone(), files.clone());
                async move { Ok(files.read(path).await?.len()) }
            })
            .await
        }
        (_, "pool") => {
            by_tasks(paths, tasks, move |at| {
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
            by_tasks(paths, tasks, move |at| {
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

/// Both mechanisms, in the order of the table's columns.
const MECHANISMS: [&str; 2] = ["pool", "files"];
const CALLS: [(&str, &str); 3] = [
    ("stat", "metadata(path)"),
    ("read", "read(path)"),
    ("open-read", "open(path), read_to_end()"),
];

/// What one mechanism has taken for all files.
#[derive(Clone, Copy, Default)]
struct Taken {
    cpu_ns: u128,
    elapsed_ns: u128,
}

/// Rounds of each call, each with what both mechanisms have taken.
type Rounds = [Vec<[Taken; 2]>; 3];

struct Options {
    directory: PathBuf,
    files: usize,
    rounds: usize,
    tasks: usize,
    json: bool,
}

const USAGE: &str = "usage: tasks DIRECTORY FILES ROUNDS [TASKS] [--json]";

fn options() -> Result<Options, String> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.iter().any(|word| word == "--json");
    words.retain(|word| word != "--json");
    let [directory, numbers @ ..] = words.as_slice() else {
        return Err(USAGE.into());
    };
    let numbers: Vec<usize> = numbers.iter().flat_map(|word| word.parse()).collect();
    let (files, rounds, tasks) = match numbers.as_slice() {
        [files, rounds] => (*files, *rounds, TASKS),
        [files, rounds, tasks] => (*files, *rounds, *tasks),
        _ => return Err(USAGE.into()),
    };
    if numbers.len() + 1 != words.len() || numbers.contains(&0) {
        return Err(format!("{USAGE}; the numbers are 1 or more"));
    }
    Ok(Options {
        directory: directory.into(),
        files,
        rounds,
        tasks,
        json,
    })
}

/// A folder of files, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(options: &Options) -> io::Result<(Folder, Paths)> {
        let name = format!("trapless-tasks-{}", std::process::id());
        let folder = Folder(options.directory.join(name));
        std::fs::create_dir(&folder.0)?;
        let mut paths = Vec::new();
        for at in 0..options.files {
            let parent = folder.0.join((at / FOLDER_FILES).to_string());
            std::fs::create_dir_all(&parent)?;
            paths.push(format!("{}/file-{at}", parent.display()));
            std::fs::write(&paths[at], [b'a'; BYTES])?;
        }
        Ok((folder, Arc::new(paths)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One round before the others fills the caches and is not counted.
async fn measure(options: &Options, paths: &Paths) -> io::Result<Rounds> {
    let files = Files::new()?;
    let mut rounds = Rounds::default();
    for round in 0..=options.rounds {
        for (at, (call, _)) in CALLS.iter().enumerate() {
            let mut both = [Taken::default(); 2];
            for turn in 0..2 {
                let by = (round + turn) % 2; // by turns
                let (begun, cpu_ns) = (Instant::now(), cpu_ns());
                let bytes = way(call, MECHANISMS[by], paths, &files, options.tasks).await?;
                both[by].cpu_ns = self::cpu_ns() - cpu_ns;
                both[by].elapsed_ns = begun.elapsed().as_nanos();
                if bytes != paths.len() * BYTES {
                    let text = format!("{call} by {}: {bytes} bytes", MECHANISMS[by]);
                    return Err(io::Error::other(text));
                }
            }
            if round > 0 {
                rounds[at].push(both);
            }
        }
    }
    Ok(rounds)
}

fn print_rows(options: &Options, rounds: &Rounds) {
    for ((call, _), rounds) in CALLS.iter().zip(rounds) {
        for (round, both) in rounds.iter().enumerate() {
            for (mechanism, taken) in MECHANISMS.iter().zip(both) {
                println!(
                    concat!(
                        r#"{{"kind": "measured", "call": "rust-{}", "mechanism": "{}", "#,
                        r#""unit": "cpu-ns", "value": {}, "ops": {}, "n": {}, "repeat": {}}}"#
                    ),
                    call, mechanism, taken.cpu_ns, options.files, options.tasks, round
                );
            }
        }
    }
    println!(r#"{{"complete": true}}"#);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_table(options: &Options, rounds: &Rounds) {
    println!(
        "{} files; tasks at once: {}; medians of {} rounds; microseconds a file",
        options.files, options.tasks, options.rounds
    );
    println!("{:41}CPU time{:25}elapsed", "", "");
    println!("{:25}  tokio::fs   Files         tokio::fs   Files", "");
    for ((_, name), rounds) in CALLS.iter().zip(rounds) {
        let mut line = format!("{name:25}");
        for of in [|one: &Taken| one.cpu_ns, |one: &Taken| one.elapsed_ns] {
            let per_file = |by: usize| {
                let of_one = |both: &[Taken; 2]| of(&both[by]) as f64 / 1e3 / options.files as f64;
                median(rounds.iter().map(of_one).collect())
            };
            let ratios = rounds
                .iter()
                .map(|both| of(&both[1]) as f64 / of(&both[0]) as f64);
            let (pool, files, share) = (per_file(0), per_file(1), median(ratios.collect()));
            line += &format!("  {pool:9.1}  {files:6.1}  {:5.0}%    ", share * 100.0);
        }
        println!("{}", line.trim_end());
    }
}

fn run() -> Result<(), String> {
    let options = options()?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let in_directory = |error| format!("{}: {error}", options.directory.display());
    let (_folder, paths) = Folder::new(&options).map_err(in_directory)?;
    let rounds = runtime
        .block_on(measure(&options, &paths))
        .map_err(|error| error.to_string())?;
    if options.json {
        print_rows(&options, &rounds);
    } else {
        print_table(&options, &rounds);
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("tasks: {text}");
            ExitCode::FAILURE
        }
    }
}
