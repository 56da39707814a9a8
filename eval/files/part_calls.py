# SPDX-License-Identifier: GPL-2.0-only
"""Counts the same work on files by each way, in C, and makes metrics, a table and a figure of it.

This file owns the command, the metrics' names and what the table compares. The C program beside it
owns the ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.files import spec
from trapless.base.console import TraplessError
from trapless.experiments import repeated_counts
from trapless.experiments.collection import Collection, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.report.figures import Figure, Mark, Table, bars
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig

GUEST_PROGRAM = "/bin/files"
TIMEOUT_S = 3600.0
UNITS = ("instructions", "crossings")
WORK = {
    "stat": "attributes of a file",
    "read": "read a whole file",
    "write": "write a file, fsync",
    "walk": "walk a tree",
}
WAYS = {
    "plain": "plain calls",
    "pool": "pool, a hop a file",
    "pool-calls": "pool, a hop a call",
    "uring": "io_uring",
    "files": "Files, module",
    "files-plain": "Files, no module",
}
BASE = "pool-calls"


def collect(run: Collection) -> None:
    options = {
        "kind": "counted",
        "directory": "/tmp",
        "files": run.chosen(spec.FILES),
        "sizes": (spec.TASKS,),
        "repeats": run.chosen(spec.REPEATS),
    }
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        icount=True,
        files=((workload("files"), GUEST_PROGRAM),),
        timeout_s=TIMEOUT_S,
    )
    rows = run.boot("counted", config, [GUEST_PROGRAM, *option_words(options)])
    if any(row.get("skipped") == "files" for row in rows):
        raise TraplessError("the guest has no module: Files would have no figure with it")


Costs = Mapping[tuple[str, str], Sequence[float]]
"""Work and way -> the cost of one file or entry, in each repeat."""


def costs(rows: Sequence[Row], unit: str) -> Costs:
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.get("unit") == unit:
            values = found.setdefault((row["call"], row["mechanism"]), [])
            values.append(row["value"] / row["ops"])
    return found


def analyse(raw: Raw) -> Findings:
    metrics: dict[str, Metric] = {}
    for unit in UNITS:
        for (work, way), values in costs(raw.rows, unit).items():
            metrics[f"{work}.{way}.{unit}"] = repeated_counts.metric(values, unit, digits=2)
    return Findings(metrics)


def cell(of: Costs, work: str, way: str, form: str) -> str:
    return format(min(of[work, way]), form) if (work, way) in of else "–"


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    instructions, crossings = (costs(raw.rows, unit) for unit in UNITS)
    groups = {
        name: {
            way: min(instructions[work, way]) / min(instructions[work, BASE])
            for way in WAYS
            if (work, way) in instructions
        }
        for work, name in WORK.items()
    }
    rows = tuple(
        (name, *(cell(of, work, way, form) for way in WAYS), f"{unit} a file")
        for work, name in WORK.items()
        for of, form, unit in (
            (instructions, ",.0f", "instructions"),
            (crossings, ".2f", "crossings"),
        )
    )
    return (
        Figure(
            id="files",
            title="Calls on files for 64 tasks, where a pool with a hop a call takes 1",
            x_label="",
            y_label="instructions / instructions of the pool",
            series=bars(groups, WAYS),
            names=tuple(groups),
            marks=(Mark(1.0, ""),),
            kind="counted",
            caption="All threads and the kernel, on one CPU. Files in memory.",
        ),
        Table(
            id="files",
            title="What a file costs 64 tasks",
            columns=("", *WAYS.values(), "unit"),
            rows=rows,
            kind="counted",
            caption="A file of 3,000 bytes in memory; of a tree, an entry. All threads and the "
            "kernel, timer ticks included. A crossing is an entry into the kernel's dispatcher; "
            "threads that io_uring has in the kernel make none.",
        ),
    )
