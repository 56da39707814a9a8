# SPDX-License-Identifier: GPL-2.0-only
"""Experiment memory-hierarchy: what wrapping calls does to caches and TLBs, over all footprints.

This file owns the question, the method and the limits, in words. Each part_*.py owns what is run,
the metrics, the claims and the figures.
"""

from __future__ import annotations

from eval.memory_hierarchy import here, part_pairs, part_programs, part_reorder, part_slowdown
from trapless.experiments.experiment import Spec

SPEC = Spec(
    name="memory-hierarchy",
    paper="wrapped-system-call",
    question=here.SPEC.question,
    method=(
        "The paper's test program (Fig. 2 to 4): the evaluation function reads every 128th byte of "
        "U KB in user space, then of K KB in the kernel, 512 times; conventionally, and with 32 "
        "calls a batch through the module's own ring, by int $0x80 as on the paper's kernel. A "
        "model of both Pentium 4s inside the emulator sees each access that the stock kernel, the "
        "module and the program make. Before a region all caches are emptied and filled by 32 "
        "iterations that are not counted. Beyond the paper: batches whose calls may change places, "
        "and, in full runs, real programs, of which the model predicts what supervisor mode saves."
    ),
    limits=(
        "No processor is measured: misses are those of a model, clocks are counts times published "
        "costs. Nothing overlaps in them; the table of assumptions shows what each is worth.",
        "The model's processor executes in order and speculates on nothing; page walks do not go "
        "through its caches.",
        "The kernel is a current one, in 64 bits: its own data and code weigh more on the caches "
        "than those of the paper's, while its array lies in pages of 4 KB as there.",
        "In the paper's range X the clocks are the trap's: they depend on one published figure.",
        "A timer interrupt comes about every four million instructions, as it must.",
    ),
    parts=(part_pairs.PART, part_reorder.PART, part_programs.PART, part_slowdown.PART),
    minutes=(2, 90),
    spread=True,
)
