# SPDX-License-Identifier: GPL-2.0-only
"""Gives the same names to the events of both backends, the model's rows and the processor's
counters.

This file owns the names, and which of the model's counts each stands for. Columns are
"user.l2_misses" and so on; `dtlb_misses` and `l1d_misses` are those of reads, as processors count
them.
"""

from __future__ import annotations

from trapless.base.console import TraplessError
from trapless.model import processors
from trapless.model.model_plan import Plan
from trapless.model.rows import Recording, Row

MODES = ("user", "kernel")
EVENTS = ("instructions", "dtlb_misses", "l1d_misses", "l2_misses", "llc_misses")
"""The events that the model and the counters both give. Counters add `clocks`; the model adds all
its columns."""

SOFTWARE = ("page_faults", "context_switches", "syscalls")
"""The events of a command that the kernel counts on any machine; `syscalls` if tracepoints may be
read."""


def of_model(row: Row, plan: Plan, variant: str) -> dict[str, int]:
    """The events of one variant: misses of a TLB of two levels are those that walk page tables."""
    processor = next(one.processor for one in plan.variants if one.id == variant)
    roles = processors.load(processor).structures
    walks = plan.names[variant, "stlb" if "stlb" in roles else "dtlb"]
    last = plan.names[variant, "l3" if "l3" in roles else "l2"]
    events = {}
    for mode in MODES:
        events[f"{mode}.instructions"] = row[f"{mode}.instructions"]
        events[f"{mode}.dtlb_misses"] = row.of(mode, walks, "read_misses")
        events[f"{mode}.l1d_misses"] = row.of(mode, plan.names[variant, "l1d"], "read_misses")
        events[f"{mode}.l2_misses"] = row.misses(mode, plan.names[variant, "l2"])
        events[f"{mode}.llc_misses"] = row.misses(mode, last)
    return events


def of_counters(recording: Recording, row: Row) -> dict[str, int]:
    """The events that the processor counted; those that it lacks are not in the result."""
    names = {f"{mode}.{event}" for mode in MODES for event in (*EVENTS, "clocks", *SOFTWARE)}
    strange = set(recording.columns) - names
    if strange:
        raise TraplessError(f"not events of counters: {', '.join(sorted(strange))}")
    return dict(zip(recording.columns, row.counts, strict=True))
