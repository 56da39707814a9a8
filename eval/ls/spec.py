# SPDX-License-Identifier: GPL-2.0-only
"""Experiment ls: an existing command, unchanged, in supervisor mode.

This file owns the words of the experiment, and the sizes and rounds; its part owns what is run and
what is made of it.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

REPEATS = {"counted": Extent(5, 2), "measured": Extent(25, 5, SAMPLES_MIN)}
FOLDERS = Extent(100, 20, 4)
"""Folders of the large tree on a machine's own kernel."""

TIMED = OwnKernel(
    method=(
        "ls of 5 files, of 408 files (Fig. 9 of the paper), and ls -lR of a large tree, by "
        "coreutils and by busybox, in user mode and in supervisor mode by turns, on this machine's "
        "own kernel. A child switches itself and becomes the command: nothing of it is recompiled "
        "or preloaded. Measured by the time-stamp counter from exec to exit, modes in random "
        "order. Output is compared byte for byte."
    ),
    limits=(
        "Most of a short command is its start: exec, page faults, the dynamic linker. Supervisor "
        "mode does nothing for those; a page fault then costs somewhat more.",
        "The terminal is missing: output goes to a file in memory. The paper's 408 files include "
        "the display.",
    ),
    parts=(part("ls", "commands"),),
    minutes=(0.2, 0.5),
)

SPEC = Spec(
    name="ls",
    paper="running-mode-switch",
    question="How much of a whole command does supervisor mode save, its start and end included?",
    method=(
        "ls of 5 files, of 408 files (Fig. 9 of the paper), and ls -lR of a large tree, by "
        "coreutils and by busybox, in user mode and in supervisor mode by turns. A child switches "
        "itself and becomes the command: nothing of it is recompiled or preloaded. Counted: "
        "instructions from exec to exit and crossings into the kernel, on the kernel as it is and "
        "with its zeroing of fresh memory off. Measured: ratios of runs in both modes, in random "
        "order. Output is compared byte for byte."
    ),
    limits=(
        "Most of a short command is its start: exec, page faults, the dynamic linker. Supervisor "
        "mode does nothing for those; a page fault then costs somewhat more.",
        "A stock kernel zeroes fresh memory, which the emulator counts as one instruction a byte "
        "(up to 4,096 for a page): unzeroed figures are without that.",
        "Modelled clocks take all instructions for equally long; what a page fault costs a "
        "processor beyond its instructions is not in them.",
        "The terminal is missing: output goes to a file in memory. The paper's 408 files include "
        "the display.",
    ),
    parts=(part("ls", "commands"),),
    minutes=(0.6, 2),
    own_kernel=TIMED,
)
