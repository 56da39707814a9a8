# SPDX-License-Identifier: GPL-2.0-only
"""Experiment peek-fleet: what it costs to observe all virtual machines of a host.

This file owns the question, the method and the limits, in words. part_cost.py owns what is run,
the metrics and the tables.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import Spec, part

REPEATS = Extent(3, 1)
FLEETS = (1, 10, 50)
"""Simulated machines that are observed at once."""

SPEC = Spec(
    name="peek-fleet",
    paper="memory-peeping",
    question="What does it take of a host to observe 1, 10 and 50 of its virtual machines at once?",
    method=(
        "`trapless peek serve` observes a guest that runs, then 1, 10 and 50 simulated ones, each "
        "a hundred times a second. A simulated machine is a process that has the memory of that "
        "guest, and moves in it the clock and the current task of two CPUs. Taken are the "
        "processor time and the memory of the daemon with all processes that it starts, and the "
        "samples that it lost, by its own metrics as Prometheus's client library reads them."
    ),
    limits=(
        "A simulated machine changes two words of each CPU: fewer samples are torn than of a real "
        "one, and the host's caches hold more of what is read.",
        "The simulated machines take processors, too: a host with few of them loses samples that "
        "a larger one would not.",
        "All simulated machines run one kernel, whose symbols are decoded once and then come out "
        "of the cache.",
    ),
    parts=(part("peek_fleet", "cost"),),
    minutes=(2.5, 6),
    needs="it watches a VM and simulated ones from outside, on a machine that it shares with them",
    quick_by_name=True,
)
