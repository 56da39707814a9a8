// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The functions beside those of tokio::fs, and calls that block for ever.

mod folder;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use folder::Folder;
use tokio::io::AsyncReadExt;
use trapless_tokio::Files;

fn same<T: PartialEq + std::fmt::Debug>(ours: io::Result<T>, theirs: io::Result<T>) {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
        (Err(ours), Err(theirs)) => {
            assert_eq!(ours.kind(), theirs.kind());
            assert_eq!(ours.raw_os_error(), theirs.raw_os_error());
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}

/// What the metadata of this crate and of the standard library have in common.
macro_rules! attributes {
    ($found:expr) => {
        (
            $found.len(),
            $found.is_dir(),
            $found.is_file(),
            $found.is_symlink(),
            format!("{:?}", $found.file_type()),
            $found.mode(),
            $found.ino(),
            $found.modified().unwrap(),
        )
    };
}

#[tokio::test]
async fn functions_answer_as_tokios_do() {
    let (folder, files) = (Folder::new(), Files::new().unwrap());
    let large: Vec<u8> = (0..300_001u32).map(|n| n as u8).collect();
    std::fs::write(folder.0.join("large"), &large).unwrap();
    std::fs::write(folder.0.join("empty"), "").unwrap();
    std::fs::write(folder.0.join("broken"), [0xff]).unwrap();
    std::os::unix::fs::symlink("large", folder.0.join("link")).unwrap();
    for name in [
        "large",
        "empty",
        "link",
        "absent",
        ".",
        "empty/x",
        "with\0nul",
    ] {
        let path = folder.0.join(name);
        same(files.read(&path).await, tokio::fs::read(&path).await);
        same(
            files.try_exists(&path).await,
            tokio::fs::try_exists(&path).await,
        );
        same(
            files.metadata(&path).await.map(|found| attributes!(found)),
            tokio::fs::metadata(&path)
                .await
                .map(|found| attributes!(found)),
        );
        same(
            files
                .symlink_metadata(&path)
                .await
                .map(|found| attributes!(found)),
            tokio::fs::symlink_metadata(&path)
                .await
                .map(|found| attributes!(found)),
        );
    }
    for name in ["large", "broken"] {
        let path = folder.0.join(name);
        same(
            files.read_to_string(&path).await,
            tokio::fs::read_to_string(&path).await,
        );
    }
    let absent = folder.0.join("absent");
    same(
        files.remove_file(&absent).await,
        tokio::fs::remove_file(&absent).await,
    );
    assert!(files.read_dir(folder.0.join("absent")).await.is_err());
    let mut entries = files.read_dir(&folder.0).await.unwrap();
    let mut names = BTreeSet::new();
    while let Some(entry) = entries.next_entry().await.unwrap() {
        let theirs = std::fs::symlink_metadata(entry.path()).unwrap();
        assert_eq!(
            entry.file_type().await.unwrap().is_symlink(),
            theirs.is_symlink()
        );
        assert_eq!(entry.metadata().await.unwrap().len(), theirs.len());
        assert_eq!(entry.ino(), theirs.ino());
        names.insert(entry.file_name().into_string().unwrap());
    }
    let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(wanted, ["broken", "empty", "large", "link"]);
}

#[tokio::test]
async fn what_is_written_is_there() {
    let (folder, files) = (Folder::new(), Files::new().unwrap());
    let path = folder.0.join("file");
    files.write(&path, "first, and longer").await.unwrap();
    files.write(&path, vec![b'x'; 200_000]).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; 200_000]);
    for mode in [0o600, 0o646] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        files.replace(&path, "whole").await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, mode);
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    files.create_dir_all(folder.0.join("a/b/c")).await.unwrap();
    files.create_dir_all(folder.0.join("a/b/c")).await.unwrap();
    assert!(folder.0.join("a/b/c").is_dir());
    assert!(files.create_dir_all(folder.0.join("file/b")).await.is_err());
    files
        .rename(&path, folder.0.join("a/b/c/file"))
        .await
        .unwrap();
    files
        .remove_file(folder.0.join("a/b/c/file"))
        .await
        .unwrap();
    files.remove_dir(folder.0.join("a/b/c")).await.unwrap();
    assert!(!folder.0.join("a/b/c").exists());
}

#[tokio::test]
async fn open_files_read_and_write_at_a_place() {
    let (folder, files) = (Folder::new(), Files::new().unwrap());
    let path = folder.0.join("file");
    let file = files.open_read_write(&path).await.unwrap();
    let bytes: Vec<u8> = (0..200_000u32).map(|n| (n >> 3) as u8).collect();
    assert_eq!(file.write_at(bytes.clone(), 10).await.unwrap(), bytes);
    file.sync_all().await.unwrap();
    file.sync_data().await.unwrap();
    assert_eq!(file.metadata().await.unwrap().len(), 200_010);
    assert_eq!(file.read_at(150_000, 20).await.unwrap(), bytes[10..150_010]);
    assert_eq!(
        file.read_at(150_000, 200_000).await.unwrap(),
        bytes[199_990..]
    );
    file.set_len(5).await.unwrap();
    assert_eq!(file.into_std().unwrap().metadata().unwrap().len(), 5);
    std::fs::write(&path, &bytes).unwrap();
    let mut all = Vec::new();
    files
        .open(&path)
        .await
        .unwrap()
        .read_to_end(&mut all)
        .await
        .unwrap();
    assert_eq!(all, bytes);
    assert_eq!(
        files.open(&folder.0.join("x")).await.err().unwrap().kind(),
        ErrorKind::NotFound
    );
}

