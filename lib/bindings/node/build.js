// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
// Builds the addon by the machine's C compiler, with libtrapless inside. In a checkout the library's
// sources are two folders up; `npm pack` puts a copy of them into vendor/ for the package.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const vendor = join(here, 'vendor');
const checkout = join(here, '../../..');

function fail(text) {
  console.error(`trapless: ${text}`);
  process.exit(1);
}

const FOLDERS = ['lib', 'lib/batch', 'lib/files', 'lib/psc', 'lib/sched'];

// Files of one folder of the library, by the end of their names.
function filesOf(root, folder, end) {
  return readdirSync(join(root, folder)).filter((name) => end.test(name)).map((name) => join(folder, name));
}

function copySources() {
  rmSync(vendor, { recursive: true, force: true });
  for (const file of FOLDERS.flatMap((folder) => filesOf(checkout, folder, /\.[ch]$/))) {
    cpSync(join(checkout, file), join(vendor, file), { recursive: true });
  }
  cpSync(join(checkout, 'include'), join(vendor, 'include'), { recursive: true });
}

// node_api.h: of the npm package, of this Node, or of Debian's libnode-dev.
function headersFolder() {
  const own = join(dirname(dirname(process.execPath)), 'include/node');
  try {
    return createRequire(import.meta.url)('node-api-headers').include_dir;
  } catch {
    const found = [own, '/usr/include/node'].find((folder) => existsSync(join(folder, 'node_api.h')));
    return found ?? fail('node_api.h is missing; run `npm install` here, or install the headers of Node (Debian: libnode-dev)');
  }
}

function build() {
  const root = existsSync(vendor) ? vendor : checkout;
  if (!existsSync(join(root, 'include/trapless.h'))) fail(`no sources of libtrapless in ${root}`);
  const headers = headersFolder();
  const compiler = process.env.CC || 'cc';
  const out = join(here, 'build');
  mkdirSync(out, { recursive: true });
  const done = spawnSync(compiler, [
    '-std=gnu11', '-D_GNU_SOURCE', '-O2', '-g', '-fPIC', '-shared', '-fvisibility=hidden', '-pthread',
    `-I${join(root, 'include')}`, `-I${join(root, 'include/uapi')}`, `-I${join(root, 'lib')}`, `-I${headers}`,
    // Threads of an engine whose calls block stay when the thread of Node that loaded the addon ends.
    '-Wl,-z,nodelete',
    '-o', join(out, 'trapless.node'), ...filesOf(here, 'src', /\.c$/).map((file) => join(here, file)),
    ...FOLDERS.flatMap((folder) => filesOf(root, folder, /\.c$/)).map((file) => join(root, file)),
  ], { stdio: 'inherit' });
  if (done.error) fail(`${compiler}: ${done.error.message}; install a C compiler (Debian: apt-get install gcc libc6-dev), or name one in CC`);
  if (done.status) fail(`${compiler} ended with status ${done.status}`);
}

if (process.platform !== 'linux' || process.arch !== 'x64') fail(`runs on Linux x64 only, not ${process.platform} ${process.arch}`);
if (process.argv.includes('--vendor')) copySources();
else if (process.argv.includes('--unvendor')) rmSync(vendor, { recursive: true, force: true });
else build();
