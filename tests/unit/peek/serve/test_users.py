# SPDX-License-Identifier: GPL-2.0-only
"""Users of this host with thousands of numbers: each is one user, and one peer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.unit.peek.serve.test_strangers import a_fleet, connected, status
from tests.unit.peek.serve.test_turns import machine
from trapless.peek.serve import fleet, opener, peers, users, web
from trapless.peek.serve.opener import owner_of
from trapless.peek.serve.web import Server

ALICE, BOB, FIRST, COUNT = 4001, 4002, 700_000, 65_536
HOLD = """
import encodings.idna, os, socket, sys
kept = []
for uid in map(int, sys.argv[2:]):
    os.seteuid(uid)
    kept.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    os.seteuid(0)
print("ready", flush=True)
sys.stdin.read()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may be other users")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwd, subuid = tmp_path / "passwd", tmp_path / "subuid"
    passwd.write_text(
        f"root:x:0:0::/:/bin/sh\nalice:x:{ALICE}:1::/:/bin/sh\nbob:x:{BOB}:1::/:/bin/sh\nhalf:x\n"
        + "".join(f"user{uid}:x:{uid}:1::/:\n" for uid in range(5000, 5200))
    )
    subuid.write_text(
        f"alice:{FIRST}:{COUNT}\n{BOB}:{FIRST + COUNT}:10\nroot:1000000:1000\ngone:1:999\n"
        "alice:x:1\n\nalice\n"
    )
    monkeypatch.setattr(users, "PASSWD", passwd)
    monkeypatch.setattr(users, "SUBUID", subuid)
    monkeypatch.setattr(users, "READ_S", 0.0)


@contextmanager
def server(monkeypatch: pytest.MonkeyPatch, places: int) -> Iterator[Server]:
    monkeypatch.setattr(fleet, "ALIVE_S", float("inf"))  # its loop does not run here
    monkeypatch.setattr(web, "TIMEOUT_S", 600.0)
    monkeypatch.setattr(web, "CLIENTS_MAX", places)
    made = Server("127.0.0.1", 0, a_fleet())
    made.start()
    yield made
    made.stop()


@contextmanager
def held(server: Server, *uids: int) -> Iterator[None]:
    """Connections of users who say nothing."""
    argv = [sys.executable, "-I", "-c", HOLD, str(server.server_port), *map(str, uids)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield
        process.kill()


def test_a_number_is_of_the_user_to_whom_it_was_given():
    for uid in (FIRST, FIRST + COUNT - 1, ALICE):
        assert users.owner(uid) == ALICE
    assert (
        users.owner(FIRST + COUNT) == BOB and users.owner(FIRST + COUNT + 10) == FIRST + COUNT + 10
    )
    assert users.owner(FIRST - 1) == FIRST - 1 and users.owner(0) == 0
    assert users.name(ALICE) == "alice" and users.name(1) == ""


def test_who_has_numbers_of_roots_for_a_container_is_not_root():
    assert users.owner(1_000_500) == 1_000_000


def test_without_the_files_a_number_is_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(users, "PASSWD", tmp_path / "none")
    monkeypatch.setattr(users, "SUBUID", tmp_path / "none")
    assert users.owner(FIRST) == FIRST and users.name(ALICE) == ""


@needs_root
def test_a_process_with_a_number_of_a_user_is_that_users():
    with machine(user=FIRST + 7) as pid:
        assert owner_of(pid) == ALICE


@needs_root
@pytest.mark.parametrize(
    ("first", "peer"), [(FIRST, f"uid {ALICE}"), (3_000_000, peers.NO_ACCOUNT)]
)
def test_a_user_with_many_numbers_keeps_no_other_user_out(monkeypatch, first, peer):
    """Whose one client says nothing, either, and came before."""
    places = 4
    many = range(first, first + 5 * places)
    with server(monkeypatch, places) as made, held(made, BOB), held(made, *many):
        assert status(made) == 200
        assert {*made._clients.values()} - {"uid 0"} == {f"uid {BOB}", peer}


@needs_root
def test_of_peers_that_have_as_many_the_last_one_goes(monkeypatch):
    first, others = (5000, 5001, 5002), range(5003, 5020)
    with server(monkeypatch, 3) as made, held(made, *first), held(made, *others):
        assert status(made) == 200
        assert {"uid 5000", "uid 5001"} <= set(made._clients.values())


@needs_root
def test_root_and_the_daemons_user_have_places_of_their_own(monkeypatch):
    monkeypatch.setattr(web, "TRUSTED_CLIENTS", 2)
    with ExitStack() as stack:
        made = stack.enter_context(server(monkeypatch, 4))
        stack.enter_context(held(made, *range(5000, 5004)))
        slow = [stack.enter_context(connected(made)) for _ in range(2)]
        stack.enter_context(held(made, *range(5004, 5100)))
        for one in slow:
            one.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert one.recv(15) == b"HTTP/1.0 200 OK"


# ---- Machines of other users ---------------------------------------------------------------------


def listed_by(user: int) -> set[int]:
    """The pids of the machines that the process with the rights lists where a user started it."""
    ours, theirs = socket.socketpair()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        rows, _ = opener._running(())
        assert isinstance(rows, list)
        theirs.sendall(" ".join(str(row[0]) for row in rows).encode() or b" ")
        os._exit(0)
    with ours, theirs:
        os.waitpid(child, 0)
        return set(map(int, ours.recv(1 << 16).split()))


@needs_root
def test_a_user_is_shown_the_machines_that_it_may_read(tmp_path):
    tmp_path.chmod(0o755)
    with ExitStack() as stack:
        roots = stack.enter_context(machine("-m", "64M"))
        own = stack.enter_context(machine("-m", "64M", user=ALICE))
        assert listed_by(ALICE) & {roots, own} == {own}
        assert listed_by(0) >= {roots, own}
