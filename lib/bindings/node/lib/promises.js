// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// The functions of fs/promises on the engine, with the same names, arguments, values and errors, and
// some for many files at once. Node itself makes a call whose arguments ask for what the engine does
// not do (a FileHandle of Node, a path that is a Buffer, bigint, an odd flag).
import fs, { constants, promises } from 'node:fs';
import { Buffer } from 'node:buffer';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { FIELDS, KIND, native, operation, query, queryTo, systemError } from './engine.js';
import { FileHandle } from './file_handle.js';
import { CALL, flagNumber, invalidValue, modeNumber, statsOf, unusual } from './values.js';

// Node's own functions, as they are before register.js replaces some.
const own = { ...promises };

// A path as the engine takes it, or undefined: then the call is Node's own, errors too.
function pathOf(path) {
  if (typeof path === 'string') return path.includes('\0') ? undefined : path;
  return path instanceof URL && path.protocol === 'file:' ? pathOf(fileURLToPath(path)) : undefined;
}

// A text that the engine takes as it is.
function isPlain(path) {
  return typeof path === 'string' && !path.includes('\0');
}

// The options of a function that takes an encoding, or undefined where they are Node's business.
function encodingOptions(options, known) {
  if (options === undefined || options === null) return {};
  if (typeof options === 'string') return { encoding: options };
  return unusual(options, known) ? undefined : options;
}

function isText(encoding) {
  return encoding === 'utf8' || encoding === 'utf-8';
}

function abortError(signal) {
  const error = new Error('The operation was aborted', { cause: signal.reason });
  error.name = 'AbortError';
  error.code = 'ABORT_ERR';
  return error;
}

// A folder opens and cannot be read; Node names no path then.
function readError(errno, name) {
  return errno === -21 ? systemError(errno, 'read') : systemError(errno, 'open', name);
}

export async function readFile(path, options) {
  if (options === undefined && isPlain(path)) {
    const value = await query(KIND.buffer, path, 0);
    if (typeof value === 'number') throw readError(value, path);
    return value;
  }
  if (path instanceof FileHandle) return path.readFile(options);
  const name = pathOf(path);
  const { encoding, flag, signal } = encodingOptions(options, ['encoding', 'flag', 'signal']) ?? { flag: '' };
  if (name === undefined || (flag !== undefined && flag !== null && flag !== 'r')) return own.readFile(path, options);
  if (encoding && !Buffer.isEncoding(encoding)) return own.readFile(path, options);
  if (signal?.aborted) throw abortError(signal);
  const kind = isText(encoding) ? KIND.text : KIND.buffer;
  const value = await (signal ? operation((id) => native.read(id, name, kind), signal) : query(kind, name, 0));
  if (signal?.aborted) throw abortError(signal);
  if (typeof value === 'number') throw readError(value, name);
  return encoding && !isText(encoding) ? value.toString(encoding) : value;
}

const SYNC = 1;
const REPLACE = 2;
const MODE = 4; // whatever the umask
const COPIED_MAX = 1 << 20; // what is written is copied first

function bytesOf(data, encoding) {
  if (typeof data === 'string') return Buffer.from(data, encoding ?? 'utf8');
  if (Buffer.isBuffer(data)) return data;
  return ArrayBuffer.isView(data) ? Buffer.from(data.buffer, data.byteOffset, data.byteLength) : undefined;
}

// The permissions of a file that is to be replaced, or undefined if there is none.
async function permissionsOf(path) {
  const value = await query(KIND.attributes, path, 0);
  if (typeof value !== 'number') return value.mode & 0o777;
  if (value === -2) return undefined;
  throw systemError(value, 'stat', path);
}

const isNoBoolean = (value) => value !== undefined && value !== null && typeof value !== 'boolean';

