# SPDX-License-Identifier: GPL-2.0-only
"""Experiment os-behaviour: what an operating system does under four loads, seen from outside.

This file owns the words of the experiment, and the sizes and rounds; its part owns what is run and
what is made of it.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import Spec, part

REQUESTS_S = Extent(60, 8)
"""How long the web server is asked."""

SPEC = Spec(
    name="os-behaviour",
    paper="memory-peeping",
    question="Where does a machine's time go under four loads, who keeps interrupts disabled and "
    "for how long, and what becomes of the run queue of an overloaded server?",
    method=(
        "A guest does nothing, sorts 40 MB of floating-point numbers, builds Lua from its sources, "
        "and serves a file of 4096 bytes by Apache to more requests than it can serve, as in "
        "section 5 of the paper. Meanwhile its memory is sampled from outside every 100 µs: the "
        "kernel's own variables, and what the module's probes leave there (user mode or kernel, "
        "whether interrupts are disabled and by whom). A word in the guest's memory, sampled with "
        "all others, says which load is on. Each load proves that its work was done."
    ),
    limits=(
        "Shares are of an emulated machine where the accelerator is tcg: instructions of all kinds "
        "cost other times than a processor's, and an access to a device costs thousands of them. "
        "With kvm they are a processor's.",
        "Requests are made by this host and reach the guest by an emulated network card, as the "
        "paper's came from another machine: their maker takes nothing of the guest's time. It "
        "shares a processor with the sampler, at a lower priority.",
        "One virtual processor, on one of this host's to itself, if it has two. Where it has to "
        "share, the guest stands still in what it was doing, and shares stay right only on the "
        "average; after 10 ms of that samples are left out.",
        "The paper built Linux; Lua is built here, with its files in memory. The tree of files "
        "that the compiler comes from is the host's, reached by 9p.",
        "What is called repeats of a share are the twentieths of its load's time.",
        "A cli is credited to the routine that it is in, or that called a lock function. An "
        "interrupt's few instructions before the kernel counts it as one are what it interrupted.",
    ),
    needs="it watches a VM from outside, on a machine that it shares with the VM",
    parts=(part("os_behaviour", "behaviour"),),
    minutes=(1, 5),
)
