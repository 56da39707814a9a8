# SPDX-License-Identifier: GPL-2.0-only
"""Judges what a machine loses to probes, and to probes and reads (Table 5 of the paper).

This file owns the published figures and the verdict. probe_counts.py counts instructions,
reading.py measures time.
"""

from __future__ import annotations

from collections.abc import Mapping

from eval.peek_overhead import probe_counts, reading, workloads
from trapless.experiments import fit
from trapless.experiments.collection import Collection
from trapless.experiments.experiment import Findings, Raw
from trapless.report.figures import Figure, Table
from trapless.results import claims
from trapless.results.result_file import Claim

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "both": {"qsort": 0.001, "make": 0.002, "httpd": 0.005},
    "reads": {"qsort": 0.002, "make": 0.004, "httpd": 0.018},
}

ROUNDS_MIN = 6
"""If there are fewer, chance puts all on one side of the truth more than 5 times in 100."""


def collect(run: Collection) -> None:
    probe_counts.collect(run)
    reading.collect(run)


def analyse(raw: Raw) -> Findings:
    metrics = {**probe_counts.metrics_of(raw.rows), **reading.metrics_of(raw.rows)}
    return Findings(metrics, (claim(raw),))


def claim(raw: Raw) -> Claim:
    costs, slower = probe_counts.costs(raw.rows), reading.slowdowns(raw.rows)
    probes = {load: costs[load, "both"] for load in workloads.LOADS}
    reads = {load: fit.confidence(slower[load, "reads"]) for load in workloads.LOADS}
    dear = [load for load, cost in probes.items() if cost.share > PUBLISHED["both"][load]]
    slow = [
        load
        for load, one in reads.items()
        if one.low > PUBLISHED["reads"][load] and one.n >= ROUNDS_MIN
    ]
    open_ = [load for load, one in reads.items() if one.high > PUBLISHED["reads"][load]]
    ours = "probes, instructions added: " + ", ".join(
        f"{load} {cost.share:.2%}" for load, cost in probes.items()
    )
    ours += "; with reads each 100 µs, wall time added, with 95% intervals: " + ", ".join(
        f"{load} {100 * one.median:.1f}% ({100 * one.low:.1f} to {100 * one.high:.1f})"
        for load, one in reads.items()
    )
    above = sorted({*dear, *slow})
    widest = max(one.width for one in reads.values())
    why = (
        f"Above the paper's: {', '.join(above)}."
        if above
        else "The probes' cost is at or below the paper's. What reads add could not be seen on "
        f"this machine, as busy as it was, in {min(one.n for one in reads.values())} rounds: the "
        f"widest interval is {100 * widest:.1f} points wide."
    )
    many = {"loads above the paper's": (len(above), len({*above, *open_}))}
    return claims.judge("peek-loss", ours, many, why=why)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    return (
        probe_counts.loads_table(raw.rows, PUBLISHED["both"]),
        probe_counts.steps_table(raw.rows),
        reading.table(raw.rows, PUBLISHED),
    )
