# SPDX-License-Identifier: GPL-2.0-only
"""Answers requests by HTTP: /metrics for Prometheus, / for people, /healthz for supervisors.

Owns the port, and the bounds of what strangers may make the daemon do: how many are served at a
time, for how long, with how many bytes, and how often an answer is made. One thread serves all
connections, so a slow client takes a place and no thread; peers.py tells whose a place is. Nothing
of a request but its path, its host and the formats that it takes is read. A page of somebody else,
whose name leads to this host, gets nothing by a browser of it (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gzip
import ipaddress
import socket
import struct
import sys
import termios
import threading
import time
import traceback
from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from io import BytesIO

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from trapless.peek.errors import PeekError
from trapless.peek.serve import page, peers
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.metrics import FleetCollector

CLIENTS_MAX = 128
"""When one more comes, the oldest goes of the peer that has the most; of peers that have as many,
the one that came last."""
TRUSTED_CLIENTS = 16
"""Places that are kept for root, and for the daemon's own user: so many of each do not count."""
WAITING_MAX = 1024
"""Connections that the kernel keeps until they are taken; it may have a lower bound."""
TIMEOUT_S = 10.0
"""For a whole request, and for the whole answer, however their bytes come and go."""
REQUEST_BYTES_MAX = 32 << 10
PIECE_BYTES = 64 << 10
"""Of an answer: what is kept for each client that does not take it."""
TAKEN_AT_ONCE = 16
"""Connections that are taken before those that are there have their turn."""
REST_FACTOR = 4
"""An answer that took so long to make is followed by a rest so many times as long: the loop that
observes has the rest of the processor, however many ask."""
GZIP_LEVEL = 1
LOOK_S = 0.05
"""From look to look whether a client has taken all."""
AT_ONCE = struct.pack("ii", 1, 0)
"""For SO_LINGER: nothing of the connection stays in the kernel."""
OPENMETRICS = "application/openmetrics-text"
PLAIN, HTML = "text/plain; charset=utf-8", "text/html; charset=utf-8"
REMEDIES = {
    errno.EADDRINUSE: "; something else listens there, so choose another port",
    errno.EACCES: "; ports below 1024 are root's, so choose a higher one",
    errno.EADDRNOTAVAIL: ": it is no address of this host",
}
HEADERS = {
    "Server": "trapless",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Vary": "Accept, Accept-Encoding",
}


