# SPDX-License-Identifier: GPL-2.0-only
"""Starts a process that maps memory as a monitor of virtual machines does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
