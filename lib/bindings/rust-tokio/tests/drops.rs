// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Futures that are dropped at any moment: 20,000 tasks, whose operations leave no descriptor, no
//! temporary file and no wrong byte. It counts descriptors, so it is a process of its own.

mod folder;

use std::future::Future;
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

use folder::Folder;
use tokio::runtime::Builder;
use trapless_tokio::Files;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Numbers that repeat, by an xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Polls a future some times, and drops it.
async fn some_polls<T>(future: impl Future<Output = T>, polls: u64) {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        let ready =
            std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if ready.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn one_of_all(files: Files, folder: PathBuf, seed: u64) {
    let mut random = Random(seed * 2 + 1);
    let path = folder.join(format!("{}", random.below(32)));
    let polls = random.below(12);
    match random.below(8) {
        0 => some_polls(files.read(&path), polls).await,
        1 => {
            some_polls(
                files.write(&path, vec![b'a'; random.below(100_000) as usize]),
                polls,
            )
            .await
        }
        2 => some_polls(files.replace(&path, vec![b'a'; 5000]), polls).await,
        3 => some_polls(files.metadata(&path), polls).await,
        4 => some_polls(files.read_dir(&folder), polls).await,
        5 => some_polls(files.open(&path), polls).await,
        _ => {
            if let Ok(file) = files.open_read_write(&path).await {
                some_polls(
                    file.write_at(vec![b'a'; random.below(300_000) as usize], 7),
                    polls,
                )
                .await;
                some_polls(file.read_at(100_000, 3), random.below(12)).await;
            }
        }
    }
}

fn dropped_at_random(mut runtime: Builder) {
    let folder = Folder::new();
    let before = descriptors();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let files = Files::with_workers(8).unwrap();
        for round in 0..50 {
            let tasks: Vec<_> = (0..200)
                .map(|n| {
                    tokio::spawn(one_of_all(
                        files.clone(),
                        folder.0.clone(),
                        1 + round * 200 + n,
                    ))
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
    drop(runtime);
    // A worker may still close what was open.
    let begin = Instant::now();
    while descriptors() > before && begin.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(descriptors(), before);
    for entry in std::fs::read_dir(&folder.0).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            bytes.iter().all(|byte| *byte == b'a' || *byte == 0),
            "{path:?}"
        );
        assert!(
            path.extension().is_none(),
            "{path:?} is left of a replacement"
        );
    }
}

#[test]
fn dropped_futures_leave_nothing() {
    dropped_at_random(Builder::new_multi_thread());
    dropped_at_random(Builder::new_current_thread());
}
