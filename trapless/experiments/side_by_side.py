# SPDX-License-Identifier: GPL-2.0-only
"""Experiments side by side: counted guests share the machine, and a part that measures time has it
alone.

A guest whose clock counts instructions gives the same figures whatever else runs, so as many count
at once as there are places. What measures time, or uses all processors itself, waits until it is
alone. Each experiment is a process of its own (`trapless evaluate NAME --jobs 1 --no-report`). They
take turns by a lock on the folder of the results; so do two commands that write to one folder. The
places are locks, too, on files without a name that the process which began the others has open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trapless.base.console import Progress
from trapless.base.tools import has_ended, interrupts_deferred, kill

LOOK_S = 0.1
BEGIN_S = 3.0
"""From its beginning, a process needs this long until it takes a place or waits to be alone."""
PLACES = "TRAPLESS_PLACES"
"""The files of the places, with colons between them. Where it is not set, nobody needs a place."""
LAST_WORDS = 5
"""Lines of a process that are the reason of its failure where it has saved none."""
KILLED_AFTER_S = 60.0
"""A process that is told to end cleans up first: it ends its VMs."""


@contextmanager
def turn(directory: Path, *, alone: bool) -> Iterator[None]:
    """Use this machine when it is this process's turn: shared with others that also count, as long
    as there are places, or alone.

    Where the file system has no locks, nobody waits.
    """
    with contextlib.ExitStack() as stack:
        if not alone:
            stack.enter_context(_place())
        folder = stack.enter_context(_opened(directory))
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def _opened(path: Path | str) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def _place() -> Iterator[None]:
    """Wait for a place and keep it; a process that is killed gives it back."""
    paths = os.environ.get(PLACES, "")
    with contextlib.ExitStack() as stack:
        try:
            files = [stack.enter_context(_opened(path)) for path in filter(None, paths.split(":"))]
        except OSError:  # the process that had them is gone
            files = []
        while files and not any(_locked(file, fcntl.LOCK_EX) for file in files):
            time.sleep(LOOK_S)
        yield


def _locked(opened: int, kind: int) -> bool:
    """Lock it, unless that would mean to wait."""
    with contextlib.suppress(OSError):  # the file system has no locks
        try:
            fcntl.flock(opened, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@dataclass(frozen=True)
class _Places:
    """The places, as the process that begins all others has them."""

    directory: Path
    paths: Sequence[str]

    def one_is_free(self) -> bool:
        """Whether a process that counts could begin now; it cannot while another one is alone."""
        with _opened(self.directory) as folder:
            return _locked(folder, fcntl.LOCK_SH) and any(map(_is_free, self.paths))


def _is_free(path: str) -> bool:
    with _opened(path) as file:
        return _locked(file, fcntl.LOCK_EX)


@contextmanager
def _places(count: int, directory: Path) -> Iterator[_Places]:
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        paths = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in files]
        yield _Places(directory, paths)


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

    def __init__(self, command: Command, places: Sequence[str], progress: Progress) -> None:
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
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                PLACES: ":".join(places),
            },
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
        return has_ended(self._process)

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
            kill(self._process)


def run(
    title: str, commands: Sequence[Command], jobs: int, directory: Path, progress: Progress
) -> dict[str, Failure]:
    """Run the commands, whose results are in `directory`; those that failed, by name.

    They begin in order: as many as may count at once, and one more whenever a place is free,
    because the earlier ones mostly wait until they are alone. If this process is interrupted, all
    of them end before it goes on.
    """
    waiting, failed = list(commands), dict[str, Failure]()
    active: list[_Process] = []
    done, total = 0.0, sum(command.minutes for command in commands)
    progress.step(title)
    begun = 0.0
    with _places(jobs, directory) as places:
        try:
            while waiting or active:
                late = time.monotonic() > begun + BEGIN_S
                if waiting and (len(active) < jobs or (late and places.one_is_free())):
                    with interrupts_deferred():
                        active.append(_Process(waiting.pop(0), places.paths, progress))
                    begun = time.monotonic()
                    continue
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
