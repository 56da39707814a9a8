# SPDX-License-Identifier: GPL-2.0-only
"""Stops a VM and asks its emulator for registers and memory: QEMU's monitor, by its QMP protocol.

This file owns the socket of a lab VM's monitor (LabConfig.monitor), and the requests that are
needed: stop, continue, the registers of each CPU, a stub for debuggers, an ELF core, a reset, the
end. A client of the socket controls the VM and has its owner's rights to this machine's files, so
only the owner can open it. The package qemu.qmp, of QEMU's own developers, implements the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import stat
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trapless.base.console import TraplessError
from trapless.base.missing import remedy

ANSWER_LIMIT_S = 600.0
"""Longest wait for an answer, for an emulator that hangs; QEMU gives them at once."""
DUMP_LIMIT_S = 1800.0
"""Longest wait for an ELF core: gigabytes are written."""
ADDRESS_BYTES_MAX = 107
"""The longest path of a socket (sizeof(sun_path), less its zero)."""

INTERRUPT_FLAG = 1 << 9  # of RFLAGS
GENERAL = (
    *("RAX", "RBX", "RCX", "RDX", "RSI", "RDI", "RBP", "RSP"),
    *(f"R{number}" for number in range(8, 16)),
)

ARM64_GENERAL = ("SP", "X29")
ARM64_MODE, ARM64_IRQS_OFF = 0xF, 1 << 7  # of PSTATE

T = TypeVar("T")


class SilentMonitorError(TraplessError):
    """The monitor gives no answer: QEMU is stopped or busy, or another client has the monitor."""


class Listener:
    """The listening socket of a VM's monitor. QEMU inherits it; close() removes its file."""

    def __init__(self, path: Path) -> None:
        if len(os.fsencode(path)) > ADDRESS_BYTES_MAX:
            raise TraplessError(
                f"{path} is too long for a socket: at most {ADDRESS_BYTES_MAX} bytes", status=2
            )
        _forget_dead(path)
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(self._socket.fileno(), 0o600)  # before it has a name: what bind() gives it
            self._socket.bind(str(path))
            self._socket.listen(1)
        except OSError as error:
            self._socket.close()
            raise TraplessError(f"{path}: {error.strerror}") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


