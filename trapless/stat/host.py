# SPDX-License-Identifier: GPL-2.0-only
"""Counts a command on this machine, by the counters of its processor and its kernel, or by the
kernel's alone.

This file owns how build/stat/trapless-count is run, and the message where the machine offers no
counters.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base import built_programs
from trapless.base.console import TraplessError
from trapless.model import events, rows
from trapless.stat.labels import NOT_COUNTED

BUILT = "stat/trapless-count"
TRACEPOINT = Path("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id")
"""Whose entries the program counts as system calls, where it may read this."""


@dataclass(frozen=True)
class HostCounts:
    """The events that were counted, by mode, and the command's exit status."""

    status: int
    events: Mapping[str, int]


def run(argv: Sequence[str], *, software: bool = False) -> HostCounts:
    """Run `argv` with this process's input, output and error, and count it with its children.

    `software`: only what the kernel counts, for which no counters of the processor are needed.
    """
    counter = [str(built_programs.find(BUILT)), *(["--software"] if software else [])]
    _refuse_where_nothing_counts(counter, software)
    with tempfile.TemporaryDirectory(prefix="trapless-stat-") as folder:
        path = Path(folder) / "rows"
        status = subprocess.run([*counter, str(path), *argv]).returncode
        recording = rows.read(path) if path.exists() else None
        if recording is None or not recording.rows:
            raise TraplessError(f"{argv[0]} was not counted", status=status or NOT_COUNTED)
        return HostCounts(status, events.of_counters(recording, recording.rows[0]))


def why_no_calls(counts: HostCounts) -> str | None:
    """Why there are no system calls in the counts; None: there are."""
    if any(column.endswith(".syscalls") for column in counts.events):
        return None
    try:
        TRACEPOINT.read_bytes()
    except PermissionError:
        return f"only root may read {TRACEPOINT}"
    except OSError as error:
        return f"{TRACEPOINT}: {error.strerror} (mount -t tracefs none /sys/kernel/tracing)"
    return "the kernel refuses to count its tracepoint"


def _refuse_where_nothing_counts(counter: Sequence[str], software: bool) -> None:
    """Raise a TraplessError before the command is run, if the machine can count nothing."""
    probe = subprocess.run([*counter, "/dev/null", "true"], capture_output=True, text=True)
    if probe.returncode == NOT_COUNTED:
        reason = probe.stderr.strip().removeprefix("trapless-count: ").partition(";")[0]
        kernel = "" if software else "; what the kernel counts by itself: trapless stat --software"
        raise TraplessError(
            f"{reason}; in a VM the model counts on any machine: trapless stat --lab -- COMMAND"
            f"{kernel}",
            status=NOT_COUNTED,
        )
