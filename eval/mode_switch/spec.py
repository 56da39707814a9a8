# SPDX-License-Identifier: GPL-2.0-only
"""Experiment mode-switch: what calls cost in supervisor mode, beside traps.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics, the claims and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

REPEATS = {"counted": Extent(5, 3), "measured": Extent(25, 7)}
ROUNDS = Extent(41, 9, SAMPLES_MIN)
EVENTS, DELAYS = Extent(1_000_000, 200_000, 20_000), Extent(500, 50, 5)
"""Calls of the run that counts transitions; switches from outside of which the delay is taken."""
PROGRAM_REPEATS = Extent(3, 1)

TIMED = OwnKernel(
    method=(
        "Loops of one call each on this machine's own kernel, without the module, and with it by "
        "trap and in supervisor mode, modes in random order in each round (Fig. 7 of the paper). "
        "Measured by the time-stamp counter. Where the processor has counters, a run beside each "
        "counts instructions, clocks, and misses of caches and TLB."
    ),
    limits=(
        "The time-stamp counter runs at its own rate, not at the core's: times are nanoseconds, "
        "and what the frequency did meanwhile is in them.",
        "The run without the module is another run: what drifts between the two is in the "
        "difference. The saving and the ratio are of runs that alternate.",
        "What a switch of modes costs is counted in the lab only.",
    ),
    parts=(part("mode_switch", "calls"),),
    minutes=(0.3, 1),
)

SPEC = Spec(
    name="mode-switch",
    paper="running-mode-switch",
    question="What does a system call cost when the process already runs in supervisor mode?",
    method=(
        "getpid, sbrk, read and write in a loop, by trap and in supervisor mode, by the library's "
        "function in a statically and a dynamically linked program and as the bare instruction "
        "(Fig. 7 of the paper); what switches cost who asks for them (Fig. 8); and how many calls "
        "a switch from outside is late. Counted: instructions of user and kernel side on one CPU, "
        "an empty loop subtracted, every repeat shown, and changes of the privilege level, seen "
        "by the program itself and by the module. Measured: ratios of runs in both modes, in "
        "random order. Modelled: clocks on processors whose traps somebody has measured. And real "
        "programs, unmodified, in both modes by turns: the same output, the share of their calls "
        "that returned in supervisor mode, the processor time saved."
    ),
    limits=(
        "An instruction count knows nothing of what a trap does to a pipeline, and takes SYSCALL, "
        "SWAPGS and POPFQ for one instruction each. It understates what supervisor mode saves.",
        "The emulator's clock is not a processor's. Nothing here ran on bare hardware.",
        "Modelled clocks take all instructions for equally long and calls for independent of each "
        "other. What clocks an instruction takes is not known: the range is shown.",
        "The emulator counts each byte of `rep movsb` as an instruction, so read and write of a "
        "page look 4,095 instructions longer than read1 and write1.",
        "A switch writes MSR_LSTAR, CR4 and the IDT's register: three instructions, of which each "
        "takes a processor far longer than most.",
    ),
    parts=(
        part("mode_switch", "calls", alone=True),
        part("mode_switch", "steps"),
        part("mode_switch", "programs"),
    ),
    minutes=(1.2, 5),
    own_kernel=TIMED,
)
