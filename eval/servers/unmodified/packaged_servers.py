# SPDX-License-Identifier: GPL-2.0-only
"""The servers of Debian's packages that are counted, in the order of the report.

This file owns the choice and the packages. How each is started and what is asked of it is in
web_servers.py, key_stores.py and databases.py; how they are run is counting.py's.
"""

from __future__ import annotations

from eval.servers.unmodified import databases, key_stores, web_servers
from eval.servers.unmodified.server_description import Server

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
    "strace",  # records the calls of some of them
)


def servers(*, quick: bool) -> tuple[Server, ...]:
    """Those of a run."""
    if quick:
        return (web_servers.nginx(), key_stores.redis())
    return (
        web_servers.nginx(),
        key_stores.redis(),
        key_stores.redis_unix(),
        key_stores.memcached(1),
        key_stores.memcached(4),
        web_servers.apache(),
        web_servers.haproxy(),
        key_stores.bind(),
        databases.postgres(),
        databases.mariadb(),
        web_servers.node(),
        web_servers.caddy(),
    )
