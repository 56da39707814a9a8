// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// A file that is open: the methods of Node's FileHandle, on the engine where a call has a position of
// its own or none. Node's own handle closes itself when nobody holds it; so does this one.
import fs from 'node:fs';
import { Buffer } from 'node:buffer';
import readline from 'node:readline';
import { promisify } from 'node:util';
import { KIND, native, operation, systemError } from './engine.js';
import { CALL, modeNumber } from './values.js';

const ROOM = 65536; // of one operation: a larger read or write is Node's own
const abandoned = new FinalizationRegistry(closeDescriptor);

// The engine's list of open descriptors, which it closes when its thread ends, then lacks this one.
function closeDescriptor(fd) {
  return operation((id) => native.call(id, CALL.close, KIND.number, fd));
}

// As Node's own handle rejects what is asked of it after its end.
function closedError(syscall) {
  return Object.assign(new Error('file closed'), { code: 'EBADF', syscall });
}

function isIterable(data) {
  return typeof data === 'object' && !ArrayBuffer.isView(data)
    && Boolean(data?.[Symbol.asyncIterator] ?? data?.[Symbol.iterator]);
}

// fs.close() as a stream calls it.
function closes(handle) {
  return (fd, done) => handle.close().then(() => done(null), done);
}

export class FileHandle {
  #fd;
  #uses = 0;
  #unused; // called when the last use has ended
  #closing;

  constructor(fd) {
    this.#fd = fd;
    abandoned.register(this, fd, this);
  }

  get fd() {
    return this.#fd;
  }

  // Calls f(fd). The descriptor stays open until f has ended, since the kernel may give the number of a
  // closed one to another file.
  async #use(name, f) {
    if (this.#fd < 0) throw closedError(name);
    this.#uses++;
    try {
      return await f(this.#fd);
    } finally {
      this.#uses--;
      if (!this.#uses) this.#unused?.();
    }
  }

  async #call(name, nr, ...words) {
    const result = await this.#use(name, (fd) => operation((id) => native.call(id, nr, KIND.number, fd, ...words)));
    if (result < 0) throw systemError(result, name);
  }

  // Calls a function of fs that takes a descriptor and a callback.
  #own(name, f, ...args) {
    return this.#use(name, (fd) => promisify(f)(fd, ...args));
  }

  async read(buffer, offset, length, position) {
    if (!ArrayBuffer.isView(buffer)) {
      ({ buffer = Buffer.alloc(16384), offset, length, position } = buffer ?? {});
    } else if (offset !== null && typeof offset === 'object') {
      ({ offset, length, position } = offset);
    }
    offset ??= 0;
    length ??= buffer.byteLength - offset;
    if (typeof position !== 'number' || position < 0 || length > ROOM || !validRange(buffer, offset, length)) {
      return this.#own('read', fs.read, buffer, offset, length, position ?? null);
    }
    const target = Buffer.from(buffer.buffer, buffer.byteOffset + offset, length);
    const bytesRead = await this.#use('read', (fd) => operation((id) => native.call(id, CALL.pread64, KIND.target, fd,
      target, length, position)));
    if (bytesRead < 0) throw systemError(bytesRead, 'read');
    return { bytesRead, buffer };
  }

  async write(data, offset, length, position) {
    let buffer = data;
    if (typeof data === 'string') {
      position = offset;
      buffer = Buffer.from(data, length ?? 'utf8');
      offset = 0;
      length = buffer.byteLength;
    } else if (offset !== null && typeof offset === 'object') {
      ({ offset, length, position } = offset);
    }
    offset ??= 0;
    length ??= buffer.byteLength - offset;
    if (typeof position !== 'number' || position < 0 || length > ROOM || !validRange(buffer, offset, length)) {
      const { bytesWritten } = await this.#own('write', fs.write, buffer, offset, length, position ?? null);
      return { bytesWritten, buffer: data };
    }
    const source = Buffer.from(buffer.buffer, buffer.byteOffset + offset, length);
    const bytesWritten = await this.#use('write', (fd) => operation((id) => native.call(id, CALL.pwrite64, KIND.number, fd,
      source, length, position)));
    if (bytesWritten < 0) throw systemError(bytesWritten, 'write');
    return { bytesWritten, buffer: data };
  }

  readv(buffers, position) {
    return this.#own('readv', fs.readv, buffers, position);
  }

  async writev(buffers, position) {
    const { bytesWritten } = await this.#own('writev', fs.writev, buffers, position);
    return { bytesWritten, buffers };
  }

  async stat(options) {
    if (options?.bigint) return this.#own('fstat', fs.fstat, options);
    const value = await this.#use('fstat', (fd) => operation((id) => native.call(id, CALL.statx, KIND.attributes, fd, '',
      CALL.AT_EMPTY_PATH, CALL.STATX_BASIC, null)));
    if (typeof value === 'number') throw systemError(value, 'fstat');
    return value;
  }

  sync() {
    return this.#call('fsync', CALL.fsync);
  }

  datasync() {
    return this.#call('fdatasync', CALL.fdatasync);
  }

  truncate(length = 0) {
    if (!Number.isSafeInteger(length)) return this.#own('ftruncate', fs.ftruncate, length);
    return this.#call('ftruncate', CALL.ftruncate, Math.max(0, length));
  }

  chmod(mode) {
    const bits = modeNumber(mode);
    return bits === undefined ? this.#own('fchmod', fs.fchmod, mode) : this.#call('fchmod', CALL.fchmod, bits);
  }

  chown(uid, gid) {
    return this.#own('fchown', fs.fchown, uid, gid);
  }

  utimes(atime, mtime) {
    return this.#own('futimes', fs.futimes, atime, mtime);
  }

  // From the file's position on, as Node's.
  readFile(options) {
    return this.#own('readFile', fs.readFile, options);
  }

  writeFile(data, options) {
    if (!isIterable(data)) return this.#own('writeFile', fs.writeFile, data, options);
    return this.#use('writeFile', async (fd) => {
      for await (const part of data) await promisify(fs.writeFile)(fd, part, options);
    });
  }

  appendFile(data, options) {
    return this.writeFile(data, options);
  }

  // Node's streams by the methods of this handle, which they close unless `autoClose` is false.
  createReadStream(options) {
    const read = (fd, buffer, offset, length, position, done) => this.read(buffer, offset, length, position)
      .then(({ bytesRead }) => done(null, bytesRead, buffer), done);
    return fs.createReadStream(null, { ...options, fd: this.#fd, fs: { read, close: closes(this) } });
  }

  createWriteStream(options) {
    const write = (fd, buffer, offset, length, position, done) => this.write(buffer, offset, length, position)
      .then(({ bytesWritten }) => done(null, bytesWritten, buffer), done);
    return fs.createWriteStream(null, { ...options, fd: this.#fd, fs: { write, close: closes(this) } });
  }

  readLines(options) {
    return readline.createInterface({ input: this.createReadStream(options), crlfDelay: Infinity });
  }

  // Refuses further calls at once, and closes the descriptor after those that are under way.
  close() {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end() {
    const fd = this.#fd;
    this.#fd = -1;
    abandoned.unregister(this);
    if (this.#uses) {
      await new Promise((resolve) => {
        this.#unused = resolve;
      });
    }
    const result = await closeDescriptor(fd);
    if (result < 0) throw systemError(result, 'close');
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')]() {
    await this.close();
  }
}

function validRange(buffer, offset, length) {
  return Number.isInteger(offset) && Number.isInteger(length) && offset >= 0 && length >= 0
    && offset + length <= buffer.byteLength;
}
