# SPDX-License-Identifier: GPL-2.0-only
"""Experiment servers: what crossings cost servers of today, and what would take that away.

This file owns the question, the method and the limits, in words. Each part_*.py owns what is run,
the metrics, the claims and the figures.
"""

from __future__ import annotations

from eval.servers import part_aggregate, part_http, part_pollution, part_unmodified
from trapless.experiments.experiment import Spec

SPEC = Spec(
    name="servers",
    paper="running-mode-switch",
    question="The papers name servers as their future work: how much of a request do crossings "
    "into the kernel cost servers of today, and what do supervisor mode and batches take away?",
    method=(
        "Unmodified servers from Debian's packages serve a load of a known amount; the bytes of "
        "every reply are compared. In one boot a server runs by trap and in supervisor mode by "
        "turns, and all that its processes do is counted, the load's work not. What supervisor "
        "mode saves is predicted from the turns by trap and from loops that the same boot "
        "calibrates, and compared with what was counted. A second boot models caches and TLBs of "
        "two desktop processors. So does a run of the web server of examples/http and of its "
        "twin, once more with the kernel's work on another processor. The calls of event loops "
        "are recorded, and replayed as if some of them waited for the next one."
    ),
    limits=(
        "Instructions are counted, and clocks modelled: what a trap costs a pipeline, only a "
        "processor shows. Published gains are times on real machines: the verdict on them is "
        "open.",
        "The guest has one processor. A server's threads and the load take turns on it, and the "
        "network is the loopback device, where the sender executes the receiver's part.",
        "In lockstep a woken process waits until the other one sleeps. Free loads are without "
        "that, and their turns may do different work.",
        "PostgreSQL's and MariaDB's data are in the guest's memory, and one row is asked for: "
        "what disks and large tables add is not in the figures.",
    ),
    parts=(part_unmodified.PART, part_http.PART, part_pollution.PART, part_aggregate.PART),
    minutes=(1, 50),
    quick_by_name=True,
    spread=True,
)
