# SPDX-License-Identifier: GPL-2.0-only
"""Experiment peek-interval: how closely, and how evenly, a running machine's memory can be read.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics, the claims and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import Spec, part

SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Bytes of a read."""
REPEATS = Extent(9, 5)
SAMPLING_S = Extent(6, 3)
"""How long a process's page is sampled."""
REMOTE_SIZES = (4, 8, 2048, 4096)
REMOTE_READS = Extent(5000, 1000)

SPEC = Spec(
    name="peek-interval",
    paper="memory-peeping",
    question="How short and how even are the intervals at which an observer can read the memory "
    "of a machine that runs on?",
    method=(
        "A guest pins a page and tells nobody; the observer finds it in the guest's RAM, which is "
        "a file, and reads 4 to 4096 bytes of it back to back (Fig. 2 and 3 of the paper): first "
        "while nobody writes there, then while the guest writes to all of it without a pause. "
        "Then a process in the guest climbs a staircase in its pinned page (section 7), and the "
        "sampler takes one sample a millisecond. Last, a guest whose instructions are counted "
        "reads a page of its own by the ways to machines that are not virtual ones: /proc/kcore, "
        "and RDMA READ over Soft-RoCE."
    ),
    limits=(
        "The target is a virtual machine on the same host: its memory is mapped, and no bus or "
        "controller lies between, as in the paper. LeechCore reads through such hardware; there "
        "is none here.",
        "The observer is pinned to one CPU, which it shares with whatever else this host runs, "
        "often with the guest itself: that makes the longest intervals.",
        "While nobody writes there, the bytes stay in the cache of the observer's own processor; "
        "while the target writes, they are fetched anew: that is what sampling live state costs.",
        "Reading the clock is part of each interval, and its resolution shows.",
        "No network card for RDMA has been here. Soft-RoCE has instructions where a card has none, "
        "so its counts are no costs of RDMA.",
    ),
    needs="it reads the memory of a VM from outside",
    parts=(
        part("peek_interval", "intervals"),
        part("peek_interval", "user"),
        part("peek_interval", "remote"),
    ),
    minutes=(1, 1.5),
)
