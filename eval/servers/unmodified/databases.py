# SPDX-License-Identifier: GPL-2.0-only
"""Databases, each with one row that everybody asks for.

This file owns how they are set up in the guest, and the bytes of their protocols as far as one
query takes.
"""

from __future__ import annotations

import struct

from eval.servers.shapes import Talk, content
from eval.servers.unmodified.server_description import Server

DATA = "/tmp/data"

# ---- PostgreSQL --------------------------------------------------------------------------------

PROGRAMS = "usr/lib/postgresql/15/bin"
LIBRARIES = "usr/lib/postgresql/15/lib"
READY = b"Z\0\0\0\x05I"
POSTGRES_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "/tmp",
    "fsync": "off",
    "autovacuum": "off",
    "max_connections": "80",
    "shared_buffers": "16MB",
    "bgwriter_delay": "10s",
    "wal_writer_delay": "10s",
}


def message(kind: bytes, body: bytes) -> bytes:
    """A message of PostgreSQL's protocol."""
    return kind + struct.pack(">I", 4 + len(body)) + body


def ask_postgres(bytes_: int) -> Talk:
    value = content(bytes_)
    login = message(b"", struct.pack(">I", 3 << 16) + b"user\0nobody\0database\0postgres\0\0")
    table = b"CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, '%s')\0" % value
    column = b"v\0" + struct.pack(">IHIhih", 0, 0, 25, -1, -1, 0)
    reply = (
        message(b"T", struct.pack(">H", 1) + column)
        + message(b"D", struct.pack(">HI", 1, bytes_) + value)
        + message(b"C", b"SELECT 1\0")
        + READY
    )
    return Talk(
        "--port 5432",
        reply,
        send=message(b"Q", b"SELECT v || '' AS v FROM t WHERE k = 1\0"),
        opening=((login, READY),),
        first=((message(b"Q", table), READY),),
    )


def postgres() -> Server:
    options = " ".join(f"-c {name}={value}" for name, value in POSTGRES_OPTIONS.items())
    make = f"initdb -D {DATA} -U nobody -A trust --no-sync --locale=C -E UTF8 > /tmp/initdb.log"
    path = f"export PATH=/{PROGRAMS}:$PATH"
    return Server(
        name="postgres",
        package="postgresql-15",
        programs=(
            *(f"{PROGRAMS}/{name}" for name in ("postgres", "initdb")),
            *(f"{LIBRARIES}/{name}.so" for name in ("dict_snowball", "plpgsql")),
        ),
        trees=("usr/share/postgresql/15",),
        prepare=f"mkdir {DATA}; chown nobody {DATA}; su -s /bin/sh nobody -c '{path}; {make}'",
        argv=(
            "su", "-s", "/bin/sh", "nobody", "-c",
            f"cd /tmp; exec /{PROGRAMS}/postgres -D {DATA} {options} > /tmp/postgres.log 2>&1",
        ),
        talk=ask_postgres,
        loads=("keep8",),
        requests=256,
        ready_limit_s=600,
    )  # fmt: skip


# ---- MariaDB -----------------------------------------------------------------------------------

PLUGIN = b"mysql_native_password\0"
CAPABILITIES = 0x0008_8201  # protocol 4.1, secure connection, authentication by plug-in
UTF8 = 33


def packet(number: int, body: bytes) -> bytes:
    """A packet of MariaDB's protocol."""
    return struct.pack("<I", len(body))[:3] + bytes((number,)) + body


def text(value: bytes) -> bytes:
    """A string with its length."""
    return (
        bytes((len(value),)) if len(value) < 251 else b"\xfc" + struct.pack("<H", len(value))
    ) + (value)


DONE = b"\x02\0\0\0"
"""How the answer to a statement without a result ends: the state of the connection, no warning."""


def ask_mariadb(bytes_: int) -> Talk:
    value = content(bytes_)
    login = struct.pack("<IIB23x", CAPABILITIES, 1 << 24, UTF8) + b"root\0\0" + PLUGIN
    steps = (
        b"CREATE DATABASE d",
        b"CREATE TABLE d.t (k INT PRIMARY KEY, v TEXT CHARACTER SET latin1) ENGINE=InnoDB",
        b"INSERT INTO d.t VALUES (1, '%s')" % value,
    )
    column = b"".join(map(text, (b"def", b"", b"", b"", b"v", b"")))
    column += b"\x0c" + struct.pack("<HIBHB2x", UTF8, 3 * 0xFFFF, 0xFC, 0, 39)  # a text
    end = b"\xfe\0\0\x02\0"
    reply = (
        packet(1, b"\x01")
        + packet(2, column)
        + packet(3, end)
        + packet(4, text(value))
        + packet(5, end)
    )
    return Talk(
        "--port 3306",
        reply,
        send=packet(0, b"\x03SELECT CONCAT(v, '') AS v FROM d.t WHERE k = 1"),
        opening=((b"", PLUGIN), (packet(1, login), DONE)),
        first=tuple((packet(0, b"\x03" + step), DONE) for step in steps),
    )


MARIADB_OPTIONS = (
    "--no-defaults", "--user=root", f"--datadir={DATA}", "--socket=/tmp/mariadb.sock",
    "--bind-address=127.0.0.1", "--skip-grant-tables", "--skip-log-bin", "--skip-name-resolve",
    "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M", "--innodb-flush-method=fsync",
    "--thread-cache-size=64", "--lc-messages-dir=/usr/share/mysql",
    "--plugin-dir=/tmp", "--log-error=/tmp/mariadb.log", "--skip-networking=0",
)  # fmt: skip


def mariadb() -> Server:
    return Server(
        name="mariadb",
        package="mariadb-server-core",
        programs=("usr/sbin/mariadbd",),
        trees=("usr/share/mysql/english", "usr/share/mysql/charsets"),
        prepare=f"mkdir {DATA}",
        argv=("mariadbd", *MARIADB_OPTIONS),
        talk=ask_mariadb,
        loads=("keep8",),
        requests=256,
        ready_limit_s=600,
        uneven=("keep8",),
    )
