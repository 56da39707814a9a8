# SPDX-License-Identifier: GPL-2.0-only
"""Runs the programs that fill the cache: apt, dpkg-deb, make, depmod, a compiler; asks others.

This file owns how such a program is started, watched and ended, how its log is quoted, and the
message where it is missing or does not answer. Its callers know what each program does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trapless.base.console import TraplessError

POLL_S = 0.2
"""How often a running tool is looked at, seconds."""
LOOK_S = 0.01
"""How often a process is looked at while its end is awaited, seconds."""
POLITE_S = 5.0
"""How long an interrupted tool may clean up, and how long its end may take, seconds."""

OF_THE_CALLING_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MAKEFILES", "MFLAGS", "MAKEOVERRIDES")
OF_THE_CALLERS_BUILD = (
    "ARCH", "CC", "CFLAGS", "CROSS_COMPILE", "KBUILD_OUTPUT", "LD", "LDFLAGS", "LLVM", "O",
)  # fmt: skip
NOT_HANDED_DOWN = frozenset((*OF_THE_CALLING_MAKE, *OF_THE_CALLERS_BUILD))
"""Variables that are meant for another build, and that a kernel's build would obey."""


def require_tools(tools: Mapping[str, str], what: str) -> None:
    """Raise TraplessError where a program is missing; `tools` maps programs to Debian packages."""
    absent = [tool for tool in tools if shutil.which(tool, path=tool_path()) is None]
    if absent:
        packages = " ".join(sorted({tools[tool] for tool in absent}))
        raise TraplessError(
            f"{what} needs {', '.join(absent)}, not found on this machine; "
            f"on Debian: apt-get install {packages}"
        )


class Unanswered(NamedTuple):
    """Why a program gave no answer, and what helps."""

    found: str
    remedy: str


def ask(argv: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str] | Unanswered:
    """Run a program quietly that ends by itself, and soon; its outputs are not translated."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=limit_s, env=environment
        )
    except OSError as error:
        return Unanswered(f"{argv[0]}: {error.strerror}", f"install or repair {argv[0]}")
    except subprocess.TimeoutExpired:
        found = f"`{' '.join(argv)}` did not end within {limit_s:g} s"
        return Unanswered(found, "the machine may be busy: ask again later, or run it by hand")


def run_tool(
    argv: Sequence[str],
    log: Path,
    *,
    cwd: Path | None = None,
    watch: Callable[[], None] | None = None,
) -> int:
    """Run a tool with both its outputs in `log`; call `watch` while it runs. Its exit status.

    The tool does not outlive an interrupted caller.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with log.open("ab") as output, interrupts_deferred():
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=tool_environment(),
                process_group=0,  # so that all of a make can be ended at once
            )
        while True:
            try:
                return wait(process, POLL_S)
            except subprocess.TimeoutExpired:
                if watch is not None:
                    watch()
    except BaseException:
        if process is not None:
            with interrupts_deferred():  # make, interrupted by Ctrl-C, sends us a SIGTERM as well
                _end_group(process)
        raise


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect at the end of the block only. In the middle of it, a
    process may have started that its caller does not know yet. Python handles signals in the main
    thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    on_interrupt, on_end = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
        signal.signal(signal.SIGTERM, lambda number, _: caught.append(number))
        yield
    finally:
        try:
            signal.signal(signal.SIGINT, on_interrupt)
        finally:  # whose handler may raise at once
            signal.signal(signal.SIGTERM, on_end)
        for again in caught:
            signal.raise_signal(again)


def wait(process: subprocess.Popen[Any], seconds: float) -> int:
    """Does what the process's wait() does, without its lock: see has_ended()."""
    end = time.monotonic() + seconds
    while not has_ended(process):
        if time.monotonic() >= end:
            raise subprocess.TimeoutExpired(process.args, seconds)
        time.sleep(LOOK_S)
    return process.wait()


def has_ended(process: subprocess.Popen[Any]) -> bool:
    """Whether a process has ended. It is not reaped here; wait() then returns at once.

    CPython's poll() and wait() with a limit reap under a lock, and leave it taken where Ctrl-C or
    SIGTERM comes right after the taking: the next wait() would never end. send_signal() polls, too:
    a caller that waits afterwards defers interrupts around it.
    """
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # another thread reaps it
        return True


def kill(process: subprocess.Popen[Any]) -> int:
    """Kill a process, where it has not ended, and reap it: its status. Both are done before Ctrl-C
    or SIGTERM takes effect, so that no process is left behind, and no lock: see has_ended()."""
    with interrupts_deferred():
        process.kill()
        return process.wait()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a tool and all that it has started: politely first, for what it would clean up."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLITE_S)
        # A process that has not obeyed would continue to write into a folder that is being removed.
        os.killpg(process.pid, signal.SIGKILL)
        end = time.monotonic() + POLITE_S
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)  # until nobody is left of the group
            time.sleep(POLL_S / 10)
    process.wait()


def tool_environment() -> dict[str, str]:
    """Our environment for a tool: its messages in English, and nothing meant for another build."""
    inherited = {key: value for key, value in os.environ.items() if key not in NOT_HANDED_DOWN}
    return {**inherited, "LC_ALL": "C", "PATH": tool_path()}


def tool_path() -> str:
    """$PATH with the administrator's folders: depmod and insmod live there."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def last_lines(log: Path, count: int = 15) -> str:
    """The end of a log, indented, for an error message."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(f"    {line}" for line in lines[-count:])
