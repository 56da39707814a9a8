# SPDX-License-Identifier: GPL-2.0-only
"""Times the paper's test program on a machine's own kernel, and counts its events where the
processor has counters.

This file owns the grid there and what is made of its rows. It judges no claim: the ranges that the
paper names belong to the TLB and the caches of its own processors, which the model has.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.memory_hierarchy import spec
from trapless.experiments import fit
from trapless.experiments.collection import Collection, LeftOutError, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.here import modules
from trapless.experiments.timed_rows import Clock, event_metrics, paired, ratio_metric
from trapless.report.figures import Map
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig

TREE = Path(__file__).parent
MODULE, GUEST_MODULE, GUEST_PROGRAM = "hierarchy.ko", "/hierarchy.ko", "/bin/memory-hierarchy"
LAST_KB = 256
COARSE_KB = 64
"""Cells at multiples of this have metrics of their own; all are in the map."""
BASE = "conventional"
TIMEOUT_S = 3600.0
Cell = tuple[int, int]
"""Footprints in user space and in the kernel, KB."""
Times = Mapping[tuple[str, Cell], Mapping[int, float]]
"""Order and cell -> round -> clocks."""


def collect(run: Collection) -> None:
    """One run of both orders, by turns in each cell of the grid."""
    module, why = modules.find(run, TREE, MODULE)
    if module is None:
        raise LeftOutError(why)
    step = run.chosen(spec.TIMED_STEP_KB)
    rounds = run.chosen(spec.TIMED_ROUNDS)
    axis = f"0:{LAST_KB}:{step}"
    words = option_words({"trap": "fast", "user": axis, "kernel": axis, "clocks": rounds})
    insert = f"insmod {GUEST_MODULE} bytes={LAST_KB << 10}"
    config = LabConfig(
        kernel=run.kernel,
        files=((module, GUEST_MODULE), (workload("memory-hierarchy"), GUEST_PROGRAM)),
        timeout_s=TIMEOUT_S,
    )
    argv = [GUEST_PROGRAM, "--orders", f"{BASE},batched", *words]
    run.boot("batched", config, ["/bin/sh", "-c", f"{insert} && exec {shlex.join(argv)}"])


def times(rows: Sequence[Row]) -> Times:
    found: dict[tuple[str, Cell], dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "measured" and "order" in row:
            cell = (row["user_kb"], row["kernel_kb"])
            found.setdefault((row["order"], cell), {})[row["repeat"]] = row["value"] / row["ops"]
    return found


def ratios(found: Times, order: str) -> dict[Cell, fit.Summary]:
    """Time of an order in that of conventional calls, rounds paired."""
    every = {
        cell: paired(values, found.get((BASE, cell), {}))
        for (name, cell), values in found.items()
        if name == order
    }
    return {cell: one for cell, one in every.items() if one is not None}


def is_coarse(cell: Cell) -> bool:
    return not (cell[0] % COARSE_KB or cell[1] % COARSE_KB)


def analyse(raw: Raw) -> Findings:
    found = times(raw.rows)
    clock = Clock.of(raw.rows)
    metrics: dict[str, Metric] = {
        f"iteration.{order}.u{user}_k{kernel}.ns": clock.ns(list(values.values()))
        for (order, (user, kernel)), values in found.items()
        if is_coarse((user, kernel))
    }
    by_cell = ratios(found, "batched")
    for (user, kernel), one in by_cell.items():
        if is_coarse((user, kernel)):
            metrics[f"iteration.batched.u{user}_k{kernel}.ratio"] = ratio_metric(one)
    medians = [one.median for one in by_cell.values()]
    for name, value in (("lowest", min(medians)), ("median", statistics.median(medians))):
        metrics[f"grid.batched.{name}.ratio"] = Metric(
            round(value, 4), "ratio", "measured", len(medians)
        )
    coarse = [
        row
        for row in raw.rows
        if row.get("kind") == "events" and is_coarse((row["user_kb"], row["kernel_kb"]))
    ]
    metrics |= event_metrics(coarse, "iteration.{order}.u{user_kb}_k{kernel_kb}")
    return Findings(metrics)


def figures(raw: Raw) -> tuple[Map, ...]:
    by_cell = ratios(times(raw.rows), "batched")
    users = sorted({user for user, _ in by_cell})
    kernels = sorted({kernel for _, kernel in by_cell})
    cells = tuple(
        tuple(by_cell[user, kernel].median if (user, kernel) in by_cell else None for user in users)
        for kernel in kernels
    )
    return (
        Map(
            id="clocks",
            title="Time of wrapped calls to conventional ones, over what both sides read",
            x_label="the program reads, KB",
            y_label="its calls read, KB",
            x=tuple(map(float, users)),
            y=tuple(map(float, kernels)),
            cells=cells,
            caption="N = 32, an iteration reads each line of 128 B once on both sides. Medians of "
            "paired rounds.",
            kind="measured",
            scale="time, conventional = 1",
        ),
    )
