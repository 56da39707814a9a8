# SPDX-License-Identifier: GPL-2.0-only
"""Runs reads of a slow disk, to find out whether a requester stands still while a requested read
waits.

This file owns the slow device (the kernel's own null_blk with a completion delay), the metrics and
the claim. The reads are made by slow_read.c of the same workload.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.parallel import spec
from trapless.experiments.collection import Collection, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.here import disk
from trapless.report.figures import Figure, Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

DELAY_NS = 50_000_000
DEVICE = "/dev/nullb0"
NULL_BLK = (
    "null_blk",
    f"nr_devices=1 gb=1 memory_backed=1 irqmode=2 completion_nsec={DELAY_NS} hw_queue_depth=64",
)
TIMEOUT_S = 2 * 3600.0
GUEST_PROGRAM = "/bin/parallel"


def collect(run: Collection) -> None:
    if run.timed and (why := disk.usable((NULL_BLK,))[1]):
        run.write([{"skipped": "the slow disk", "reason": why}])
        return
    config = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=((workload("parallel"), GUEST_PROGRAM),),
        modules=(NULL_BLK,),
        timeout_s=TIMEOUT_S,
    )
    options = {"slow-device": DEVICE, "slow-repeats": run.chosen(spec.SLOW_READS), "seed": 7}
    run.boot("measured", config, [GUEST_PROGRAM, *option_words(options)])


def by_way(rows: Sequence[Row]) -> dict[str, list[Row]]:
    ways: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("call") == "slow_read":
            ways[row["mechanism"]].append(row)
    return ways


def shares(rows: Sequence[Row], baseline: Sequence[Row]) -> dict[str, list[float]]:
    """For each repeat: longest standstill in reads, work done, and time for all reads in reads.

    Full speed is the fastest of the loops with nothing to read: a busy host can only slow one.
    """
    full = max(base["units"] / base["value"] for base in baseline)
    return {
        "gap": [row["gap_ns"] / row["latency_ns"] for row in rows],
        "work": [row["units"] / row["value"] / full for row in rows],
        "elapsed": [row["value"] / (row["ops"] * row["latency_ns"]) for row in rows],
    }


def analyse(raw: Raw) -> Findings:
    ways = by_way(raw.rows)
    if raw.timed and not ways:
        return Findings()
    metrics = {}
    for way in ("plain", "psc", "io_uring"):
        for name, values in shares(ways[way], ways["none"]).items():
            metrics[f"slow_read.{way}.{name}.ratio"] = Metric(
                round(figure_of(name, values), 4),
                "ratio",
                "measured",
                len(values),
                round(max(values) - min(values), 4),
            )
    return Findings(metrics, (claim(ways),))


def figure_of(name: str, values: Sequence[float]) -> float:
    """Median; of standstills the shortest, since a busy host can only make one longer."""
    return min(values) if name == "gap" else statistics.median(values)


def medians_of(ways: Mapping[str, Sequence[Row]], way: str) -> dict[str, float]:
    return {
        name: figure_of(name, values) for name, values in shares(ways[way], ways["none"]).items()
    }


def claim(ways: Mapping[str, Sequence[Row]]) -> Claim:
    psc, plain = medians_of(ways, "psc"), medians_of(ways, "plain")
    latency_ms = ways["psc"][0]["latency_ns"] / 1e6
    pause = medians_of(ways, "none")["gap"]
    why = (
        f"The longest pause of the same loop with nothing to read was {pause:.0%} of a read's "
        "time: a host that is busy elsewhere stops the whole guest. Run again on a quiet host."
    )
    values = {"longest standstill, in reads,": psc["gap"], "that by plain reads": plain["gap"]}
    judged = claims.judge("psc-nonblocking", "", values, why=why)
    ours = (
        f"{'yes' if judged.holds else 'no'}: longest standstill, in the quietest of "
        f"{len(ways['psc'])} repeats (other work of the host can only make one longer), "
        f"{psc['gap']:.0%} of a read's {latency_ms:.0f} ms (plain "
        f"reads: {plain['gap']:.0%}), other work at {psc['work']:.0%} of full speed (plain reads: "
        f"{plain['work']:.0%})"
    )
    return replace(judged, ours=ours)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    ways = by_way(raw.rows)
    if raw.timed and not ways:
        return ()
    rows = []
    for way in ("plain", "psc", "io_uring"):
        one = medians_of(ways, way)
        rows.append((way, f"{one['gap']:.0%}", f"{one['work']:.0%}", f"{one['elapsed']:.2f}"))
    idle = medians_of(ways, "none")["gap"]
    return (
        Table(
            id="slow-read",
            title="16 direct reads of a slow disk while the requester has other work",
            columns=(
                "mechanism",
                "longest standstill, of one read's time",
                "other work, of full speed",
                "time for all reads, one after the other = 1",
            ),
            rows=tuple(rows),
            caption="Medians; of standstills the shortest of the repeats, since a busy host can "
            f"only make one longer. The same loop with nothing to read paused for {idle:.0%} of a "
            "read's time at most: what the machine itself does to a program. Full speed is the "
            "fastest of those loops. Requester and workers share one CPU.",
            kind="measured",
        ),
    )
