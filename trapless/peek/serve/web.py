# SPDX-License-Identifier: GPL-2.0-only
"""Answers requests by HTTP: /metrics for Prometheus, / for people, /healthz for supervisors.

Owns the port, and the bounds of what strangers may make the daemon do: how many are served at a
time, for how long, and with how many bytes of headers. There is no way in: nothing of a request but
its path, its host, and what the client library makes of /metrics, is read. A page of somebody else,
whose name leads to this host, gets nothing by a browser of it (DNS rebinding).
"""

from __future__ import annotations

import errno
import io
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.client import LineTooLong
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from trapless.peek.errors import PeekError
from trapless.peek.serve import page
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.metrics import FleetCollector

CLIENTS_MAX = 16
TIMEOUT_S = 10.0
"""For a whole request, however its bytes come, and for a client that takes nothing."""
REQUEST_BYTES_MAX = 32 << 10
PLACE_S = 0.5
"""For the client that has to go when another one comes."""
REMEDIES = {
    errno.EADDRINUSE: "; something else listens there, so choose another port",
    errno.EACCES: "; ports below 1024 are root's, so choose a higher one",
    errno.EADDRNOTAVAIL: ": it is no address of this host",
}
HEADERS = [
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]


class _Request(io.RawIOBase):
    """What a client sends, within bounds of bytes and time that hold for all of it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left = connection, REQUEST_BYTES_MAX
        self._end_s = time.monotonic() + TIMEOUT_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if self._left <= 0:
            raise LineTooLong("header")
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class _Answer(ServerHandler):
    def log_exception(self, exc_info: Any) -> None:
        """Tell of our own errors; a client that takes no answer may not fill the journal."""
        if not isinstance(exc_info[1], OSError):
            super().log_exception(exc_info)


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S
    server_version = "trapless"
    sys_version = ""
    server: Server

    def setup(self) -> None:
        """As the base class, with bounds."""
        super().setup()
        self.rfile = io.BufferedReader(_Request(self.connection))

    def handle(self) -> None:
        """Answer one request."""
        self.raw_requestline = self.rfile.readline(REQUEST_BYTES_MAX)
        if not self.parse_request():
            return
        self.server.has_asked(self.connection)
        self.connection.settimeout(TIMEOUT_S)
        answer = _Answer(
            self.rfile,
            self.wfile,  # type: ignore[arg-type]
            sys.stderr,
            self.get_environ(),
        )
        answer.request_handler = self  # type: ignore[attr-defined]
        answer.run(self.server.get_app())  # type: ignore[arg-type]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: a scrape a second would be a line a second."""


class Server(ThreadingMixIn, WSGIServer):
    """The server, which has its port when it is made. start() serves in threads of its own."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, fleet: Fleet) -> None:
        self._places = threading.BoundedSemaphore(CLIENTS_MAX)
        self._lock = threading.Lock()  # guards the next line
        self._asking: dict[socket.socket, None] = {}  # have not said what they want, oldest first
        try:
            info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family = info[0][0]
            super().__init__(info[0][4][:2], _Handler)  # type: ignore[arg-type]
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "")
            raise PeekError(f"--listen {host}:{port}: {error.strerror}{remedy}") from error
        self.set_app(_app(fleet, self.server_name))

    def server_bind(self) -> None:
        """As the base class, which would ask the name service for this host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def start(self) -> None:
        """Serve until stop()."""
        threading.Thread(target=self.serve_forever, name="web", daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client; where there are too many, the oldest goes that says nothing."""
        if not self._places.acquire(blocking=False):
            self._end_oldest()
            if not self._places.acquire(timeout=PLACE_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._asking[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # there is no thread for it
            self._give_back(request)
            raise

    def _end_oldest(self) -> None:
        with self._lock:
            oldest = next(iter(self._asking), None)
            if oldest is not None:
                del self._asking[oldest]
                with suppress(OSError):  # it goes by itself
                    oldest.shutdown(socket.SHUT_RDWR)

    def has_asked(self, request: socket.socket) -> None:
        """A client has said what it wants."""
        with self._lock:
            self._asking.pop(request, None)

    def _give_back(self, request: socket.socket) -> None:
        self.has_asked(request)
        self._places.release()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In a thread: serve a client to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._give_back(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nobody's error."""


Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


def _is_meant(host: str, bound: str) -> bool:
    """Whether a request for a host may be answered by a server that is bound to an address.

    Where that is this host's own, no other host has a name for it, and no browser may be led to it.

    >>> [_is_meant(one, "127.0.0.1") for one in ("127.0.0.1:9737", "[::1]:80", "localhost", "a.b")]
    [True, True, True, False]
    >>> _is_meant("a.b", "192.0.2.1")
    True
    """
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
    with suppress(ValueError):
        if not ipaddress.ip_address(bound).is_loopback or ipaddress.ip_address(name):
            return True
    return name.lower().rstrip(".") in ("", "localhost")


def _app(fleet: Fleet, bound: str) -> Application:
    rendering = threading.Lock()  # one at a time: the loop that observes has the rest
    registry = CollectorRegistry()
    registry.register(FleetCollector(fleet))
    ProcessCollector(registry=registry)
    metrics: Application = make_wsgi_app(registry)

    def answer(
        start: StartResponse, status: str, text: str, kind: str = "text/plain"
    ) -> Iterable[bytes]:
        data = text.encode()
        lines = [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(data)))]
        start(status, lines + HEADERS)
        return [data]

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return answer(start, "405 Method Not Allowed", "GET only\n")
        if not _is_meant(environ.get("HTTP_HOST", ""), bound):
            text = f"this is {bound}, so ask for that as the host; a proxy can, too\n"
            return answer(start, "421 Misdirected Request", text)
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            with rendering:
                return metrics(environ, start)
        if path == "/":
            with rendering:
                return answer(start, "200 OK", page.html(fleet), "text/html")
        if path == "/healthz":
            if fleet.is_alive and not fleet.error:
                return answer(start, "200 OK", "ok\n")
            text = fleet.error or "the loop that observes the machines stands still"
            return answer(start, "503 Service Unavailable", f"{text}\n")
        return answer(start, "404 Not Found", "there are /, /metrics and /healthz\n")

    return app
