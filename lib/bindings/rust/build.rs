// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Finds libtrapless-ffi. In a checkout of Trapless it compiles the sources beside it and links
//! them; elsewhere it asks pkg-config for the installed library.
//!
//! It calls the compiler itself, because make has no names with spaces, and the folders of a
//! checkout and of the user's crate may have some.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const CFLAGS: [&str; 5] = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC"];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = here.join("../../..");
    println!("cargo:rerun-if-changed=build.rs");
    if root.join("lib/bindings/ffi.c").exists() {
        build(&root);
    } else {
        find();
    }
}

/// The files of a folder and of those in it that end so. lib/bindings has other sources.
fn files(folder: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    let entries = folder.read_dir().expect("a checkout has it");
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.ends_with("bindings") {
            files(&path, suffix, found);
        } else if path.extension().map_or(false, |end| end == suffix) {
            found.push(path);
        }
    }
}

/// The archive, in cargo's folder.
fn build(root: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (mut sources, mut headers) = (Vec::new(), Vec::new());
    for folder in ["lib", "include"] {
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
        files(&root.join(folder), "h", &mut headers);
    }
    files(&root.join("lib"), "c", &mut sources);
    sources.push(root.join("lib/bindings/ffi.c"));
    for file in sources.iter().chain(&headers) {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    let mut objects = Vec::new();
    for source in &sources {
        let object = out.join(format!("{}.o", objects.len()));
        let mut compile = tool("CC", "cc");
        compile.args(CFLAGS).arg("-c").arg("-o").arg(&object);
        for folder in ["include", "include/uapi", "lib"] {
            compile.arg("-I").arg(root.join(folder));
        }
        run(compile.arg(source));
        objects.push(object);
    }
    let archive = out.join("libtrapless-ffi.a");
    let _ = std::fs::remove_file(&archive); // of an earlier build, which may have had more sources
    run(tool("AR", "ar").arg("rcs").arg(&archive).args(&objects));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=trapless-ffi");
}

/// The program that a variable of the environment names, with its arguments.
fn tool(variable: &str, usual: &str) -> Command {
    println!("cargo:rerun-if-env-changed={variable}");
    let named = env::var(variable).unwrap_or_default();
    let mut words = named.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(usual));
    command.args(words);
    command
}

fn run(command: &mut Command) {
    let done = command.status();
    if !matches!(&done, Ok(status) if status.success()) {
        panic!("libtrapless-ffi was not built: {done:?} of {command:?}");
    }
}

/// The installed library.
fn find() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let done = Command::new("pkg-config")
        .args(["--libs", "trapless-ffi"])
        .output()
        .expect("pkg-config runs");
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        panic!("libtrapless-ffi is not installed (Debian: libtrapless-dev): {said}");
    }
    for word in words(&String::from_utf8_lossy(&done.stdout)) {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        }
    }
    println!("cargo:rustc-link-lib=dylib=trapless-ffi");
}

/// The words that pkg-config printed. It writes a backslash before what a shell would take away.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut letters) = (vec![String::new()], line.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => words.last_mut().expect("it has one").extend(letters.next()),
            letter if letter.is_whitespace() => words.push(String::new()),
            letter => words.last_mut().expect("it has one").push(letter),
        }
    }
    words
}
