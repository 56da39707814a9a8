# SPDX-License-Identifier: GPL-2.0-only
"""Counts a command on this machine, by its processor's counters and the kernel's, or by the
kernel's alone.

Owns the way to build/stat/trapless-count, and the message where there is nothing to count with.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base import programs
from trapless.base.console import TraplessError
from trapless.model import events, rows

BUILT = "stat/trapless-count"
NOT_COUNTED = 125


@dataclass(frozen=True)
class Counted:
    """What was counted, by mode, and how the command ended."""

    status: int
    events: Mapping[str, int]


def run(argv: Sequence[str], *, software: bool = False) -> Counted:
    """Run `argv` with this process's input, output and error, and count it with its children.

    `software`: only what the kernel counts, which takes no counters of the processor's.
    """
    counter = [str(programs.find(BUILT)), *(["--software"] if software else [])]
    _refuse_where_nothing_counts(counter, software)
    with tempfile.TemporaryDirectory(prefix="trapless-stat-") as folder:
        path = Path(folder) / "rows"
        status = subprocess.run([*counter, str(path), *argv]).returncode
        recording = rows.read(path) if path.exists() else None
        if recording is None or not recording.rows:
            raise TraplessError(f"{argv[0]} was not counted", status=status or NOT_COUNTED)
        return Counted(status, events.of_counters(recording, recording.rows[0]))


def _refuse_where_nothing_counts(counter: Sequence[str], software: bool) -> None:
    """Before the command is run; in one message."""
    probe = subprocess.run([*counter, "/dev/null", "true"], capture_output=True, text=True)
    if probe.returncode == NOT_COUNTED:
        reason = probe.stderr.strip().removeprefix("trapless-count: ").partition(";")[0]
        kernel = "" if software else "; what the kernel counts by itself: trapless stat --software"
        raise TraplessError(
            f"{reason}; in a VM the model counts on any machine: trapless stat --lab -- COMMAND"
            f"{kernel}",
            status=NOT_COUNTED,
        )
