# SPDX-License-Identifier: GPL-2.0-only
"""The port of `trapless peek serve` and clients that mean harm: none keeps others from an answer,
makes the daemon grow, or writes into its journal.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import http.client
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from trapless.peek.errors import PeekError
from trapless.peek.serve import fleet, page, peers, web
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.opener import Found
from trapless.peek.serve.vm import Settings
from trapless.peek.serve.web import CLIENTS_MAX, Server
from trapless.peek.serve.workers import Workers

QUICK_S = 30.0
"""Less than clients have who say nothing."""
LONG_S = 60.0
FLOOD = """
import encodings.idna, os, socket
os.setuid(65534)
begun = []
while True:
    begun.append(socket.create_connection(("127.0.0.1", {port})))
    begun[-1].sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    if len(begun) == {count}:
        print("begun", flush=True)
    if len(begun) > {count}:
        begun.pop(0).close()
"""
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "ALIVE_S", math.inf)  # its loop does not run here
        patch.setattr(web, "TIMEOUT_S", LONG_S)  # tests of it have a time of their own
        server = Server("127.0.0.1", 0, a_fleet())
        server.start()
        yield server
        server.stop()


def status(server: Server, path: str = "/healthz", **headers: str) -> int:
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=LONG_S)
    link.request("GET", path, headers=headers)
    code = link.getresponse().status
    link.close()
    return code


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), LONG_S)


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


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


def test_clients_that_take_no_answer_keep_nobody_out(server, monkeypatch):
    """Each holds a place for its whole time, and whoever comes then gets the place of one."""
    monkeypatch.setattr(page, "html", lambda fleet: BIG)
    with ExitStack() as stack:
        for _ in range(2 * CLIENTS_MAX):
            stack.enter_context(connected(server)).sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert [status(server) for _ in range(5)] == [200] * 5
        assert server.clients <= CLIENTS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [True, False])
def test_a_client_that_takes_an_answer_slowly_ends_in_its_time(server, monkeypatch, capfd, is_open):
    """Also one that has ended its own half of the connection: nothing stays in the kernel."""
    monkeypatch.setattr(web, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(page, "html", lambda fleet: BIG)
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        if not is_open:
            client.shutdown(socket.SHUT_WR)
        end = time.monotonic() + LONG_S
        while not (error := client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            assert client.recv(1) and time.monotonic() < end
            time.sleep(0.01)
        assert error == errno.ECONNRESET
    assert server.clients == 0
    assert capfd.readouterr().err == ""


def test_an_answer_is_made_once_for_all_who_wait_for_it(server, monkeypatch):
    made, go_on = [], threading.Event()

    def html(fleet: Fleet) -> str:
        made.append(go_on.wait(LONG_S))
        return BIG

    monkeypatch.setattr(page, "html", html)
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(20)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while server.clients < len(clients):
            time.sleep(0.01)
        assert status(server) == 200  # which needs none
        go_on.set()
        assert [client.recv(15) for client in clients] == [b"HTTP/1.0 200 OK"] * len(clients)
    assert len(made) <= 2  # the first asked before the others


@pytest.mark.slow
def test_nothing_is_kept_of_clients_that_have_lost_their_places(server, monkeypatch):
    """Also while an answer is made for which they had asked: the next ones come at any rate."""
    go_on = threading.Event()
    monkeypatch.setattr(page, "html", lambda fleet: str(go_on.wait(LONG_S)))
    request = b"GET / HTTP/1.0\r\nA: " + 30_000 * b"a" + b"\r\n\r\n" + 30_000 * b"b"
    try:
        with ExitStack() as stack:
            for _ in range(4 * CLIENTS_MAX):
                stack.enter_context(connected(server)).sendall(request)
            assert status(server) == 200
            assert CLIENTS_MAX <= len(asyncio.all_tasks(server._loop)) < 2 * CLIENTS_MAX
            go_on.set()
            assert status(server, "/") == 200
    finally:
        go_on.set()


def test_a_server_that_is_stopped_as_soon_as_it_has_started_ends(monkeypatch):
    def slowly() -> asyncio.AbstractEventLoop:
        time.sleep(0.2)
        return asyncio.SelectorEventLoop()

    monkeypatch.setattr(asyncio, "new_event_loop", slowly)
    server = Server("127.0.0.1", 0, a_fleet())
    server.start()
    stopping = threading.Thread(target=server.stop, daemon=True)
    stopping.start()
    stopping.join(QUICK_S)
    assert not stopping.is_alive()


@pytest.mark.slow
def test_a_user_of_this_host_keeps_no_other_user_out(server):
    """One that makes connection after connection, as fast as it can."""
    if os.geteuid():
        pytest.skip("to be another user takes root")
    code = FLOOD.format(port=server.server_port, count=4 * CLIENTS_MAX)
    argv = [sys.executable, "-I", "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == b"begun\n"
            with connected(server) as slow:
                slow.sendall(b"GET /healthz HTTP/1.0\r\n")
                for _ in range(20):
                    assert status(server, "/metrics") == 200
                slow.sendall(b"\r\n")
                assert slow.recv(15) == b"HTTP/1.0 200 OK"
        finally:
            other.kill()


def test_who_is_at_the_other_end_is_known():
    for listens in ("127.0.0.1", "::1", "::"):
        try:
            port = socket.create_server((listens, 0), family=family_of(listens))
        except OSError:  # a machine without IPv6
            continue
        with port, socket.create_connection(port.getsockname()[:2]) as client:
            with port.accept()[0] as accepted:
                assert peers.peer_of(accepted) == f"uid {os.getuid()}"
            assert client is not None
    for theirs, name in (
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ):
        ends = {"getpeername": lambda at=theirs: (at, 1), "getsockname": lambda: ("::1", 2)}
        assert peers.peer_of(SimpleNamespace(**ends)) == name


@pytest.mark.parametrize("listens", ["0.0.0.0", "::"])
@pytest.mark.parametrize("theirs", ["192.0.2.7", "2001:db8::7"])
def test_nobody_is_taken_for_who_listens_at_the_port_that_they_come_from(listens, theirs):
    """Else a user of this host could listen at all ports, and take the places of other hosts."""
    try:
        port = socket.create_server((listens, 0), family=family_of(listens))
    except OSError:  # a machine without IPv6
        pytest.skip("no IPv6")
    with port:
        ends = {
            "getpeername": lambda: (theirs, port.getsockname()[1]),
            "getsockname": lambda: ("::1", 2),
        }
        assert peers.peer_of(SimpleNamespace(**ends)) in (theirs, "2001:db8::/64")


@pytest.mark.parametrize("host", ["..", "a" * 64])
def test_a_host_that_no_name_can_be_is_said(host):
    with pytest.raises(PeekError, match="is no name of one"):
        Server(host, 0, a_fleet())


def test_a_fault_of_ours_is_told_of(server, monkeypatch, capfd):
    monkeypatch.setattr(page, "html", lambda fleet: 1 / 0)
    assert status(server, "/") == 500
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_name_of_somebody_else_gets_nothing(server):
    """A page in a browser of this host may have a name that leads here (DNS rebinding)."""
    port = server.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[x"):
        for path in ("/", "/metrics", "/healthz"):
            assert status(server, path, Host=host) == 421, host
    for host in (f"127.0.0.1:{port}", "localhost", "LOCALHOST.:80", "[::1]:9", "192.0.2.1", ""):
        assert status(server, "/metrics", Host=host) == 200, host


def test_formats_are_what_was_asked_for(server):
    def got(**headers: str) -> tuple[str, bytes]:
        link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=LONG_S)
        link.request("GET", "/metrics", headers=headers)
        answer = link.getresponse()
        body = answer.read()
        packed = answer.headers["Content-Encoding"] == "gzip"
        return answer.headers["Content-Type"], gzip.decompress(body) if packed else body

    kind, body = got()
    assert kind.startswith("text/plain; version=0.0.4;") and b"trapless_serve_info" in body
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
    kind, body = got(Accept=accept, **{"Accept-Encoding": "gzip"})
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


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
