# SPDX-License-Identifier: GPL-2.0-only
"""Runs a guest with a shell that a test gives commands to, and `trapless peek` beside it.

Owns the lab run in a process of its own, with the guest's memory and monitor in the test's folder.
The tests choose what is read from the memory, and what must be there.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.command import COMMAND, LIMIT_S, ROOT
from trapless.base.console import TraplessError
from trapless.peek import machines
from trapless.vm import lab

MARK = "== done =="
GUEST_LIMIT_S = 2.5 * LIMIT_S
"""The limit for one guest, which serves many checks."""
ROUND_TRIPS_MAX = 300
"""The most reads, one after the other, by which a kernel is opened from another machine."""


class Guest:
    """A running guest. `ram` and `monitor` are files of this machine.

    `way` has the options by which `trapless peek` finds it: its file, or where it shares none, the
    emulator's process.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[str], *, shared: bool) -> None:
        self.ram, self.monitor = folder / "ram", folder / "monitor"
        self.process, self._shared = process, shared
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    @property
    def machine(self) -> machines.Machine:
        if self._shared:
            return machines.Image(self.ram)
        (machine,) = started_by(self.process.pid)
        return machine

    @property
    def way(self) -> tuple[str, str]:
        machine = self.machine
        if isinstance(machine, machines.Process):
            return ("--pid", str(machine.pid))
        return ("--ram", str(self.ram))

    def say(self, commands: str) -> str:
        """Run commands in the guest's shell; what they print. A guest that dies fails the test."""
        self.send(f"{commands}\necho; echo '{MARK}'")
        lines: list[str] = []
        for line in self._output:
            if line.strip() == MARK:
                return "".join(lines).rstrip("\n")
            lines.append(line)
        raise AssertionError(f"the guest ended in: {commands}\n{''.join(lines)}{self.complaint()}")

    def send(self, commands: str) -> None:
        """Give the shell commands whose end is not waited for."""
        try:
            self._input.write(commands + "\n")
            self._input.flush()
        except BrokenPipeError:
            raise AssertionError(f"the guest had ended: {self.complaint()}") from None

    def complaint(self) -> str:
        """The messages of the lab when the guest has ended."""
        self.process.wait(LIMIT_S)
        return self.process.stderr.read() if self.process.stderr is not None else ""


def started_by(pid: int) -> list[machines.Process]:
    """The machines that a process runs, or one that it has started."""
    return [one for one in machines.running() if pid in list(_ancestors(one.pid))]


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def folder_of_memory() -> Iterator[Path]:
    """A folder for a guest's memory, in /dev/shm where that can be written."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
        yield Path(folder)


@contextmanager
def guest(
    folder: Path, *files: tuple[Path, str], boots: bool = True, **options: Any
) -> Iterator[Guest]:
    """Run a guest during a test. `options` are LabConfig's, and `files` are put into its root.

    With shared_memory=None it shares none. One that does not boot is not waited for.
    """
    options = {
        "shared_memory": folder / "ram",
        "memory": "256M",
        "module": False,
        "timeout_s": GUEST_LIMIT_S,
        **options,
    }
    paths = {"monitor": folder / "monitor", "files": files}
    config = lab.LabConfig(**options, **paths)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", __name__, pickle.dumps(config).hex()],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=ROOT,
    ) as process:
        watchdog = threading.Timer(GUEST_LIMIT_S, process.terminate)  # a silent guest ends the test
        watchdog.start()
        try:
            running = Guest(folder, process, shared=config.shared_memory is not None)
            if boots:
                running.say("true")
            yield running
        finally:
            watchdog.cancel()
            process.terminate()


def peek(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `trapless peek` to its end."""
    argv = [COMMAND, "peek", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@contextmanager
def recording(way: Sequence[str], folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run `trapless peek record` from its first row on; the caller waits for its end."""
    argv = [COMMAND, "peek", "record", *way, *options, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            while process.poll() is None and not (folder / "meta.json").exists():
                time.sleep(0.01)
            yield process
        finally:
            process.terminate()


def main() -> None:
    """In a process of its own: the guest's shell has its standard input and output."""
    config = pickle.loads(bytes.fromhex(sys.argv[1]))
    try:
        lab.run(config, ["sh"], stream=True)
    except TraplessError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
