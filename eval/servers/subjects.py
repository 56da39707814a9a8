# SPDX-License-Identifier: GPL-2.0-only
"""Lists the servers: how each is started, what is asked of it, and under which loads it is counted.

All are packages of Debian, unmodified, with the least configuration that serves. This file owns the
choice; how they are run is counting.py's.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from eval.servers.shapes import Shape, Talk, content, shape

ROOT = "servers"
"""The root of the servers' packages in the cache."""

PACKAGES = (
    "apache2-bin",
    "bind9",
    "caddy",  # written in Go
    "haproxy",
    "mariadb-server-core",
    "memcached",
    "nginx",
    "nodejs",
    "postgresql-15",
    "redis-tools",  # redis-check-rdb is the server, too, under the server's name
)

PORT = 8080
SITE = "/tmp/site"


@dataclass(frozen=True)
class Server:
    """A server of the stock root. `programs` are packed with their libraries, `trees` are folders
    of the root with all in them.

    `talk` says what is asked of it, by the bytes of a reply. `loads` are the names of shapes; the
    first is the one that the model sees, too, and that quick runs have. `requests` are those of a
    run.
    """

    name: str
    package: str
    programs: tuple[str, ...]
    argv: tuple[str, ...]
    talk: Callable[[int], Talk]
    loads: tuple[str, ...]
    requests: int
    prepare: str = ""
    trees: tuple[str, ...] = ()
    ready_limit_s: int = 60

    def shapes(self, *, quick: bool) -> tuple[Shape, ...]:
        """Its loads."""
        return tuple(shape(name, self.requests) for name in self.loads[: 1 if quick else None])


def servers(*, quick: bool) -> tuple[Server, ...]:
    """Those of a run."""
    return (nginx(), redis()) if quick else (nginx(), redis(), redis_unix())


# ---- Web servers -------------------------------------------------------------------------------


def http(bytes_: int) -> Talk:
    return Talk(f"--port {PORT}", content(bytes_), path=f"/{bytes_}")


NGINX = f"""\
daemon off; user nobody nogroup; worker_processes 1; pid /tmp/nginx.pid;
worker_rlimit_nofile 4096; events {{ worker_connections 2048; }}
http {{ access_log off; keepalive_requests 1000000; client_body_temp_path /tmp/nginx;
proxy_temp_path /tmp/nginx; fastcgi_temp_path /tmp/nginx; uwsgi_temp_path /tmp/nginx;
scgi_temp_path /tmp/nginx; server {{ listen 127.0.0.1:{PORT} backlog=1024; root {SITE}; }} }}
"""


def nginx() -> Server:
    return Server(
        name="nginx",
        package="nginx",
        programs=("usr/sbin/nginx",),
        prepare=f"printf %s {shlex.quote(NGINX)} > /tmp/nginx.conf",
        argv=("nginx", "-e", "/tmp/nginx.log", "-c", "/tmp/nginx.conf"),
        talk=http,
        loads=(
            "keep8", "keep1", "keep64", "keep512", "close1", "close8", "close64", "keep8-4k",
            "keep8-idle", "keep8-free",
        ),
        requests=512,
    )  # fmt: skip


# ---- Stores of keys ----------------------------------------------------------------------------


def get(place: str) -> Callable[[int], Talk]:
    """GET of a key of so many bytes, in redis's protocol."""

    def talk(bytes_: int) -> Talk:
        value = b"$%d\r\n%s\r\n" % (bytes_, content(bytes_))
        store = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n" + value
        send = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"
        return Talk(place, value, send=send, first=((store, b"+OK\r\n"),))

    return talk


REDIS_SOCKET = "/tmp/redis"


def redis() -> Server:
    return Server(
        name="redis",
        package="redis-tools",
        programs=("usr/bin/redis-check-rdb",),
        prepare="ln -s redis-check-rdb /usr/bin/redis-server",
        # What it does ten times a second by itself would fall into one run and not into the other.
        argv=("redis-server", "--save", "", "--hz", "1", "--unixsocket", REDIS_SOCKET),
        talk=get("--port 6379"),
        loads=("keep8", "keep1", "keep64", "keep512", "keep8-4k", "keep8-idle", "keep8-free"),
        requests=1024,
    )


def redis_unix() -> Server:
    """The same over a Unix socket."""
    over = redis()
    return Server(
        **{**vars(over), "name": "redis-unix", "talk": get(f"--unix {REDIS_SOCKET}")}
        | {"loads": ("keep8", "keep1", "keep64")}
    )
