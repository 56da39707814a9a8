# SPDX-License-Identifier: GPL-2.0-only
"""Stores of keys and a name server, each with one entry that everybody asks for.

This file owns their options, and the bytes of requests and replies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from eval.servers.shapes import Talk, content
from eval.servers.unmodified.server_description import Server, written

REDIS_SOCKET = "/tmp/redis"


def get(place: str) -> Callable[[int], Talk]:
    """GET of a key of so many bytes, in redis's protocol."""

    def talk(bytes_: int) -> Talk:
        value = b"$%d\r\n%s\r\n" % (bytes_, content(bytes_))
        store = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n" + value
        send = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"
        return Talk(place, value, send=send, first=((store, b"+OK\r\n"),))

    return talk


def redis() -> Server:
    return Server(
        name="redis",
        package="redis-tools",
        programs=("usr/bin/redis-check-rdb",),
        prepare="ln -s redis-check-rdb /usr/bin/redis-server",
        # Its own work, ten times a second, would fall into one run and not into the other.
        argv=("redis-server", "--save", "", "--hz", "1", "--unixsocket", REDIS_SOCKET),
        talk=get("--port 6379"),
        loads=("keep8", "keep1", "keep64", "keep512", "keep8-4k", "keep8-idle", "keep8-free"),
        requests=1024,
    )


def redis_unix() -> Server:
    """The same over a Unix socket."""
    loads = ("keep8", "keep1", "keep64")
    talk = get(f"--unix {REDIS_SOCKET}")
    return replace(redis(), name="redis-unix", talk=talk, loads=loads, modelled=False)


def memcached(threads: int) -> Server:
    def talk(bytes_: int) -> Talk:
        data = content(bytes_) + b"\r\n"
        store = b"set key 0 0 %d\r\n%s" % (bytes_, data)
        value = b"VALUE key 0 %d\r\n%sEND\r\n" % (bytes_, data)
        first = ((store, b"STORED\r\n"),)
        return Talk("--port 11211", value, send=b"get key\r\n", first=first)

    options = f"-u nobody -t {threads} -c 2048 -l 127.0.0.1 -U 0"
    return Server(
        name="memcached" if threads == 1 else f"memcached-{threads}",
        package="memcached",
        programs=("usr/bin/memcached",),
        argv=("memcached", *options.split()),
        talk=talk,
        loads=("keep8", "keep1", "keep64", "keep8-4k", "keep8-free")
        if threads == 1
        else ("keep8", "keep64"),
        requests=1024,
        modelled=threads == 1,
    )


NAMED = """\
options { directory "/tmp"; listen-on port 5353 { 127.0.0.1; }; listen-on-v6 { none; };
recursion no; dnssec-validation no; minimal-responses yes; pid-file none;
session-keyfile "/tmp/session.key"; }; controls { };
zone "test" { type primary; file "/tmp/zone"; };
"""
ZONE = """\
$TTL 300
@ SOA a a 1 3600 600 86400 300
@ NS a
a A 192.0.2.1
"""


def bind() -> Server:
    """BIND, asked over UDP for one address."""
    question = b"\x01a\x04test\0" + struct.pack(">HH", 1, 1)
    answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 300, 4) + bytes((192, 0, 2, 1))

    def talk(_bytes: int) -> Talk:
        send = struct.pack(">6H", 0x5454, 0, 1, 0, 0, 0) + question
        reply = struct.pack(">6H", 0x5454, 0x8400, 1, 1, 0, 0) + question + answer
        return Talk("--udp 5353", reply, send=send)

    return Server(
        name="bind",
        package="bind9",
        programs=("usr/sbin/named",),
        prepare=written(NAMED, "/tmp/named.conf") + written(ZONE, "/tmp/zone"),
        argv=("named", "-f", "-n", "1", "-c", "/tmp/named.conf"),
        talk=talk,
        loads=("keep8", "keep1", "keep64", "keep8-free"),
        requests=512,
        ready_limit_s=600,
    )
