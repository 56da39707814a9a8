// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! The interface of libtrapless-ffi as C declares it: numbers, structures and functions.
//!
//! It owns no behaviour. tests/abi/test_bindings.py compares all of it with include/trapless.h.

#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint};

pub use crate::counts::tl_stats;

pub const TL_PLAIN: c_uint = 1 << 0;
pub const TL_MODULE: c_uint = 1 << 1;
pub const TL_UNORDERED: c_uint = 1 << 2;
pub const TL_STEPS_DEFAULT: u64 = 1048576;

pub const TL_BACKEND_PLAIN: c_int = 0;
pub const TL_BACKEND_MODULE: c_int = 1;

pub const TL_NR_MASK: u32 = 0xfff;
pub const TL_NR_STORE: u32 = 0xfff;
pub const TL_NR_INCREASE: u32 = 0xffe;

/// Argument number `argument` is a slot, and its result is passed.
pub const fn tl_result(argument: usize) -> u32 {
    1 << (12 + 2 * argument)
}

/// The argument is the address of 32 bits, which are passed.
pub const fn tl_word32(argument: usize) -> u32 {
    2 << (12 + 2 * argument)
}

/// The argument is the address of 64 bits, which are passed.
pub const fn tl_word64(argument: usize) -> u32 {
    3 << (12 + 2 * argument)
}

/// A batch; the library owns what is in it.
#[repr(C)]
pub struct tl_batch {
    private: [u8; 0],
}

extern "C" {
    pub fn tl_batch_create(batch: *mut *mut tl_batch, entries: c_uint, flags: c_uint) -> c_int;
    pub fn tl_batch_destroy(batch: *mut tl_batch);
    pub fn tl_batch_backend(batch: *const tl_batch) -> c_int;
    pub fn tl_batch_add(
        batch: *mut tl_batch,
        nr: u32,
        a0: u64,
        a1: u64,
        a2: u64,
        a3: u64,
        a4: u64,
        a5: u64,
    ) -> c_int;
    pub fn tl_batch_flush(batch: *mut tl_batch) -> c_int;
    pub fn tl_batch_flush_steps(batch: *mut tl_batch, steps: u64) -> c_int;
    pub fn tl_batch_barrier(batch: *mut tl_batch) -> c_int;
    pub fn tl_batch_queued(batch: *const tl_batch) -> u32;
    pub fn tl_batch_result(batch: *const tl_batch, slot: c_uint) -> i64;
    pub fn tl_batch_set_data(batch: *mut tl_batch, slot: c_uint, user_data: u64) -> c_int;
    pub fn tl_batch_data(batch: *const tl_batch, slot: c_uint) -> u64;
    pub fn tl_batch_done(batch: *const tl_batch, slot: c_uint) -> bool;
    pub fn tl_batch_jump(
        batch: *mut tl_batch,
        slot: c_uint,
        condition: c_int,
        target: c_uint,
    ) -> c_int;
    pub fn tl_batch_next(batch: *const tl_batch) -> c_uint;
    pub fn tl_batch_at(batch: *const tl_batch) -> c_uint;
    pub fn tl_batch_get_stats(batch: *const tl_batch, stats: *mut tl_stats) -> c_int;
    pub fn tl_call_get_class(
        nr: u32,
        name: *mut *const c_char,
        reason: *mut *const c_char,
    ) -> c_int;
}
