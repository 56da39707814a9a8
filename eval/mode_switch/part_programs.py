# SPDX-License-Identifier: GPL-2.0-only
"""Runs real, unmodified programs in both modes: the share of their calls that supervisor mode took,
and what it saved them.

This file owns the programs, what they work on, and the figures. eval/tools/modes runs them.
"""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eval.mode_switch import spec
from eval.tools.modes import modes
from eval.tools.modes.modes import Program, Runs
from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw, tool
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.stock import real_programs
from trapless.vm.lab import LabConfig

LONG = frozenset({"node", "python3", "git"})
"""Take two thirds of the time: they are for full runs."""
LIMIT_S = 4 * 3600
"""By the guest's clock, which runs ahead of ours while a counted guest waits for a file."""
TIMEOUT_S = 4 * 3600.0
SHARE_MIN = 0.95
"""The share of a program's calls that must return in supervisor mode."""

TREE = "/tmp/tree"
SOURCES = ("lib", "include")  # of this project: what the compiler is given

PREPARE = f"""\
cp -r /usr/lib/python3.11 {TREE}
find {TREE} -exec touch -h -d @1000000000 {{}} +
find {TREE} | sort > /tmp/names
for i in 1 2 3 4 5 6 7 8; do cat /tmp/names; done > /tmp/many-names
ln -s /usr/bin/redis-check-rdb /tmp/redis-server"""

PYTHON = f"""\
import concurrent.futures, hashlib, json, os, time
def digest(path):
    with open(path, "rb") as file:
        return path, hashlib.sha256(file.read()).hexdigest(), os.stat(path).st_size
paths = sorted(os.path.join(top, name) for top, _, names in os.walk("{TREE}") for name in names)
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(json.dumps(list(pool.map(digest, paths))))
before = time.monotonic_ns()
for _ in range(20000):
    now = time.monotonic_ns()
    assert before <= now
    before = now
"""

GIT = f"""\
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_AUTHOR_DATE=@1000000000+0000
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_COMMITTER_DATE=@1000000000+0000
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0
export GIT_CONFIG_KEY_1=init.defaultBranch GIT_CONFIG_VALUE_1=main
rm -rf /tmp/repository; git init -q /tmp/repository; cd /tmp/repository
cp -a {TREE}/json {TREE}/email {TREE}/asyncio .
git add .; git commit -q -m one
sed -i s/import/export/ json/*.py; git rm -q -r email
git commit -q -a -m two
git log --stat; git diff HEAD~1 | sha256sum; git fsck --full
git checkout -q HEAD~1; git status --porcelain; git rev-parse HEAD main
"""

SQL = """\
import random
generator = random.Random(20)
print("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value INTEGER);")
for i in range(300):
    print(f"INSERT INTO t (name, value) VALUES ('n{generator.randrange(90)}', {i});")
print("CREATE INDEX by_name ON t (name);")
print("SELECT name, count(*), sum(value) FROM t GROUP BY name ORDER BY name;")
print("DELETE FROM t WHERE value % 3 = 0; VACUUM; SELECT count(*), sum(id) FROM t;")
print("PRAGMA integrity_check;")
"""

NODE = f"""\
const fs = require('fs'), crypto = require('crypto'), path = require('path');
const walk = (top) => fs.readdirSync(top, {{withFileTypes: true}}).sort((a, b) =>
  a.name < b.name ? -1 : 1).flatMap((e) => e.isDirectory() ? walk(path.join(top, e.name)) :
  [path.join(top, e.name)]);
let words = 0;
for (const name of walk('{TREE}')) {{
  const data = fs.readFileSync(name);
  words += data.toString('latin1').split(/\\s+/).length;
  console.log(name, data.length, crypto.createHash('sha1').update(data).digest('hex'));
}}
Promise.all(Array.from({{length: 50}}, (_, i) => fs.promises.readFile('{TREE}/os.py')))
  .then((all) => console.log(words, all.map((data) => data.length).join()));
"""

LUA = """\
io.stdout:setvbuf('no')
local sum, count = 0, 0
for line in io.lines('/tmp/names') do
  local file = io.open(line)
  local data = file and file:read(4096)
  if file then file:close() end
  for i = 1, data and #data or 0 do sum = (sum * 31 + data:byte(i)) % 4294967291 end
  count = count + 1
  io.write(count, ' ', sum, '\\n')
end
"""

