# SPDX-License-Identifier: GPL-2.0-only
"""The server of `trapless peek serve`: where it listens, and whom it answers."""

from __future__ import annotations

import http.client
import math
import socket
import stat
from collections.abc import Iterator

import pytest

from tests.unit.peek.serve.serving import LIMIT_S, settings
from trapless.peek.errors import PeekError
from trapless.peek.serve import inventory, machines_page, web
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.web import Address, Server


@pytest.fixture(autouse=True)
def no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is observed here."""
    monkeypatch.setattr(inventory, "ALIVE_S", math.inf)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(Address("127.0.0.1", 0), Inventory(settings()))
    server.start()
    yield server
    server.stop()


def status(server: Server, path: str = "/healthz", **headers: str) -> int:
    link = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=LIMIT_S)
    link.request("GET", path, headers=headers)
    code = link.getresponse().status
    link.close()
    return code


def test_a_foreign_page_cannot_read_the_daemon_through_a_browser(server):
    """Its name leads to this host (DNS rebinding)."""
    port = server.address.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[x"):
        for path in ("/", "/metrics", "/healthz"):
            assert status(server, path, Host=host) == 421, host
    for host in (f"127.0.0.1:{port}", "localhost", "LOCALHOST.:80", "[::1]:9", "192.0.2.1", ""):
        assert status(server, "/metrics", Host=host) == 200, host


def test_a_path_that_is_too_long_for_a_socket_is_said():
    with pytest.raises(PeekError, match=r"--listen /a+: AF_UNIX path too long"):
        Server(Address.named("/" + 200 * "a"), Inventory(settings()))


def test_a_unix_socket_is_for_its_user_and_group(tmp_path):
    path = tmp_path / "peek.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # by a daemon that was killed
    server = Server(Address.named(str(path)), Inventory(settings()))
    server.start()
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with pytest.raises(PeekError, match=r"--listen .*peek.sock: Address already in use"):
            Server(Address.named(str(path)), Inventory(settings()))
        with socket.socket(socket.AF_UNIX) as client:  # a proxy passes on the name that it has
            client.connect(str(path))
            client.sendall(b"GET /healthz HTTP/1.0\r\nHost: vms.example\r\n\r\n")
            with client.makefile("rb") as answer:
                said = answer.read()
        assert said.startswith(b"HTTP/1.0 200 OK") and said.endswith(b"\r\n\r\nok\n")
    finally:
        server.stop()
    assert not path.exists()


def test_what_is_no_socket_is_not_removed(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(PeekError, match="Address already in use"):
        Server(Address.named(str(tmp_path / "file")), Inventory(settings()))
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((one, "is neither HOST:PORT") for one in ("localhost", "127.0.0.1:", ":²")),
        ("127.0.0.1:70000", "is neither HOST:PORT"),
        *((one, "a reverse proxy") for one in ("192.0.2.1:80", ":80", "[::]:80", "a.example:80")),
    ],
)
def test_only_loopback_addresses_and_sockets_are_served(text, words):
    with pytest.raises(PeekError, match=words) as error:
        Address.named(text)
    assert error.value.status == 2


def test_a_port_that_is_taken_says_so(server):
    with pytest.raises(PeekError, match=r"--listen http://127.0.0.1:\d+/: Address already in use"):
        Server(server.address, Inventory(settings()))


def test_a_client_that_says_nothing_ends_in_its_time(monkeypatch, server, capfd):
    monkeypatch.setattr(web._Request, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", server.address.port), LIMIT_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX")
        assert status(server) == 200
        assert client.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_a_fault_of_ours_is_told_of(server, monkeypatch, capfd):
    monkeypatch.setattr(machines_page, "html", lambda inventory: 1 / 0)
    assert status(server, "/") == 500
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_loop_that_stands_still_is_not_healthy(server, monkeypatch):
    monkeypatch.setattr(inventory, "ALIVE_S", -1.0)
    assert status(server) == 503
