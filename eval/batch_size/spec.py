# SPDX-License-Identifier: GPL-2.0-only
"""Experiment batch-size: what a batch of N system calls costs, beside one by one and io_uring.

This file owns the question, the method and the limits, in words. Each part_*.py owns what is run,
the metrics, the claims and the figures.
"""

from __future__ import annotations

from eval.batch_size import part_calls, part_estimate, part_walk
from trapless.experiments.experiment import Spec

SPEC = Spec(
    name="batch-size",
    paper="wrapped-system-call",
    question="From how many calls a batch is one crossing cheaper than a trap a call?",
    method=(
        "512 calls of one kind in batches of N = 1 to 128, by the fast trap, by the INT trap and "
        "by liburing, on the same stock kernel in the same boot (Fig. 11 of the paper). Counted: "
        "instructions of user and kernel side on one CPU, timer ticks excluded, every repeat "
        "shown. Measured: ratios to plain calls of the same round, mechanisms in random order."
    ),
    limits=(
        "An instruction count knows nothing of what a trap does to a pipeline: INT and SYSCALL "
        "count as one instruction each. It understates what batching saves on a processor.",
        "The emulator's clock is not a processor's: its ratios tell what the emulator pays.",
        "io_uring has no getpid: its NOP stands beside it. Its STATX answers more than "
        "newfstatat and is always handed to a kernel thread.",
        "A page that is read again and again is in every cache; memory is experiment "
        "memory-hierarchy.",
    ),
    parts=(part_calls.PART, part_walk.PART, part_estimate.PART),
    minutes=(0.9, 3.5),
)
