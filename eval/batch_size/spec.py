# SPDX-License-Identifier: GPL-2.0-only
"""Experiment batch-size: what a batch of N system calls costs, beside one by one and io_uring.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics, the claims and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

SIZES = Extent(
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128), (1, 2, 3, 4, 8, 16, 32, 128), (1, 2, 32)
)
"""Calls in a batch."""
REPEATS = {"counted": Extent(5, 3), "measured": Extent(25, 7)}
ROUNDS = Extent(41, 9, SAMPLES_MIN)
WALK_REPEATS, WALK_ROUNDS = Extent(5, 2), Extent(15, 5, SAMPLES_MIN)
FOLDERS = Extent(100, 20, 4)
"""Folders of the tree that is walked on a machine's own kernel."""

TIMED = OwnKernel(
    method=(
        "512 calls of one kind in batches of N = 1 to 128, by the fast trap, by the INT trap and "
        "by liburing, on this machine's own kernel with the module loaded (Fig. 11 of the paper). "
        "Measured by the time-stamp counter in alternating rounds, mechanisms in random order, "
        "each after a run that warms up. Where the processor has counters, a run beside it counts "
        "instructions, clocks, and misses of caches and TLB."
    ),
    limits=(
        "The time-stamp counter runs at its own rate, not at the core's: times are nanoseconds, "
        "and what the frequency did meanwhile is in them.",
        "io_uring has no getpid: its NOP stands beside it. Its STATX answers more than newfstatat "
        "and is always handed to a kernel thread.",
        "A page that is read again and again is in every cache.",
    ),
    parts=(
        part("batch_size", "calls"),
        part("batch_size", "walk"),
    ),
    minutes=(0.5, 2),
)

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
    parts=(
        part("batch_size", "calls", alone=True, foreign=("eval/batch_size/batch-size",)),
        part("batch_size", "walk"),
        part("batch_size", "estimate", full_only=True, alone=True),
    ),
    minutes=(0.9, 3.5),
    own_kernel=TIMED,
)
