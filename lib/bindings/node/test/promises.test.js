// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Each function against Node's own: the same values and the same errors, also when they are asked for
// at once, aborted, in threads, and by programs that know nothing of the engine.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import * as files from '../lib/promises.js';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'trapless-'));
const at = (...names) => path.join(folder, ...names);
const here = path.dirname(fileURLToPath(import.meta.url));
const register = pathToFileURL(path.join(here, '../lib/register.js')).href;
after(() => fs.rmSync(folder, { recursive: true }));

fs.writeFileSync(at('small'), 'grüße\n');
fs.writeFileSync(at('empty'), '');
fs.writeFileSync(at('large'), Buffer.alloc(300_001, 'abc'));
fs.symlinkSync('small', at('link'));
fs.symlinkSync('nowhere', at('dangling'));
fs.mkdirSync(at('sub/below'), { recursive: true });
fs.writeFileSync(at('sub/below/file'), 'x');

// What a function does: its value, or what of its error a program can see.
async function outcome(call) {
  try {
    return { value: await call() };
  } catch ({ name, message, code, errno, syscall, path: of, dest }) {
    return { name, message, code, errno, syscall, of, dest };
  }
}

async function same(name, ...args) {
  const expected = await outcome(() => fs.promises[name](...args));
  assert.deepEqual(await outcome(() => files[name](...args)), expected, `${name}(${args})`);
}

test('files are read as by Node', async () => {
  for (const name of ['small', 'empty', 'large', 'link', 'absent', 'dangling', '.', 'small/x']) {
    for (const options of [undefined, 'utf8', 'latin1', 'hex', { encoding: 'utf-8' }, null, { flag: 'r' }]) {
      await same('readFile', at(name), options);
    }
  }
  await same('readFile', pathToFileURL(at('small')), 'utf8');
  await same('readFile', Buffer.from(at('small')), 'utf8');
  await same('readFile', at('nul\0'));
  await same('readFile', 'x'.repeat(5000));
  await same('readFile', 17.5);
  await same('readFile', at('small'), 'no such encoding');
  await same('readFile', '/proc/version', 'utf8');
});

test('attributes are Stats as Node makes them', async () => {
  for (const name of ['small', 'link', 'dangling', 'absent', 'sub', 'large']) {
    for (const of of ['stat', 'lstat']) await same(of, at(name));
  }
  await same('stat', '/dev/null');
  for (const name of ['/proc/version', '/sys/kernel']) {
    assert.equal((await files.stat(name)).birthtimeMs, fs.statSync(name).birthtimeMs, name);
  }
  await same('stat', at('small'), { bigint: false });
  assert.equal(typeof (await files.stat(at('small'), { bigint: true })).size, 'bigint');
  const found = await files.stat(at('sub'));
  assert.ok(found instanceof fs.Stats && found.isDirectory() && found.mtime instanceof Date);
});

test('folders are listed as by Node', async () => {
  for (const name of ['', 'sub', 'absent', 'small']) {
    for (const options of [undefined, 'utf8', { withFileTypes: true }, { recursive: true }, 'buffer']) {
      await same('readdir', at(name), options);
    }
  }
});

test('files are written as by Node', async () => {
  for (const [data, options] of [['text'], ['ünt', 'latin1'], [Buffer.from('bytes')], [new Uint16Array([1, 2])],
    ['x', { mode: 0o600 }], ['y', { flag: 'a' }], ['z', { flag: 'r+' }], ['s', { flush: true }],
    [Buffer.alloc(2_000_000, 'q')], ['']]) {
    await files.writeFile(at('ours'), data, options);
    await fs.promises.writeFile(at('theirs'), data, options);
    assert.deepEqual(fs.readFileSync(at('ours')), fs.readFileSync(at('theirs')));
    await files.appendFile(at('ours'), 'more');
    await fs.promises.appendFile(at('theirs'), 'more');
    assert.deepEqual(fs.readFileSync(at('ours')), fs.readFileSync(at('theirs')));
    assert.equal(fs.statSync(at('ours')).mode, fs.statSync(at('theirs')).mode);
  }
  await same('writeFile', at('absent/file'), 'x');
  await same('writeFile', at('small'), 'x', { flag: 'wx' });
  await same('writeFile', '/dev/full', 'x');
  await same('writeFile', at('small'), {});
  for (const flag of ['r', 'rs', fs.constants.O_APPEND]) await same('writeFile', at('small'), 'lost', { flag });
  assert.equal(fs.readFileSync(at('small'), 'utf8'), 'grüße\n');
});

