# SPDX-License-Identifier: GPL-2.0-only
"""Runs `trapless lab` as a person would, for the tests of the lab itself.

The guests run without the module, since these tests are about the lab.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = str(ROOT / "bin/trapless")
LIMIT_S = 1800
"""Limit for a run that hangs, seconds. Each takes seconds on an idle machine."""


def trapless(*argv: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command line of a lab run without the module."""
    return [COMMAND, "lab", "--no-module", *options, "--", *argv]


def run_lab(
    *argv: str, options: tuple[str, ...] = (), stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run `argv` in a VM through the command; its output is collected."""
    return subprocess.run(
        trapless(*argv, options=options),
        input=stdin,
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, **(env or {})},
        check=False,
    )


def own_vms(mark: str) -> list[int]:
    """Process ids of QEMUs whose command line has `mark`."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if b"qemu-system" in line and mark.encode() in line:
                    processes.append(int(entry.name))
    return processes


def wait_until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False
