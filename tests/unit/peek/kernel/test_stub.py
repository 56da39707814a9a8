# SPDX-License-Identifier: GPL-2.0-only
"""A machine behind a debugger's stub, here one that serves the toy kernel's memory by packets.

The lab's test asks QEMU's own stub. This one shows what a stub may lack, or say wrongly.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from tests.unit.peek.toy_kernel import RAM_BYTES, RELEASE, ToyKernel
from trapless.base.console import TraplessError
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.stub_memory import StubMemory
from trapless.peek.machines import Remote, choose
from trapless.vm.debugger import REGISTERS
from trapless.vm.stub import Stub

TARGET = '<target><xi:include href="core.xml"/></target>'
CORE = (
    "<!-- <reg name='none'/> -->"
    + "".join(f'<reg name="{name}" bitsize="64"/>' for name in REGISTERS)
    + '<reg name="eflags"/><!--reg name="gone"/--><reg name="cr3"/><reg name="cr4" regnum="40"/>'
)


class Peer:
    """A stub. `lacks`: requests that it does not know; `stops`: how often it was stopped."""

    def __init__(self, kernel: ToyKernel, *lacks: str) -> None:
        self.kernel, self.lacks, self.stops = kernel, lacks, 0
        self.runs, self.detached = False, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        pending = b""
        with client:
            while piece := client.recv(1 << 16):
                pending += piece.replace(b"+", b"")
                while pending:
                    if pending[:1] == b"\x03":
                        pending, self.runs = pending[1:], False
                        self.stops += 1
                        self._say(client, "T02thread:01;")
                        continue
                    end = pending.find(b"#")
                    if end < 0 or len(pending) < end + 3:
                        break
                    request, pending = pending[1:end].decode(), pending[end + 3 :]
                    assert not self.runs or request == "c", request  # QEMU would stop for it
                    answer = self._answer(request)
                    if answer is not None:
                        self._say(client, answer)

    def _say(self, client: socket.socket, text: str) -> None:
        data = text.encode()
        client.sendall(b"+$%s#%02x" % (data, sum(data) % 256))

    def _answer(self, request: str) -> str | None:
        if any(request.startswith(one) for one in self.lacks):
            return ""
        if request == "c":
            self.runs = True
            return None
        if request == "D":
            self.detached = True
            return "OK"
        if request.startswith("m"):
            at, length = (int(word, 16) for word in request[1:].split(","))
            data = bytes(self.kernel.ram[at : at + length])
            return data.hex() if len(data) == length else "E14"
        if request.startswith("qXfer"):
            _, _, _, name, place = request.split(":")
            at, length = (int(word, 16) for word in place.split(","))
            text = TARGET if name == "target.xml" else CORE
            more = "m" if len(text) > at + length else "l"
            return more + text[at : at + length]
        if request.startswith("p"):
            cr3 = self.kernel.root | (0x1003 if self.kernel.pti else 3)  # in user mode
            values = {18: cr3, 40: 1 << 12 if self.kernel.levels == 5 else 0}
            return struct.pack("<Q", values[int(request[1:], 16)]).hex()
        table = {
            "qSupported": "PacketSize=1000;qXfer:features:read+",
            "Qqemu.PhyMemMode:1": "OK",
            "qfThreadInfo": "m01,02",
            "qsThreadInfo": "l",
            "Hg": "OK",
            "g": struct.pack("<17Q2I", *range(17), 0x246, 0x33).hex() + "xxxxxxxx",
        }
        return next((said for name, said in table.items() if request.startswith(name)), "")


@contextmanager
def serving(*lacks: str, levels: int = 5, pti: bool = True) -> Iterator[Peer]:
    peer = Peer(ToyKernel(levels=levels, pti=pti), *lacks)
    try:
        yield peer
    finally:
        peer.close()


def runs_again(peer: Peer) -> bool:
    """Whether the machine runs, once the last packet has come: nobody waits for an answer to it."""
    end = time.monotonic() + 10
    while not peer.runs and time.monotonic() < end:
        time.sleep(0.001)
    return peer.runs


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("trapless.vm.stub.QUIET_S", 0.01)
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path))


@pytest.mark.parametrize("levels", [4, 5])
@pytest.mark.parametrize("pti", [True, False])
@pytest.mark.parametrize("sandbox", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_kernel_behind_a_stub_is_opened(levels, pti, sandbox):
    with serving(levels=levels, pti=pti) as peer:
        machine = choose(gdb=f"127.0.0.1:{peer.port}")
        with machine.open(sandbox=sandbox) as target:
            assert str(target.release) == RELEASE
            assert peer.stops == 1 and runs_again(peer)  # it stood still all the time
            assert {6, 7, 2} == set(target.threads())
            assert {one.pid for one in target.thread_stacks() if one.stack} == {2, 6, 7}
            assert [(one.start, one.end) for one in target.memory.regions()] == [(0, RAM_BYTES)]
            with pytest.raises(PeekError, match="no physical address"):
                target.memory.read(RAM_BYTES, 8)
            stops = peer.stops
            assert isinstance(target.memory, StubMemory)
            with target.memory.stopped():
                for address in range(0, 4096, 64):
                    target.memory.read(address, 8)
            assert peer.stops == stops + 1 and runs_again(peer)
        assert peer.detached


def test_registers_tell_user_mode():
    with serving() as peer:
        stub = Stub("127.0.0.1", peer.port)
        registers = stub.registers()
        stub.close()
    assert [one.cpu for one in registers] == [0, 1] and all(one.user for one in registers)
    assert registers[0].general["rip"] == 16


def test_memory_that_is_no_kernels_is_refused():
    with serving() as peer:
        peer.kernel.ram[peer.kernel.root : peer.kernel.root + 4096] = bytes(4096)
        stub = Stub("127.0.0.1", peer.port)
        with pytest.raises(PeekError, match="not those of a Linux kernel"):
            StubMemory(stub)
        stub.close()


def test_tables_that_go_round_and_round_end(monkeypatch):
    monkeypatch.setattr("trapless.peek.limits.TABLES_READ_MAX", 50)
    with serving() as peer:
        root = peer.kernel.root
        entry = struct.pack("<Q", root | 0x63)
        peer.kernel.ram[root : root + 4096] = entry * 512
        stub = Stub("127.0.0.1", peer.port)
        with pytest.raises(PeekError, match="more than 50 page tables"):
            StubMemory(stub)
        stub.close()


def test_machine_whose_kernel_is_damaged_goes_on():
    with serving() as peer:
        at = peer.kernel.physical(peer.kernel.symbols["linux_banner"])
        peer.kernel.ram[at : at + 8] = b"damaged!"
        with pytest.raises(PeekError, match="no such kernel that can be read"):
            Remote("127.0.0.1", peer.port).open()
        assert peer.detached


def test_stub_without_physical_memory_is_refused():
    with serving("Qqemu") as peer, pytest.raises(TraplessError, match=r"no physical memory.*kgdb"):
        Stub("127.0.0.1", peer.port)


def test_nothing_at_a_port_is_said():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TraplessError, match=rf"no debugger's stub answers at 127.0.0.1:{port}"):
        Remote("127.0.0.1", port).open()


@pytest.mark.parametrize("host", ["..", "a" * 64])
def test_a_host_that_no_name_can_be_is_said(host):
    with pytest.raises(TraplessError, match="is no name of one"):
        Remote.named(f"{host}:1234").open()


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:70000", ":x", "host:²"])
def test_what_is_no_port_is_refused(text):
    with pytest.raises(PeekError, match="is not HOST:PORT"):
        Remote.named(text)


# ---- A stub that means harm ----------------------------------------------------------------------

QUICK_S = 10.0
BOMB = "<!--" * 30_000
REGISTERS_BOMB = "<reg " * 20_000 + "<reg " + "a" * 100_000 + ">"


class Hostile(Peer):
    """A stub that says what it was told for requests that begin so, as it is or in a packet."""

    def __init__(self, said: dict[str, bytes | str], pause_s: float = 0.0) -> None:
        self._said, self._pause_s = said, pause_s
        super().__init__(ToyKernel())

    def _serve(self) -> None:
        with suppress(OSError):  # who was harmed hangs up
            super()._serve()

    def _say(self, client: socket.socket, text: str) -> None:
        if not text.startswith("raw:"):
            time.sleep(self._pause_s)
            super()._say(client, text)
            return
        data = bytes.fromhex(text[4:])
        while True:  # for ever, a byte at a time where there is a pause
            client.sendall(data[:1] if self._pause_s else data * 1000)
            time.sleep(self._pause_s)

    def _answer(self, request: str) -> str | None:
        for begin, said in self._said.items():
            if request.startswith(begin):
                return said if isinstance(said, str) else f"raw:{said.hex()}"
        return super()._answer(request)


@contextmanager
def harm(pause_s: float = 0.0, **said: bytes | str) -> Iterator[Hostile]:
    peer = Hostile(said, pause_s)
    began = time.monotonic()
    try:
        yield peer
        assert time.monotonic() - began < QUICK_S
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"qSupported": b"x" * 64}, "MiB that are no packet"),
        ({"qSupported": b"$PacketSize=zz#00"}, "wrong checksum"),
        ({"qSupported": b"$PacketSize=zz#zz"}, "wrong checksum"),
        ({"Qqemu": "x" * 5000}, "no physical memory"),
        ({"qXfer": "m"}, "does not tell the register cr4"),
        ({"qXfer": "m" + BOMB}, "does not tell the register cr4"),
        ({"qXfer": "l" + REGISTERS_BOMB}, "does not tell the register cr4"),
        ({"qXfer": 'l<reg name="cr4" regnum="-1"/>'}, "numbers no registers"),
        ({"qXfer": "l\x1b[2J"}, "does not tell"),
        ({"p": "zz"}, "data that are no bytes"),
        ({"p": "00" * 100}, "does not tell cr4"),
        ({"m": "  " * 64}, "has no memory at|data that are no bytes"),
        ({"m": "\x1b" * 984}, "data that are no bytes"),
        ({"qfThreadInfo": "m" + "," * 100_000}, "lists no CPUs, without an end"),
        ({"qfThreadInfo": "m1", "qsThreadInfo": "m"}, "lists no CPUs, without an end"),
        ({"qfThreadInfo": "l", "Hg": "E01\x1b"}, r"answered b'E01\\x1b' to Hg0$"),
    ],
)
def test_a_stub_that_says_what_none_says_is_an_error(said, error, monkeypatch):
    with harm(**said) as peer, pytest.raises(TraplessError, match=error) as raised:
        stub = Stub("127.0.0.1", peer.port)
        monkeypatch.setattr(stub, "_chunk", 492)
        with closing(stub):
            StubMemory(stub)
    assert len(str(raised.value)) < 300


def test_a_stub_that_never_stops_talking_is_not_listened_to(monkeypatch):
    packet = b"$T05#b9"
    monkeypatch.setattr("trapless.vm.stub.SAID_MAX", 3)
    monkeypatch.setattr("trapless.vm.stub.QUIET_S", 5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(packet * 10)
                while client.recv(64):
                    pass

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(TraplessError, match="much that nobody asked for"):
            Stub("127.0.0.1", listener.getsockname()[1])


def test_an_answer_that_trickles_ends_in_its_time(monkeypatch):
    monkeypatch.setattr("trapless.vm.stub.CONNECT_LIMIT_S", 0.5)
    silent = pytest.raises(TraplessError, match=r"gives no answer to .* process may be stopped")
    with harm(0.02, qSupported=b"x") as peer, silent:
        Stub("127.0.0.1", peer.port)


@pytest.mark.slow
def test_a_stub_that_is_slow_at_each_answer_ends_in_its_time(monkeypatch):
    monkeypatch.setattr("trapless.peek.kernel.memories.stub_memory.OPEN_LIMIT_S", 1.0)
    slow = pytest.raises(TraplessError, match=r"answers too slowly|no answer to")
    with harm(0.1) as peer, closing(Stub("127.0.0.1", peer.port)) as stub, slow:
        StubMemory(stub)


@pytest.mark.slow
def test_a_stub_that_is_slow_once_it_is_open_ends_in_its_time():
    with harm(0.1) as peer, closing(Stub("127.0.0.1", peer.port)) as stub:
        slow = pytest.raises(TraplessError, match=r"answers too slowly|no answer to")
        with slow, stub.stopped(1.0):
            while True:
                stub.registers()


def test_tables_that_map_everything_at_random_are_not_kept(monkeypatch):
    monkeypatch.setattr("trapless.peek.limits.RUNS_MAX", 100)
    with serving() as peer:
        root = peer.kernel.root
        large = [number << 31 | 0x83 for number in range(512)]  # pages of 1 GiB at level 3
        for level, entries in enumerate(
            ([root + 8192 | 0x63] * 512, [root + 12288 | 0x63] * 512, large)
        ):
            at = root + 4096 * (level and level + 1)  # the root's neighbour is user mode's half
            peer.kernel.ram[at : at + 4096] = struct.pack("<512Q", *entries)
        stub = Stub("127.0.0.1", peer.port)
        with pytest.raises(PeekError, match="more than 100 runs"):
            StubMemory(stub)
        stub.close()
