# SPDX-License-Identifier: GPL-2.0-only
"""Experiment parallel: system calls served by worker threads, beside calls one by one.

This file owns the question, the method and the limits, in words. Each part_*.py owns what is run,
the metrics, the claims and the figures.
"""

from __future__ import annotations

from eval.parallel import part_requests, part_slow_read
from trapless.experiments.experiment import Spec

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
    parts=(part_requests.PART, part_slow_read.PART),
    minutes=(0.6, 1),
)
