# SPDX-License-Identifier: GPL-2.0-only
"""Talks to a stub for GNU debuggers, and follows a guest by it, instruction by instruction.

This file owns the packets of that protocol, and the few requests that following a guest needs:
stop, continue, one step, a breakpoint, the registers, memory. For that, the VM has one end of a
socket pair (LabConfig.debugger), this file the other. It knows no symbols and no experiment.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

from trapless.base.console import TraplessError

REGISTERS = (
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"),
    *(f"r{number}" for number in range(8, 16)),
    "rip",
)
ANSWER_LIMIT_S = 1800.0
"""Longest wait for an answer, seconds: a limit for an emulator that hangs."""
STOP_LIMIT_S = 2.0
"""Seconds after which a VM is asked again to stop: it ignores the request until it runs."""
STEP_QUIETLY = 7
"""Steps of the emulator that take no interrupt and let no timer run."""

PACKET_BYTES_MAX = 4 << 20
"""The longest answer, with all that comes before it: QEMU's have some kilobytes."""
SHOWN_CHARS_MAX = 80

ENDED = "the VM ended while it was being followed"


class Connection:
    """A connection to a stub. One thread uses it, but any may hang up."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours
        self._pending = b""

    def hang_up(self) -> None:
        """End the connection: a thread that waits for an answer gets an error. Any thread may
        call."""
        self._ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._ours.close()

    def expect(self, request: str, answer: bytes) -> None:
        """Ask, and raise TraplessError if the answer is another."""
        reply = self.ask(request)
        if reply != answer:
            raise TraplessError(
                f"the emulator's debugger answered {reply[:SHOWN_CHARS_MAX]!r} to "
                f"{request[:SHOWN_CHARS_MAX]}"
            )

    def ask(self, request: str, limit_s: float = ANSWER_LIMIT_S) -> bytes:
        """The stub's answer to a request."""
        body = request.encode()
        self.send(b"$%s#%02x" % (body, sum(body) % 256))
        try:
            return self.receive(limit_s)
        except TimeoutError as error:
            shown = request[:SHOWN_CHARS_MAX]
            raise TraplessError(f"no answer to {shown} within {limit_s:.0f} s") from error

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            self._ours.sendall(data)
        except OSError as error:
            raise TraplessError(ENDED) from error

    def receive(self, limit_s: float) -> bytes:
        """The next packet, acknowledged; TimeoutError where it is not whole within `limit_s`."""
        end_s = time.monotonic() + limit_s
        while True:
            begin = self._pending.find(b"$")
            end = self._pending.find(b"#", begin)
            if begin >= 0 and end >= 0 and len(self._pending) >= end + 3:
                body, sum_ = self._pending[begin + 1 : end], self._pending[end + 1 : end + 3]
                self._pending = self._pending[end + 3 :]
                if sum_.lower() != b"%02x" % (sum(body) % 256):
                    raise TraplessError("a packet of the debugger's stub has a wrong checksum")
                self.send(b"+")
                return body
            if len(self._pending) > PACKET_BYTES_MAX:
                raise TraplessError(
                    f"the debugger's stub sends more than {PACKET_BYTES_MAX >> 20} MiB that are no "
                    "packet"
                )
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._ours.settimeout(left_s)
            try:
                piece = self._ours.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError:
                piece = b""
            if not piece:
                raise TraplessError(ENDED)
            self._pending += piece


class Debugger(Connection):
    """One debugger of one VM with one CPU."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        super().__init__(ours)

    def close(self) -> None:
        super().close()
        self._theirs.close()

    @property
    def guest_end(self) -> int:
        """The descriptor for LabConfig.debugger."""
        return self._theirs.fileno()

    def attach(self, limit_s: float) -> None:
        """Stop the VM as soon as it runs."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.send(b"\x03")
            try:
                self.receive(STOP_LIMIT_S)
            except TimeoutError:
                continue
            self.expect(f"Qqemu.sstep={STEP_QUIETLY:x}", b"OK")
            return
        raise TraplessError(f"the VM could not be stopped within {limit_s:.0f} s")

    def run_to(self, address: int, limit_s: float) -> None:
        """Go on until an instruction at the (virtual) address is next, from there once more."""
        self.ask("s")
        self.expect(f"Z0,{address:x},1", b"OK")
        self.ask("c", limit_s)
        self.expect(f"z0,{address:x},1", b"OK")

    def steps_to(self, address: int, steps_max: int) -> Iterator[int]:
        """Addresses of the instructions executed from here until the one at `address` is next."""
        for _ in range(steps_max):
            where = self.registers()["rip"]
            if where == address:
                return
            yield where
            self.ask("s")
        raise TraplessError(f"{steps_max} steps did not lead to {address:#x}")

    def registers(self) -> dict[str, int]:
        raw = bytes.fromhex(self.ask("g").decode())[: 8 * len(REGISTERS)]
        return dict(zip(REGISTERS, struct.unpack(f"<{len(REGISTERS)}Q", raw), strict=True))

    def text(self, address: int, size_max: int = 64) -> str:
        """NUL-terminated text of the guest."""
        raw = bytes.fromhex(self.ask(f"m{address:x},{size_max:x}").decode())
        return raw.split(b"\0", 1)[0].decode()
