# SPDX-License-Identifier: GPL-2.0-only
"""Follows a guest instruction by instruction, through QEMU's stub for GNU debuggers.

This file owns the few requests of that protocol that it needs: stop, continue, one step, a
breakpoint, the registers, memory. The VM has one end of a socket pair (LabConfig.debugger), this
file the other. It knows no symbols and no experiment.
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

ENDED = "the VM ended while it was being followed"


class Debugger:
    """One debugger of one VM with one CPU."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._pending = b""

    @property
    def guest_end(self) -> int:
        """The descriptor for LabConfig.debugger."""
        return self._theirs.fileno()

    def hang_up(self) -> None:
        """End the connection: a thread that waits for an answer gets an error. Any thread may
        call."""
        self._ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def attach(self, limit_s: float) -> None:
        """Stop the VM as soon as it runs."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self._send(b"\x03")
            try:
                self._receive(STOP_LIMIT_S)
            except TimeoutError:
                continue
            self._expect(f"Qqemu.sstep={STEP_QUIETLY:x}", b"OK")
            return
        raise TraplessError(f"the VM could not be stopped within {limit_s:.0f} s")

    def run_to(self, address: int, limit_s: float) -> None:
        """Go on until an instruction at the (virtual) address is next, from there once more."""
        self._ask("s")
        self._expect(f"Z0,{address:x},1", b"OK")
        self._ask("c", limit_s)
        self._expect(f"z0,{address:x},1", b"OK")

    def steps_to(self, address: int, steps_max: int) -> Iterator[int]:
        """Addresses of the instructions executed from here until the one at `address` is next."""
        for _ in range(steps_max):
            where = self.registers()["rip"]
            if where == address:
                return
            yield where
            self._ask("s")
        raise TraplessError(f"{steps_max} steps did not lead to {address:#x}")

    def registers(self) -> dict[str, int]:
        raw = bytes.fromhex(self._ask("g").decode())[: 8 * len(REGISTERS)]
        return dict(zip(REGISTERS, struct.unpack(f"<{len(REGISTERS)}Q", raw), strict=True))

    def text(self, address: int, size_max: int = 64) -> str:
        """NUL-terminated text of the guest."""
        raw = bytes.fromhex(self._ask(f"m{address:x},{size_max:x}").decode())
        return raw.split(b"\0", 1)[0].decode()

    def _expect(self, request: str, answer: bytes) -> None:
        reply = self._ask(request)
        if reply != answer:
            raise TraplessError(f"the emulator's debugger answered {reply!r} to {request}")

    def _ask(self, request: str, limit_s: float = ANSWER_LIMIT_S) -> bytes:
        body = request.encode()
        self._send(b"$%s#%02x" % (body, sum(body) % 256))
        try:
            return self._receive(limit_s)
        except TimeoutError as error:
            raise TraplessError(f"no answer to {request} within {limit_s:.0f} s") from error

    def _send(self, data: bytes) -> None:
        try:
            self._ours.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise TraplessError(ENDED) from error

    def _receive(self, limit_s: float) -> bytes:
        """The next packet, acknowledged."""
        self._ours.settimeout(limit_s)
        while True:
            begin = self._pending.find(b"$")
            end = self._pending.find(b"#", begin)
            if begin >= 0 and end >= 0 and len(self._pending) >= end + 3:
                body = self._pending[begin + 1 : end]
                self._pending = self._pending[end + 3 :]
                self._send(b"+")
                return body
            try:
                piece = self._ours.recv(1 << 16)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise TraplessError(ENDED)
            self._pending += piece
