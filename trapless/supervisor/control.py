# SPDX-License-Identifier: GPL-2.0-only
"""Requests about supervisor mode to the module: switch a process, list those that were switched.

This file owns the ioctls of /dev/trapless that are about supervisor mode, and the messages for
their errors. refusals.py has the reasons of refusals, ps.py the table, trapless/run.py the
command.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trapless import abi
from trapless.abi import Demotion, Mode, Refusal
from trapless.base.console import TraplessError
from trapless.supervisor.refusals import explain, table
from trapless.supervisor.sleepers import Threads, look

PROC = Path("/proc")
POLL_S = 0.02
LOOKS = 10
"""The number of looks in a row at which a thread must run to count as one that makes no system
call."""
ENTRIES_FIRST = 64
"""How many processes the first request has room for; a second request has room for all."""


class RefusedError(TraplessError):
    """A switch that the module refuses, with the reason."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True)
class Calls:
    """System calls since the process was switched, by the path that they took."""

    direct: int  # made by the module, returned in supervisor mode at once
    worked: int  # the same after exit work of the kernel
    left: int  # made by the module, returned in user mode
    kernel: int  # handed to the kernel's own entry

    @property
    def total(self) -> int:
        return self.direct + self.worked + self.left + self.kernel

    @property
    def share(self) -> float | None:
        """Part of the calls that ended in supervisor mode; None before the first.

        >>> Calls(90, 5, 3, 2).share
        0.95
        """
        return (self.direct + self.worked) / self.total if self.total else None


@dataclass(frozen=True)
class Process:
    """One process that was switched; the one with ID 0 stands for all that have ended."""

    pid: int
    command: str
    mode: Mode  # what was asked for last
    flags: int
    threads: int
    supervisor: int  # threads that are in supervisor mode now
    resident: int  # 1: its memory is locked; 0: not asked or not yet; else -errno
    calls: Calls
    switches: int
    demotions: dict[Demotion, int]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options of its last switch."""
        return tuple(name for name, bit in OPTIONS.items() if self.flags & bit)


OPTIONS = {
    "children": abi.SWITCH_CHILDREN,
    "exec": abi.SWITCH_EXEC,
    "resident": abi.SWITCH_RESIDENT,
    "any-user": abi.SWITCH_ANY_USER,
    "allow-hlt": abi.SWITCH_ALLOW_HLT,
}


def switch(pid: int, mode: Mode, flags: int = 0) -> None:
    """Ask that process `pid` (0: this one) change its mode at the end of its next system call."""
    request = abi.Switch(size=ctypes.sizeof(abi.Switch), mode=mode, pid=pid, flags=flags)
    with _device() as fd:
        error = _ioctl(fd, abi.IOC_SWITCH, request)
    if error:
        raise _about_process(error, request)


def switch_each(
    pids: Sequence[int], mode: Mode, flags: int = 0, *, wait_s: float | None = None
) -> list[str]:
    """Switch several processes; one error at the end names all that were not.

    With `wait_s`, return when all their threads have changed, or after that time. That a thread has
    run all the time and made no system call is then an error; that threads sleep in a call is not,
    and the result has a line for each process with such threads.
    """
    refusals()  # raises once where no module answers
    failures: list[str] = []
    switched: dict[int, Threads] = {}
    for pid in pids:
        try:
            before = look(pid, PROC)
            switch(pid, mode, flags)
            switched[pid] = before
        except RefusedError as error:
            if table()[error.refusal].of_machine:
                raise  # the machine refuses all processes
            failures.append(str(error))
        except TraplessError as error:
            failures.append(str(error))
    asleep: list[str] = []
    if wait_s is not None:
        for process, running in _await(switched, mode, wait_s):
            if running:
                failures.append(_waiting_for(process, running, wait_s))
            else:
                asleep.append(_sleeping(process))
    if failures:
        raise TraplessError("\n".join((*asleep, *failures)))
    return asleep


def _await(
    switched: Mapping[int, Threads], mode: Mode, limit_s: float
) -> list[tuple[Process, int]]:
    """Those of the processes that have threads in the other mode after `limit_s`.

    For each process, the result has the most threads that can have run during all of the last
    looks. `switched` has the threads of each process before its switch.
    """
    end = time.monotonic() + limit_s
    running: dict[int, deque[int]] = {pid: deque(maxlen=LOOKS) for pid in switched}
    while True:
        late = [one for one in processes() if one.pid in switched and _unchanged(one, mode)]
        for one in late:
            now = look(one.pid, PROC)
            most = now.running_at_most(switched[one.pid], _unchanged(one, mode))
            running[one.pid].append(most)
        if not late or time.monotonic() >= end:
            return [(one, min(running[one.pid])) for one in late]
        time.sleep(POLL_S)


def _unchanged(process: Process, mode: Mode) -> int:
    """How many of its threads are yet to change."""
    return process.threads - process.supervisor if mode is Mode.SUPERVISOR else process.supervisor


def _sleeping(process: Process) -> str:
    count = _unchanged(process, process.mode)
    return (
        f"process {process.pid} ({process.command}): {count} of {process.threads} threads are "
        "asleep in a system call; they change when they wake"
    )


def _waiting_for(process: Process, running: int, limit_s: float) -> str:
    return (
        f"process {process.pid} ({process.command}): {running} of {process.threads} threads ran, "
        f"and finished no system call within {limit_s:g} s; they change when they do (see "
        "trapless ps)"
    )


def refusals(device: str | None = None) -> int:
    """Bits of the reasons why supervisor mode is not offered here; 0 where it is."""
    state = abi.Supervisor(size=ctypes.sizeof(abi.Supervisor))
    with _device(device) as fd:
        error = _ioctl(fd, abi.IOC_SUPERVISOR, state)
    if error:
        raise _unanswered(error)
    return int(state.refusals)


def processes() -> tuple[Process, ...]:
    """All processes that were switched and that this process may see, ordered by ID."""
    room = ENTRIES_FIRST
    with _device() as fd:
        while True:
            entries = (abi.Process * room)()
            request = abi.Processes(
                size=ctypes.sizeof(abi.Processes),
                entry_size=ctypes.sizeof(abi.Process),
                count=room,
                entries=ctypes.addressof(entries),
            )
            error = _ioctl(fd, abi.IOC_PROCESSES, request)
            if error:
                raise _unanswered(error)
            if request.total <= room:
                processes = [_process(entries[i]) for i in range(request.count)]
                return tuple(sorted(processes, key=lambda process: process.pid))
            room = request.total + ENTRIES_FIRST


def _process(entry: abi.Process) -> Process:
    return Process(
        pid=entry.pid,
        command=entry.comm.decode(errors="replace"),
        mode=Mode(entry.mode),
        flags=entry.flags,
        threads=entry.threads,
        supervisor=entry.supervisor,
        resident=entry.resident,
        calls=Calls(entry.calls_direct, entry.calls_worked, entry.calls_left, entry.calls_kernel),
        switches=entry.switches,
        demotions={cause: entry.demotions[cause] for cause in Demotion},
    )


@contextmanager
def _device(path: str | None = None) -> Iterator[int]:
    try:
        fd = os.open(path or abi.DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise TraplessError(
            f"the module is not loaded ({abi.DEVICE} is missing): trapless module load "
            "supervisor=1, or in a VM: trapless run --lab"
        ) from error
    except OSError as error:
        raise TraplessError(
            f"cannot open {abi.DEVICE}: {error.strerror}; its permissions are the administrator's"
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _ioctl(fd: int, code: int, argument: ctypes.Structure) -> int:
    """0 or errno. fcntl.ioctl() would drop what the module writes back with an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.ioctl(fd, ctypes.c_ulong(code), ctypes.byref(argument))
    return 0 if result >= 0 else ctypes.get_errno()


