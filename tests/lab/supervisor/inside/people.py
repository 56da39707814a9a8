# SPDX-License-Identifier: GPL-2.0-only
"""The command as a person in the guest would type it, and processes to use it on.

A command is a fork of this process, which has the command's parts imported already: to start a
new Python takes an emulated machine seconds. From there on it is the real one, main() and all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trapless import cli, run
from trapless.doctor import diagnosis
from trapless.supervisor import control, ps

PARTS = (cli, diagnosis, ps, run, control)
"""What commands import when they are called: here before the forks."""

LIMIT_S = 600.0

CALLS_FOREVER = "while :; do kill -0 $$; done"
"""A shell that makes system calls and nothing else: kill is its own."""


@dataclass(frozen=True)
class Done:
    """How a command ended; a negative status is a signal."""

    status: int
    out: str
    err: str


def trapless(*argv: str, before: Callable[[], None] | None = None) -> Done:
    """Run `trapless ARGV`; `before` runs in its process first."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = fork(lambda: _become(argv, out.fileno(), err.fileno(), before))
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        return Done(os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode())


def _become(argv: tuple[str, ...], out: int, err: int, before: Callable[[], None] | None) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    sys.argv = ["trapless", *argv]
    if before is not None:
        before()
    cli.main()


def fork(work: Callable[[], object]) -> int:
    """A child that does `work` and ends as Python would; its process ID."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@contextmanager
def process(work: Callable[[], object] | list[str], stdin: int = 0) -> Iterator[int]:
    """A child that executes a command, already there, or does `work`; killed at the end."""

    def execute() -> None:
        os.dup2(stdin, 0)
        os.execvp(work[0], work)

    own = command_line(os.getpid())
    pid = fork(execute if isinstance(work, list) else work)
    try:
        if isinstance(work, list):
            until(lambda: command_line(pid) not in ("", own))  # neither before nor amid it
        yield pid
    finally:
        end(pid)


def end(pid: int) -> int:
    """Kill a child, unless it has been waited for; its status as waitpid() has it."""
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    except (ProcessLookupError, ChildProcessError):
        return 0


def shell(script: str = CALLS_FOREVER) -> list[str]:
    return ["/bin/sh", "-c", script]


def threads_calling(count: int) -> None:
    """`count` threads that make a call every millisecond, for ever."""

    def call() -> None:
        while True:
            os.getppid()
            time.sleep(0.001)

    for _ in range(count - 1):
        threading.Thread(target=call, daemon=True).start()
    call()


def listed() -> dict[int, dict[str, object]]:
    """What `trapless ps --json` says, by process ID."""
    done = trapless("ps", "--json")
    assert (done.status, done.err) == (0, "")
    return {one["pid"]: one for one in json.loads(done.out)["processes"]}


def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds; fail where it does not come."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def threads_asleep_in(pid: int, call: int) -> int:
    """How many threads of the process sleep in this system call."""
    calls = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/syscall") as file:
            calls.append(file.read().split()[0])
    return calls.count(str(call))


def command_line(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


def running(pid: int) -> str:
    """The name of the program that the process runs."""
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
