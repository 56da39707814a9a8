# SPDX-License-Identifier: GPL-2.0-only
"""Asks the stub for GNU debuggers of a running machine for registers and physical memory, over TCP.

Owns what such a stub is asked: stop, continue, the registers of each CPU, memory by physical
addresses, which QEMU's stub offers. A machine stands still while it is asked, and goes on when the
connection is closed. debugger.py has the packets.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trapless.base.console import TraplessError
from trapless.vm.debugger import REGISTERS, Connection

CONNECT_LIMIT_S = 10.0
ANSWER_LIMIT_S = 60.0
"""The longest wait for an answer: another debugger may be connected to the stub and keep it."""
OPEN_LIMIT_S = 300.0
"""The longest time until a machine is open, in which some ten thousand answers come."""
STOPPED_LIMIT_S = 60.0
"""The longest time for which an open machine stands still, with all answers that come in it."""
QUIET_S = 0.2
"""How long to wait for packets that a stub sends unasked."""
PACKET_BYTES = 1024
PACKET_BYTES_MAX = 1 << 20
FILES_MAX = 16
FILE_CHARS_MAX = 1 << 17
SEGMENT_AT = 8 * len(REGISTERS) + 4  # CS, behind the flags
USER = 3
CPUS_MAX = 8192
REGISTER_BYTES_MAX = 64
SAID_MAX = 1000
"""Packets that a stub may send before it is asked."""
INTERRUPT = b"\x03"


@dataclass(frozen=True)
class StubRegisters:
    """The registers of one CPU of a machine that stands still."""

    cpu: int
    general: dict[str, int]  # by the names in debugger.REGISTERS
    user: bool


class Stub(Connection):
    """A connection to a machine's stub. Several threads may ask; each stops the machine for it."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        try:
            connection = socket.create_connection((host, port), CONNECT_LIMIT_S)
        except UnicodeError as error:  # of IDNA
            raise TraplessError(f"--gdb {self.address}: the host is no name of one") from error
        except OSError as error:
            raise TraplessError(
                f"no debugger's stub answers at {self.address}: {error.strerror or error}; QEMU "
                f"offers one with -gdb tcp:{self.address}"
            ) from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(connection)
        self._lock = threading.RLock()
        self._stops = 0  # nested: the machine stands still from the first to the last
        self._end_s = math.inf
        self._chunk = PACKET_BYTES // 2
        self._numbers: dict[str, int] = {}
        try:
            with self.within(OPEN_LIMIT_S):
                self._begin()
        except BaseException:
            super().close()
            raise

    def _begin(self) -> None:
        # A machine that somebody connects to stands still, and its stub may say so.
        with contextlib.suppress(TimeoutError):
            for _ in range(SAID_MAX):
                self.receive(QUIET_S)
            raise TraplessError(f"the stub at {self.address} says much that nobody asked for")
        try:
            features = _text(self.ask("qSupported:xmlRegisters=i386", CONNECT_LIMIT_S))
        except TraplessError as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            raise TraplessError(
                f"the stub at {self.address} gives {error}: QEMU's process may be stopped, or "
                "another debugger is connected"
            ) from error
        if size := re.search(r"PacketSize=([0-9a-fA-F]{1,8})", features):
            self._chunk = max(min(int(size[1], 16), PACKET_BYTES_MAX) // 2 - 16, 64)
        if "qXfer:features:read+" in features:
            self._numbers = dict(self._register_numbers())
        if self.ask("Qqemu.PhyMemMode:1", ANSWER_LIMIT_S) != b"OK":
            raise TraplessError(
                f"the stub at {self.address} reads no physical memory (qqemu.PhyMemMode), which "
                "QEMU's own does since 4.1; a kernel's own stub, kgdb, reads virtual memory only"
            )
        self._go_on()

    def close(self) -> None:
        """Let the machine go, and hang up. Once more does nothing."""
        if self._ours.fileno() < 0:
            return
        with contextlib.suppress(TraplessError, OSError), self._lock:
            if not self._stops:
                self._stop()
            self.ask("D", CONNECT_LIMIT_S)
        super().close()

    def ask(self, request: str, limit_s: float = ANSWER_LIMIT_S) -> bytes:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TraplessError(f"the stub at {self.address} answers too slowly to be read")
        return super().ask(request, min(limit_s, left_s))

    @contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """A block in which all answers together may take `limit_s`."""
        before, self._end_s = self._end_s, min(self._end_s, time.monotonic() + limit_s)
        try:
            yield
        finally:
            self._end_s = before

    def _bytes(self, answer: bytes) -> bytes:
        try:
            data = bytes.fromhex(answer.decode("ascii"))
        except ValueError:
            data = b""
        if 2 * len(data) != len(answer):
            raise TraplessError(f"the stub at {self.address} gives data that are no bytes")
        return data

    @contextmanager
    def stopped(self, limit_s: float = STOPPED_LIMIT_S) -> Iterator[None]:
        """A block during which the machine stands still. All answers in it may take `limit_s`."""
        with self._lock, self.within(math.inf if self._stops else limit_s):
            if not self._stops:
                self._stop()
            self._stops += 1
            try:
                yield
            finally:
                self._stops -= 1
                if not self._stops and self._ours.fileno() >= 0:
                    self._go_on()

    def _stop(self) -> None:
        self.send(INTERRUPT)
        try:
            self.receive(ANSWER_LIMIT_S)
        except TimeoutError:
            raise TraplessError(f"the machine at {self.address} does not stop") from None

    def _go_on(self) -> None:
        self.send(b"$c#63")

    def registers(self) -> list[StubRegisters]:
        """The registers of all CPUs, in their order."""
        with self.stopped():
            found = []
            for cpu, thread in enumerate(self._threads()):
                self.expect(f"Hg{thread}", b"OK")
                data = self._bytes(self.ask("g", ANSWER_LIMIT_S).replace(b"x", b"0"))
                if len(data) < SEGMENT_AT + 4:
                    raise TraplessError(
                        f"the stub at {self.address} gives {len(data)} bytes of registers: is it "
                        "an x86-64 machine in 64-bit mode?"
                    )
                values = struct.unpack_from(f"<{len(REGISTERS)}Q", data)
                (segment,) = struct.unpack_from("<I", data, SEGMENT_AT)
                general = dict(zip(REGISTERS, values, strict=True))
                found.append(StubRegisters(cpu, general, segment & USER == USER))
            return found

    def register(self, name: str) -> int:
        """A register of the first CPU that has no place among the general ones."""
        if name not in self._numbers:
            raise TraplessError(f"the stub at {self.address} does not tell the register {name}")
        with self.stopped():
            self.expect(f"Hg{self._threads()[0]}", b"OK")
            data = self._bytes(self.ask(f"p{self._numbers[name]:x}", ANSWER_LIMIT_S))
            if not 0 < len(data) <= REGISTER_BYTES_MAX:
                raise TraplessError(f"the stub at {self.address} does not tell {name}")
            return int.from_bytes(data, "little")

    def read(self, address: int, length: int) -> bytes:
        """Physical memory; TraplessError where there is none."""
        pieces = []
        with self.stopped():
            while length > 0:
                take = min(length, self._chunk)
                answer = self.ask(f"m{address:x},{take:x}", ANSWER_LIMIT_S)
                if len(answer) != 2 * take:
                    raise TraplessError(f"{self.address} has no memory at {address:#x}")
                pieces.append(self._bytes(answer))
                address += take
                length -= take
        return b"".join(pieces)

    def _threads(self) -> list[str]:
        threads: list[str] = []
        answer = self.ask("qfThreadInfo", ANSWER_LIMIT_S)
        while answer.startswith(b"m") and len(threads) < CPUS_MAX:
            more = re.findall(r"[0-9a-fA-F.p-]{1,32}", _text(answer[1:]))
            if not more:
                raise TraplessError(f"the stub at {self.address} lists no CPUs, without an end")
            threads += more
            answer = self.ask("qsThreadInfo", ANSWER_LIMIT_S)
        return threads[:CPUS_MAX] or ["0"]

    def _register_numbers(self) -> Iterator[tuple[str, int]]:
        """The numbers of all registers by name, as the stub describes them: in order, from 0."""
        number, target = 0, self._file("target.xml")
        files = re.findall(r'<xi:include\s+href="([^"<>]{1,200})"', target)[:FILES_MAX]
        for text in (target, *map(self._file, files)):
            for tag in re.findall(r"<reg\s[^<>]*>", text):  # the prefix xi is not always bound
                values = dict(re.findall(r'\b(\w+)="([^"]*)"', tag))
                told = values.get("regnum", str(number))
                if not re.fullmatch(r"[0-9]{1,6}", told):
                    raise TraplessError(f"the stub at {self.address} numbers no registers")
                number = int(told)
                yield values.get("name", ""), number
                number += 1

    def _file(self, name: str) -> str:
        text = ""
        while len(text) < FILE_CHARS_MAX:
            size = self._chunk
            answer = _text(self.ask(f"qXfer:features:read:{name}:{len(text):x},{size:x}"))
            text += answer[1:]
            if not answer.startswith("m") or len(answer) == 1:
                break
        return _uncommented(text)


def _text(answer: bytes) -> str:
    return answer.decode("ascii", "replace")


def _uncommented(text: str) -> str:
    """A text without its comments.

    >>> _uncommented("a<!-- b -->c<!--d-->e<!--f")
    'ace'
    """
    pieces, at = [], 0
    while (begin := text.find("<!--", at)) >= 0:
        pieces.append(text[at:begin])
        end = text.find("-->", begin)
        at = end + len("-->") if end >= 0 else len(text)
    return "".join((*pieces, text[at:]))
