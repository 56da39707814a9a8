# SPDX-License-Identifier: GPL-2.0-only
"""Keeps what a kernel counts itself in its recording, beside the rows.

Owns how often the counters are read, and their table. kernel/counters.py knows where they are, and
recording.py reads the table again.
"""

from __future__ import annotations

import pyarrow as pa

from trapless.peek.kernel.counters import Counters
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.recording import COUNTS_FILE, Recorder

COUNTS_MAX = 4096
"""Readings of the kernel's counters that a recording keeps: when it has more, it leaves out every
second one."""


class Counts:
    """What a kernel counts itself, read once a second and kept beside the rows. One thread."""

    def __init__(self, target: Target) -> None:
        self._counters = Counters(target)
        self._readings = [self._counters.read()]

    def look(self) -> None:
        """Read the counters."""
        if len(self._readings) >= COUNTS_MAX:
            self._readings = self._readings[::2]
        self._readings.append(self._counters.read())

    def keep(self, recorder: Recorder, alive_ns: int | None = None) -> None:
        """Store the readings, without those after the kernel was last known to run."""
        rows = [one for one in self._readings if alive_ns is None or one.time_ns <= alive_ns]
        if not rows or not self._counters.all:
            return
        columns = {"time_ns": pa.array([one.time_ns for one in rows], pa.int64())}
        for number, counter in enumerate(self._counters.all):
            name = f"{counter.cpu} {counter.name}"
            kind = pa.uint32() if counter.size == 4 else pa.uint64()
            columns[name] = pa.array([one.values[number] for one in rows], kind)
        recorder.keep(COUNTS_FILE, pa.table(columns))
