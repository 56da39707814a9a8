// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Types of trapless/promises: those of fs/promises, and of what has no counterpart there.
import * as node from 'node:fs/promises';
import type { Dirent, PathLike, ReadStream, Stats, WriteFileOptions, WriteStream } from 'node:fs';
import type { Abortable } from 'node:events';
import type { Interface } from 'node:readline';

export {
  access, chmod, chown, constants, copyFile, cp, lchown, link, lstat, lutimes, mkdir, mkdtemp, opendir, readdir,
  readlink, realpath, rename, rm, rmdir, stat, statfs, symlink, truncate, unlink, utimes, watch,
} from 'node:fs/promises';

type Names = 'access' | 'chmod' | 'chown' | 'constants' | 'copyFile' | 'cp' | 'lchown' | 'link' | 'lstat' | 'lutimes' | 'mkdir'
  | 'mkdtemp' | 'opendir' | 'readdir' | 'readlink' | 'realpath' | 'rename' | 'rm' | 'rmdir' | 'stat' | 'statfs' | 'symlink'
  | 'truncate' | 'unlink' | 'utimes' | 'watch';
type Data = string | NodeJS.ArrayBufferView | Iterable<string | NodeJS.ArrayBufferView>
  | AsyncIterable<string | NodeJS.ArrayBufferView>;
type HandleOptions = (Abortable & { encoding?: BufferEncoding | null; flush?: boolean }) | BufferEncoding | null;

/** As in fs/promises. */
export const readFile: typeof node.readFile & {
  (handle: FileHandle, options: BufferEncoding | (Abortable & { encoding: BufferEncoding })): Promise<string>;
  (handle: FileHandle, options?: (Abortable & { encoding?: null }) | null): Promise<Buffer>;
};
/** As in fs/promises. */
export const appendFile: typeof node.appendFile & { (handle: FileHandle, data: Data, options?: HandleOptions): Promise<void> };
/**
 * As in fs/promises. With `replace` the bytes go to a new file, which takes the old one's place when it is whole. The
 * new file has `mode`, or the old one's permissions if none is given, not its owner; a link is replaced, not followed.
 */
export const writeFile: typeof node.writeFile & {
  (handle: FileHandle, data: Data, options?: HandleOptions): Promise<void>;
  (path: string | URL, data: string | NodeJS.ArrayBufferView,
    options: WriteFileOptions & Abortable & { flush?: boolean; replace: boolean }): Promise<void>;
};

/** A file that is open: the methods of fs/promises' FileHandle except readableWebStream, getAsyncId and events. */
export class FileHandle {
  readonly fd: number;
  read<T extends NodeJS.ArrayBufferView>(buffer: T, offset?: number | null, length?: number | null,
    position?: number | null): Promise<{ bytesRead: number; buffer: T }>;
  write<T extends NodeJS.ArrayBufferView>(buffer: T, offset?: number | null, length?: number | null,
    position?: number | null): Promise<{ bytesWritten: number; buffer: T }>;
  write(data: string, position?: number | null, encoding?: BufferEncoding | null): Promise<{ bytesWritten: number; buffer: string }>;
  readv: node.FileHandle['readv'];
  writev: node.FileHandle['writev'];
  stat: node.FileHandle['stat'];
  sync(): Promise<void>;
  datasync(): Promise<void>;
  truncate(length?: number): Promise<void>;
  chmod(mode: number | string): Promise<void>;
  chown(uid: number, gid: number): Promise<void>;
  utimes: node.FileHandle['utimes'];
  readFile: node.FileHandle['readFile'];
  writeFile(data: Data, options?: HandleOptions): Promise<void>;
  appendFile(data: Data, options?: HandleOptions): Promise<void>;
  createReadStream(options?: node.CreateReadStreamOptions): ReadStream;
  createWriteStream(options?: node.CreateWriteStreamOptions): WriteStream;
  readLines(options?: node.CreateReadStreamOptions): Interface;
  close(): Promise<void>;
}
export function open(path: PathLike, flags?: string | number, mode?: number | string): Promise<FileHandle>;

type ManyOptions = Abortable & { flag?: string };
/**
 * Reads many files. Yields [path, content] in order of completion; with `errors` an error is a content, and does not
 * end the loop. The other options are those of readFile.
 */
export function readFiles(paths: Iterable<string>,
  options: BufferEncoding | (ManyOptions & { encoding: BufferEncoding; errors?: false })): AsyncGenerator<[string, string]>;
export function readFiles(paths: Iterable<string>,
  options?: (ManyOptions & { encoding?: null; errors?: false }) | null): AsyncGenerator<[string, Buffer]>;
export function readFiles(paths: Iterable<string>,
  options: ManyOptions & { encoding?: BufferEncoding | null; errors: true }): AsyncGenerator<[string, string | Buffer | NodeJS.ErrnoException]>;

/** The attributes of many files, in their order. An error takes the place of attributes that cannot be had. */
export function lstats(paths: Iterable<string>): Promise<(Stats | NodeJS.ErrnoException)[]>;

/** Yields [path, Dirent] for everything below a folder. It follows no link. */
export function walk(folder: string): AsyncGenerator<[string, Dirent]>;

declare const functions: Pick<typeof node, Names> & {
  appendFile: typeof appendFile;
  FileHandle: typeof FileHandle;
  lstats: typeof lstats;
  open: typeof open;
  readFile: typeof readFile;
  readFiles: typeof readFiles;
  walk: typeof walk;
  writeFile: typeof writeFile;
};
export default functions;
