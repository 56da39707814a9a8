# SPDX-License-Identifier: GPL-2.0-only
"""Finds the emulator that has a RAM file mapped, and its threads that are virtual processors.

Owns the search in /proc: by the mappings of processes, and by the names that QEMU gives its threads
(-name NAME,debug-threads=on, as the lab starts it). Where QEMU gives none, its monitor is asked, if
its command line names one that this user may open. Samplers record the run time of these threads
and end with the process. Without the right to look, or with another emulator, none is found, and
sampling works without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.peek import qemu_arguments
from trapless.peek.kernel.memory import place_of
from trapless.peek.kernel.process_memory import text_of
from trapless.vm import qmp

VCPU = re.compile(
    r"CPU (?P<qemu>\d+)/\w+|ALL CPUs/\w+|fc_vcpu (?P<firecracker>\d+)|vcpu(?P<cloud>\d+)|"
    r"crosvm_vcpu(?P<crosvm>\d+)"
)
"""The names of threads that are virtual processors, or QEMU's one for all of them."""


MONITOR_LIMIT_S = 2.0
"""Longest wait for the monitors of a process: one that has a client already lets others wait for
ever, and a process that pretends to be QEMU may have any number that never answer."""
THREADS_MAX = 4096
"""Virtual processors of a machine, by which QEMU is bounded as well."""


@dataclass(frozen=True)
class Emulator:
    """A process that has the file mapped. `threads`: the virtual processors, in their order."""

    pid: int
    threads: tuple[int, ...]


def emulator_of(ram: Path, proc: Path = Path("/proc")) -> Emulator | None:
    """The emulator that runs the machine whose memory is `ram`; None where it cannot be found."""
    try:
        status = ram.stat()
    except OSError:
        return None
    writer = None
    for pid in _processes(proc):
        if pid != os.getpid() and _maps(proc / str(pid), status):
            emulator = Emulator(pid, _vcpus(proc / str(pid)))
            if emulator.threads:
                return emulator
            if writer is None and _writes(proc / str(pid), status):
                writer = emulator
    if writer is not None:
        return Emulator(writer.pid, _told_vcpus(proc / str(writer.pid)))
    return None


def emulator_with(pid: int, proc: Path = Path("/proc"), *, asks: bool = True) -> Emulator | None:
    """The emulator that is the process `pid`; None where it has ended.

    `asks`: whether its monitor may be asked for what its threads' names do not tell.
    """
    process = proc / str(pid)
    if not process.exists():
        return None
    return Emulator(pid, _vcpus(process) or (_told_vcpus(process) if asks else ()))


def missing_text(emulator: Emulator | None) -> str | None:
    """What cannot be known of the machine that runs, in words; None where all is known."""
    if emulator is None:
        return "no running machine has this memory mapped: it may stand still"
    if not emulator.threads:
        return (
            f"which threads of process {emulator.pid} are virtual processors is not known, so no "
            "sample is marked as frozen; start QEMU with -name NAME,debug-threads=on, or with "
            "-qmp unix:SOCKET,server=on,wait=off that nobody else uses"
        )
    return None


def _processes(proc: Path) -> Iterator[int]:
    try:
        names = os.listdir(proc)
    except OSError:
        return
    yield from sorted(int(name) for name in names if name.isdigit())


def _mappings(process: Path, status: os.stat_result) -> Iterator[str]:
    """The permissions of each mapping of the file, which its device and inode identify."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    try:
        lines = text_of(process, "maps").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split(maxsplit=5)
        if len(words) >= 5 and words[3] == device and words[4] == str(status.st_ino):
            yield words[1]


def _maps(process: Path, status: os.stat_result) -> bool:
    return any(True for _ in _mappings(process, status))


def _writes(process: Path, status: os.stat_result) -> bool:
    """Whether a process may write to the file. An observer maps it for reading only."""
    return any("w" in permissions for permissions in _mappings(process, status))


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


def _told_vcpus(process: Path) -> tuple[int, ...]:
    """The threads that QEMU's monitor names, in the order of the processors; none without one."""
    try:
        argv = text_of(process, "cmdline").split("\0")
        sockets = [path_here(process, path) for path in qemu_arguments.monitor_sockets(argv)]
    except OSError:
        return ()
    end = time.monotonic() + MONITOR_LIMIT_S
    for path in sockets:
        left_s = end - time.monotonic()
        if left_s <= 0:
            break
        with contextlib.suppress(TraplessError, OSError), place_of(path) as (probe, same):
            if os.fstat(probe).st_uid != user_of(process):  # anybody's may be named
                continue
            with qmp.Monitor(same, left_s, left_s) as monitor:
                threads = monitor.threads()[:THREADS_MAX]
            if all((process / "task" / str(thread)).exists() for thread in threads):
                return threads
    return ()


def user_of(process: Path) -> int:
    """The user who started a process. A process can make others its files' owner, not this."""
    text = text_of(process, "status")
    return int(text.partition("\nUid:")[2].split(maxsplit=1)[0])


def path_here(process: Path, path: str) -> Path:
    """The path by which this process can open a path of another process."""
    descriptor = re.fullmatch(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)", path)
    if descriptor:
        return process / "fd" / (descriptor[1] or descriptor[2])
    if os.path.isabs(path):
        return Path(path) if os.path.exists(path) else Path(f"{process}/root{path}")
    return Path(os.readlink(process / "cwd")) / path
