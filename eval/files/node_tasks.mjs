// SPDX-License-Identifier: GPL-2.0-only
// The workload of experiment files in Node: the same work by each way, a row of JSON each, in CPU time
// of all threads. It owns the ways and the checks.
// Usage: node node_tasks.mjs FOLDER_OF_THE_BINDING DIRECTORY FILES REPEATS
import fs, { promises } from 'node:fs';
import { join } from 'node:path';

const TASKS = 64;
const BYTES = 3000;
const FOLDER_FILES = 50;
const [binding, directory, count, repeats] = process.argv.slice(2);
const ours = await import(join(binding, 'lib/promises.js'));

const paths = [];
for (let number = 0; number < Number(count); number++) {
  const folder = join(directory, `${Math.floor(number / FOLDER_FILES)}`);
  fs.mkdirSync(folder, { recursive: true });
  paths.push(join(folder, `file-${number}`));
  fs.writeFileSync(paths[number], 'a'.repeat(BYTES));
}

async function byTasks(one) {
  let next = 0;
  let bytes = 0;
  async function task() {
    while (next < paths.length) {
      const size = await one(paths[next++]);
      bytes += size;
    }
  }
  await Promise.all(Array.from({ length: TASKS }, task));
  return bytes;
}

function bySync(one) {
  let bytes = 0;
  for (const path of paths) bytes += one(path);
  return bytes;
}

const ways = [
  ['read', 'os', () => bySync((path) => fs.readFileSync(path).length)],
  ['read', 'pool', () => byTasks(async (path) => (await promises.readFile(path)).length)],
  ['read', 'files', () => byTasks(async (path) => (await ours.readFile(path)).length)],
  ['stat', 'os', () => bySync((path) => fs.lstatSync(path).size)],
  ['stat', 'pool', () => byTasks(async (path) => (await promises.lstat(path)).size)],
  ['stat', 'files', () => byTasks(async (path) => (await ours.lstat(path)).size)],
  ['stat', 'many', async () => (await ours.lstats(paths)).reduce((sum, { size }) => sum + size, 0)],
];

for (let repeat = -1; repeat < Number(repeats); repeat++) {
  ways.sort(() => Math.random() - 0.5);
  for (const [call, mechanism, way] of ways) {
    const before = process.cpuUsage();
    const bytes = await way();
    const { user, system } = process.cpuUsage(before);
    if (bytes !== paths.length * BYTES) {
      console.log(JSON.stringify({ failure: `${call} by ${mechanism}: ${bytes} bytes` }));
      process.exit(1);
    }
    if (repeat < 0) continue; // it was to warm up
    console.log(JSON.stringify({
      kind: 'measured', call: `node-${call}`, mechanism, unit: 'cpu-ns',
      value: 1000 * (user + system), ops: paths.length, n: TASKS, repeat,
    }));
  }
}
console.log(JSON.stringify({ complete: true }));
