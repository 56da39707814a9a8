// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! A walk finds what std::fs finds, with the same attributes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};
use trapless::{Backend, Batch, Kind, Walk, WalkOptions};

struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = env::temp_dir().join(format!("walk-{name}-{}", process::id()));
        for i in 0..3 {
            fs::create_dir_all(root.join(format!("folder {i}/in"))).unwrap();
            fs::write(root.join(format!("folder {i}/in/two\nlines")), "text").unwrap();
        }
        fs::write(root.join(OsStr::from_bytes(b"\xff\xfe")), "").unwrap();
        symlink("folder 0", root.join("link")).unwrap();
        symlink("..", root.join("folder 1/up")).unwrap();
        symlink("absent", root.join("dangling")).unwrap();
        let mut touch = Command::new("touch"); // std has no function for it before 1.75
        touch.args(["-d", "@-1.5"]).arg(root.join("old"));
        assert!(touch.status().unwrap().success());
        Tree(root)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn by_std(path: &Path, found: &mut BTreeMap<PathBuf, fs::Metadata>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            by_std(&entry.unwrap().path(), found);
        }
    }
    found.insert(path.to_path_buf(), metadata);
}

#[test]
fn it_finds_what_std_finds() {
    let tree = Tree::new("equal");
    let mut wanted = BTreeMap::new();
    by_std(&tree.0, &mut wanted);
    let all = [
        WalkOptions::new(),
        WalkOptions::new().breadth_first(),
        WalkOptions::new().by_inode().descriptors(3),
    ];
    for options in all {
        let mut n = 0;
        for entry in options.walk(&tree.0).unwrap() {
            let entry = entry.unwrap();
            let metadata = &wanted[&entry.path];
            assert!(entry.error().is_none() && entry.kind == Kind::Entry);
            assert_eq!(entry.attributes.ino, metadata.ino());
            assert_eq!(entry.attributes.bytes, metadata.size());
            assert_eq!(u32::from(entry.attributes.mode), metadata.mode());
            assert_eq!(entry.attributes.mtime_sec, metadata.mtime());
            assert_eq!(entry.is_dir(), metadata.is_dir());
            assert_eq!(entry.is_file(), metadata.is_file());
            assert_eq!(entry.is_symlink(), metadata.is_symlink());
            assert_eq!(entry.len(), metadata.len());
            assert_eq!(entry.modified().unwrap(), metadata.modified().unwrap());
            assert!(entry.depth == 0 || Some(entry.name()) == entry.path.file_name());
            n += 1;
        }
        assert_eq!(n, wanted.len());
    }
}

#[test]
fn orders_circles_and_pruning() {
    let tree = Tree::new("order");
    let options = WalkOptions::new().by_name().leave();
    let told: Vec<_> = options
        .walk(tree.0.join("folder 1"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.depth, entry.kind, entry.name().as_bytes().to_vec()))
        .collect();
    let kinds: Vec<_> = told.iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(
        kinds,
        [
            (0, Kind::Entry),
            (1, Kind::Entry),
            (2, Kind::Entry),
            (1, Kind::Left),
            (1, Kind::Entry),
            (0, Kind::Left),
        ]
    );
    assert_eq!(told[5 - 1].2, b"up");
    let circles = WalkOptions::new().follow_links().walk(&tree.0).unwrap();
    let circles = circles.filter(|entry| entry.as_ref().unwrap().kind == Kind::Cycle);
    assert_eq!(circles.count(), 1);
    let mut walk = Walk::new(&tree.0).unwrap();
    assert_eq!(walk.reason().is_none(), walk.backend() == Backend::Module);
    let (mut deepest, mut entries) = (0, 0);
    while let Some(entry) = walk.next() {
        let entry = entry.unwrap();
        entries += 1;
        deepest = deepest.max(entry.depth);
        if entry.depth == 1 {
            walk.skip_folder();
        }
    }
    assert_eq!(deepest, 1);
    let stats = walk.stats();
    assert_eq!((stats.entries, stats.directories), (entries, 1));
    assert_eq!(stats.requests > 0, walk.backend() == Backend::Module);
    assert_eq!(stats.crossings > stats.calls, stats.requests > 0);
}

#[test]
fn errors_are_those_of_the_system() {
    let error = Walk::new("/absent/file").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let error = Walk::new("a\0b").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

const UNKNOWN: &str = "TRAPLESS_BACKEND=none: it may be auto, plain or module";
const MISSING: &str =
    "TRAPLESS_BACKEND=module: the module is not loaded (/dev/trapless is missing)";

/// It runs once more in a process with each variable, since tests of one process share theirs.
#[test]
fn a_backend_that_cannot_be_had_is_named() {
    if let Ok(wanted) = env::var("WANTED_ERROR") {
        assert_eq!(Batch::new(8).unwrap_err().to_string(), wanted);
        assert_eq!(Walk::new("/").unwrap_err().to_string(), wanted);
        return;
    }
    for (backend, wanted) in [("none", UNKNOWN), ("module", MISSING)] {
        if wanted == MISSING && Path::new("/dev/trapless").exists() {
            continue;
        }
        let again = Command::new(env::current_exe().unwrap())
            .args(["--exact", "a_backend_that_cannot_be_had_is_named"])
            .envs([("TRAPLESS_BACKEND", backend), ("WANTED_ERROR", wanted)])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }
}
