# SPDX-License-Identifier: GPL-2.0-only
"""Stops a machine for the registers of its CPUs, which are not in its memory.

Owns the translation of an emulator's registers into those that unwinding needs. QEMU's monitor is
asked by vm/qmp.py, and a debugger's stub by vm/stub.py. A machine stands still for a fraction of a
millisecond each time, behind a stub for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from trapless.peek.emulator import Emulator, inner_ids
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.stub_memory import StubMemory
from trapless.peek.kernel.memory import Memory
from trapless.peek.kernel.unwinding.frames import CpuRegisters
from trapless.peek.kernel.unwinding.x86_frames import SAVED
from trapless.peek.machines import running
from trapless.vm.qmp import Monitor, Registers, SilentMonitorError

NAMES = {
    "sp": "RSP",
    "bp": "RBP",
    "r10": "R10",
    "r13": "R13",
    "di": "RDI",
    "dx": "RDX",
    "ax": "RAX",
}
ARM64_NAMES = {"sp": "SP", "bp": "X29"}

UNKNOWN = "what the CPUs execute is not known"
MONITOR_LIMIT_S, ANSWER_LIMIT_S = 5.0, 30.0
"""The longest wait until QEMU's monitor lets us in, and for each answer: QEMU gives none while its
process is stopped, and never to a second client."""


def lack_of_registers(*, lives: bool, has_emulator: bool) -> str:
    """Why the registers of a CPU are not known where nothing stops the machine, and what helps."""
    if not lives:
        return (
            "this file does not hold its registers; a dump by `dump-guest-memory` or `virsh dump "
            "--memory-only` does"
        )
    lack = "its registers are not in memory"
    return f"{lack}; --monitor SOCKET or --gdb HOST:PORT reads them" if has_emulator else lack


class Stops(Protocol):
    """A way to stop a machine. One thread uses it."""

    def status(self) -> str:
        """The machine's state in QEMU's words; empty where nobody tells it."""

    def stopped(self) -> AbstractContextManager[list[CpuRegisters]]:
        """A block during which the machine stands still, with the registers of all its CPUs."""

    def close(self) -> None:
        """Let the machine go for good."""


def registers_of(told: Sequence[Registers]) -> list[CpuRegisters]:
    """The registers that unwinding needs, from those that the monitor gives."""
    return [
        CpuRegisters(
            one.cpu,
            one.user,
            {
                "ip": one.rip,
                "flags": one.rflags,
                **{
                    key: one.general[name]
                    for key, name in (NAMES if "RSP" in one.general else ARM64_NAMES).items()
                },
            },
        )
        for one in told
    ]


def monitor_of(emulator: Emulator | None, path: Path) -> Monitor:
    """A connection to the monitor of the machine that `emulator` runs, which is not waited for
    without end; PeekError where it is another machine's."""
    monitor = Monitor(path, MONITOR_LIMIT_S, ANSWER_LIMIT_S)
    try:
        _check_is_of(emulator, monitor, path)
    except BaseException:
        monitor.close()
        raise
    return monitor


def _check_is_of(emulator: Emulator | None, monitor: Monitor, path: Path) -> None:
    """PeekError where the processors of a monitor's machine are no threads of the emulator.

    The socket does not tell: the process that made it may have handed it to the emulator.
    """
    if emulator is None:
        raise PeekError(
            f"no process of this user runs the machine that is observed, so {path} may be the "
            "monitor of another; name a machine that runs, as by --pid or --vm, or look as root",
            status=2,
        )
    threads = set(monitor.threads())
    if threads <= inner_ids(emulator.pid):
        return
    whose = next((f", but that of {one}" for one in running() if threads <= inner_ids(one.pid)), "")
    raise PeekError(
        f"{path} is not the monitor of process {emulator.pid}, which is observed{whose}; give the "
        "monitor of the machine that --pid, --vm or --ram names",
        status=2,
    )


class MonitorStops:
    """Stops a machine by QEMU's monitor."""

    def __init__(self, emulator: Emulator | None, path: Path) -> None:
        self._monitor = monitor_of(emulator, path)

    def status(self) -> str:
        return self._monitor.status()

    @contextmanager
    def stopped(self) -> Iterator[list[CpuRegisters]]:
        with self._monitor.stopped():
            yield registers_of(self._monitor.registers())

    def close(self) -> None:
        self._monitor.close()


class StubStops:
    """Stops a machine by its debugger's stub, by which its memory is read as well."""

    def __init__(self, memory: StubMemory) -> None:
        self._memory = memory

    def status(self) -> str:
        return ""

    @contextmanager
    def stopped(self) -> Iterator[list[CpuRegisters]]:
        with self._memory.stopped():
            yield [
                CpuRegisters(
                    one.cpu,
                    one.user,
                    {
                        key: one.general.get(f"r{key}", one.general.get(key, 0))
                        for key in (*SAVED, "flags")
                    },
                )
                for one in self._memory.stub.registers()
            ]

    def close(self) -> None:
        """The memory's owner closes the stub."""


@contextmanager
def opened(
    path: Path | None,
    emulator: Emulator | None,
    memory: Memory | None = None,
    silent: Callable[[str], None] | None = None,
) -> Iterator[Stops | None]:
    """The stops by a monitor's socket, or by the stub that has the memory; None without one.

    PeekError where the monitor is not that of the machine that `emulator` runs. With `silent`,
    there are none either where the monitor does not answer; it is told so in words.
    """
    stops: Stops | None = None
    if isinstance(memory, StubMemory):
        stops = StubStops(memory)
    elif path is not None:
        try:
            stops = MonitorStops(emulator, path)
        except SilentMonitorError as error:
            if silent is None:
                raise
            silent(f"{error}; {UNKNOWN}")
    try:
        yield stops
    finally:
        if stops is not None:
            stops.close()
