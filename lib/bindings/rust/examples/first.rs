// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! A first program, which makes three system calls by one crossing into the kernel.

#![forbid(unsafe_code)]

use std::ffi::CString;
use std::io;
use trapless::{Batch, Stat};

fn main() -> io::Result<()> {
    let mut batch = Batch::new(32)?;
    let path = CString::new("/")?;
    let absent = CString::new("/absent")?;
    let mut root = Stat::default();

    let mut calls = batch.calls();
    let parent = calls.getppid()?;
    let status = calls.stat(&path, &mut root)?;
    let opened = calls.open(&absent, trapless::open::READ, 0)?;
    let made = calls.len();
    let results = calls.flush()?;
    println!("getppid: {}", results.get(parent)?);
    println!("stat /: {}, inode {}", results.get(status)?, root.st_ino);
    println!("open /absent: {}", results.raw(opened));
    drop(results);
    match batch.reason() {
        None => println!("{made} calls, one crossing"),
        Some(reason) => println!("{made} calls, one by one: {reason}"),
    }
    Ok(())
}