async function put(path, data, options, defaultFlag) {
  const name = pathOf(path);
  const known = ['encoding', 'mode', 'flag', 'flush', 'signal', 'replace'];
  const { encoding, mode, flag = defaultFlag, flush, signal } = encodingOptions(options, known) ?? { flag: 'none' };
  const replace = typeof options === 'object' && options?.replace;
  const openFlags = flagNumber(flag ?? defaultFlag);
  const permissions = modeNumber(mode ?? 0o666);
  const bytes = encoding && !Buffer.isEncoding(encoding) ? undefined : bytesOf(data, encoding);
  const odd = name === undefined || openFlags === undefined || permissions === undefined || !bytes || isNoBoolean(flush);
  if (isNoBoolean(replace)) throw invalidValue("the option 'replace' is true or false");
  // Node would ignore `replace` and overwrite the old file.
  if (replace && odd) {
    throw invalidValue("the option 'replace' needs a path that is a string or a URL, data that are a string or bytes, and valid options");
  }
  if (replace && openFlags !== flagNumber('w')) throw invalidValue(`the option 'replace' allows no flag but 'w', not '${flag}'`);
  if (path instanceof FileHandle) return path.writeFile(data, options);
  const reads = (openFlags & 3) === constants.O_RDONLY;
  if (odd || reads || (bytes.length > COPIED_MAX && !replace)) {
    return defaultFlag === 'a' ? own.appendFile(path, data, options) : own.writeFile(path, data, options);
  }
  if (signal?.aborted) throw abortError(signal);
  const kept = replace && (mode ?? undefined) === undefined ? await permissionsOf(name) : undefined;
  const flags = (flush ? SYNC : 0) | (replace ? REPLACE : 0) | (kept === undefined ? 0 : MODE);
  const result = await operation((id) => native.write(id, name, bytes, openFlags & ~3, kept ?? permissions, flags), signal);
  if (signal?.aborted) throw abortError(signal);
  if (result < 0) throw result === -28 ? systemError(result, 'write') : systemError(result, 'open', name);
  return undefined;
}

// Beyond Node's: { replace: true } writes a new file that takes the old one's place when it is whole. It
// has `mode`, or the old one's permissions if none is given, not its owner; a link is replaced, not followed.
export function writeFile(path, data, options) {
  return put(path, data, options, 'w');
}

export function appendFile(path, data, options) {
  return put(path, data, options, 'a');
}

export async function stat(path, options) {
  const file = pathOf(path);
  if (file === undefined || unusual(options, [])) return own.stat(path, options);
  const value = await query(KIND.attributes, file, 0);
  if (typeof value === 'number') throw systemError(value, 'stat', file);
  return value;
}

export async function lstat(path, options) {
  const file = pathOf(path);
  if (file === undefined || unusual(options, [])) return own.lstat(path, options);
  const value = await query(KIND.attributes, file, CALL.AT_SYMLINK_NOFOLLOW);
  if (typeof value === 'number') throw systemError(value, 'lstat', file);
  return value;
}

// DT_* of the kernel as UV_DIRENT_* of Node; a file system that does not know is asked by lstat.
const DIRENT_TYPES = { 1: 4, 2: 6, 4: 2, 6: 7, 8: 1, 10: 3, 12: 5 };

async function direntType(folder, name, type) {
  if (type) return DIRENT_TYPES[type] ?? 0;
  const found = await lstat(join(folder, name));
  return DIRENT_TYPES[(found.mode >> 12) & 15] ?? 0;
}

async function listing(folder) {
  const value = await query(KIND.names, folder, 0);
  if (typeof value === 'number') throw systemError(value, 'scandir', folder);
  return value;
}

export async function readdir(path, options) {
  const folder = pathOf(path);
  const { encoding, withFileTypes } = encodingOptions(options, ['encoding', 'withFileTypes']) ?? { encoding: 'none' };
  if (folder === undefined || (encoding && !isText(encoding))) return own.readdir(path, options);
  const entries = await listing(folder);
  const names = [];
  for (let i = 0; i < entries.length; i += 2) {
    names.push(withFileTypes
      ? new fs.Dirent(entries[i], await direntType(folder, entries[i], entries[i + 1]), folder)
      : entries[i]);
  }
  return names;
}