test('what cannot be written by a new file is refused, and the old one stays', async () => {
  fs.writeFileSync(at('kept'), 'old');
  const file = await files.open(at('kept'), 'r+');
  const invalid = { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE' };
  for (const options of [{ flag: 'a' }, { flag: 'wx' }, { flag: 'r+' }, { flag: 'r' }, { flag: 'no such' }, { encoding: 'no such' },
    { mode: 'x' }, { unknown: 1 }]) {
    await assert.rejects(files.writeFile(at('kept'), 'new', { ...options, replace: true }), invalid, JSON.stringify(options));
  }
  for (const call of [() => files.appendFile(at('kept'), 'new', { replace: true }), () => files.writeFile(file, 'new', { replace: true }),
    () => files.writeFile(Buffer.from(at('kept')), 'new', { replace: true }),
    () => files.writeFile(at('kept'), ['new'], { replace: true })]) await assert.rejects(call, invalid, `${call}`);
  await file.close();
  assert.equal(fs.readFileSync(at('kept'), 'utf8'), 'old');
});

test('a file that replaces another keeps its permissions or has the mode that is given, in the place of a link too', async () => {
  fs.writeFileSync(at('secret'), 'old', { mode: 0o600 });
  const old = fs.statSync(at('secret'));
  for (const mode of [undefined, null, old.mode]) {
    const { ino } = fs.statSync(at('secret'));
    await files.writeFile(at('secret'), 'new', { replace: true, mode });
    assert.equal(fs.statSync(at('secret')).mode, old.mode);
    assert.notEqual(fs.statSync(at('secret')).ino, ino);
  }
  fs.chmodSync(at('secret'), 0o646);
  await files.writeFile(at('secret'), 'new', { replace: true });
  assert.equal(fs.statSync(at('secret')).mode & 0o777, 0o646);
  await files.writeFile(at('secret'), 'new', { replace: true, mode: 0o666 });
  assert.equal(fs.statSync(at('secret')).mode & 0o777, 0o666 & ~process.umask());
  await files.writeFile(at('new secret'), 'new', { replace: true });
  assert.equal(fs.statSync(at('new secret')).mode & 0o777, 0o666 & ~process.umask());
  fs.symlinkSync('secret', at('link to secret'));
  await files.writeFile(at('link to secret'), 'of the link', { replace: true, flag: 'w' });
  assert.ok(fs.lstatSync(at('link to secret')).isFile());
  assert.equal(fs.readFileSync(at('secret'), 'utf8'), 'new');
});

test('a file that is replaced is whole at every moment', async () => {
  await files.writeFile(at('replaced'), 'old', { replace: true });
  const writing = files.writeFile(at('replaced'), 'new'.repeat(1000), { replace: true, flush: true });
  const seen = fs.readFileSync(at('replaced'), 'utf8');
  assert.ok(seen === 'old' || seen.length === 3000);
  await writing;
  assert.equal(fs.readFileSync(at('replaced'), 'utf8').length, 3000);
  await assert.rejects(files.writeFile(at('sub'), 'x', { replace: true }), { code: 'EISDIR' });
  assert.ok(!fs.readdirSync(folder).some((name) => name.includes('.tmp')));
});

test('paths are changed as by Node', async () => {
  const steps = (name) => [['mkdir', name('m')], ['mkdir', name('m')], ['mkdir', name('n'), { mode: 0o700 }],
    ['mkdir', name('n/no/n')], ['rename', name('n'), name('o')], ['rename', name('n'), name('p')],
    ['writeFile', name('file'), 'x'], ['link', name('file'), name('hard')], ['link', name('file'), name('hard')],
    ['chmod', name('file'), 0o640], ['chmod', name('absent'), '640'], ['access', name('file')],
    ['access', name('absent')], ['access', name('file'), 1], ['unlink', name('absent')], ['unlink', name('m')],
    ['rmdir', name('.')], ['rmdir', name('m')], ['unlink', name('hard')]];
  const run = async (functions, root) => {
    fs.mkdirSync(at(root));
    const outcomes = [];
    for (const [name, ...args] of steps((name) => at(root, name))) {
      outcomes.push([name, await outcome(() => functions[name](...args))]);
    }
    const left = fs.readdirSync(at(root)).map((name) => [name, fs.statSync(at(root, name)).mode]);
    return JSON.stringify([outcomes, left]).replaceAll(at(root), 'ROOT');
  };
  assert.equal(await run(files, 'ours.d'), await run(fs.promises, 'theirs.d'));
  await files.mkdir(at('ours.d/a/b'), { recursive: true });
  assert.ok(fs.existsSync(at('ours.d/a/b')));
});

test('an open file is read, written, synced and closed', async () => {
  const file = await files.open(at('handle'), 'w+');
  assert.equal((await file.write('hello', 3)).bytesWritten, 5);
  assert.equal((await file.write(Buffer.from('abc'), 0, 3, 0)).bytesWritten, 3);
  const { bytesRead, buffer } = await file.read(Buffer.alloc(20), 2, 10, 0);
  assert.deepEqual([bytesRead, buffer.toString('utf8', 2, 10)], [8, 'abchello']);
  const big = Buffer.alloc(200_000, 'z');
  assert.equal((await file.write(big, 0, big.length, 0)).bytesWritten, big.length);
  assert.equal((await file.read(Buffer.alloc(200_000), 0, 200_000, 0)).bytesRead, 200_000);
  await file.truncate(4);
  await file.sync();
  await file.datasync();
  assert.equal((await file.stat()).size, 4);
  await file.close();
  await file.close();
  await assert.rejects(file.read(Buffer.alloc(1), 0, 1, 0), { code: 'EBADF' });
  await same('open', at('absent'));
  await same('open', at('small'), 'wx');
});

// What each method of a handle does, or its error; a stream's and an iterator's, too.
const METHODS = [(h) => h.read(Buffer.alloc(4), 0, 4, 0), (h) => h.read(Buffer.alloc(4)), (h) => h.read(), (h) => h.write('abc', 1),
  (h) => h.write(Buffer.from('d')), (h) => h.readv([Buffer.alloc(2), Buffer.alloc(3)], 0), (h) => h.writev([Buffer.from('efg')], 2),
  async (h) => (await h.stat())?.size, async (h) => (await h.stat({ bigint: true })).size, (h) => h.chmod(0o640), (h) => h.chmod('no'),
  (h) => h.truncate(7), (h) => h.truncate('no'), (h) => h.sync(), (h) => h.datasync(), (h) => h.utimes(1, 2),
  (h) => h.chown(process.getuid(), process.getgid()), (h) => h.writeFile('hij'), (h) => h.appendFile(['k', Buffer.from('l')]),
  (h) => h.writeFile((async function* () { yield 'm\nn'; })()), (h) => h.writeFile(5), (h) => h.readFile('utf8'),
  async (h) => { const lines = []; for await (const line of h.readLines({ start: 0, autoClose: false })) lines.push(line); return lines; },
  async (h) => { const parts = []; for await (const part of h.createReadStream({ start: 1, end: 5, encoding: 'utf8', autoClose: false })) parts.push(part); return parts; },
  (h) => pipeline(['o', 'p'], h.createWriteStream({ start: 4 })), (h) => h.close(), (h) => h.fd];

test('each method of an open file and of a closed one does what that of Node does', { timeout: 300_000 }, async () => {
  const run = async (open, name) => {
    const file = await open(name, 'w+');
    const outcomes = [];
    for (const method of [...METHODS, ...METHODS]) {
      const { value, ...error } = await outcome(() => method(file));
      outcomes.push([`${method}`, value && !Object.getPrototypeOf(value) ? { ...value } : value, error]);
    }
    const { mode, size, mtimeMs } = fs.statSync(name);
    return { outcomes, mode, size, mtimeMs: mtimeMs > 2000, text: fs.readFileSync(name, 'utf8') };
  };
  const [ours, theirs] = [await run(files.open, at('ours.file')), await run(fs.promises.open, at('theirs.file'))];
  assert.deepEqual(ours, theirs);
});

test('a file is closed after the calls that are under way', async () => {
  for (const [call, bytes] of [[async (h) => (await h.readFile()).length, 300_001],
    [async (h) => (await h.read(Buffer.alloc(60_000), 0, 60_000, 0)).bytesRead, 60_000], [async (h) => (await h.stat()).size, 300_001]]) {
    const file = await files.open(at('large'));
    const ended = [];
    const called = call(file).then((value) => ended.push(value));
    const closed = file.close().then(() => ended.push('closed'));
    await assert.rejects(file.readFile(), { code: 'EBADF' });
    await Promise.all([called, closed]);
    assert.deepEqual(ended, [bytes, 'closed'], `${call}`);
  }
});

test('the functions for whole files take an open file', async () => {
  const file = await files.open(at('whole'), 'w+');
  await files.writeFile(file, 'one ');
  await files.appendFile(file, ['two', ' ', 'three']);
  assert.equal(await files.readFile(at('whole'), 'utf8'), 'one two three');
  assert.equal(await files.readFile(file, 'utf8'), '');
  await file.close();
  for (const call of [() => files.readFile(file), () => files.writeFile(file, 'x'), () => files.appendFile(file, 'x')]) {
    await assert.rejects(call, { code: 'EBADF' });
  }
  const own = await fs.promises.open(at('whole'));
  assert.equal(await files.readFile(own, 'utf8'), 'one two three');
  await own.close();
});

test('the default export has every function', () => {
  const { default: all, ...named } = files;
  assert.deepEqual({ ...all }, { ...named });
  const lacking = Object.keys(fs.promises).filter((name) => fs.promises[name] && !(name in all));
  assert.deepEqual(lacking.filter((name) => name !== 'glob'), ['lchmod']);
});

test('the environment says how many threads the engine starts', () => {
  const text = `import fs from 'node:fs'; import { stat } from ${JSON.stringify(pathToFileURL(path.join(here, '../lib/promises.js')).href)};
    const threads = () => fs.readdirSync('/proc/self/task').length; const before = threads();
    await stat('/'); console.log(threads() - before);`;
  const run = (workers) => spawnSync(process.execPath, ['--input-type=module', '-e', text],
    { encoding: 'utf8', env: { ...process.env, TRAPLESS_WORKERS: workers } });
  assert.equal(run('3').stdout, '3\n');
  assert.equal(run('').stdout, '64\n');
  for (const wrong of ['0', '-1', 'many', '5000', '1.5']) {
    assert.match(run(wrong).stderr, new RegExp(`TRAPLESS_WORKERS is '${wrong}'.*from 1 to 4096`));
  }
});

test('an error leads to the line that asked', async () => {
  async function asker() {
    await files.readFile(at('absent'));
  }
  const error = await asker().catch((thrown) => thrown);
  assert.match(error.stack, /at async asker/);
});

test('what is aborted is rejected as by Node', async () => {
  const abort = new AbortController();
  const reading = files.readFile(at('large'), { signal: abort.signal });
  abort.abort();
  await assert.rejects(reading, { name: 'AbortError', code: 'ABORT_ERR' });
  await assert.rejects(files.readFile(at('large'), { signal: abort.signal }), { name: 'AbortError' });
});

test('ten thousand at once, some aborted, each have their own result', async () => {
  const names = Array.from({ length: 200 }, (_, i) => at(`many-${i}`));
  names.forEach((name, i) => fs.writeFileSync(name, `${i}`));
  const all = Array.from({ length: 10_000 }, async (_, i) => {
    const abort = new AbortController();
    const reading = files.readFile(names[i % 200], { encoding: 'utf8', signal: abort.signal });
    if (i % 7 === 0) queueMicrotask(() => abort.abort());
    const value = await reading.catch((error) => error.name);
    assert.ok(value === `${i % 200}` || (i % 7 === 0 && value === 'AbortError'), `${i}: ${value}`);
  });
  await Promise.all(all);
});

test('many files by one call', async () => {
  const contents = new Map();
  for await (const [name, content] of files.readFiles([at('small'), at('empty'), at('absent')], { errors: true })) {
    contents.set(name, content);
  }
  assert.equal(contents.get(at('small')).toString(), 'grüße\n');
  assert.equal(contents.get(at('absent')).code, 'ENOENT');
  const [small, absent] = await files.lstats([at('small'), at('absent')]);
  assert.deepEqual([small.size, absent.code], [8, 'ENOENT']);
  const names = Array.from({ length: 1000 }, (_, i) => (i % 3 ? at('link') : at('absent', 'x'.repeat(i % 200))));
  for (const [i, found] of (await files.lstats(names)).entries()) {
    assert.deepEqual(await outcome(async () => { if (found instanceof Error) throw found; return found; }),
      await outcome(async () => fs.lstatSync(names[i])));
  }
  assert.deepEqual(await files.lstats([]), []);
  await assert.rejects(files.lstats(at('small')), { code: 'ERR_INVALID_ARG_VALUE' });
  const invalid = { code: 'ERR_INVALID_ARG_VALUE' };
  for (const list of [at('small'), undefined, null, 7]) {
    assert.throws(() => files.readFiles(list), invalid);
    await assert.rejects(files.lstats(list), invalid);
  }
  await assert.rejects(files.writeFile(at('odd'), 'x', { replace: 1 }), { code: 'ERR_INVALID_ARG_VALUE' });
  const below = [];
  for await (const [name, entry] of files.walk(at('sub'))) below.push([path.relative(folder, name), entry.isDirectory()]);
  assert.deepEqual(below.sort(), [['sub/below', true], ['sub/below/file', false]]);
});

test('many files are read with the options of one, and an error ends the loop where nothing else is said', async () => {
  const names = Array.from({ length: 90 }, (_, i) => at(i % 3 ? 'small' : i % 2 ? 'large' : 'empty'));
  for (const options of [undefined, null, 'utf8', 'hex', { encoding: 'utf-8' }, { flag: 'r' }, { signal: new AbortController().signal }]) {
    const found = [];
    for await (const [name, content] of files.readFiles(names, options)) {
      found.push(name);
      assert.deepEqual(content, fs.readFileSync(name, options?.signal ? undefined : options));
    }
    assert.deepEqual(found.sort(), [...names].sort());
  }
  const read = async (list, options) => { for await (const _ of files.readFiles(list, options)); };
  for (const name of [at('absent'), at('nul\0'), folder]) {
    assert.deepEqual(await outcome(() => read([at('small'), name])), await outcome(() => fs.promises.readFile(name)));
  }
  await assert.rejects(read(names, { signal: AbortSignal.abort() }), { name: 'AbortError' });
  for (const odd of ['no such', { encoding: 'no such' }, { errors: 1 }, { unknown: 1 }, 7]) {
    assert.throws(() => files.readFiles(names, odd), { code: 'ERR_INVALID_ARG_VALUE' }, JSON.stringify(odd));
  }
});

test('threads have engines of their own, and end while calls are under way', async () => {
  const text = `import { readFile } from ${JSON.stringify(pathToFileURL(path.join(here, '../lib/promises.js')).href)};
    import { parentPort, workerData } from 'node:worker_threads';
    parentPort.postMessage((await readFile(workerData, 'utf8')).length);
    for (;;) for (let i = 0; i < 100; i++) await readFile(workerData);`;
  const url = new URL(`data:text/javascript,${encodeURIComponent(text)}`);
  for (let round = 0; round < 5; round++) {
    const worker = new Worker(url, { workerData: at('small') });
    assert.equal(await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject)), 6);
    await worker.terminate();
  }
});

