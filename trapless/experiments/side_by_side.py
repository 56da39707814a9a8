# SPDX-License-Identifier: GPL-2.0-only
"""Experiments side by side: counted guests share the machine, and whoever takes time has it alone.

A guest whose clock counts instructions gives the same figures whatever else runs, so two may count
at once. What measures time, or uses all processors itself, waits until it is alone. Each experiment
is a process of its own (`trapless evaluate NAME --jobs 1 --no-report`). They take turns by a lock
on the folder of the results; so do two commands that write to one folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trapless.base.console import Progress
from trapless.base.tools import interrupts_deferred

LOOK_S = 0.1
SPARE = 1
"""As many more processes are begun than may run at once: some mostly wait until they are alone."""
LAST_WORDS = 5
"""Lines of a process that are the reason of its failure where it has saved none."""
KILLED_AFTER_S = 60.0
"""A process that is told to end cleans up first: it ends its VMs."""


@contextmanager
def turn(directory: Path, *, alone: bool) -> Iterator[None]:
    """Use this machine in one's turn, which others may share who want that, too; or alone.

    Where the file system has no locks, nobody waits.
    """
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(folder)


@dataclass(frozen=True)
class Command:
    """An experiment, the words after `trapless` that run it, and about how long it takes."""

    name: str
    argv: Sequence[str]
    minutes: float = 1.0


@dataclass(frozen=True)
class Failure:
    """Why the process of an experiment failed: its exit status, its last lines."""

    status: int
    words: str


class _Process:
    """The process of one experiment; its lines go to `progress`, each with its name."""

    def __init__(self, command: Command, progress: Progress) -> None:
        self.command, self._progress = command, progress
        self._last: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "trapless", *command.argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # The same package, whatever the current folder has.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            process_group=0,  # Ctrl-C is told to each once, by end()
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        name = self.command.name
        for line in self._process.stdout:
            words = line.rstrip()
            self._last = [*self._last, words][-LAST_WORDS:]
            named = words.startswith((f"{name}:", f"{name} "))
            self._progress.note(words if named else f"{name}: {words}")

    def ended(self) -> bool:
        return self._process.poll() is not None

    def failure(self) -> Failure | None:
        """Why it failed; None where it did not. Only after it has ended."""
        self._reader.join()
        status = self._process.wait()
        return Failure(status, "\n".join(self._last)) if status else None

    def end(self) -> None:
        """Let it clean up and end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, until: float) -> None:
        """Wait for its end, and make sure of it."""
        try:
            self._process.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run(
    title: str, commands: Sequence[Command], jobs: int, progress: Progress
) -> dict[str, Failure]:
    """Run the commands, `jobs` and SPARE at a time, in order; those that failed, by name.

    If this process is interrupted, all of them end before it goes on.
    """
    waiting, failed = list(commands), dict[str, Failure]()
    active: list[_Process] = []
    done, total = 0.0, sum(command.minutes for command in commands)
    progress.step(title)
    try:
        while waiting or active:
            while waiting and len(active) < jobs + SPARE:
                with interrupts_deferred():
                    active.append(_Process(waiting.pop(0), progress))
            time.sleep(LOOK_S)
            for process in [one for one in active if one.ended()]:
                active.remove(process)
                if failure := process.failure():
                    failed[process.command.name] = failure
                done += process.command.minutes
                progress.advance(done, total)
    finally:
        with interrupts_deferred():
            for process in active:
                process.end()
            until = time.monotonic() + KILLED_AFTER_S
            for process in active:
                process.wait(until)
        progress.done()
    return failed
