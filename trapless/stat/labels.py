# SPDX-License-Identifier: GPL-2.0-only
"""The codes of `trapless stat`: what labels of regions mean, and the bounds of its calibration.

They are those of stat/include/stat_labels.h, with which the module and the program in the guest
write them; tests/unit/stat/test_labels.py compares every one. run_counts.py decodes rows by them.
"""

from __future__ import annotations

NOT_COUNTED = 125
"""The exit status of the programs that count where nothing was counted."""

OTHER, PROGRAM, IDLE = 0, 1, 2
"""Whose work a region is: the lowest four bits of its label."""
PHASE = 4
"""Added to these in every phase but the program's own."""
PHASE_SHIFT, PHASE_MAX = 4, 255

PART_SHIFT, CALL_SHIFT, CALL_MASK, CALL_UNKNOWN = 12, 16, 0xFFF, 0xFFF
PART_NONE, PART_ENTERED, PART_RESUMED = 0, 1, 2
PART_FAILED, PART_SHARED, PART_SLEPT_OUT, PART_SLEPT_WITHIN, PART_PREEMPTED = 3, 4, 5, 6, 7
PART_LEFT_AGAIN = 8
"""Where calls are told apart: which part of a call the region is, or which event of it."""

CALIBRATION, CALIBRATION_SUPERVISOR, ROUND, LOOP_MASK = 0x80, 0x40, 0x10, 0x0F
"""A phase of the calibration: which loop, in which mode, in which round."""

TURN, TURN_SUPERVISOR, TURNS_MAX = 0x40, 0x01, 32
"""A phase of a turn of the program: twice the turn's number, and in which mode."""

FACT, FACT_SHIFT, FACT_MASK = 15, 4, 0xFFF
VALUE_SHIFT, VALUE_BITS = 16, 48
"""A fact: an empty region, whose label carries a number, which number it is, and FACT."""

FACT_STATUS, FACT_LEFT_RUNNING, FACT_WORKED, FACT_REFUSALS = 0xFF0, 0xFF1, 0xFF2, 0xFF3
FACT_NUMBERLESS = 0xFF4
FACT_CALLS, FACT_DEMOTIONS = 0xFE0, 0xFD0

EVENTS = (
    "forks", "execs", "exits", "signals", "page_faults", "slept_out", "slept_within", "preempted",
    "file_faults", "shared", "preempted_within", "left_again", "names", "name_stats",
)  # fmt: skip
"""The events that the module counts in each phase; the fact of the first is 16 times the phase."""

CALLS = ("direct", "worked", "left", "kernel")
"""Where calls in supervisor mode ended; the fields of trapless.supervisor.control.Calls."""

LOOPS = (
    "nothing", "calls", "batches", "faults", "double_faults", "kernel_faults", "handed", "closes",
    "sleeps", "preemptions", "sleeps_within", "sleeps_twice", "forks", "execs", "traced",
    "scans",
)  # fmt: skip
"""The loops of the calibration, by number."""

OPERATIONS, BATCH = 64, 32
"""The operations of one loop, and the calls of a batch in it."""
