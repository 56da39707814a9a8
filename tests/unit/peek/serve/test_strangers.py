# SPDX-License-Identifier: GPL-2.0-only
"""The port of `trapless peek serve` and clients that mean harm: none keeps others from an answer,
makes the daemon grow, or writes into its journal.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from trapless.peek.errors import PeekError
from trapless.peek.serve import page, web
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.opener import Found
from trapless.peek.serve.vm import Settings
from trapless.peek.serve.web import CLIENTS_MAX, Server
from trapless.peek.serve.workers import Workers

QUICK_S = 5.0
BIG = "<p>" + "x" * (32 << 20)


class NoOpener:
    """Finds no machine."""

    runs = True

    def running(self, files: object) -> list[Found]:
        return []


def a_fleet() -> Fleet:
    settings = Settings(
        opener=NoOpener(),  # type: ignore[arg-type]
        workers=Workers(1),
        lock=threading.Lock(),
        interval_ns=10_000_000,
        cpu=None,
        names_max=0,
        ring=None,
        note=print,
    )
    return Fleet(settings)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("127.0.0.1", 0, a_fleet())
    server.start()
    yield server
    server.stop()


def status(server: Server, path: str = "/healthz", **headers: str) -> int:
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=QUICK_S)
    link.request("GET", path, headers=headers)
    code = link.getresponse().status
    link.close()
    return code


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), QUICK_S)


def ended(client: socket.socket) -> bool:
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_clients_that_say_nothing_keep_nobody_out(server):
    with ExitStack() as stack:
        for _ in range(3 * CLIENTS_MAX):
            stack.enter_context(connected(server)).sendall(b"GET / HTTP/1.1\r\nX")
        began = time.monotonic()
        assert [status(server) for _ in range(5)] == [200] * 5
        assert time.monotonic() - began < QUICK_S


def test_a_request_that_trickles_ends_in_its_time(server, monkeypatch):
    monkeypatch.setattr(web, "TIMEOUT_S", 0.5)
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nA: ")
        end = time.monotonic() + QUICK_S
        with pytest.raises(ConnectionError):
            while time.monotonic() < end:
                client.sendall(b"a")
                time.sleep(0.05)


@pytest.mark.parametrize("line", [b"", b"A: " + b"a" * 60_000 + b"\r\n"])
def test_headers_of_megabytes_are_not_kept(server, line):
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\n" if line else b"GET /" + b"a" * 60_000)
        try:
            for _ in range(90):
                client.sendall(line or b"a" * 60_000)
        except ConnectionError:
            return
        client.shutdown(socket.SHUT_WR)
        assert not client.recv(20).startswith(b"HTTP/1.0 200")


def test_a_client_that_takes_no_answer_is_not_told_of(server, monkeypatch, capfd):
    monkeypatch.setattr(web, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(page, "html", lambda fleet: BIG)
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        end = time.monotonic() + QUICK_S
        while server._places._value < CLIENTS_MAX - 1 or time.monotonic() < end - QUICK_S + 1:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert status(server) == 200
    assert capfd.readouterr().err == ""


def test_a_fault_of_ours_is_told_of(server, monkeypatch, capfd):
    monkeypatch.setattr(page, "html", lambda fleet: 1 / 0)
    assert status(server, "/") == 500
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_thread_that_cannot_begin_costs_no_place(server, monkeypatch):
    def begin(self: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", begin)
        for _ in range(2 * CLIENTS_MAX):
            with connected(server) as client:
                assert ended(client)
    assert status(server) == 200


def test_a_name_of_somebody_else_gets_nothing(server):
    """A page in a browser of this host may have a name that leads here (DNS rebinding)."""
    port = server.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[x"):
        for path in ("/", "/metrics", "/healthz"):
            assert status(server, path, Host=host) == 421, host
    for host in (f"127.0.0.1:{port}", "localhost", "LOCALHOST.:80", "[::1]:9", "192.0.2.1", ""):
        assert status(server, "/metrics", Host=host) == 200, host


def test_half_closed_and_odd_requests_are_answered(server):
    for said, first in (
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"HTTP/1.0 200"),
        (b"GET  /../../etc/passwd HTTP/1.0\r\n\r\n", b"HTTP/1.0 404"),
        (b"\x16\x03\x01\x02\r\n\r\n", b""),
        (b"G\x1b[2J / HTTP/1.0\r\n\r\n", b"HTTP/1.0 405"),
        (b"GET /healthz?" + b"name[]=a&" * 2000 + b" HTTP/1.0\r\n\r\n", b"HTTP/1.0 200"),
        (b"", b""),
    ):
        with connected(server) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := client.recv(1 << 16):
                answer += piece
            assert answer.startswith(first), said[:40]
            assert b"\x1b" not in answer


# ---- The list ------------------------------------------------------------------------------------


def test_no_two_machines_have_one_name():
    fleet = a_fleet()
    names = [("web-20", 10), ("web", 11), ("web", 20), ("web", 20), ("w" * 64, 5), ("w" * 64, 6)]
    fleet._found = [Found(pid, at, "qemu", name) for at, (name, pid) in enumerate(names)]
    fleet._found += [Found(0, at, "file", "ram", f"/{at}/ram") for at in range(4)]
    fleet._take_found(0.0)
    titles = [vm.title for vm in fleet.vms]
    assert len(set(titles)) == len(titles) == 10 and max(map(len, titles)) == 64
    assert titles[:2] == ["web-20", "web"] and titles[6] == "ram"


def test_machines_are_looked_for_again_whatever_happens(monkeypatch):
    monkeypatch.setattr("trapless.peek.serve.fleet.FIND_S", 0.01)
    fleet, errors = a_fleet(), [TypeError("x"), PeekError("y")]

    def running(files: object) -> list[Found]:
        if errors:
            raise errors.pop(0)
        fleet._over.set()
        return [Found(1, 1, "qemu", "a")]

    opener = SimpleNamespace(running=running)
    object.__setattr__(fleet.settings, "opener", opener)
    fleet._find()
    assert fleet._found == [Found(1, 1, "qemu", "a")] and not fleet.error
