// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Operations on the native engine as promises. It owns the ids of operations, the one submit in each
// turn of Node's loop, and how a result becomes a value. Which functions users see is the business of
// promises.js.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { getSystemErrorMap } from 'node:util';
import { invalidValue, statsOf } from './values.js';

const native = addon();

// As `enum kind` in result.h.
export const KIND = { number: 0, buffer: 1, text: 2, attributes: 3, names: 4, target: 5, many: 6, descriptor: 7 };
// The numbers of one completion: its id, its result, whether attributes follow, the attributes.
export const FIELDS = 18;

function addon() {
  try {
    return createRequire(import.meta.url)('../build/trapless.node');
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    const folder = fileURLToPath(new URL('..', import.meta.url));
    error.message = `trapless was not compiled: run \`npm rebuild trapless\`, or \`node build.js\` in ${folder}`;
    throw error;
  }
}

// By id: the functions to call at the end. Free ids are used again, so that the arrays stay small.
const resolvers = [];
const free = [];
let group;
// What needs a path and nothing else waits here for the end of the turn: three numbers each (id, kind,
// flags), and the paths, each with a NUL behind it.
const QUERIES = 256;
const queries = new Int32Array(3 * QUERIES);
let queried = 0;
let paths = '';
let submitting = false;

function complete(n, values) {
  for (let k = 0; k < n; k++) {
    const at = k * FIELDS;
    const id = group[at];
    const result = group[at + 1];
    settle(id, result >= 0 && group[at + 2] ? statsOf(group, at + 3) : values[k] ?? result);
    group[at + 2] = 0;
  }
}

// How many threads the engine starts: 0 leaves it to addon.c.
function workers() {
  const text = process.env.TRAPLESS_WORKERS ?? '';
  const number = Number(text);
  if (text && !(Number.isInteger(number) && number >= 1 && number <= 4096)) {
    throw invalidValue(`TRAPLESS_WORKERS is '${text}': set it to a number from 1 to 4096, or unset it`);
  }
  return number;
}

function start() {
  const started = native.start(complete, queries, workers());
  if (typeof started === 'number') throw systemError(started, 'start');
  group = started;
}

function add() {
  const failed = native.add(paths, queried);
  for (let k = 0; failed && k < queried; k++) {
    if (queries[3 * k + 1] < 0) settle(queries[3 * k], queries[3 * k + 1]);
  }
  paths = '';
  queried = 0;
}

function submit() {
  submitting = false;
  if (queried) add();
  const result = native.submit();
  if (result < 0) throw systemError(result, 'submit');
}

function submitSoon() {
  if (submitting) return;
  submitting = true;
  process.nextTick(submit);
}

function settle(id, value) {
  const resolve = resolvers[id];
  resolvers[id] = undefined;
  free.push(id);
  resolve(value);
}

// Reads a file or a folder or asks for attributes, by a path without a NUL, and calls `resolve` with what
// operation() resolves to.
export function queryTo(resolve, kind, path, flags) {
  if (!group) start();
  const id = free.length ? free.pop() : resolvers.length;
  resolvers[id] = resolve;
  const at = 3 * queried++;
  queries[at] = id;
  queries[at + 1] = kind;
  queries[at + 2] = flags;
  paths += `${path}\0`;
  if (queried === QUERIES) add();
  submitSoon();
}

let latest;
function keep(resolve) {
  latest = resolve;
}

// The same as a promise.
export function query(kind, path, flags) {
  const promise = new Promise(keep);
  queryTo(latest, kind, path, flags);
  return promise;
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
    submitSoon();
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
