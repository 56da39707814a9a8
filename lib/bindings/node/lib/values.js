// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Values between Node and the kernel: numbers of calls, flags, modes and Stats.
import fs, { constants } from 'node:fs';

// Numbers of the x86-64 table, and AT_* of fcntl.h.
export const CALL = {
  close: 3, pread64: 17, pwrite64: 18, access: 21, fsync: 74, fdatasync: 75, ftruncate: 77, rename: 82, mkdir: 83,
  rmdir: 84, link: 86, unlink: 87, chmod: 90, fchmod: 91, openat: 257, statx: 332,
  AT_FDCWD: -100, AT_SYMLINK_NOFOLLOW: 0x100, AT_EMPTY_PATH: 0x1000, STATX_BASIC: 0xfff,
};

const { O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_SYNC, O_TRUNC, O_WRONLY } = constants;
const FLAGS = {
  r: O_RDONLY, rs: O_RDONLY | O_SYNC, 'r+': O_RDWR, 'rs+': O_RDWR | O_SYNC,
  w: O_TRUNC | O_CREAT | O_WRONLY, wx: O_TRUNC | O_CREAT | O_WRONLY | O_EXCL,
  'w+': O_TRUNC | O_CREAT | O_RDWR, 'wx+': O_TRUNC | O_CREAT | O_RDWR | O_EXCL,
  a: O_APPEND | O_CREAT | O_WRONLY, ax: O_APPEND | O_CREAT | O_WRONLY | O_EXCL,
  'a+': O_APPEND | O_CREAT | O_RDWR, 'ax+': O_APPEND | O_CREAT | O_RDWR | O_EXCL,
};

// A flag of open as a number, or undefined for one that Node is to judge.
export function flagNumber(flag) {
  if (typeof flag === 'string' && Object.hasOwn(FLAGS, flag)) return FLAGS[flag];
  return Number.isInteger(flag) && flag >= 0 && flag < 2 ** 31 ? flag : undefined;
}

// Permissions as a number; the bits of a file's type, as in the mode of Stats, count as little as for the kernel.
export function modeNumber(mode) {
  if (typeof mode === 'string' && /^[0-7]{1,4}$/.test(mode)) return parseInt(mode, 8);
  return Number.isInteger(mode) && mode >= 0 && mode < 2 ** 32 ? mode & 0o7777 : undefined;
}

// An error of an argument, as Node's own functions throw it.
export function invalidValue(message) {
  return Object.assign(new TypeError(message), { code: 'ERR_INVALID_ARG_VALUE' });
}

// Does an object of options set anything but what is known? Then the call is Node's own.
export function unusual(options, known) {
  if (options === undefined || options === null) return false;
  if (typeof options !== 'object') return true;
  return Object.keys(options).some((key) => !known.includes(key) && options[key] !== undefined && options[key] !== false);
}

// Of numbers from `at` on, in the order of Stats.
export function statsOf(a, at) {
  return new fs.Stats(a[at], a[at + 1], a[at + 2], a[at + 3], a[at + 4], a[at + 5], a[at + 6], a[at + 7], a[at + 8],
    a[at + 9], a[at + 10], a[at + 11], a[at + 12], a[at + 13]);
}
