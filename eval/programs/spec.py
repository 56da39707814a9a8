# SPDX-License-Identifier: GPL-2.0-only
"""Experiment programs: calls that use each other's results, in one crossing.

This file owns the question, the method and the limits, in words. part_programs.py owns what is run,
the metrics, the claim and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

SIZES = Extent((1, 2, 3, 4, 8, 16, 32, 64), (1, 2, 4, 32), (2, 32))
"""Files, and calls, in a crossing."""
REPEATS = {"counted": Extent(5, 4), "measured": Extent(25, 7)}
ROUNDS = Extent(41, 7, SAMPLES_MIN)

TIMED = OwnKernel(
    method=(
        "N small files, each opened, asked for its size, read and closed, by plain calls, batches, "
        "programs, io_uring with links and direct descriptors, and an array of calls as "
        "c-blake/batch makes it, on this machine's own kernel. Measured by the time-stamp counter "
        "in alternating rounds."
    ),
    limits=(
        "io_uring does less: it cannot ask a direct descriptor for its size, and a thread of the "
        "kernel closes its files later.",
        "c-blake/batch's loop is written anew and entered by lseek.",
        "Everything is in the caches.",
    ),
    parts=(part("programs", "programs"),),
    minutes=(0.2, 0.5),
)

SPEC = Spec(
    name="programs",
    paper="wrapped-system-call",
    question="What do calls that depend on each other cost in one crossing, beside plain calls, "
    "io_uring's links and c-blake/batch?",
    method=(
        "N = 1 to 64 small files, each opened, asked for its size, read and closed, by plain "
        "calls, batches, programs, io_uring with links and direct descriptors, and an array of "
        "calls as c-blake/batch makes it, on the same stock kernel in the same boot. Loops until "
        "the end of a file and until EAGAIN, and bursts of short calls that workers serve. "
        "Counted: instructions of user and kernel side, crossings and calls. Measured: ratios to "
        "plain calls of the same round."
    ),
    limits=(
        "A count takes a trap for one instruction: it understates what fewer crossings save.",
        "io_uring does less: it cannot ask a direct descriptor for its size, and a thread of the "
        "kernel closes its files later, which is not counted.",
        "io_uring's programs of BPF are compared by NOPs only, on kernels that have them; loading "
        "one needs CAP_BPF.",
        "c-blake/batch's loop is written anew and entered by lseek, because stock kernels do not "
        "dispatch its number.",
        "An open clears 4 KiB of fresh memory, which counts as 4,096 instructions; a second count "
        "is without.",
        "Everything is in the caches.",
    ),
    parts=(part("programs", "programs"),),
    minutes=(0.6, 1),
    own_kernel=TIMED,
)
