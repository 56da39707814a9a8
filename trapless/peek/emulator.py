# SPDX-License-Identifier: GPL-2.0-only
"""Finds the emulator that has a RAM file mapped, and its threads that are virtual processors.

Owns the search in /proc: which processes are monitors, what they have mapped, and the names that
QEMU gives its threads (-name NAME,debug-threads=on, as the lab starts it). Where QEMU gives none,
its monitor is asked, if its command line names one that this user may open. Samplers record the run
time of these threads and end with the process. Without the right to look, or with another emulator,
none is found, and sampling works without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.peek import mappings, qemu_arguments
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memories.process_memory import text_of
from trapless.peek.kernel.memory import place_of
from trapless.vm import qmp

PROC = Path("/proc")
QEMU = re.compile(r"qemu-system-(x86_64|aarch64).*|qemu-kvm|kvm")
ARGUMENTS_MAX, PROGRAM_BYTES_MAX = 4096, 4096
"""Words of a command line, and how much is read to see whether it starts a monitor."""
VCPU = re.compile(
    r"CPU (?P<qemu>\d+)/\w+|ALL CPUs/\w+|fc_vcpu (?P<firecracker>\d+)|vcpu(?P<cloud>\d+)|"
    r"crosvm_vcpu(?P<crosvm>\d+)"
)
"""The names of threads that are virtual processors, or QEMU's one for all of them."""
MONITOR_LIMIT_S = 2.0
"""Longest wait for the monitors of a process: a monitor that has a client already makes others wait
for ever, and a process that pretends to be QEMU may have any number of monitors that never
answer."""
THREADS_MAX = 4096
"""Virtual processors of a machine, by which QEMU is bounded as well."""


@dataclass(frozen=True)
class Emulator:
    """A process that has the file mapped. `threads`: the virtual processors, in their order.

    `lack` is why its monitor has not named them, where its command line has one.
    """

    pid: int
    threads: tuple[int, ...]
    lack: str = field(default="", compare=False)

    def state(self) -> str:
        """The state of its process, as ps has it; empty where it is gone."""
        return next(iter(self._stat()), "")

    def has_ended(self) -> bool:
        """Whether its process is gone, or has no memory any more because it is ending."""
        fields = self._stat()
        return not fields or fields[0] in "ZX" or fields[20] == "0"

    def age_s(self) -> float:
        """For how long its process has run; 0 where it is gone."""
        began = next(iter(self._stat()[19:20]), None)
        if began is None:
            return 0.0
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(began) / os.sysconf("SC_CLK_TCK")

    def _stat(self) -> list[str]:
        """The fields of its process's stat from its state on; none where it is gone."""
        with contextlib.suppress(OSError):
            return text_of(Path(f"/proc/{self.pid}"), "stat").rpartition(")")[2].split()
        return []


def arguments(process: Path, most: int) -> list[str]:
    """The first `most` bytes of a command line, in words; OSError where the process has ended."""
    with (process / "cmdline").open("rb", buffering=0) as file:
        return file.read(most).decode(errors="replace").split("\0", ARGUMENTS_MAX)


def kind_of(argv: Sequence[str]) -> str:
    """The name of the monitor that a command line starts; empty where it starts none."""
    program = os.path.basename(argv[0])
    if QEMU.fullmatch(program):
        return "qemu"
    return program if program in mappings.LAYOUTS else ""


def runs_monitor(process: Path) -> bool:
    """Whether the command line of a process begins as a monitor's."""
    with contextlib.suppress(OSError):  # ended meanwhile
        return bool(kind_of(arguments(process, PROGRAM_BYTES_MAX)))
    return False


def emulator_of(ram: Path, proc: Path = PROC) -> Emulator | None:
    """The emulator that runs the machine whose memory is `ram`; None where it cannot be found.

    It is a monitor that shares the file and may write to it: any process may have a name and
    threads like an emulator's, and whoever may read the file can map it.
    """
    first = None
    for pid in _monitors_with(ram, proc):
        emulator = Emulator(pid, _vcpus(proc / str(pid)))
        if emulator.threads:
            return emulator
        first = first or emulator
    return None if first is None else emulator_with(first.pid, proc)


def is_mapped(ram: Path, proc: Path = PROC) -> bool:
    """Whether a machine runs whose memory is `ram`, as far as this user may know."""
    return any(True for _ in _monitors_with(ram, proc))


def _monitors_with(ram: Path, proc: Path) -> Iterator[int]:
    """The monitors that share a file and may write to it."""
    try:
        status = ram.stat()
    except OSError:
        return
    for pid in _processes(proc):
        if runs_monitor(proc / str(pid)) and _shares(proc / str(pid), status):
            yield pid


