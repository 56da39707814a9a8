# SPDX-License-Identifier: GPL-2.0-only
"""Experiment parallel: system calls served by worker threads, beside calls one by one.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics, the claims and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

SIZES = Extent(
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 127), (1, 2, 3, 4, 8, 16, 32, 127), (1, 16)
)
"""Requests a notify."""
WORKERS = Extent((1, 2, 4), (1, 2, 4), (1,))
REPEATS = {"counted": Extent(5, 3), "measured": Extent(25, 7)}
ROUNDS = Extent(41, 7, SAMPLES_MIN)
SLOW_READS = Extent(9, 3)

TIMED = OwnKernel(
    method=(
        "127 requests by K a notify, served by 1 to 4 workers of the same process, beside plain "
        "calls, batches and liburing (Fig. 3 of the paper), on this machine's own kernel with the "
        "module loaded. Measured by the time-stamp counter in alternating rounds, mechanisms in "
        "random order. Reads of a slow disk (null_blk) show whether the requester stands still."
    ),
    limits=(
        "The requester is on CPU 0, and workers are on CPU 1: whether both are threads of one core "
        "decides what they share.",
        "The time-stamp counter runs at its own rate, not at the core's: times are nanoseconds.",
        "io_uring has no gettid: its NOP stands beside it.",
    ),
    parts=(
        part("parallel", "requests"),
        part("parallel", "slow_read"),
    ),
    minutes=(0.3, 1.5),
)

SPEC = Spec(
    name="parallel",
    paper="parallel-system-call",
    question="When do calls served by other threads beat a trap a call, and does the requester "
    "ever stand still?",
    method=(
        "127 gettid (Fig. 3 of the paper) and 127 one-byte reads, K = 1 to 127 requests a notify, "
        "until every result is in; beside plain calls, batches and liburing in the same rounds. "
        "Then 16 direct reads of a block device that takes 50 ms for each, while the requester "
        "has other work: how long does it stand still?"
    ),
    limits=(
        "Requester and worker run on two CPUs of an emulated machine: moving a cache line or "
        "waking a CPU costs what the emulator and this host's scheduler make of it.",
        "Counted figures share one CPU (the worker never preempts the requester): they say what "
        "each side executes, not what runs at the same time.",
        "gettid by a worker answers with the worker's own thread; that is how the workload sees "
        "who served.",
        "io_uring has no gettid: its NOP stands beside it.",
    ),
    parts=(
        part("parallel", "requests"),
        part("parallel", "slow_read"),
    ),
    minutes=(0.6, 1),
    own_kernel=TIMED,
)
