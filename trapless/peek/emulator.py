# SPDX-License-Identifier: GPL-2.0-only
"""Whose memory a RAM file is: the emulator's process, and its threads that are virtual processors.

Their run time is recorded beside each sample, and sampling ends with the process. Found by who has
the file mapped and by the names that QEMU gives its threads (-name NAME,debug-threads=on, as the
lab starts it). Nothing is required: without the right to look, or with another emulator, there
is nobody, and sampling works without. This file owns no sampling.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VCPU = re.compile(r"CPU (\d+)/\w+|(ALL) CPUs/\w+")
"""QEMU's names of threads: one for each virtual processor, or one for all of them."""


@dataclass(frozen=True)
class Emulator:
    """A process that has the file mapped. `threads`: of the virtual processors, in their order."""

    pid: int
    threads: tuple[int, ...]


def emulator_of(ram: Path, proc: Path = Path("/proc")) -> Emulator | None:
    """Who runs the machine whose memory is `ram`; None where that cannot be found out."""
    try:
        status = ram.stat()
    except OSError:
        return None
    found = None
    for pid in _processes(proc):
        if pid != os.getpid() and _maps(proc / str(pid), status):
            emulator = Emulator(pid, _vcpus(proc / str(pid)))
            if emulator.threads:
                return emulator
            found = found or emulator if _writes(proc / str(pid), status) else found
    return found


def _processes(proc: Path) -> Iterator[int]:
    try:
        names = os.listdir(proc)
    except OSError:
        return
    yield from sorted(int(name) for name in names if name.isdigit())


def _mappings(process: Path, status: os.stat_result) -> Iterator[str]:
    """Permissions of each mapping of the file: device and inode tell it, whatever its path is."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    try:
        lines = (process / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split(maxsplit=5)
        if len(words) >= 5 and words[3] == device and words[4] == str(status.st_ino):
            yield words[1]


def _maps(process: Path, status: os.stat_result) -> bool:
    return any(True for _ in _mappings(process, status))


def _writes(process: Path, status: os.stat_result) -> bool:
    """An observer maps memory too, but only to read it."""
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
            threads[int(match[1] or 0)] = int(task.name)
    return tuple(threads[number] for number in sorted(threads))