def emulator_with(pid: int, proc: Path = PROC, *, folder: str = "") -> Emulator | None:
    """The emulator that is the process `pid`; None where it has ended.

    `folder` is as for path_here().
    """
    process = proc / str(pid)
    if not process.exists():
        return None
    threads = _vcpus(process)
    return Emulator(pid, threads) if threads else _told(process, folder)


def missing_text(emulator: Emulator | None) -> str | None:
    """What is not known about the running machine, in words; None if all is known."""
    if emulator is None:
        return "no running machine has this memory mapped: it may stand still"
    if not emulator.threads:
        unknown = (
            f"which threads of process {emulator.pid} are virtual processors is not known, so no "
            "sample is marked as frozen"
        )
        if emulator.lack:
            return (
                f"{unknown}: {emulator.lack}; end the monitor's other client if it has one, or "
                "start QEMU with -name NAME,debug-threads=on"
            )
        return (
            f"{unknown}; start QEMU with -name NAME,debug-threads=on, or with "
            "-qmp unix:SOCKET,server=on,wait=off that nobody else uses"
        )
    return None


def _processes(proc: Path) -> Iterator[int]:
    try:
        names = os.listdir(proc)
    except OSError:
        return
    yield from sorted(int(name) for name in names if name.isdigit())


def _shares(process: Path, status: os.stat_result) -> bool:
    """Whether a process has the file mapped so that what it writes is in the file."""
    file = mappings.key_of(status)
    with contextlib.suppress(OSError):
        return any(
            one.file == file and one.is_data and one.is_shared_file
            for one in mappings.all_of(process)
        )
    return False


def _vcpus(process: Path) -> tuple[int, ...]:
    threads: dict[int, int] = {}
    try:
        tasks = sorted((process / "task").iterdir())
    except OSError:
        return ()
    for task in tasks:
        try:
            name = (task / "comm").read_text(errors="replace").strip()
        except OSError:
            continue
        if match := VCPU.fullmatch(name):
            threads[int(match[match.lastgroup] if match.lastgroup else 0)] = int(task.name)
    return tuple(threads[number] for number in sorted(threads)[:THREADS_MAX])


def _told(process: Path, folder: str) -> Emulator:
    """A QEMU with the threads that its monitor names, in the order of the processors; none
    without one."""
    threads: tuple[int, ...] = ()
    lack = ""
    end = time.monotonic() + MONITOR_LIMIT_S  # of all: a process may let others wait for its words
    argv: list[str] = []
    with contextlib.suppress(OSError):  # ended meanwhile
        argv = text_of(process, "cmdline").split("\0")
    for path in qemu_arguments.monitor_sockets(argv):
        left_s = end - time.monotonic()
        if left_s <= 0:
            break
        try:
            threads, lack = _asked(process, path, folder, left_s), ""
            break
        except OSError as error:
            lack = lack or visible(f"its monitor {path} cannot be opened: {error.strerror}")
        except TraplessError as error:
            lack = lack or visible(str(error))
    return Emulator(int(process.name), threads, lack)


def _asked(process: Path, path: str, folder: str, limit_s: float) -> tuple[int, ...]:
    """The threads that a monitor names; TraplessError and OSError say why it does not."""
    with place_of(path_here(process, path, folder)) as (probe, same):
        if os.fstat(probe).st_uid != user_of(process):  # it may be anybody's thread
            raise PeekError(f"its monitor {path} is not of the user who started it")
        try:
            with qmp.Monitor(same, limit_s, limit_s) as monitor:
                threads = monitor.threads()[:THREADS_MAX]
        except TraplessError as error:
            raise PeekError(str(error).replace(str(same), path)) from error
    if not threads or not all((process / "task" / str(one)).exists() for one in threads):
        raise PeekError(f"its monitor {path} names threads that are not its own")
    return threads


def user_of(process: Path) -> int:
    """The user who started a process. A process can change the owner of its files, but not this."""
    text = text_of(process, "status")
    return int(text.partition("\nUid:")[2].split(maxsplit=1)[0])


def inner_ids(pid: int) -> set[int]:
    """The threads of a process, by the ids that it knows itself, as in a container."""
    ids = set[int]()
    with contextlib.suppress(OSError):  # ended meanwhile
        for task in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                status = text_of(task, "status")
                ids.add(int(status.partition("\nNSpid:")[2].split("\n", 1)[0].split()[-1]))
    return ids


def path_here(process: Path, path: str, folder: str = "") -> Path:
    """The path by which this process can open a path of another process.

    `folder` is that process's own, where it was read before: to read it takes a debugger's rights.
    """
    descriptor = re.fullmatch(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)", path)
    if descriptor:
        return process / "fd" / (descriptor[1] or descriptor[2])
    if os.path.isabs(path):
        return Path(path) if os.path.exists(path) else Path(f"{process}/root{path}")
    return Path(folder or os.readlink(process / "cwd")) / path