REDIS_TESTS = "set,get,incr,lpush,rpush,lpop,sadd,hset,zadd"
REDIS_EACH, QUICK_REDIS_EACH = 400, 80
"""Requests of each kind; the talk, whose replies are compared, has as many as four kinds."""
REDIS_TALK = """\
for i in range(each * 3 // 4):
    print(f"SET key{i % 70} value{i}", f"GETRANGE key{i % 50} 0 6", f"APPEND log {i},", sep="\\n")
    print(f"ZADD scores {i * 7 % 101} member{i % 40}", f"ZRANK scores member{i % 60}", sep="\\n")
print("ZRANGE scores 0 -1 WITHSCORES", "GET log", "GET nothing", "LPUSH log x", sep="\\n")
"""

NGINX = """\
daemon off; user nobody nogroup; worker_processes 1; pid /tmp/nginx.pid;
events {} http { access_log off; client_body_temp_path /tmp/nginx; proxy_temp_path /tmp/nginx;
fastcgi_temp_path /tmp/nginx; uwsgi_temp_path /tmp/nginx; scgi_temp_path /tmp/nginx;
server { listen 127.0.0.1:8080; root /tmp/tree; } }
"""
NGINX_CHECK = f"""\
local file = io.open('{TREE}/os.py')
local want, threads = file:read('*a'), {{}}
function setup(thread) threads[#threads + 1] = thread end
function init() wrong = 0 end
function response(status, _, body)
  if status ~= 200 or body ~= want then wrong = wrong + 1 end
end
function done(summary)
  local bad = 0
  for _, thread in ipairs(threads) do bad = bad + thread:get('wrong') end
  local e = summary.errors
  print('wrong ' .. bad .. ', errors ' .. e.connect + e.read + e.write + e.status + e.timeout)
  print('requests ' .. summary.requests)
end
"""
WRK = "wrk -t 1 -c 8 -d 1s --timeout 60s -s /tmp/check.lua http://127.0.0.1:8080/os.py > /tmp/wrk"
NGINX_LOAD = f"{WRK} || exit 1; tail -n 2 /tmp/wrk"
QUICK_NGINX_LOAD = f"{WRK} & sleep 0.2; kill -INT $!; wait $! || exit 1; tail -n 2 /tmp/wrk"
"""A fifth of the requests: wrk itself takes whole seconds, and sums up when it is interrupted. On a
busy machine it may still be read from its file by then, while the guest's time goes on. A command
in the background ignores the signal until wrk has its own handler, and it takes its second then."""


def written(text: str, path: str) -> str:
    """A line of shell that puts `text` at `path`."""
    return f"printf %s {shlex.quote(text)} > {path}"


def redis(each: int) -> Program:
    """So many requests of each kind by redis-benchmark, and the talk."""
    talk = f"each = {each}\n{REDIS_TALK}"
    load = f"""\
redis-cli flushall
redis-benchmark -q -e -n {each} -c 8 -t {REDIS_TESTS} > /tmp/benchmark || exit 1
tr '\\r' '\\n' < /tmp/benchmark | grep -i error && exit 1
redis-cli get counter:__rand_int__
redis-cli llen mylist
redis-cli dbsize
redis-cli < /tmp/talk
redis-cli debug digest
echo requests {each * len(REDIS_TESTS.split(","))}"""
    return Program(
        "redis",
        "server under redis-benchmark",
        ("/tmp/redis-server", "--save", "", "--enable-debug-command", "yes"),
        prepare=f"python3 -c {shlex.quote(talk)} > /tmp/talk",
        port=6379,
        load=load,
    )


