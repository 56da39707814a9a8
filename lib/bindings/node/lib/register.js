// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// `node --import trapless/register PROGRAM` puts the engine's functions in the place of those of
// fs/promises and of the callback functions of fs where they behave the same, for a program that
// nobody wants to change.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import * as files from './promises.js';

const NAMES = ['readFile', 'stat', 'lstat', 'readdir', 'unlink', 'mkdir', 'rmdir', 'rename', 'link', 'chmod', 'access'];
const WRITERS = ['writeFile', 'appendFile'];

// A function with a callback, of one that returns a promise. Errors of arguments are thrown at once by
// Node's own function, which gets every call that the engine would hand back to it anyway.
function withCallback(name) {
  const own = fs[name];
  const replacement = (...args) => {
    const callback = args.at(-1);
    if (typeof callback !== 'function' || typeof args[0] !== 'string') return own(...args);
    files[name](...args.slice(0, -1)).then(
      (value) => process.nextTick(callback, null, ...(value === undefined ? [] : [value])),
      (error) => process.nextTick(callback, error),
    );
    return undefined;
  };
  return Object.defineProperty(replacement, 'name', { value: name });
}

for (const name of [...NAMES, ...WRITERS]) {
  const own = fs.promises[name];
  const replacement = files[name];
  fs.promises[name] = (path, ...rest) => (typeof path === 'string' ? replacement(path, ...rest) : own(path, ...rest));
  fs[name] = withCallback(name);
}
syncBuiltinESMExports();