/// The other methods of std's Metadata, MetadataExt, FileType and FileTypeExt.
macro_rules! other_attributes {
    ($found:expr) => {
        (
            ($found.dev(), $found.rdev(), $found.nlink()),
            ($found.uid(), $found.gid(), $found.size()),
            (
                $found.atime(),
                $found.atime_nsec(),
                $found.accessed().unwrap(),
            ),
            ($found.mtime(), $found.mtime_nsec(), $found.permissions()),
            ($found.ctime(), $found.ctime_nsec(), $found.created().ok()),
            ($found.blksize(), $found.blocks()),
            (
                $found.file_type().is_block_device(),
                $found.file_type().is_char_device(),
            ),
            ($found.file_type().is_fifo(), $found.file_type().is_socket()),
        )
    };
}

#[tokio::test]
async fn attributes_are_those_of_std() {
    let (folder, files) = (Folder::new(), Files::new().unwrap());
    std::fs::write(folder.0.join("file"), "text").unwrap();
    std::os::unix::fs::symlink("absent", folder.0.join("link")).unwrap();
    fifo(&folder.0.join("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(folder.0.join("socket")).unwrap();
    for name in ["file", "link", "fifo", "socket", ".", "/dev/null"] {
        let path = folder.0.join(name);
        let ours = files.symlink_metadata(&path).await.unwrap();
        let theirs = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(attributes!(ours), attributes!(theirs), "{name}");
        assert_eq!(other_attributes!(ours), other_attributes!(theirs), "{name}");
    }
}

#[derive(Debug)]
#[allow(dead_code)] // the fields are printed
struct State {
    files: Files,
    file: trapless_tokio::File,
    metadata: trapless_tokio::Metadata,
    entries: trapless_tokio::ReadDir,
}

#[tokio::test]
async fn a_program_can_print_them() {
    let (folder, files) = (Folder::new(), Files::new().unwrap());
    std::fs::write(folder.0.join("file"), "text").unwrap();
    let file = files.open(folder.0.join("file")).await.unwrap();
    let metadata = file.metadata().await.unwrap();
    let entries = files.read_dir(&folder.0).await.unwrap();
    let state = State {
        files,
        file,
        metadata,
        entries,
    };
    let text = format!("{state:?}");
    for part in [
        "files: Files { is_module: ",
        "file: File { fd: ",
        "len: 4, modified: Ok(",
        "folder: \"",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_block_for_ever_delay_no_others() {
    let (folder, files) = (Folder::new(), Files::new().unwrap());
    fifo(&folder.0.join("fifo"));
    std::fs::write(folder.0.join("file"), "text").unwrap();
    let blocked: Vec<_> = (0..8)
        .map(|_| {
            let (files, path) = (files.clone(), folder.0.join("fifo"));
            tokio::spawn(async move { files.open(path).await.map(drop) })
        })
        .collect();
    for _ in 0..1000 {
        assert_eq!(files.read(folder.0.join("file")).await.unwrap(), b"text");
    }
    assert!(blocked.iter().all(|task| !task.is_finished()));
    for task in &blocked {
        task.abort();
    }
    // Whoever opens the other end lets the workers go.
    let _writer = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.0.join("fifo"))
        .unwrap();
}

#[test]
fn a_runtime_ends_while_calls_block() {
    let folder = Folder::new();
    fifo(&folder.0.join("fifo"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let path = folder.0.join("fifo");
    runtime.block_on(async {
        let files = Files::new().unwrap();
        tokio::spawn(async move { files.open(path).await.map(drop) });
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    drop(runtime);
    let _writer = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.0.join("fifo"))
        .unwrap();
}

#[tokio::test]
async fn an_engine_that_cannot_be_made_is_an_error() {
    for workers in [0, 4097] {
        let error = Files::with_workers(workers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = format!("there may be 1 to 4096 workers, and not {workers}");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn outside_of_a_runtime_there_are_no_files() {
    let _ = Files::new();
}

/// It runs once more in a process with the variable, since tests of one process share theirs.
#[tokio::test]
async fn a_backend_that_cannot_be_had_is_named() {
    const UNKNOWN: &str = "TRAPLESS_BACKEND=none: it may be auto, plain or module";
    if std::env::var("TRAPLESS_BACKEND").as_deref() == Ok("none") {
        assert_eq!(Files::new().unwrap_err().to_string(), UNKNOWN);
        return;
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_backend_that_cannot_be_had_is_named"])
        .env("TRAPLESS_BACKEND", "none")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(
        again.status.success() && said.contains("1 passed"),
        "{said}"
    );
}
