// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Types of trapless/promises: those of fs/promises, and of what has no counterpart there.
import type { Dirent, PathLike, Stats, WriteFileOptions } from 'node:fs';
import type { Abortable } from 'node:events';

export {
  access, appendFile, chmod, chown, constants, copyFile, cp, lchown, link, lstat, lutimes, mkdir, mkdtemp, opendir,
  readdir, readFile, readlink, realpath, rename, rm, rmdir, stat, statfs, symlink, truncate, unlink, utimes, watch,
} from 'node:fs/promises';

/** As in fs/promises. With `replace` the bytes go to a new file, which takes the old one's place when it is whole. */
export function writeFile(path: PathLike, data: string | NodeJS.ArrayBufferView,
  options?: (WriteFileOptions & Abortable & { flush?: boolean; replace?: boolean }) | BufferEncoding | null): Promise<void>;

/** A file that is open: the methods of fs/promises' FileHandle for reading, writing and syncing. */
export class FileHandle {
  readonly fd: number;
  read<T extends NodeJS.ArrayBufferView>(buffer: T, offset?: number | null, length?: number | null,
    position?: number | null): Promise<{ bytesRead: number; buffer: T }>;
  write<T extends NodeJS.ArrayBufferView>(buffer: T, offset?: number | null, length?: number | null,
    position?: number | null): Promise<{ bytesWritten: number; buffer: T }>;
  write(data: string, position?: number | null, encoding?: BufferEncoding | null): Promise<{ bytesWritten: number; buffer: string }>;
  stat(): Promise<Stats>;
  sync(): Promise<void>;
  datasync(): Promise<void>;
  truncate(length?: number): Promise<void>;
  chmod(mode: number | string): Promise<void>;
  readFile(options?: BufferEncoding | { encoding?: BufferEncoding | null } | null): Promise<string | Buffer>;
  writeFile(data: string | NodeJS.ArrayBufferView, options?: BufferEncoding | null): Promise<void>;
  appendFile(data: string | NodeJS.ArrayBufferView, options?: BufferEncoding | null): Promise<void>;
  close(): Promise<void>;
}
export function open(path: PathLike, flags?: string | number, mode?: number | string): Promise<FileHandle>;

/** Reads many files. Yields [path, content] in order of completion; with `errors` an error is a content. */
export function readFiles(paths: Iterable<string>, options: { encoding: BufferEncoding; errors?: false }): AsyncGenerator<[string, string]>;
export function readFiles(paths: Iterable<string>, options?: { errors?: false }): AsyncGenerator<[string, Buffer]>;
export function readFiles(paths: Iterable<string>,
  options: { encoding?: BufferEncoding; errors: true }): AsyncGenerator<[string, string | Buffer | NodeJS.ErrnoException]>;

/** The attributes of many files, in their order. An error takes the place of attributes that cannot be had. */
export function lstats(paths: Iterable<string>): Promise<(Stats | NodeJS.ErrnoException)[]>;

/** Yields [path, Dirent] for everything below a folder. It follows no link. */
export function walk(folder: string): AsyncGenerator<[string, Dirent]>;
