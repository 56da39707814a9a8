// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Finds libtrapless-ffi. In a checkout of Trapless it builds the archive from the sources beside
//! it and links that; elsewhere it asks pkg-config for the installed library.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = here.join("../../..");
    println!("cargo:rerun-if-changed=build.rs");
    if root.join("Makefile").exists() && root.join("lib/Makefile.inc").exists() {
        build(&root);
    } else {
        find();
    }
}

/// The archive, built by the checkout's own rules into cargo's folder.
fn build(root: &Path) {
    let out = env::var("OUT_DIR").expect("cargo sets it");
    for folder in ["lib", "lib/bindings", "include", "include/uapi/linux"] {
        for entry in root
            .join(folder)
            .read_dir()
            .expect("a checkout has it")
            .flatten()
        {
            if entry.path().is_file() {
                println!("cargo:rerun-if-changed={}", entry.path().display());
            }
        }
    }
    let done = Command::new("make")
        .arg("-s")
        .arg("-C")
        .arg(root)
        .arg(format!("BUILD={out}"))
        .arg(format!("{out}/lib/libtrapless-ffi.a"))
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .status();
    match done {
        Ok(status) if status.success() => {}
        other => panic!("make of libtrapless-ffi.a failed: {other:?}"),
    }
    println!("cargo:rustc-link-search=native={out}/lib");
    println!("cargo:rustc-link-lib=static=trapless-ffi");
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
    for word in String::from_utf8_lossy(&done.stdout).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        }
    }
    println!("cargo:rustc-link-lib=dylib=trapless-ffi");
}
