# SPDX-License-Identifier: GPL-2.0-only
"""Lists the real programs that `trapless stat` is tried on, their work, and the proof that it was
done.

All work is of a known amount and the same in every run: no seed, no clock and no other process
decides how much is done. This file owns the choice; how a program is run is
part_programs.py's.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from trapless.stock.real_programs import SOURCE_FOLDER

HEADERS = "/usr/include"
SITE = "/tmp/site"
SERVED = "file"
WORK = "/tmp/work.sql"
DATABASE = "/tmp/database"
OUTPUT = "/tmp/output"
CONNECTIONS = 8
COMPILER = "usr/lib/gcc/x86_64-linux-gnu/12"
LUA = f"{SOURCE_FOLDER}/lua5.4/src"

FEATURES = "/sys/kernel/debug/sched/features"


def taking_turns(command: str) -> str:
    """The command while a woken process waits until the other sleeps: otherwise the order in which
    a server and its clients run would depend on how long each takes, which is what is compared."""
    begin, end = (f"echo {no}WAKEUP_PREEMPTION > {FEATURES}" for no in ("NO_", ""))
    return f"{begin}; {command}; status=$?; {end}; exit $status"


@dataclass(frozen=True)
class Subject:
    """A program of the stock root and its work.

    `programs` are packed with their libraries, `trees` are folders of the root with all in them.
    `after` proves, in the guest, that the work was done; what it prints is the same in every run.
    """

    name: str
    what: str  # for people
    package: str
    programs: tuple[str, ...]
    argv: tuple[str, ...]
    after: str
    trees: tuple[str, ...] = ()
    prepare: str = ""
    load: str = ""
    ready: str = ""


@dataclass(frozen=True)
class Sizes:
    """How much work there is."""

    redis_requests: int  # SET, and as many GET
    nginx_requests: int
    rows: int
    folders: tuple[str, ...]
    sources: tuple[str, ...]


TINY = ("lctype.c", "lzio.c", "lopcodes.c", "linit.c")
"""Sources of Lua: the fewer lines, the more of a compiler's calls among its instructions."""

FULL = Sizes(2000, 1000, 150, ("",), TINY)
QUICK = Sizes(500, 600, 40, ("/linux",), TINY[:2])


def subjects(sizes: Sizes) -> tuple[Subject, ...]:
    return (redis(sizes), nginx(sizes), sqlite(sizes), find(sizes), compiler(sizes))


def redis(sizes: Sizes) -> Subject:
    each = sizes.redis_requests
    return Subject(
        name="redis",
        what=f"server; redis-benchmark, {CONNECTIONS} connections, {each} SET and {each} GET",
        package="redis-tools",
        programs=tuple(f"usr/bin/redis-{name}" for name in ("check-rdb", "benchmark", "cli")),
        prepare="ln -s redis-check-rdb /usr/bin/redis-server",
        # Its own work, ten times a second, would fall into one run and not into the other.
        argv=("redis-server", "--save", "", "--hz", "1"),
        ready="redis-cli ping",
        # It ends after this number of replies, and fails at the first reply that is an error.
        load=taking_turns(f"redis-benchmark -q -n {each} -c {CONNECTIONS} -t set,get > {OUTPUT}"),
        after=f"tr '\\r' '\\n' < {OUTPUT} | grep -o -E '^(SET|GET): [0-9.]+ requests' | cut -c -4",
    )


NGINX = f"""\
daemon off; user nobody nogroup; worker_processes 1; pid /tmp/nginx.pid;
events {{}} http {{ access_log off; client_body_temp_path /tmp/nginx; proxy_temp_path /tmp/nginx;
fastcgi_temp_path /tmp/nginx; uwsgi_temp_path /tmp/nginx; scgi_temp_path /tmp/nginx;
server {{ listen 127.0.0.1:8080; root {SITE}; }} }}
"""


def nginx(sizes: Sizes) -> Subject:
    def ask(requests: int) -> str:
        return (
            f"ask --port 8080 --path /{SERVED} --expect {SITE}/{SERVED} "
            f"--connections {min(requests, CONNECTIONS)} --requests {requests} > {OUTPUT}"
        )

    return Subject(
        name="nginx",
        what=f"server; {sizes.nginx_requests} requests over {CONNECTIONS} connections, one each",
        package="nginx",
        programs=("usr/sbin/nginx",),
        prepare=f"printf %s {shlex.quote(NGINX)} > /tmp/nginx.conf",
        argv=("nginx", "-e", "/tmp/nginx.log", "-c", "/tmp/nginx.conf"),
        ready=ask(1),
        load=taking_turns(ask(sizes.nginx_requests)),
        after=f"grep -o 'requests.: [0-9]*, .failed.: [0-9]*' {OUTPUT} | tr -d '\"'",
    )


SQL = """\
BEGIN {
print "DROP TABLE IF EXISTS t; CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value INTEGER);"
for (i = 0; i < rows; i++)
    printf "INSERT INTO t (name, value) VALUES (\\047n%d\\047, %d);\\n", i * 7919 % 97, i
print "CREATE INDEX by_name ON t (name);"
for (i = 0; i < rows; i++)
    printf "SELECT count(*), sum(value) FROM t WHERE name = \\047n%d\\047;\\n", i * 31 % 97
print "DELETE FROM t WHERE value % 3 = 0; VACUUM; SELECT count(*), sum(id) FROM t;"
print "PRAGMA integrity_check;" }"""


def sqlite(sizes: Sizes) -> Subject:
    work = f"exec sqlite3 {DATABASE} < {WORK} > {OUTPUT}"
    return Subject(
        name="sqlite",
        what=f"{sizes.rows} transactions, an index, {sizes.rows} queries, a vacuum",
        package="sqlite3",
        programs=("usr/bin/sqlite3",),
        prepare=f"awk -v rows={sizes.rows} {shlex.quote(SQL)} > {WORK}",
        argv=("sh", "-c", work),
        after=f"tail -n 1 {OUTPUT}; md5sum < {OUTPUT}; sqlite3 {DATABASE} .dump | md5sum",
    )


def find(sizes: Sizes) -> Subject:
    trees = " ".join(f"{HEADERS}{folder}" for folder in sizes.folders)
    return Subject(
        name="find",
        what=f"find with stat of {trees}",
        package="findutils",
        programs=("usr/bin/find",),
        trees=(HEADERS.removeprefix("/"),),
        argv=("sh", "-c", f"exec find {trees} -printf '%p %s %m %y\\n' > {OUTPUT}"),
        after=f"wc -l < {OUTPUT}; md5sum < {OUTPUT}",
    )


def compiler(sizes: Sizes) -> Subject:
    objects = " ".join(source.replace(".c", ".o") for source in sizes.sources)
    return Subject(
        name="gcc",
        what=f"driver, compiler and assembler on {', '.join(sizes.sources)} of Lua",
        package="gcc-12",
        programs=("usr/bin/gcc-12", "usr/bin/as", f"{COMPILER}/cc1"),
        trees=(HEADERS.removeprefix("/"), f"{COMPILER}/include", LUA),
        prepare=f"cd /{LUA}",
        argv=("sh", "-c", f"cd /{LUA}; exec gcc-12 -std=gnu99 -c {' '.join(sizes.sources)}"),
        after=f"cd /{LUA}; md5sum {objects}",
    )