def _unanswered(error: int) -> TraplessError:
    if error == errno.ENOTTY:
        return TraplessError(
            "the loaded module knows no supervisor mode: it is older than this command; unload "
            "it and load this one's: trapless module unload; trapless module load supervisor=1"
        )
    return TraplessError(f"{abi.DEVICE} does not answer: {os.strerror(error)}")


def _about_process(error: int, request: abi.Switch) -> TraplessError:
    pid = request.pid
    if error == errno.ESRCH:
        owner = _process_of_thread(pid)
        if owner is not None:
            return TraplessError(
                f"{pid} is a thread of process {owner}; processes are switched as a whole: "
                f"give {owner}"
            )
        return TraplessError(f"there is no process {pid}; see ps -e")
    return explained(error, request.refusal, _named(pid), "here")


def explained(error: int, refusal: int, whom: str, where: str) -> TraplessError:
    """Why a request to switch `whom` failed, as an error for a person.

    >>> print(explained(errno.ENOEXEC, Refusal.COMPAT, "process 7", "here"))
    process 7 was not switched: the process is a 32-bit one; use a 64-bit build of the program
    """
    if error in (errno.EOPNOTSUPP, errno.EPERM, errno.ENOEXEC):
        return _refused(refusal, error, whom, where)
    if error == errno.ENOMEM:
        return TraplessError(
            f"memory is short: some threads of {whom} may not have been asked; ask again"
        )
    if error == errno.EAGAIN:
        return TraplessError(f"{whom} has executed another program meanwhile: ask again")
    if error == errno.EINVAL:
        return TraplessError(
            f"the module does not understand the request to switch {whom}: it is not of this "
            "command's version; see trapless doctor"
        )
    return _unanswered(error)


def _refused(code: int, error: int, whom: str, where: str) -> TraplessError:
    try:
        row = table()[Refusal(code)]
    except (KeyError, ValueError):
        return TraplessError(
            f"{whom} was not switched, for a reason ({code}) that this command does not know: "
            f"{os.strerror(error)}; the module is newer, so use the command that came with it"
        )
    if row.of_machine:
        message = f"supervisor mode is refused {where}: {explain(row.code)}"
    else:
        message = f"{whom} was not switched: {explain(row.code)}"
    return RefusedError(message, row.code)


def _named(pid: int) -> str:
    if pid == 0:
        return "this process"
    try:
        name = (PROC / str(pid) / "comm").read_text(errors="replace").strip()
        return f"process {pid} ({name})"
    except OSError:
        return f"process {pid}"


def _process_of_thread(number: int) -> int | None:
    """The process that has a thread of this ID; None where the ID is a process's or nobody's."""
    try:
        status = (PROC / str(number) / "status").read_bytes()
    except OSError:
        return None
    # A thread may give itself any name, and the kernel escapes no line ends in it but "\n".
    for line in status.split(b"\n"):
        if line.startswith(b"Tgid:"):
            owner = int(line.split()[1])
            return owner if owner != number else None
    return None
