# SPDX-License-Identifier: GPL-2.0-only
"""Answers requests by HTTP: /metrics for Prometheus, / for people, /healthz for supervisors.

Owns the port or socket. Prometheus's own application gives the metrics, and Python's own server
serves them, as prometheus_client does it; a reverse proxy gives other hosts access, encryption and
passwords. Only loopback addresses and Unix sockets are served. A web page whose own name leads to
such an address cannot read the daemon through a visitor's browser (DNS rebinding).
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from trapless.peek.errors import PeekError
from trapless.peek.serve import machines_page
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.metrics import InventoryCollector

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

TIMEOUT_S = 10.0
"""The time limit for each piece of a request, and of its answer."""
SOCKET_UMASK = 0o117
"""The mode of a Unix socket: its user and its group may ask."""
PLAIN, HTML = "text/plain; charset=utf-8", "text/html; charset=utf-8"
REMEDIES = {
    errno.EADDRINUSE: "; something else listens there, so choose another one",
    errno.EACCES: "; a port below 1024 and a folder of root's take root",
    errno.EADDRNOTAVAIL: ": it is no address of this host",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Address:
    """Where the server listens: on a loopback address, or on a Unix socket."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    @classmethod
    def named(cls, text: str) -> Address:
        """HOST:PORT, or the path of a socket; PeekError where it is neither.

        >>> Address.named("127.0.0.1:9737"), str(Address.named("[::1]:80"))
        (Address(host='127.0.0.1', port=9737, path=None), 'http://[::1]:80/')
        >>> str(Address.named("/run/peek.sock"))
        '/run/peek.sock'
        """
        if "/" in text:
            return cls(path=Path(text))
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
            raise PeekError(
                f"{text!r} is neither HOST:PORT, as 127.0.0.1:9737, nor the path of a socket, as "
                "/run/trapless/peek.sock",
                status=2,
            )
        host = "127.0.0.1" if host == "localhost" else host
        with suppress(ValueError):
            if ipaddress.ip_address(host).is_loopback:
                return cls(host, int(port))
        raise PeekError(
            f"--listen {text}: only a loopback address (127.0.0.1 or ::1) or the path of a socket "
            "can be served; let a reverse proxy, as nginx, answer other hosts",
            status=2,
        )

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"


def application(inventory: Inventory) -> WSGIApplication:
    """The application that answers the requests."""
    registry = CollectorRegistry()
    registry.register(InventoryCollector(inventory))
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        status, kind, text = "200 OK", PLAIN, "ok\n"
        path = environ.get("PATH_INFO", "")
        if environ["REMOTE_ADDR"] and not _is_of_this_host(environ.get("HTTP_HOST", "")):
            status = "421 Misdirected Request"
            text = "ask for an IP address or localhost as the host; a proxy can, too\n"
        elif path == "/metrics":
            given: Iterable[bytes] = metrics(environ, start)
            return given
        elif path == "/":
            kind, text = HTML, machines_page.html(inventory)
        elif path != "/healthz":
            status, text = "404 Not Found", "there are /, /metrics and /healthz\n"
        elif inventory.error or not inventory.is_alive:
            status = "503 Service Unavailable"
            stands = "the loop that observes the machines stands still"
            text = f"{inventory.error or stands}\n"
        body = text.encode()
        start(
            status, [("Content-Type", kind), ("Content-Length", str(len(body))), *HEADERS.items()]
        )
        return [body]

    return answer


def _is_of_this_host(host: str) -> bool:
    """Whether no other host can have the name that a request asks for.

    >>> [_is_of_this_host(one) for one in ("127.0.0.1:9737", "[::1]:80", "localhost", "a.b", "")]
    [True, True, True, False, True]
    """
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return name.lower().rstrip(".") in ("", "localhost")


class _Request(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write no line for each request."""


class _Listener(socketserver.ThreadingMixIn, WSGIServer):
    """Serves each connection by a thread, which nobody waits for."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind as each server of Python's does; one for HTTP would ask for the host's name."""
        socketserver.TCPServer.server_bind(self)
        is_unix = self.address_family == socket.AF_UNIX
        self.server_name = "localhost"
        self.server_port = 0 if is_unix else self.socket.getsockname()[1]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection. A client by a Unix socket has no address."""
        connection, client = super().get_request()
        return connection, client or ("", 0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing of a client that has gone, or is too slow."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _listener(address: Address) -> _Listener:
    if address.path is None:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return _bound(family, (address.host, address.port))
    _remove_left(address.path)
    before = os.umask(SOCKET_UMASK)
    try:
        return _bound(socket.AF_UNIX, str(address.path))
    finally:
        os.umask(before)


def _bound(family: socket.AddressFamily, place: Any) -> _Listener:
    kind = type("_Bound", (_Listener,), {"address_family": family})
    listener: _Listener = kind(place, _Request)
    return listener


def _remove_left(path: Path) -> None:
    """Remove the socket of a daemon that was killed."""
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            if path.is_socket():
                path.unlink()


class Server:
    """The server, which has its port when it is made. start() serves in a thread of its own."""

    def __init__(self, address: Address, inventory: Inventory) -> None:
        self._path = address.path
        try:
            self._listener = _listener(address)
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "")
            raise PeekError(f"--listen {address}: {error.strerror or error}{remedy}") from error
        port = self._listener.server_port
        self.address = Address(address.host, port, address.path)
        self._listener.set_app(application(inventory))
        self._thread = threading.Thread(target=self._listener.serve_forever, name="web")

    def start(self) -> None:
        """Serve until stop()."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port, and remove a socket."""
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