// One call with one path or two.
async function change(name, paths, plain, add) {
  const files = paths.map(pathOf);
  if (files.includes(undefined)) return plain();
  const result = await operation((id) => add(id, ...files));
  if (result < 0) throw systemError(result, name, ...files);
  return undefined;
}

export function unlink(path) {
  return change('unlink', [path], () => own.unlink(path), (id, file) => native.call(id, CALL.unlink, KIND.number, file));
}

export function mkdir(path, options) {
  const mode = modeNumber(typeof options === 'object' ? options?.mode ?? 0o777 : options ?? 0o777);
  const plain = () => own.mkdir(path, options);
  if (mode === undefined || (typeof options === 'object' && (unusual(options, ['mode', 'recursive']) || options?.recursive))) return plain();
  return change('mkdir', [path], plain, (id, file) => native.call(id, CALL.mkdir, KIND.number, file, mode));
}

export function rmdir(path, options) {
  const plain = () => own.rmdir(path, options);
  if (options !== undefined) return plain();
  return change('rmdir', [path], plain, (id, file) => native.call(id, CALL.rmdir, KIND.number, file));
}

export function rename(from, to) {
  return change('rename', [from, to], () => own.rename(from, to), (id, a, b) => native.call(id, CALL.rename, KIND.number, a, b));
}

export function link(from, to) {
  return change('link', [from, to], () => own.link(from, to), (id, a, b) => native.call(id, CALL.link, KIND.number, a, b));
}

export function chmod(path, mode) {
  const bits = modeNumber(mode);
  const plain = () => own.chmod(path, mode);
  if (bits === undefined) return plain();
  return change('chmod', [path], plain, (id, file) => native.call(id, CALL.chmod, KIND.number, file, bits));
}

export function access(path, mode = constants.F_OK) {
  const plain = () => own.access(path, mode);
  if (!Number.isInteger(mode) || mode < 0 || mode > 7) return plain();
  return change('access', [path], plain, (id, file) => native.call(id, CALL.access, KIND.number, file, mode));
}

export async function open(path, flags = 'r', mode = 0o666) {
  const file = pathOf(path);
  const number = flagNumber(flags);
  const bits = modeNumber(mode);
  if (file === undefined || number === undefined || bits === undefined) return own.open(path, flags, mode);
  const fd = await operation((id) => native.call(id, CALL.openat, KIND.descriptor, CALL.AT_FDCWD, file,
    number | constants.O_CLOEXEC, bits));
  if (fd < 0) throw systemError(fd, 'open', file);
  return new FileHandle(fd);
}

// ---- Many at once ----

const AT_ONCE = 64;

// The letters of a text would be taken as paths.
function listOf(paths) {
  if (typeof paths === 'string') throw invalidValue(`a list of paths is needed, and not one path: '${paths}'`);
  if (typeof paths?.[Symbol.iterator] !== 'function') throw invalidValue(`a list of paths is needed, and not ${paths}`);
  return paths;
}

// Results of calls under way, in order of completion. All that complete in one turn wake their reader
// once. Promise.race() would look at all calls again for each result.
class Results {
  begun = 0; // calls whose result has not been taken
  complete = []; // [path, value, failed] each
  #wake;

  put(path, value, failed) {
    this.complete.push([path, value, failed]);
    this.#wake?.();
    this.#wake = undefined;
  }

  begin(path, promise) {
    this.begun++;
    promise.then((value) => this.put(path, value, false), (error) => this.put(path, error, true));
  }

