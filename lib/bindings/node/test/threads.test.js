// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Threads of Node that have engines of their own, and end at any time: they share no path, leave no
// descriptor open, and no call of theirs harms the process. What an engine cannot have is an error.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import * as files from '../lib/promises.js';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'trapless-'));
const at = (name) => path.join(folder, name);
const library = JSON.stringify(pathToFileURL(path.join(path.dirname(fileURLToPath(import.meta.url)), '../lib/promises.js')).href);
after(() => fs.rmSync(folder, { recursive: true }));

fs.writeFileSync(at('small'), 'small\n');
execFileSync('mkfifo', [at('fifo')]);

// A thread whose program has the functions as `files`, and `workerData`.
function threadOf(program, workerData) {
  const text = `import * as files from ${library}; import { parentPort, workerData } from 'node:worker_threads'; ${program}`;
  return new Worker(new URL(`data:text/javascript,${encodeURIComponent(text)}`), { workerData });
}

function messageOf(worker) {
  return new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
}

function endOf(worker) {
  return new Promise((resolve, reject) => worker.once('exit', resolve).once('error', reject));
}

// Runs a program by itself: a crash ends it, and not the tests.
function run(program, ...args) {
  const imports = `import fs from 'node:fs'; import { Worker } from 'node:worker_threads'; import { execFileSync } from 'node:child_process';`;
  return spawnSync(process.execPath, ['--input-type=module', '-e', imports + program, ...args], { encoding: 'utf8', timeout: 300_000 });
}

test('no thread makes the calls of another one', async () => {
  const program = `let wrong = 0;
    for (let round = 0; round < 1000; round++) {
      const found = await Promise.all(Array.from({ length: 50 }, () => files.access(workerData).then(() => true, () => false)));
      wrong += found.filter((exists) => exists !== !workerData.endsWith('absent')).length;
    }
    parentPort.postMessage(wrong);`;
  // It takes longer to copy a long path, so that threads are more likely to meet.
  const paths = ['small', 'absent'].map((name) => folder + '/'.repeat(3900) + name);
  const wrong = await Promise.all(paths.map((name) => messageOf(threadOf(program, name))));
  assert.deepEqual(wrong, [0, 0]);
});

test('a thread may end while the results of many files come', () => {
  const program = `const [, name] = process.argv;
    const text = \`import { lstats } from ${library}; import { parentPort, workerData } from 'node:worker_threads';
      const names = Array.from({ length: 4096 }, () => workerData); parentPort.postMessage(0);
      for (;;) await lstats(names);\`;
    for (let round = 0; round < 60; round++) {
      const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(text)), { workerData: name });
      await new Promise((resolve) => worker.once('message', resolve));
      await new Promise((resolve) => setTimeout(resolve, round % 20));
      await worker.terminate();
    }
    console.log('end');`;
  const ended = run(program, at('small'));
  assert.deepEqual([ended.status, ended.signal, ended.stdout], [0, null, 'end\n'], ended.stderr);
});

test('a call may return after all threads that loaded the addon have ended', () => {
  const program = `const [, fifo] = process.argv;
    const text = \`import { readFile } from ${library}; import { parentPort, workerData } from 'node:worker_threads';
      readFile(workerData); setTimeout(() => parentPort.postMessage(0), 50);\`;
    const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(text)), { workerData: fifo });
    await new Promise((resolve) => worker.once('message', resolve));
    await worker.terminate();
    const threads = () => fs.readdirSync('/proc/self/task').length;
    const before = threads();
    fs.closeSync(fs.openSync(fifo, 'w'));
    while (threads() === before) await new Promise((resolve) => setTimeout(resolve, 10));
    console.log('end');`;
  const ended = run(program, at('fifo'));
  assert.deepEqual([ended.status, ended.signal, ended.stdout], [0, null, 'end\n'], ended.stderr);
});

test('a thread leaves no file open, however it ends', async () => {
  const open = () => fs.readdirSync('/proc/self/fd').length;
  // On a busy machine calls may still be under way, whose descriptors the engine closes when they return.
  const closed = async () => {
    for (let round = 0; open() > before && round < 1000; round++) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(open(), before);
  };
  const hold = 'const held = await Promise.all(Array.from({ length: 150 }, () => files.open(workerData)));';
  const ends = [hold, `${hold} process.exit();`, `for (let i = 0; i < 150; i++) files.open(workerData); setImmediate(() => process.exit());`,
    `${hold} for (const file of held) file.close(); await held[0].close(); process.exit();`];
  await endOf(threadOf(ends[0], at('small')));
  const before = open();
  for (const program of ends) {
    await endOf(threadOf(program, at('small')));
    await closed();
  }
  const held = threadOf(`${hold} parentPort.postMessage(0); setInterval(() => held, 1000);`, at('small'));
  await messageOf(held);
  assert.ok(open() >= before + 150);
  await held.terminate();
  await closed();
});

test('an engine that could not start is started at the next call', () => {
  const program = `const [, name] = process.argv; const { readFile } = await import(${library});
    const open = [];
    try { for (;;) open.push(fs.openSync(name)); } catch {}
    const failed = [];
    for (let i = 0; i < 2; i++) await readFile(name).catch((error) => failed.push(error.code));
    for (const fd of open) fs.closeSync(fd);
    console.log(...failed, (await readFile(name, 'utf8')).trim());`;
  const ended = spawnSync('sh', ['-c', 'ulimit -n 100 && exec "$@"', 'sh', process.execPath, '--input-type=module', '-e',
    `import fs from 'node:fs'; ${program}`, at('small')], { encoding: 'utf8', timeout: 300_000 });
  assert.equal(ended.stdout, 'EMFILE EMFILE small\n', ended.stderr);
});

test('a text that is too long for a string is an error, and delays no other result', async () => {
  fs.writeFileSync(at('long'), '');
  fs.truncateSync(at('long'), 2 ** 29 + 1);
  const [long, small] = await Promise.allSettled([files.readFile(at('long'), 'utf8'), files.readFile(at('small'), 'utf8')]);
  assert.equal(long.reason?.code, 'EFBIG');
  assert.equal(small.value, 'small\n');
});
