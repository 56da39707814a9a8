# SPDX-License-Identifier: GPL-2.0-only
"""Loads for a guest: the programs on this machine, and the lines of shell for others.

Owns the tests of eval/tools/loads and eval/tools/loads/loads.py as far as they need no VM.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eval.tools.loads import loads

ROOT = Path(__file__).resolve().parents[3]
HEAD = b"HTTP/1.1 200 OK\r\nServer: test\r\n\r\n"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    targets = [f"build/eval/tools/loads/{name}" for name in ("sort", "ask")]
    subprocess.run(["make", "-s", *targets], cwd=ROOT, check=True)


def run(name: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run([loads.program(name), *words], capture_output=True, timeout=600)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("numbers", [1, 2, 1000])
def test_numbers_are_sorted(numbers: int) -> None:
    status, rows = run("sort", str(8 * numbers))
    assert (status, rows[0]["made"]) == (0, numbers)


@pytest.mark.parametrize("words", [(), ("0",), ("7",), ("x",)])
def test_nothing_to_sort_is_an_error(words: tuple[str, ...]) -> None:
    status, rows = run("sort", *words)
    assert status == 1 and "failure" in rows[0]


@contextmanager
def serving(pieces: list[list[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that gives each connection the next reply, in pieces; its port, and what it got."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for reply in pieces:
                connection, _ = listener.accept()
                with connection:
                    got.append(connection.recv(4096))
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for piece in reply:
                        connection.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], got
        thread.join(10)


def ask(port: int, file: Path, *more: str) -> tuple[int, list[dict[str, Any]]]:
    words = ["--port", str(port), "--expect", str(file), "--path", "/file", "--wait", "2", *more]
    return run("ask", *words)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = {Path(target).name: path for path, target in loads.guest_files(tmp_path)}
    assert found["file"].stat().st_size == loads.FILE_BYTES
    return found["file"]


def test_replies_are_counted_however_they_are_cut(file: Path) -> None:
    body = file.read_bytes()
    replies = [
        [HEAD + body],
        [HEAD[:3], HEAD[3:-2], HEAD[-2:] + body[:1], body[1:]],
        [HEAD, body[:4095], body[4095:]],
    ]
    with serving(replies) as (port, got):
        status, rows = ask(port, file, "--requests", "3")
    assert status == 0
    assert (rows[0]["requests"], rows[0]["failed"], sum(rows[0]["each_second"])) == (3, 0, 3)
    assert rows[1]["made"] == 3
    assert got[0].startswith(b"GET /file HTTP/1.0\r\n") and got[0].endswith(b"\r\n\r\n")


def test_a_connection_that_is_cut_off_is_made_again(file: Path) -> None:
    whole = [HEAD + file.read_bytes()]
    with serving([whole, [HEAD], whole]) as (port, _):
        status, rows = ask(port, file, "--requests", "2")
    assert status == 0
    assert (rows[0]["requests"], rows[0]["failed"]) == (2, 1)


def test_a_reply_that_is_not_the_file_is_a_failure(file: Path) -> None:
    body = file.read_bytes()
    wrong = [
        [HEAD.replace(b"200", b"404") + body],
        [HEAD + body[:-1] + b"?"],
        [HEAD + body + b"more"],
        [b"x" * 5000],
    ]
    for reply in wrong:
        with serving([reply]) as (port, _):
            status, rows = ask(port, file, "--requests", "1")
        assert status == 1
        assert "not the file" in rows[0]["failure"]


@pytest.mark.slow
def test_a_server_that_never_comes_is_a_failure(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    status, rows = ask(port, file, "--requests", "1", "--wait", "1")
    assert (status, rows[0]["failure"]) == (1, "no reply in 1 s")


def test_the_served_file_has_no_two_places_alike() -> None:
    data = loads.served_file()
    words = {data[place : place + 2] for place in range(0, len(data), 2)}
    assert (len(data), len(words)) == (4096, 2048)


def test_commands_are_what_a_shell_takes() -> None:
    for load in (loads.sort(), loads.make(), loads.make(loads.FEW), loads.serve()):
        for text in (load.prepare, load.command):
            assert subprocess.run(["sh", "-n", "-c", text]).returncode == 0, text
