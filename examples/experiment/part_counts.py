# SPDX-License-Identifier: MIT
"""Counts the instructions of a call, plain and in a batch, and judges no claim.

This file owns what is run, what proves that it did its work, and how rows become metrics.
"""

from __future__ import annotations

from collections.abc import Sequence

from eval.own_call import spec
from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig


def collect(run: Collection) -> None:
    """The only step that starts VMs. Each boot has a label of its own."""
    program = (workload("own-call"), "/bin/own-call")  # on this machine, and in the guest
    config = LabConfig(kernel=run.kernel, cpus=1, icount=True, files=(program,))
    check(run.boot("counted", config, ["/bin/own-call", str(run.chosen(spec.REPEATS))]))


def check(rows: Sequence[Row]) -> None:
    """A run that has not done its work is no result."""
    if any(row["made"] != row["executed"] for row in rows if "check" in row):
        raise TraplessError("own-call: the module did not make each call")


def analyse(raw: Raw) -> Findings:
    """Reads saved rows alone. Of counts the least is reported: nothing else fell into it."""
    metrics = {}
    for way in ("plain", "batch"):
        values = [row["value"] for row in raw.rows if row.get("way") == way]
        spread = max(values) - min(values)
        metric = Metric(min(values), "instructions", "counted", len(values), spread)
        metrics[f"getppid.{way}.n32.instructions"] = metric
    return Findings(metrics)


def figures(_raw: Raw) -> tuple[Figure | Table, ...]:
    """Metrics with an N become a table and a plot by themselves; this adds none."""
    return ()