test('a call that blocks for ever lets the program end', () => {
  execFileSync('mkfifo', [at('fifo')]);
  const text = `import { readFile } from ${JSON.stringify(pathToFileURL(path.join(here, '../lib/promises.js')).href)};
    readFile(process.argv[1]); setTimeout(() => { console.log('end'); process.exit(0); }, 100);`;
  const ended = spawnSync(process.execPath, ['--input-type=module', '-e', text, at('fifo')], { encoding: 'utf8', timeout: 60_000 });
  assert.deepEqual([ended.status, ended.stdout], [0, 'end\n'], ended.stderr);
});

test('programs that nobody changed run on the engine', () => {
  const program = `const fs = require('fs'); const [, file, absent] = process.argv;
    fs.readFile(file, 'utf8', (error, text) => { console.log(error, text.length);
      fs.stat(absent, (error) => { console.log(error.code, error.path === absent);
        try { fs.readFile(file); } catch (error) { console.log(error.code); }
        fs.writeFile(absent + '2', 'x', (error) => fs.unlink(absent + '2', () => {
          console.log(error);
          fs.promises.readFile(file).then((bytes) => console.log(bytes.length));
        }));
      }); });`;
  const run = (...options) => execFileSync(process.execPath, [...options, '-e', program, at('small'), at('absent')], { encoding: 'utf8' });
  assert.equal(run('--import', register), run());
});

test('what is left to Node is done once, also in a program that nobody changed', () => {
  const program = `const { promises } = require('fs'); const [, file, folder] = process.argv;
    (async () => {
      console.log(await promises.mkdir(folder + '/a/b', { recursive: true }) === folder);
      console.log(typeof (await promises.stat(file, { bigint: true })).size);
      console.log((await promises.lstat(Buffer.from(file))).size);
      console.log((await promises.readFile(file, { flag: 'r+' })).length);
      await promises.writeFile(folder + '/file', (function* () { yield 'xyz'; })());
      await promises.appendFile(folder + '/file', Buffer.alloc(2 ** 21));
      console.log((await promises.readdir(folder, { recursive: true })).sort(), (await promises.stat(folder + '/file')).size);
      await promises.rm(folder, { recursive: true });
      await promises.chmod(file, 'x').catch((error) => console.log(error.code));
      await promises.access(file, 99).catch((error) => console.log(error.code));
    })();`;
  const run = (...options) => execFileSync(process.execPath, [...options, '-e', program, at('small'), at('made')], { encoding: 'utf8' });
  assert.equal(run('--import', register), run());
});
