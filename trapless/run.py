# SPDX-License-Identifier: GPL-2.0-only
"""`trapless run`: runs a command in user or supervisor mode, on this machine or in the lab.

On this machine this process executes the command, so that process ID, signals and status are the
command's own. In the lab a VM runs the command. A failure of Trapless itself has status 125, as
with env(1) and timeout(1).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from trapless import abi
from trapless.abi import Mode, Refusal
from trapless.base import built_programs
from trapless.base.console import Progress, TraplessError
from trapless.base.statuses import CANNOT_EXECUTE, NOT_FOUND
from trapless.supervisor import control
from trapless.supervisor.control import Calls
from trapless.supervisor.refusals import explain

if TYPE_CHECKING:
    from trapless.vm.lab import LabConfig

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_CANCELLED = b"x"

REFUSED_AT_EXEC = re.compile(
    r"trapless: (.*\[\d+\]) runs in user mode: a program that hlt ends$", re.M
)
"""What the module logs when it takes a program out of supervisor mode; see process.c."""


def here(command: Sequence[str], mode: Mode, flags: int = 0) -> NoReturn:
    """Execute `command` in this process, in the given mode."""
    program = _find(command[0])
    cancel = None
    if mode is Mode.SUPERVISOR:
        # Also where the mode ends with the exec: a refusal is known before the command starts.
        control.switch(0, mode, flags)
        if not flags & abi.SWITCH_EXEC:
            cancel = _switch_after_exec(flags)
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, list(command))
    except OSError as error:
        if cancel is not None:
            os.write(cancel, _CANCELLED)
        raise TraplessError(
            f"cannot execute {program}: {error.strerror}", status=CANNOT_EXECUTE
        ) from error


def _find(name: str) -> str:
    """The file that a shell would execute for `name`."""
    program = name if "/" in name and os.path.lexists(name) else shutil.which(name)
    if program is None:
        raise TraplessError(
            f"there is no program '{name}' on this machine{built_programs.remedy(name)}",
            status=NOT_FOUND,
        )
    return program


def _switch_after_exec(flags: int) -> int:
    """Switch this process from outside after it has executed the command.

    A grandchild, which nobody has to wait for, reads a pipe that the exec closes, and then switches
    this process. A byte written to the returned descriptor cancels that.
    """
    pid = os.getpid()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(writing)
        status = 0
        try:
            if os.fork() == 0:
                _switch_when_closed(reading, pid, flags)
        except OSError as error:
            print(f"trapless: cannot switch {pid}: {error.strerror}", file=sys.stderr, flush=True)
            status = 1
        os._exit(status)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if status:
        raise TraplessError(f"no process could be made to switch {pid}")
    return writing


def _switch_when_closed(reading: int, pid: int, flags: int) -> None:
    if os.read(reading, len(_CANCELLED)):
        return
    try:
        control.switch(pid, Mode.SUPERVISOR, flags)
    except TraplessError as error:
        if os.path.exists(f"/proc/{pid}"):  # it has not just ended by itself
            print(f"trapless: {error}", file=sys.stderr, flush=True)


def in_lab(command: Sequence[str], config: LabConfig, progress: Progress) -> int:
    """Run `command` in a VM and return its status; note the share of calls in supervisor mode."""
    from trapless.vm import lab  # its import doubles the time to start, which here() saves

    result = lab.run(config, command, stream=True, progress=progress)
    for name in REFUSED_AT_EXEC.findall(result.kernel_log):
        progress.note(f"trapless: {name} ran in user mode: {explain(Refusal.HLT)}")
    if result.calls is not None:
        progress.note(f"trapless: {summary(result.calls)}")
    return result.status


def summary(calls: Calls) -> str:
    """One line on the calls of a command in supervisor mode.

    >>> print(summary(Calls(900, 60, 10, 30)))
    96.0% of 1,000 system calls ended in supervisor mode; 30 went to the kernel's own entry
    """
    if calls.share is None:
        return "no system call was made in supervisor mode"
    return (
        f"{calls.share:.1%} of {calls.total:,} system calls ended in supervisor mode; "
        f"{calls.kernel:,} went to the kernel's own entry"
    )
