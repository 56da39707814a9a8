# SPDX-License-Identifier: GPL-2.0-only
"""Experiment peek-overhead: what being observed costs the observed machine.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics, the claims and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

PROBE_ROUNDS = Extent(15, 5, SAMPLES_MIN)
PROBE_SHARE = Extent(1, 40, 400)
"""A shorter run on a machine's own kernel makes so many times fewer steps."""
PROBE_SETTINGS = Extent(("modes", "both", "counts"), ("modes", "both", "counts"), ("counts",))
COUNTED_REPEATS, READ_REPEATS = Extent(3, 3), Extent(11, SAMPLES_MIN)
REGION_BYTES = Extent(tuple(2048 << power for power in range(10)), (2048, 16 << 10, 1 << 20))
"""The sizes of the region that a program and its observer read (Fig. 6)."""
REGION_REPEATS = {"guest": Extent(7, 3), "local": Extent(15, 7)}
REGION_TOTAL_MB = {"guest": Extent(256, 32), "local": Extent(256, 256)}
"""As in the paper; a quick run in the emulated guest, which is slower by far, takes less."""

TIMED = OwnKernel(
    method=(
        "Loops of system calls, of page faults and of switches between two processes, on this "
        "machine's own kernel with the module's probes off and on by turns, in random order. "
        "Measured by the kernel's clock."
    ),
    limits=(
        "What an observer costs who reads beside a VM, and whole programs, are for the lab.",
        "Time starts with a process and ends with it: it is spread over many steps.",
    ),
    parts=(part("peek_overhead", "probes"),),
    minutes=(0.1, 0.5),
)

SPEC = Spec(
    name="peek-overhead",
    paper="memory-peeping",
    question="What does it cost a machine that its memory is read while it runs?",
    method=(
        "A guest sorts, compiles and serves (Table 5 of the paper), with the module's probes off "
        "and on by turns in one boot. Counted: all instructions of the guest for a fixed amount of "
        "work, idle time left out. Measured: time on a processor of its own, while the sampler, on "
        "another one, reads each 100 µs or not. Then a program reads or writes 256 MB over a "
        "region of 2 KB to 1 MB, again and again, while an observer on another processor reads the "
        "same region back to back, at the pace of a recording, or another region (Fig. 6): on "
        "this machine, where the observer maps the memory or reads it by system calls, and in a "
        "guest."
    ),
    limits=(
        "An instruction count knows nothing of caches: that a probe's code and records take room "
        "in them is not in it.",
        "The client of the web server runs in the guest, too: its instructions, and what probes "
        "add to them, are counted with the server's.",
        "A guest is emulated here, and its program reaches memory several times more slowly than a "
        "processor does. The same program on this machine itself shows what a processor loses to a "
        "reader on another one.",
    ),
    parts=(
        part("peek_overhead", "loss"),
        part("peek_overhead", "bandwidth"),
    ),
    minutes=(1.4, 15),
    own_kernel=TIMED,
)