def _forget_dead(path: Path) -> None:
    """Remove the socket of a launcher that was killed; anything else at `path` is an error."""
    try:
        status = path.lstat()
    except OSError:  # nothing is there, or bind() will say what is wrong
        return
    if stat.S_ISSOCK(status.st_mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                return
            except OSError:
                pass
    raise TraplessError(f"{path} is there already: the monitor's socket is made new for each VM")


def _check_socket(path: Path) -> None:
    """TraplessError where `path` is no socket."""
    lack = "is no socket"
    try:
        if stat.S_ISSOCK(path.stat().st_mode):
            return
    except OSError as error:
        lack = f"cannot be opened: {error.strerror}"
    raise TraplessError(
        f"{path} {lack}; name the socket of QEMU's `-qmp unix:SOCKET,server=on,wait=off`, or of "
        "`trapless lab --monitor SOCKET`"
    )


@dataclass(frozen=True)
class Registers:
    """The registers of one CPU of a stopped VM, by the names of x86-64.

    Of arm64, `general` has those in ARM64_GENERAL; `rflags` has the interrupt flag alone, and `cpl`
    is 3 in user mode, as on x86-64. It has neither `cr3` nor `halted`.
    """

    cpu: int
    general: dict[str, int]  # by the names in GENERAL
    rip: int
    rflags: int
    cr3: int
    cpl: int
    halted: bool  # by hlt, waiting for an interrupt

    @property
    def user(self) -> bool:
        return self.cpl == 3

    @property
    def interrupts_on(self) -> bool:
        return bool(self.rflags & INTERRUPT_FLAG)


def parse_registers(text: str) -> list[Registers]:
    """What `info registers -a` prints, CPU by CPU."""
    parts = re.split(r"^CPU#(\d+)\s*$", text.replace("\r", ""), flags=re.MULTILINE)
    registers = [_parse(int(cpu), body) for cpu, body in zip(parts[1::2], parts[2::2], strict=True)]
    if not registers:
        raise TraplessError(f"QEMU's monitor gave no registers, but {text[:80]!r}")
    return registers


def _arm64(cpu: int, words: Mapping[str, int]) -> Registers:
    # "PC=...", "X00=...", "SP=...", "PSTATE=60000005 -ZC- EL1h"
    state = words["PSTATE"]
    return Registers(
        cpu=cpu,
        general={name: words[name] for name in ARM64_GENERAL},
        rip=words["PC"],
        rflags=0 if state & ARM64_IRQS_OFF else INTERRUPT_FLAG,
        cr3=0,
        cpl=0 if state & ARM64_MODE else 3,
        halted=False,
    )


def _parse(cpu: int, text: str) -> Registers:
    # "RAX=...", "R8 =...", "RFL=00000246 [---Z-P-] CPL=3 ... HLT=0"; each is a word in hex.
    words = {name: int(value, 16) for name, value in re.findall(r"\b(\w+) ?=([0-9a-f]+)\b", text)}
    try:
        if "PSTATE" in words:
            return _arm64(cpu, words)
        return Registers(
            cpu=cpu,
            general={name: words[name] for name in GENERAL},
            rip=words["RIP"],
            rflags=words["RFL"],
            cr3=words["CR3"],
            cpl=words["CPL"],
            halted=bool(words["HLT"]),
        )
    except KeyError as error:
        raise TraplessError(
            f"QEMU's monitor did not tell {error.args[0]} of CPU {cpu}: is it in 64-bit mode?"
        ) from None


class Monitor:
    """A connection to a VM's monitor. Use as a context manager, or close(); one thread only."""

    def __init__(
        self, path: Path, limit_s: float = ANSWER_LIMIT_S, answer_limit_s: float = ANSWER_LIMIT_S
    ) -> None:
        """Connect to the monitor at `path`, which may take `limit_s` to let us in."""
        _check_socket(path)
        try:
            from qemu.qmp import QMPClient, QMPError
        except ImportError as error:
            raise TraplessError(
                "the Python package qemu.qmp is not installed, and QEMU's monitor is asked with "
                "it; " + remedy("qemu.qmp")
            ) from error
        logging.getLogger("qemu.qmp").addHandler(logging.NullHandler())  # we report errors
        self._path, self._error, self._limit_s = path, QMPError, answer_limit_s
        self._runner = asyncio.Runner()
        self._runner.get_loop().set_exception_handler(lambda *_: None)  # and those of its tasks
        self._client = QMPClient("trapless")
        try:
            self._run(self._client.connect(str(path)), limit_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; a VM that is stopped stays so."""
        with contextlib.suppress(TraplessError):  # QEMU may have ended first
            self._run(self._client.disconnect(), self._limit_s)
        self._runner.close()

    def stop(self) -> None:
        """Stop all CPUs, and the guest's time with them."""
        self._ask("stop")

    def go_on(self) -> None:
        """Let a stopped VM run."""
        self._ask("cont")

    def status(self) -> str:
        """The VM's state in QEMU's words, as "running", "paused" or "io-error"."""
        told = self._ask("query-status")
        return str(told.get("status")) if isinstance(told, dict) else ""

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """A block during which the VM is stopped. It then goes on, unless it stood still before."""
        if self.status() != "running":
            yield
            return
        try:
            self.stop()
            yield
        finally:  # also where "stop" was not answered in time: QEMU may obey it later
            self.go_on()

    def registers(self) -> list[Registers]:
        """The registers of every CPU. They are of one moment only where the VM is stopped."""
        text = self._ask("human-monitor-command", {"command-line": "info registers -a"})
        return parse_registers(str(text))

    def threads(self) -> tuple[int, ...]:
        """The emulator's threads that are CPUs, in the CPUs' order, or one that is all of them."""
        told = self._ask("query-cpus-fast")
        try:
            by_cpu = sorted((int(one["cpu-index"]), int(one["thread-id"])) for one in told)  # type: ignore[attr-defined]
        except (TypeError, ValueError, LookupError) as error:
            raise TraplessError(f"QEMU's monitor at {self._path} names no processors") from error
        return tuple(dict.fromkeys(thread for _, thread in by_cpu))

    def offer_stub(self, port: int) -> None:
        """Offer a stub for debuggers at a port of this machine, as QEMU's option -gdb does."""
        self._ask("human-monitor-command", {"command-line": f"gdbserver tcp:127.0.0.1:{port}"})

    def dump(self, path: Path, *, paging: bool = False, format_: str = "elf") -> None:
        """Write the VM's memory and registers into `path`, an ELF core by default; `format_` is a
        word of QEMU's, and `paging` asks for a segment for each piece of virtual memory."""
        where = {"paging": paging, "protocol": f"file:{path.resolve()}", "format": format_}
        self._ask("dump-guest-memory", where, DUMP_LIMIT_S)

    def reset(self) -> None:
        """Reboot, as by the button: memory stays as it is. The VM does not end at reboots any more:
        the firmware itself begins with one."""
        self._ask("set-action", {"reboot": "reset"})
        self._ask("system_reset")

    def end_at_reboot(self) -> None:
        """Let a reboot be the end, a panic's as well, as it is for lab VMs from the beginning."""
        self._ask("set-action", {"reboot": "shutdown"})

    def _ask(
        self, what: str, arguments: dict[str, object] | None = None, limit_s: float | None = None
    ) -> object:
        return self._run(self._client.execute(what, arguments), limit_s or self._limit_s)

    def _run(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        try:
            return self._runner.run(asyncio.wait_for(work, limit_s))
        except TimeoutError as error:
            text = f"QEMU's monitor at {self._path} does not answer"
            raise SilentMonitorError(text) from error
        except (self._error, OSError, EOFError, AssertionError) as error:
            # An assertion of qemu.qmp fails where QEMU hangs up while it is being asked.
            reason = str(error).strip() or "the VM has ended"
            raise TraplessError(f"QEMU's monitor at {self._path}: {reason}") from error
