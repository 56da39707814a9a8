# SPDX-License-Identifier: GPL-2.0-only
"""Starts a process that maps memory as a monitor of virtual machines does, or only says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORGER = """
import mmap, os, sys, threading
name, *thread = sys.argv[1:]
memory = os.memfd_create(name)
os.truncate(memory, 4096)
view = mmap.mmap(memory, 4096)
if thread:
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(thread[0])
print("ready", flush=True)
sys.stdin.read()
"""
"""A program that maps a file without a name on disk, by a name of any characters but line ends."""


def forged(path: Path, length: int, end: str) -> str:
    """A name in which `end` makes a line of /proc/PID/maps that says that `path` is mapped."""
    status = path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    first = f"100000000-{0x100000000 + length:x} rw-s 00000000 {device} {status.st_ino} {path}"
    return f"{end}{first}{end}200000000-200001000 r--p 00000000 00:00 0 "


@contextmanager
def started(name: str, program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python program under another name. It prints "ready" and ends with its standard input."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [name, "-S", "-c", program, *map(str, arguments)],
        executable=sys.executable,
        env={**os.environ, "PYTHONHOME": sys.base_prefix},
        stdin=pipe,
        stdout=pipe,
        text=True,
    ) as running:
        assert running.stdout is not None and running.stdout.readline() == "ready\n"
        yield running
        running.kill()
