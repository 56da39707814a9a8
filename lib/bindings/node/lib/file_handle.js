// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// A file that is open: the methods of Node's FileHandle that programs use for reading, writing and
// syncing, on the engine. Node's own handle closes itself when nobody holds it; so does this one.
import fs from 'node:fs';
import { Buffer } from 'node:buffer';
import { promisify } from 'node:util';
import { KIND, native, operation, systemError } from './engine.js';
import { CALL, modeNumber } from './values.js';

const ROOM = 65536; // of one operation: a larger read or write is Node's own
const abandoned = new FinalizationRegistry((fd) => fs.close(fd, () => {}));

export class FileHandle {
  #fd;

  constructor(fd) {
    this.#fd = fd;
    abandoned.register(this, fd, this);
  }

  get fd() {
    return this.#fd;
  }

  async #call(name, nr, ...words) {
    if (this.#fd < 0) throw systemError(-9, name);
    const result = await operation((id) => native.call(id, nr, KIND.number, this.#fd, ...words));
    if (result < 0) throw systemError(result, name);
    return result;
  }

  async read(buffer, offset, length, position) {
    if (!ArrayBuffer.isView(buffer)) {
      ({ buffer = Buffer.alloc(16384), offset, length, position } = buffer ?? {});
    } else if (offset !== null && typeof offset === 'object') {
      ({ offset, length, position } = offset);
    }
    offset ??= 0;
    length ??= buffer.byteLength - offset;
    if (this.#fd < 0) throw systemError(-9, 'read');
    if (typeof position !== 'number' || position < 0 || length > ROOM || !validRange(buffer, offset, length)) {
      const { bytesRead } = await promisify(fs.read)(this.#fd, buffer, offset, length, position ?? null);
      return { bytesRead, buffer };
    }
    const target = Buffer.from(buffer.buffer, buffer.byteOffset + offset, length);
    const bytesRead = await operation((id) => native.call(id, CALL.pread64, KIND.target, this.#fd, target, length, position));
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
    if (this.#fd < 0) throw systemError(-9, 'write');
    if (typeof position !== 'number' || position < 0 || length > ROOM || !validRange(buffer, offset, length)) {
      const { bytesWritten } = await promisify(fs.write)(this.#fd, buffer, offset, length, position ?? null);
      return { bytesWritten, buffer: data };
    }
    const source = Buffer.from(buffer.buffer, buffer.byteOffset + offset, length);
    const bytesWritten = await operation((id) => native.call(id, CALL.pwrite64, KIND.number, this.#fd, source, length, position));
    if (bytesWritten < 0) throw systemError(bytesWritten, 'write');
    return { bytesWritten, buffer: data };
  }

  async stat(options) {
    if (options?.bigint) return promisify(fs.fstat)(this.#fd, options);
    if (this.#fd < 0) throw systemError(-9, 'fstat');
    const value = await operation((id) => native.call(id, CALL.statx, KIND.attributes, this.#fd, '', CALL.AT_EMPTY_PATH,
      CALL.STATX_BASIC, null));
    if (typeof value === 'number') throw systemError(value, 'fstat');
    return value;
  }

  async sync() {
    await this.#call('fsync', CALL.fsync);
  }

  async datasync() {
    await this.#call('fdatasync', CALL.fdatasync);
  }

  async truncate(length = 0) {
    await this.#call('ftruncate', CALL.ftruncate, Math.max(0, length));
  }

  async chmod(mode) {
    await this.#call('fchmod', CALL.fchmod, modeNumber(mode) ?? 0);
  }

  // From the file's position on, as Node's.
  async readFile(options) {
    return promisify(fs.readFile)(this.#fd, options);
  }

  async writeFile(data, options) {
    await promisify(fs.writeFile)(this.#fd, data, options);
  }

  async appendFile(data, options) {
    await this.writeFile(data, options);
  }

  async close() {
    const fd = this.#fd;
    if (fd < 0) return;
    this.#fd = -1;
    abandoned.unregister(this);
    const result = await operation((id) => native.call(id, CALL.close, KIND.number, fd));
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
