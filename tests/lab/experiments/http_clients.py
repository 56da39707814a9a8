# SPDX-License-Identifier: GPL-2.0-only
"""Clients of examples/http and its twins, friendly and hostile: runs where the server runs.

    http_clients.py SERVER PORT

Python's http.client is the foreign judge of what is right HTTP; raw sockets do what it cannot.
Every body is compared. At the end the server must have no descriptor more than at its beginning,
have hardly grown, and have ended by itself. It prints "ok" and the number of checks.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT_S = 10
"""What the servers have as the time for a request."""

PATIENCE_S = 120
GROWTH_KB = 512
ROUNDS_MAX = 5
ENDINGS = 6
FEW_FILES = 40
ROOM = 1 << 15
"""Bytes that a client takes at once: less than an answer, and enough to take it in time on a busy
machine."""

checks = 0


def check(is_so: bool, what: str) -> None:
    global checks
    checks += 1
    if not is_so:
        raise AssertionError(what)


class Server:
    """One server process and the folder that it serves."""

    def __init__(self, path: str, port: int, site: Path, files: int = 4096) -> None:
        self.port, self.is_io_uring = port, path.endswith("io_uring")
        limits = (files, files)
        self.process = subprocess.Popen(
            [path, str(port), str(site)],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
        )
        for _ in range(PATIENCE_S * 10):
            with contextlib.suppress(OSError):
                self.connect().close()
                break
            time.sleep(0.1)

    def connect(self, room: int = 0) -> socket.socket:
        one = socket.socket()
        one.settimeout(PATIENCE_S)
        if room:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        one.connect(("127.0.0.1", self.port))
        return one

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        client.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = client.getresponse()
        body = response.read()
        client.close()
        return response.status, body, dict(response.getheaders())

    def send(self, data: bytes) -> bytes:
        """All that comes back until the server ends the connection."""
        with self.connect() as one:
            one.sendall(data)
            return everything(one)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_kb(self) -> int:
        """Counted page by page: in `status` a kernel may leave out the last 64 that came."""
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    def rest(self, descriptors: int) -> None:
        """Wait until no connection is left."""
        for _ in range(PATIENCE_S * 10):
            if self.descriptors() == descriptors:
                break
            time.sleep(0.1)
        check(self.descriptors() == descriptors, f"{self.descriptors()} descriptors are open")

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(PATIENCE_S) == 0, "it ends with status 0")


def everything(one: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := one.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def make_site(site: Path) -> dict[str, bytes]:
    dice = random.Random(1)
    bodies = {
        name: dice.randbytes(size)
        for name, size in (
            ("empty", 0), ("small.html", 100), ("full", 16384), ("more.css", 16385),
            ("big", 3_000_000), ("index.html", 10), ("sub/index.html", 11), ("a b%é", 12),
        )
    }  # fmt: skip
    (site / "sub").mkdir(parents=True)
    for name, body in bodies.items():
        (site / name).write_bytes(body)
    (site.parent / "secret").write_bytes(b"secret")
    (site / "inside").symlink_to("sub/index.html")
    (site / "outside").symlink_to("../secret")
    (site / "absolute").symlink_to(site.parent / "secret")
    (site / "self").symlink_to("/proc/self/environ")
    os.mkfifo(site / "fifo")
    return bodies


def bodies_are_right(server: Server, bodies: dict[str, bytes]) -> None:
    paths = {name: f"/{name}" for name in bodies} | {"a b%é": "/a%20b%25%c3%A9?x=/../y"}
    for name, path in paths.items():
        status, body, headers = server.ask("GET", path)
        check((status, body) == (200, bodies[name]), f"GET {path}: {status}")
        head = server.ask("HEAD", path)
        check(head[:2] == (200, b""), f"HEAD {path}")
        check(head[2]["Content-Length"] == str(len(bodies[name])), f"length of {path}")
        check("Date" in headers, "a date")
    for path, name in {"/": "index.html", "//sub/": "sub/index.html", "/inside": "sub/index.html",
                       "/sub/../small.html": "small.html"}.items():  # fmt: skip
        check(server.ask("GET", path)[:2] == (200, bodies[name]), path)
    absolute = b"GET http://x/small.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    check(server.send(absolute).endswith(bodies["small.html"]), "absolute form")
    for arguments, want in (([], bodies["big"]), (["-r", "5-8"], bodies["big"][5:9])):
        url = f"http://127.0.0.1:{server.port}/big"
        got = subprocess.run(["curl", "-sf", *arguments, url], capture_output=True, check=True)
        check(got.stdout == want, "curl")


def ranges_are_right(server: Server, big: bytes) -> None:
    size = len(big)
    for text, want in {
        "0-0": big[:1], "5-": big[5:], "-7": big[-7:], "100-70000": big[100:70001],
        f"{size - 1}-{size + 5}": big[-1:], f"-{size * 2}": big,
    }.items():  # fmt: skip
        status, body, headers = server.ask("GET", "/big", Range=f"bytes={text}")
        check((status, body) == (206, want), f"range {text}: {status}")
        check(headers["Content-Range"].endswith(f"/{size}"), headers["Content-Range"])
    for text in (f"{size}-", "-0", "99999999999999999999-"):
        status, _, headers = server.ask("GET", "/big", Range=f"bytes={text}")
        check((status, headers["Content-Range"]) == (416, f"bytes */{size}"), f"range {text}")
    for text in ("bytes=5-4", "bytes=1-2,4-5", "lines=1-2", "bytes=x", "bytes=-"):
        check(server.ask("GET", "/small.html", Range=text)[0] == 200, text)
    check(server.ask("GET", "/big", Range="bytes=1-2", If_Range='"x"')[0] == 200, "If-Range")


def nothing_leads_out(server: Server) -> None:
    for path in (
        "/../secret", "/..", "/sub/../../secret", "/%2e%2e/secret", "/..%2fsecret", "/outside",
        "/absolute", "/self", "//etc/passwd", "/%2fetc/passwd", "/fifo", "/sub", "/none",
        "/small.html/", "/%00", "/small.html%00", "/%", "/%4", "/%zz", "/.%00./secret",
        "/" * 3000 + "x",
    ):  # fmt: skip
        if path == "/fifo" and server.is_io_uring:
            continue  # a ring cannot ask what kind a file without descriptor is: it reads as empty
        status, body, _ = server.ask("GET", path)
        check(status in (400, 404), f"{path}: {status}")
        check(b"secret" not in body and b"root:" not in body, path)


def wrong_requests_are_refused(server: Server) -> None:
    host = b"Host: x\r\n"
    for request, status in {
        b"GET / HTTP/1.1\r\n\r\n": 400, b"GET / HTTP/1.1\r\n" + 2 * host + b"\r\n": 400,
        b"GET /\r\n\r\n": 400, b"GET  / HTTP/1.1\r\n" + host + b"\r\n": 400,
        b"GET x HTTP/1.1\r\n" + host + b"\r\n": 400, b"\0\0\0\r\n\r\n": 400,
        b"GET /\0 HTTP/1.1\r\n" + host + b"\r\n": 400,
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\n" + host + b" folded\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\n" + host + b"nonsense\r\n\r\n": 400,
        b"GET / HTTP/2.0\r\n" + host + b"\r\n": 505,
        b"POST / HTTP/1.1\r\n" + host + b"Content-Length: 3\r\n\r\nabc": 501,
        b"GET / HTTP/1.1\r\n" + host + b"Content-Length: 3\r\n\r\nabc": 413,
        b"GET / HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 413,
        b"GET /" + 5000 * b"x": 431, b"GET / HTTP/1.1\r\nX: " + 9000 * b"y" + b"\r\n\r\n": 431,
    }.items():  # fmt: skip
        with server.connect() as one:
            one.sendall(request)
            one.shutdown(socket.SHUT_WR)
            answer = everything(one)
        check(answer.startswith(b"HTTP/1.1 %d " % status), f"{request[:60]!r}: {answer[:40]!r}")
        check(b"Connection: close" in answer, f"{request[:60]!r} ends the connection")
    old = server.send(b"GET /small.html HTTP/1.0\n\n")
    check(old.startswith(b"HTTP/1.1 200 "), "HTTP/1.0 with bare line feeds")


def pipelines_are_answered_in_order(server: Server, bodies: dict[str, bytes]) -> None:
    dice = random.Random(2)
    names = [dice.choice([*bodies, "none"]) for _ in range(60)]
    names = [name for name in names if " " not in name]
    requests = [b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name.encode() for name in names]
    with server.connect(room=ROOM) as one:
        one.sendall(b"\r\n".join(requests))
        time.sleep(0.5)  # what is sent has no room any more
        stream = one.makefile("rb")
        for name in names:
            status = int(stream.readline().split()[1])
            length = 0
            while line := stream.readline().strip():
                if line.startswith(b"Content-Length:"):
                    length = int(line.split()[1])
            body = stream.read(length)
            right = status == 404 if name == "none" else (status, body) == (200, bodies[name])
            check(right, f"pipelined {name}: {status}")
    with server.connect() as one:
        for byte in b"GET /small.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":
            one.send(bytes([byte]))
        check(everything(one).endswith(bodies["small.html"]), "byte by byte")


def each_request_has_one_answer(server: Server) -> None:
    """Also where the client has said all, or asks again, before the server looks at it."""
    ask = b"GET /small.html HTTP/1.1\r\nHost: x\r\n\r\n"
    for before in (b"", ask):
        with server.connect() as one:
            one.sendall(before)
            if before:
                one.recv(1 << 16)
            time.sleep(0.5)  # it waits for the next request
            server.process.send_signal(signal.SIGSTOP)
            one.sendall(ask)
            one.shutdown(socket.SHUT_WR)
            server.process.send_signal(signal.SIGCONT)
            came = everything(one).count(b"HTTP/1.1 200")
        check(came == 1, f"a request and an end, after {before!r}: {came} answers")
    for n in range(1, 20):
        with server.connect() as one:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.sendall(n * ask)
            one.sendall(ask)
            one.shutdown(socket.SHUT_WR)
            came = everything(one).count(b"HTTP/1.1 200")
        check(came == n + 1, f"{n} requests and one more: {came} answers")


def broken_peers_hurt_nobody(server: Server, small: bytes) -> None:
    for turn in range(60):
        one = server.connect(room=4096)
        path = b"big" if turn % 2 else b"small.html"
        one.sendall(b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % path * (1 + turn % 3))
        if turn % 3:
            one.recv(100)
        if turn % 4:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
        if turn % 10 == 0:
            check(server.ask("GET", "/small.html")[1] == small, "beside broken peers")


@contextlib.contextmanager
def slow_clients(server: Server) -> Iterator[None]:
    """They send a byte now and then; the servers must end them, and serve others meanwhile."""
    slow = [server.connect() for _ in range(20)]
    begun = time.monotonic()
    yield
    others_end = time.monotonic()
    while slow:
        waited = time.monotonic() - others_end
        check(waited < PATIENCE_S, f"{len(slow)} slow clients are still there")
        for one in list(slow):
            one.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                try:
                    one.send(b"x")
                    ended = one.recv(10) == b""
                except (ConnectionResetError, BrokenPipeError):
                    ended = True
                if ended:
                    one.close()
                    slow.remove(one)
        time.sleep(0.5)
    check(time.monotonic() - begun > LIMIT_S - 2, "slow clients have their time")


def who_reads_slowly_gets_all(server: Server, site: Path) -> None:
    """An answer may take longer than a request, as long as it gets on. It is more than a socket
    takes at once."""
    length = 16 << 20
    with (site / "zeros").open("wb") as file:
        file.truncate(length)
    with server.connect(room=ROOM) as one:
        one.sendall(b"GET /zeros HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = bytearray()
        for turn in range(1, LIMIT_S + 5):
            while len(got) < turn * length // (LIMIT_S + 5):
                part = one.recv(1 << 16)
                check(bool(part), f"an answer that is read slowly ended after {len(got)} bytes")
                got += part
            time.sleep(1)
        got += everything(one)
    check(got.endswith(b"\r\n\r\n" + bytes(length)), "an answer that is read slowly")


def who_never_stops_is_ended(server: Server) -> None:
    """Empty lines begin no request, and after a wrong one nothing is read: both have their time."""
    for first in (b"", b"wrong\r\n\r\n"):
        with server.connect() as one:
            one.sendall(first)
            one.settimeout(PATIENCE_S)
            begun = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - begun < PATIENCE_S:
                    one.sendall(b"\r\n" * 30_000)
            took = time.monotonic() - begun
            check(took < PATIENCE_S, f"{first!r} and no end: it was there for {took:.0f} s")


def few_descriptors_are_survived(path: str, port: int, site: Path, small: bytes) -> None:
    server = Server(path, port, site, files=FEW_FILES)
    crowd = [server.connect() for _ in range(2 * FEW_FILES)]
    for one in crowd:
        with contextlib.suppress(OSError):  # it came late, and its time was over
            one.sendall(b"GET /small.html HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(1.5)
    for one in crowd:
        one.close()
    for _ in range(20):
        with contextlib.suppress(OSError, http.client.HTTPException):
            if server.ask("GET", "/small.html")[1] == small:
                break
        time.sleep(0.5)
    check(server.ask("GET", "/small.html")[1] == small, "it serves when there is room again")
    server.end()


def it_ends_gracefully(server: Server, big: bytes) -> None:
    """An answer that its client does not read meanwhile would be cut off after LIMIT_S."""
    served = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    for _ in range(3):
        served.request("GET", "/small.html")
        check(len(served.getresponse().read()) > 0, "a connection that stays open")
    idle, busy = server.connect(), server.connect(room=ROOM)
    busy.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    begin = busy.recv(1000)
    server.process.send_signal(signal.SIGTERM)
    check(everything(idle) == b"", "an idle connection ends at once")
    check(everything(served.sock) == b"", "one that was served ends at once")
    whole = begin + everything(busy)
    came = f"an answer under way is sent in full: {len(whole)} bytes came of {len(big)} and a head"
    check(whole.endswith(big), came)
    check(server.process.wait(PATIENCE_S) == 0, "it ends with status 0")


def main(path: str, port: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        site = Path(name, "site")
        bodies = make_site(site)
        server = Server(path, port, site)
        server.ask("GET", "/small.html")
        time.sleep(1)
        descriptors = server.descriptors()
        with slow_clients(server):
            for _ in range(2):
                bodies_are_right(server, bodies)
                ranges_are_right(server, bodies["big"])
                nothing_leads_out(server)
                wrong_requests_are_refused(server)
                pipelines_are_answered_in_order(server, bodies)
                each_request_has_one_answer(server)
                broken_peers_hurt_nobody(server, bodies["small.html"])
        server.rest(descriptors)
        for _ in range(ROUNDS_MAX):  # more clients at once than before are no leak
            before = server.resident_kb()
            broken_peers_hurt_nobody(server, bodies["small.html"])
            pipelines_are_answered_in_order(server, bodies)
            server.rest(descriptors)
            if server.resident_kb() < before + GROWTH_KB:
                break
        check(server.resident_kb() < before + GROWTH_KB, "it does not grow")
        if not path.endswith("epoll"):  # which reads one client until there is nothing more
            who_never_stops_is_ended(server)
        who_reads_slowly_gets_all(server, site)
        it_ends_gracefully(server, bodies["big"])
        for _ in range(ENDINGS):  # which find the last connections at any place of their beginning
            it_ends_gracefully(Server(path, port, site), bodies["big"])
        if not server.is_io_uring:  # its connections take none, and their table needs room for all
            few_descriptors_are_survived(path, port, site, bodies["small.html"])
    print("ok", checks)


main(sys.argv[1], int(sys.argv[2]))