@dataclass(frozen=True)
class Answer:
    """What a client gets."""

    status: HTTPStatus
    body: bytes
    kind: str = PLAIN
    is_packed: bool = False

    def head(self) -> bytes:
        """The status and the headers."""
        headers = {"Content-Type": self.kind, "Content-Length": str(len(self.body)), **HEADERS}
        if self.is_packed:
            headers["Content-Encoding"] = "gzip"
        lines = [f"HTTP/1.0 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()


class Answers:
    """The pages of a fleet, made one at a time. Whoever asks for one that is not begun yet shares
    it with all others who do, so the work does not grow with their number. One event loop.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._registry = CollectorRegistry()
        self._registry.register(FleetCollector(fleet))
        ProcessCollector(registry=self._registry)
        self._awaited: dict[tuple[str, bool], asyncio.Future[Answer]] = {}  # the oldest first
        self._is_asked = asyncio.Event()

    async def get(self, kind: str, is_packed: bool) -> Answer:
        """A page of this kind that is made from now on."""
        if (kind, is_packed) not in self._awaited:
            self._awaited[kind, is_packed] = asyncio.get_running_loop().create_future()
            self._is_asked.set()
        return await asyncio.shield(self._awaited[kind, is_packed])  # others wait for it, too

    async def make(self) -> None:
        """Make what is asked for, until this task is canceled."""
        while True:
            await self._is_asked.wait()
            key = next(iter(self._awaited))
            awaited = self._awaited.pop(key)
            if not self._awaited:
                self._is_asked.clear()
            began_s = time.monotonic()
            awaited.set_result(await asyncio.to_thread(self._made, *key))
            await asyncio.sleep(REST_FACTOR * (time.monotonic() - began_s))

    def _made(self, kind: str, is_packed: bool) -> Answer:
        try:
            if kind == HTML:
                body = page.html(self._fleet).encode()
            else:
                encode, kind = choose_encoder(kind)
                body = encode(self._registry)
        except Exception:  # it is ours, so it is told of
            traceback.print_exc(file=sys.stderr)
            text = b"an error in the daemon; its journal has it\n"
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        packed = gzip.compress(body, GZIP_LEVEL) if is_packed else body
        return Answer(HTTPStatus.OK, packed, kind, is_packed)


class Server:
    """The server, which has its port when it is made. start() serves in a thread of its own."""

    def __init__(self, host: str, port: int, fleet: Fleet) -> None:
        self._fleet = fleet
        self._answers = Answers(fleet)
        self._clients: dict[asyncio.Task[None], str] = {}  # and their peers, the oldest first
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        try:
            info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self._socket = socket.socket(info[0][0], socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE_BYTES)
            self._socket.bind(info[0][4][:2])
            self._socket.listen(WAITING_MAX)
        except UnicodeError as error:  # of IDNA
            raise PeekError(f"--listen {host}:{port}: the host is no name of one") from error
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "")
            raise PeekError(f"--listen {host}:{port}: {error.strerror}{remedy}") from error
        self._bound, self.server_port = self._socket.getsockname()[:2]
        self._loop = self._runner.get_loop()  # here: in two threads at once it would make two

    @property
    def clients(self) -> int:
        """How many have a place."""
        return len(self._clients)

    def start(self) -> None:
        """Serve until stop()."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._runner.close()
        self._socket.close()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        making = asyncio.create_task(self._answers.make())
        server = await asyncio.start_server(
            self._serve_one, sock=self._socket, limit=REQUEST_BYTES_MAX, backlog=TAKEN_AT_ONCE
        )
        self._socket.listen(WAITING_MAX)
        await self._over.wait()
        making.cancel()
        server.close()
        for client in self._clients:
            client.cancel()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client to its end, in a task of its own."""
        connection, task = writer.get_extra_info("socket"), asyncio.current_task()
        assert task is not None
        writer.transport.set_write_buffer_limits(0)  # what is drained is in the kernel
        try:
            self._clients[task] = peers.peer_of(connection)
            if len(self._clients) > CLIENTS_MAX:
                self._end_one()
            async with asyncio.timeout(TIMEOUT_S):
                request = await _request(reader)
            if request:
                answer = await self._answer(request)
                async with asyncio.timeout(TIMEOUT_S):
                    await _send(writer, answer, with_body=not request.startswith(b"HEAD "))
                    while not writer.is_closing() and _untaken(connection):
                        await asyncio.sleep(LOOK_S)
            writer.close()
        except (OSError, asyncio.CancelledError):  # its time is over, or the server's
            _end(writer)
        finally:
            self._clients.pop(task, None)

    def _end_one(self) -> None:
        """The oldest client goes of the peer that has the most, also one that awaits an answer:
        nothing is kept of whoever has no place."""
        counts = Counter(self._clients.values())
        for peer in filter(peers.is_trusted, tuple(counts)):
            counts[peer] -= TRUSTED_CLIENTS
        most = max(counts.values())
        last = [peer for peer, count in counts.items() if count == most][-1]
        oldest = next(one for one, owner in self._clients.items() if owner == last)
        del self._clients[oldest]
        oldest.cancel()

    async def _answer(self, request: bytes) -> Answer:
        line, _, rest = request.partition(b"\n")
        words = line.decode("latin-1").split()
        try:
            headers = parse_headers(BytesIO(rest))
        except HTTPException:
            return Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"too many headers\n")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Answer(HTTPStatus.BAD_REQUEST, b"no request by HTTP/1.0 or HTTP/1.1\n")
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n")
        if not _is_meant(str(headers.get("Host", "")), self._bound):
            text = f"this is {self._bound}, so ask for that as the host; a proxy can, too\n"
            return Answer(HTTPStatus.MISDIRECTED_REQUEST, text.encode())
        is_packed = _takes(str(headers.get("Accept-Encoding", "")), "gzip")
        path = target.partition("?")[0]
        if path == "/metrics":
            is_new = _takes(str(headers.get("Accept", "")), OPENMETRICS)
            return await self._answers.get(OPENMETRICS if is_new else PLAIN, is_packed)
        if path == "/":
            return await self._answers.get(HTML, is_packed)
        if path == "/healthz":
            if self._fleet.is_alive and not self._fleet.error:
                return Answer(HTTPStatus.OK, b"ok\n")
            reason = self._fleet.error or "the loop that observes the machines stands still"
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n".encode())
        return Answer(HTTPStatus.NOT_FOUND, b"there are /, /metrics and /healthz\n")


def _end(client: asyncio.StreamWriter) -> None:
    """End a connection, and free at once what the kernel keeps of it."""
    with suppress(OSError):
        connection = client.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    client.transport.abort()


def _untaken(connection: socket.socket) -> int:
    """How many bytes the client has not taken yet; OSError where it has gone."""
    count = array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
    return count[0]


async def _request(reader: asyncio.StreamReader) -> bytes:
    """The line and the headers of a request; nothing where the client ends without one, OSError
    where it is not within the bounds."""
    data, line = bytearray(), b""
    while line not in (b"\r\n", b"\n"):
        try:
            line = await reader.readline()
        except ValueError as error:  # it is too long
            raise ConnectionError from error
        if not line:
            return b""
        data += line
        if len(data) > REQUEST_BYTES_MAX:
            raise ConnectionError
    return bytes(data)


async def _send(writer: asyncio.StreamWriter, answer: Answer, *, with_body: bool) -> None:
    """Send all of an answer; a piece at a time, so that no client has a copy of its own."""
    writer.write(answer.head())
    body = memoryview(answer.body if with_body else b"")
    for at in range(0, len(body), PIECE_BYTES):
        writer.write(body[at : at + PIECE_BYTES])
        await writer.drain()
    await writer.drain()
    writer.write_eof()


def _takes(header: str, kind: str) -> bool:
    """Whether a list of what a client accepts has something.

    >>> _takes("text/html, GZip;q=0.5", "gzip"), _takes("gzipped", "gzip")
    (True, False)
    """
    return any(one.partition(";")[0].strip().lower() == kind for one in header.split(","))


def _is_meant(host: str, bound: str) -> bool:
    """Whether a request for a host may be answered by a server that is bound to an address.

    Where that is this host's own, no other host has a name for it, and no browser may be led to it.

    >>> [_is_meant(one, "127.0.0.1") for one in ("127.0.0.1:9737", "[::1]:80", "localhost", "a.b")]
    [True, True, True, False]
    >>> _is_meant("a.b", "192.0.2.1"), _is_meant("a.b", "::ffff:127.0.0.1")
    (True, False)
    """
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
    with suppress(ValueError):
        if not peers.plain(bound).is_loopback or ipaddress.ip_address(name):
            return True
    return name.lower().rstrip(".") in ("", "localhost")