  // A promise of the next result, where none is complete.
  some() {
    return new Promise((resolve) => { this.#wake = resolve; });
  }

  take() {
    this.begun--;
    return this.complete.shift();
  }
}

// The options of readFiles, which are those of readFile and `errors`.
function manyOptions(options) {
  const { errors, ...found } = encodingOptions(options, ['encoding', 'errors', 'flag', 'signal']) ?? { encoding: 'none' };
  if (isNoBoolean(errors) || (found.encoding && !Buffer.isEncoding(found.encoding))) {
    throw invalidValue("the options are an encoding, or an object of 'encoding', 'errors' (true or false), 'flag' and 'signal'");
  }
  return [errors, found];
}

// Yields [path, content] for each path, in order of completion; with { errors: true } an error is a
// content and does not end the loop. Its options else are those of readFile.
export function readFiles(paths, options) {
  return contentsOf(listOf(paths), ...manyOptions(options));
}

async function* contentsOf(paths, errors, options) {
  const results = new Results();
  const { encoding } = options;
  const direct = (!encoding || isText(encoding)) && Object.keys(options).every((key) => key === 'encoding');
  const kind = encoding ? KIND.text : KIND.buffer;
  const begin = (path) => {
    if (!direct || !isPlain(path)) {
      results.begin(path, readFile(path, options));
      return;
    }
    results.begun++;
    queryTo((value) => {
      if (typeof value === 'number') results.put(path, readError(value, path), true);
      else results.put(path, value, false);
    }, kind, path, 0);
  };
  for (const path of paths) {
    begin(path);
    if (results.begun < AT_ONCE) continue;
    while (!results.complete.length) await results.some();
    yield contentOf(results.take(), errors);
  }
  while (results.begun) {
    while (!results.complete.length) await results.some();
    yield contentOf(results.take(), errors);
  }
}

function contentOf([path, value, failed], errors) {
  if (failed && !errors) throw value;
  return [path, value];
}

// Attributes of so many files fit into the memory that the engine keeps for its operations.
const AT_ONE_GO = 128;

// Puts the Stats of the paths from `first` on into `found`.
async function putLstats(found, paths, first) {
  const names = paths.slice(first, first + AT_ONE_GO);
  const text = `${names.join('\0')}\0`;
  const value = await operation((id) => native.stats(id, text, names.length, CALL.AT_SYMLINK_NOFOLLOW));
  if (typeof value === 'number') throw systemError(value, 'lstat');
  for (let i = 0; i < names.length; i++) {
    const at = i * FIELDS;
    found[first + i] = value[at + 1] ? systemError(value[at + 1], 'lstat', names[i]) : statsOf(value, at + 3);
  }
}

// The Stats of all paths, in their order, 128 by one request. An error takes the place of Stats that
// cannot be had, so that one absent file costs no other one's.
export async function lstats(paths) {
  const all = Array.from(listOf(paths));
  if (!all.every(isPlain)) {
    return Promise.all(all.map((path) => lstat(path).catch((error) => error)));
  }
  const found = new Array(all.length);
  const groups = [];
  for (let first = 0; first < all.length; first += AT_ONE_GO) groups.push(putLstats(found, all, first));
  await Promise.all(groups);
  return found;
}

// Yields [path, Dirent] for everything below a folder, the folder itself left out. Folders are listed
// side by side. It follows no link.
export async function* walk(folder) {
  const results = new Results();
  const waiting = [folder];
  while (waiting.length || results.begun) {
    while (waiting.length && results.begun < AT_ONCE) {
      const path = waiting.pop();
      results.begin(path, readdir(path, { withFileTypes: true }));
    }
    while (!results.complete.length) await results.some();
    const [path, entries] = contentOf(results.take(), false);
    for (const dirent of entries) {
      const name = join(path, dirent.name);
      if (dirent.isDirectory()) waiting.push(name);
      yield [name, dirent];
    }
  }
}

export { constants, FileHandle };
// What has no counterpart on the engine is Node's own, so that an import needs no second one.
export const { chown, copyFile, cp, lchown, lutimes, mkdtemp, opendir, readlink, realpath, rm, statfs, symlink, truncate,
  utimes, watch } = own;

export default { access, appendFile, chmod, chown, constants, copyFile, cp, FileHandle, lchown, link, lstat, lstats,
  lutimes, mkdir, mkdtemp, open, opendir, readdir, readFile, readFiles, readlink, realpath, rename, rm, rmdir, stat,
  statfs, symlink, truncate, unlink, utimes, walk, watch, writeFile };
