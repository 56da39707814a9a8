# SPDX-License-Identifier: GPL-2.0-only
"""Measures how much the model's plugin slows a guest that asks for no modelling.

The same guest boots, starts processes and makes a checksum, with the plugin and without, in turns.
It executes the same instructions each time; the emulator's own CPU time is compared.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw
from trapless.model import plugin_choice, rows
from trapless.model.model_plan import Plan, Variant
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.vm import lab

PAIRS = 4
LIMIT = 1.3
"""The most that the plugin may cost."""

WORK = """
i=0
while [ $i -lt 150 ]; do /bin/busybox true; i=$((i + 1)); done
dd if=/dev/zero bs=64k count=150 2>/dev/null | sha256sum
"""
DIGEST_BYTES = 64


def collect(run: Collection) -> None:
    """Run the guest in turns; the first of a pair changes from pair to pair."""
    timings: list[Row] = []
    run.progress.step(f"{run.name}: {2 * PAIRS} boots with the plugin and without, in turns")
    for pair in range(PAIRS):
        turns = (False, True) if pair % 2 == 0 else (True, False)
        with run.turn(alone=True):
            seconds = {with_plugin: cpu_seconds(run, with_plugin) for with_plugin in turns}
        timings.append({"pair": pair, "without_s": seconds[False], "with_s": seconds[True]})
        run.progress.advance(pair + 1, PAIRS)
    run.progress.done()
    run.write(timings)


def cpu_seconds(run: Collection, with_plugin: bool) -> float:
    """The emulator's CPU time, from its start to its end, and of what the lab runs for it."""
    with tempfile.TemporaryDirectory(prefix="trapless-slowdown-") as name:
        configuration, output = Path(name, "model"), Path(name, "rows.jsonl")
        Plan.of([Variant("pentium-4-1.8")]).write(configuration)
        arguments = (plugin_choice.argument(configuration, output),) if with_plugin else ()
        config = lab.LabConfig(kernel=run.kernel, icount=True, plugins=arguments)
        before = os.times()
        result = lab.run(config, ["/bin/sh", "-c", WORK])
        after = os.times()
        if result.status or len(result.stdout.split()[:1][0]) != DIGEST_BYTES:
            raise TraplessError(f"{run.name}: the guest did not make its checksum")
        if with_plugin and not rows.read(output).complete:
            raise TraplessError(f"{run.name}: the plugin was not there")
    children = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return round(children, 3)


def ratios(raw: Raw) -> list[float]:
    """The ratio of each pair."""
    return [row["with_s"] / row["without_s"] for row in raw.rows if "pair" in row]


def analyse(raw: Raw) -> Findings:
    """The median of the pairs."""
    values = ratios(raw)
    spread = (
        statistics.quantiles(values)[2] - statistics.quantiles(values)[0] if values[1:] else 0.0
    )
    metric = Metric(
        round(statistics.median(values), 3), "ratio", "measured", len(values), round(spread, 3)
    )
    return Findings({"plugin.outside-regions.cpu-time.ratio": metric})


def tables(raw: Raw) -> tuple[Table, ...]:
    """Each pair, since there are few."""
    pairs = [row for row in raw.rows if "pair" in row]
    lines = [
        (
            f"{row['without_s']:.2f}",
            f"{row['with_s']:.2f}",
            f"{row['with_s'] / row['without_s']:.3f}",
        )
        for row in pairs
    ]
    return (
        Table(
            id="slowdown",
            title="What the plugin costs where nothing is modelled",
            columns=("without it, s", "with it, s", "ratio"),
            rows=tuple(lines),
            caption="CPU time of the emulator for a guest that boots, starts 150 processes and "
            f"makes a checksum, in turns; at most {LIMIT} is allowed.",
            kind="measured",
        ),
    )


figures = tables