PROGRAMS = (
    Program("busybox", "static; du over a tree", ("busybox", "du", "-a", TREE)),
    Program("ls", "ls -lR of a tree", ("ls", "-lR", TREE)),
    Program("find", "find with stat of a tree", ("find", TREE, "-printf", "%p %s %m %y\\n")),
    Program("tar", "a tree as an archive", ("tar", "-c", "--sort=name", "-f", "-", TREE)),
    Program("python3", "hashes a tree by threads; clock by vDSO", ("python3", "-c", PYTHON)),
    Program("git", "repository made, changed, checked; by many processes", ("sh", "-c", GIT)),
    Program(
        "sqlite3",
        "300 transactions, an index, a vacuum",
        ("sh", "-c", "rm -f /tmp/database; exec sqlite3 /tmp/database"),
        input="/tmp/work.sql",
        prepare=f"python3 -c {shlex.quote(SQL)} > /tmp/work.sql",
    ),
    Program(
        "cc1",
        "the C compiler on a file of the library",
        (
            "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
            *("-quiet", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE", "-O1", "-g"),
            *(
                "-I",
                "/tmp/source/include",
                "-I",
                "/tmp/source/include/uapi",
                "-I",
                "/tmp/source/lib",
            ),
            *("/tmp/source/lib/psc/psc.c", "-o", "-"),
        ),
    ),
    Program("fzf", "Go; filters names by goroutines", ("fzf", "-f", "py"), input="/tmp/many-names"),
    Program("node", "code made at run time, threads; hashes a tree", ("node", "-e", NODE)),
    Program("luajit", "code made at run time; reads a tree", ("luajit", "-e", LUA)),
    redis(REDIS_EACH),
    Program(
        "nginx",
        "server under wrk, every reply compared",
        ("nginx", "-e", "/tmp/nginx.log", "-c", "/tmp/nginx.conf"),
        prepare=f"{written(NGINX, '/tmp/nginx.conf')}; {written(NGINX_CHECK, '/tmp/check.lua')}",
        port=8080,
        load=NGINX_LOAD,
    ),
)


def quick_programs() -> tuple[Program, ...]:
    """Those of a quick run: without the long ones, and servers with fewer requests."""
    return tuple(shorter(program) for program in PROGRAMS if program.name not in LONG)


def shorter(program: Program) -> Program:
    """A server with fewer requests; any other as it is."""
    if program.name == "redis":
        return redis(QUICK_REDIS_EACH)
    return replace(program, load=QUICK_NGINX_LOAD) if program.name == "nginx" else program


def guest_files() -> tuple[tuple[Path, str], ...]:
    """The files for the guest: the runner, and the sources for the compiler."""
    root = repo_root()
    sources = [path for top in SOURCES for path in sorted((root / top).rglob("*.[ch]"))]
    named = [(path, f"{modes.BROUGHT}/source/{path.relative_to(root)}") for path in sources]
    return ((tool("modes/modes"), modes.GUEST_PROGRAM), *named)


def guest_script(chosen: Sequence[Program], repeats: int, kind: str, after: str) -> list[str]:
    """Prepare, then run each program; `after` is what the shell does about one that failed."""
    lines = ["set -e", PREPARE, *(program.prepare for program in chosen if program.prepare)]
    for number, program in enumerate(chosen, 1):
        lines.append(f"{modes.shell_line(program, repeats, kind, LIMIT_S)} || {after}")
        lines.append(f'echo \'{{"progress": {number}, "total": {len(chosen)}}}\'')
    return [*lines, "echo '{\"complete\": true}'"]


def collect(run: Collection) -> None:
    """Run the programs, counted, on one CPU."""
    root = real_programs.unpacked(run.progress)
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        icount=True,
        files=guest_files(),
        timeout_s=TIMEOUT_S,
        module_parameters="supervisor=1",
    )
    chosen = quick_programs() if run.quick else PROGRAMS
    script = guest_script(chosen, run.chosen(spec.PROGRAM_REPEATS), "counted", "exit 1")
    rows = run.boot("counted", modes.guest_config(config), modes.guest_argv(root, script))
    check(rows)
    versions = {name: root.versions[package] for name, package in PACKAGE_OF.items()}
    run.write([{"versions": versions}])


def check(rows: Sequence[Row]) -> None:
    """Checks that supervisor mode took the calls that it should; otherwise no figure can be
    trusted."""
    for name, runs in modes.runs_of(rows).items():
        for calls, share in zip(runs.calls, runs.shares, strict=True):
            if share < SHARE_MIN:
                raise TraplessError(
                    f"{name}: {share:.1%} of {calls.total} calls returned in supervisor "
                    f"mode, at least {SHARE_MIN:.0%} should: {calls}"
                )


