# SPDX-License-Identifier: GPL-2.0-only
"""Answers requests by HTTP: /metrics for Prometheus, / for people, /healthz for supervisors.

Owns the port, and the bounds of what strangers may make the daemon do: how many are served at a
time, for how long, and with which headers. There is no way in: nothing of a request but its path,
and what the client library makes of /metrics, is read.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from trapless.peek.errors import PeekError
from trapless.peek.serve import page
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.metrics import FleetCollector

CLIENTS_MAX = 16
TIMEOUT_S = 10.0
"""For a client that says nothing."""
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


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S
    server_version = "trapless"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: a scrape a second would be a line a second."""


class Server(ThreadingMixIn, WSGIServer):
    """The server, which has its port when it is made. start() serves in threads of its own."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, fleet: Fleet) -> None:
        self._places = threading.BoundedSemaphore(CLIENTS_MAX)
        try:
            info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family = info[0][0]
            super().__init__(info[0][4][:2], _Handler)  # type: ignore[arg-type]
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "")
            raise PeekError(f"--listen {host}:{port}: {error.strerror}{remedy}") from error
        self.set_app(_app(fleet))

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
        """Serve a client, if there are not too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In a thread: serve a client to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nobody's error."""


Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


def _app(fleet: Fleet) -> Application:
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
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, start)
        if path == "/":
            return answer(start, "200 OK", page.html(fleet), "text/html")
        if path == "/healthz":
            if fleet.is_alive and not fleet.error:
                return answer(start, "200 OK", "ok\n")
            text = fleet.error or "the loop that observes the machines stands still"
            return answer(start, "503 Service Unavailable", f"{text}\n")
        return answer(start, "404 Not Found", "there are /, /metrics and /healthz\n")

    return app
