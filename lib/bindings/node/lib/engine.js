// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Operations on the native engine as promises. It owns the ids of operations, the one submit in each
// turn of Node's loop, and how a result becomes a value. Which functions users see is the business of
// promises.js.
import { createRequire } from 'node:module';
import { getSystemErrorMap } from 'node:util';
import { statsOf } from './values.js';

const native = createRequire(import.meta.url)('../build/trapless.node');

// As `enum kind` in addon.c.
export const KIND = { number: 0, buffer: 1, text: 2, attributes: 3, names: 4, target: 5 };
// The numbers of one completion: its id, its result, whether attributes follow, the attributes.
export const FIELDS = 18;

// By id: the functions to call at the end. Free ids are used again, so that the arrays stay small.
const resolvers = [];
const free = [];
let group;
let submitting = false;

function complete(n, values) {
  for (let k = 0; k < n; k++) {
    const at = k * FIELDS;
    const id = group[at];
    const resolve = resolvers[id];
    const result = group[at + 1];
    resolvers[id] = undefined;
    free.push(id);
    if (result >= 0 && group[at + 2]) resolve(statsOf(group, at + 3));
    else resolve(values[k] ?? result);
    group[at + 2] = 0;
  }
}

function start() {
  group = native.start(complete);
  if (typeof group === 'number') throw systemError(group, 'start', undefined, 'the engine cannot start');
}

function submit() {
  submitting = false;
  const result = native.submit();
  if (result < 0) throw systemError(result, 'submit');
}

// Begins an operation: `add(id, a, b)` adds it to the engine. Resolves to its value, or to -errno: who
// awaits it makes the error, so that the error's stack leads to the program's own line.
export function operation(add, signal) {
  if (!group) start();
  const id = free.length ? free.pop() : resolvers.length;
  return new Promise((resolve) => {
    resolvers[id] = resolve;
    const error = add(id);
    if (error < 0) {
      resolvers[id] = undefined;
      free.push(id);
      resolve(error);
      return;
    }
    if (signal) {
      const abort = () => native.cancel(id);
      signal.addEventListener('abort', abort, { once: true });
      resolvers[id] = (value) => {
        signal.removeEventListener('abort', abort);
        resolve(value);
      };
    }
    if (!submitting) {
      submitting = true;
      process.nextTick(submit);
    }
  });
}

// An error as Node's own functions throw it.
export function systemError(errno, syscall, path, dest) {
  const [code, text] = getSystemErrorMap().get(errno) ?? [`E${-errno}`, 'unknown error'];
  let message = `${code}: ${text}, ${syscall}`;
  if (path !== undefined) message += ` '${path}'`;
  if (dest !== undefined) message += ` -> '${dest}'`;
  const error = new Error(message);
  error.errno = errno;
  error.code = code;
  error.syscall = syscall;
  if (path !== undefined) error.path = path;
  if (dest !== undefined) error.dest = dest;
  return error;
}

export { native };