PACKAGE_OF = {
    "busybox": "busybox-static",
    "ls": "coreutils",
    "find": "findutils",
    "tar": "tar",
    "python3": "python3.11",
    "git": "git",
    "sqlite3": "sqlite3",
    "cc1": "cpp-12",
    "fzf": "fzf",
    "node": "nodejs",
    "luajit": "luajit",
    "redis": "redis-tools",
    "nginx": "nginx",
}
"""The package that each program is from."""


def metric(values: Sequence[float], unit: str) -> Metric:
    spread = max(values) - min(values)
    return Metric(statistics.median(values), unit, "counted", len(values), spread)


def analyse(raw: Raw) -> Findings:
    metrics = {}
    for name, runs in modes.runs_of(raw.rows).items():
        metrics[f"{name}.trap.total.instructions"] = metric(runs.trap, "instructions")
        if not runs.supervisor:
            continue
        metrics[f"{name}.supervisor.total.instructions"] = metric(runs.supervisor, "instructions")
        metrics[f"{name}.supervisor.share.ratio"] = metric(runs.shares, "ratio")
        metrics[f"{name}.supervisor.saved.ratio"] = saved(runs)
    return Findings(metrics)


def saved(runs: Runs) -> Metric:
    """The part of the instructions by traps that supervisor mode saves.

    The spread is the possible error of the difference: the spreads of both modes together.
    """
    trap, supervisor = metric(runs.trap, "instructions"), metric(runs.supervisor, "instructions")
    return Metric(
        value=1 - supervisor.value / trap.value,
        unit="ratio",
        kind="counted",
        n=len(runs.supervisor),
        spread=(trap.spread + supervisor.spread) / trap.value,
    )


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    versions: Row = next((row["versions"] for row in raw.rows if "versions" in row), {})
    results = modes.runs_of(raw.rows)
    rows = [
        table_row(program, results[program.name], versions.get(program.name, ""))
        for program in PROGRAMS
        if program.name in results and results[program.name].supervisor
    ]
    if not rows:  # supervisor mode is refused here
        return ()
    return (
        Table(
            id="programs",
            title="Real programs in supervisor mode, unmodified",
            columns=(
                "program",
                "what it does",
                "calls",
                "in supervisor mode",
                "instructions by traps",
                "in supervisor mode",
                "saved",
                "saved per call",
            ),
            rows=tuple(rows),
            caption="Processor time of the program and all processes that it started, which under "
            "the emulator's instruction count is instructions, user space and kernel; from fork "
            "to exit, and for servers per request. User and supervisor mode by turns in one boot; "
            "every run printed the same, every reply of a server was the same, also while it was "
            "switched back and forth. Calls and their share are the module's counts. Medians; "
            "threads and garbage collection make runs differ, and what is saved is shown with the "
            "spread of both modes. A stock kernel zeroes fresh memory, which the emulator counts "
            "as up to 4096 instructions a page: the saved share is smaller than it is in time.",
            kind="counted",
        ),
    )


def table_row(program: Program, runs: Runs, version: str) -> tuple[str, ...]:
    operations, saving = runs.operations[0], saved(runs)
    each = " a request" if operations > 1 else ""
    calls = statistics.median(calls.total for calls in runs.calls) / operations
    trap, supervisor = statistics.median(runs.trap), statistics.median(runs.supervisor)
    clear = saving.value > saving.spread
    return (
        f"{program.name} {upstream(version)}".strip(),
        program.what,
        f"{calls:,.{2 if each else 0}f}{each}",
        f"{min(runs.shares):.2%}",
        amount(trap) + each,
        amount(supervisor) + each,
        f"{saving.value:.2%} ± {saving.spread:.2%}",
        f"{(trap - supervisor) / calls:.0f}" if clear else "below the spread",
    )


def upstream(version: str) -> str:
    """A Debian version without epoch and revision: what the program calls itself.

    >>> upstream("1:2.39.5-0+deb12u3"), upstream("2.1.0~beta3+git20220320+dfsg-4.1")
    ('2.39.5', '2.1.0')
    """
    return re.sub(r"^\d+:|[-+~].*$", "", version)


def amount(instructions: float) -> str:
    if instructions < 1e6:
        return f"{instructions:,.0f}"
    return f"{instructions / 1e6:,.1f} M"
