# SPDX-License-Identifier: GPL-2.0-only
"""Experiment memory-hierarchy: what wrapping calls does to caches and TLBs, over all footprints.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics, the claims and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

TIMED_STEP_KB = Extent(16, 64, 256)
"""The sizes of the grid on a machine's own kernel."""
TIMED_ROUNDS = Extent(15, 3, SAMPLES_MIN)
PROGRAM_PAIRS = Extent(6, 3)
"""Runs of a real program in each mode."""
MAP_STEPS_KB = Extent((4, 16, 16, 32), (16, 32, 64, 64))
"""The sizes of the grids of footprints in the lab, from the finest to the coarsest."""

TIMED = OwnKernel(
    method=(
        "The paper's test program (Fig. 2 to 4) on this machine's own kernel: 512 times a function "
        "that reads U KB in user space and one that reads K KB in the kernel, by a call each and "
        "in batches of 32, by turns. Measured by the time-stamp counter. Where the processor has "
        "counters, a run beside each counts misses of caches and TLB."
    ),
    limits=(
        "The paper's ranges belong to its processor's caches and TLB: no claim is judged here.",
        "What the frequency and the prefetchers do is in the times.",
    ),
    parts=(part("memory_hierarchy", "regions"),),
    minutes=(0.5, 2),
)

SPEC = Spec(
    name="memory-hierarchy",
    paper="wrapped-system-call",
    question="A transition between user space and kernel costs more than its own clocks: each side "
    "evicts what the other has cached. How do clocks, L2 misses and data-TLB misses change when "
    "calls are wrapped, over the footprints of both sides?",
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
    parts=(
        part("memory_hierarchy", "pairs"),
        part("memory_hierarchy", "reorder"),
        part("memory_hierarchy", "programs", full_only=True),
        part("memory_hierarchy", "slowdown", full_only=True, alone=True),
    ),
    minutes=(2, 90),
    spread=True,
    own_kernel=TIMED,
)
