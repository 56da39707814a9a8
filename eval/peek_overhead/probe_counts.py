# SPDX-License-Identifier: GPL-2.0-only
"""Counts what probes cost: instructions of the whole guest, with probes off and on by turns.

This file owns sizes and repeats of the counted boot, and what is made of its rows; the verdict is
part_loss.py's.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.peek_overhead import spec, workloads
from eval.tools.modes import modes
from trapless.experiments.collection import Collection, Row, guest_folder
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.stock import real_programs

SETTINGS = {
    "modes": "user mode or kernel, and why",
    "both": "and interrupts, and who disabled them",
    "counts": "and how often",
}
"""The kinds of probes; each setting includes those before it. The paper's probes are `both`."""

STEPS = {"calls": 50_000, "faults": 5_000, "switches": 3_000}
QUICK_STEPS = {"calls": 20_000, "faults": 2_000, "switches": 1_000}
SIZES = workloads.Sizes(40 << 20, workloads.MANY, 1000, STEPS)
QUICK_SIZES = workloads.Sizes(1 << 20, workloads.FEW, 200, QUICK_STEPS)
TIMEOUT_S = 4 * 3600.0


def collect(run: Collection) -> None:
    root = real_programs.unpacked(run.progress)
    sizes = QUICK_SIZES if run.quick else SIZES
    options = ["--kind", "counted", "--settings", ",".join(["none", *SETTINGS])]
    options += ["--repeats", str(run.chosen(spec.COUNTED_REPEATS))]
    with guest_folder(run.directory) as folder:
        config = workloads.guest(run.kernel, root.root, folder, TIMEOUT_S, icount=True)
        run.boot("counted", config, modes.guest_argv(root, workloads.script(sizes, options)))
    run.write([{"steps": dict(sizes.steps), "requests": sizes.requests}])


@dataclass(frozen=True)
class Cost:
    """The cost of one setting in one load. Instructions do not drift, so the medians of all runs
    are compared: a run in which other work was due does not decide."""

    none: Sequence[float]  # instructions of each run
    probed: Sequence[float]
    hits: float = 0.0  # how often probes saw interrupts disabled, with `counts`

    @property
    def total(self) -> float:
        return statistics.median(self.none)

    @property
    def added(self) -> float:
        return statistics.median(self.probed) - self.total

    @property
    def spread(self) -> float:
        """The largest distance between runs of the same setting."""
        return max(max(runs) - min(runs) for runs in (self.none, self.probed))

    @property
    def share(self) -> float:
        return self.added / self.total


def costs(rows: Sequence[Row]) -> Mapping[tuple[str, str], Cost]:
    """(load, setting) -> what it adds."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    hits: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.get("unit") == "instructions":
            values[row["load"], row["setting"]].append(row["value"])
            if "hits" in row:
                hits[row["load"]].append(row["hits"])
    by_setting = {}
    for load in (*workloads.LOADS, *workloads.STEPS):
        if not values[load, "none"]:
            raise ValueError(f"no counted runs of {load}")
        if not all(hits[load]):
            raise ValueError(f"{load}: no probe was hit")
        for setting in SETTINGS:
            by_setting[load, setting] = Cost(
                values[load, "none"], values[load, setting], statistics.median(hits[load])
            )
    return by_setting


def steps_of(rows: Sequence[Row]) -> Mapping[str, int]:
    (steps,) = (row["steps"] for row in rows if "steps" in row)
    return {str(name): int(count) for name, count in steps.items()}


def metrics_of(rows: Sequence[Row]) -> dict[str, Metric]:
    by_setting, steps = costs(rows), steps_of(rows)
    metrics = {}
    for (load, setting), cost in by_setting.items():
        unit = "instructions" if load in steps else "ratio"
        divisor = steps.get(load, cost.total)
        metrics[f"{load}.{setting}.added.{unit}"] = Metric(
            value=round(cost.added / divisor, 6),
            unit=unit,
            kind="counted",
            n=len(cost.probed),
            spread=round(cost.spread / divisor, 6),
        )
    for load in workloads.LOADS:
        none = by_setting[load, "both"].none
        metrics[f"{load}.none.total.instructions"] = Metric(
            statistics.median(none), "instructions", "counted", len(none), max(none) - min(none)
        )
    return metrics


def percent(cost: Cost) -> str:
    """
    >>> percent(Cost([100000, 100010, 100000], [100120, 100120, 100150]))
    '0.120% ± 0.030%'
    """
    return f"{cost.share:.3%} ± {cost.spread / cost.total:.3%}"


def loads_table(rows: Sequence[Row], published: Mapping[str, float]) -> Table:
    by_setting = costs(rows)
    lines = []
    for load in workloads.LOADS:
        counts = by_setting[load, "counts"]
        lines.append(
            (
                load,
                f"{counts.total / 1e6:,.0f} M",
                *(percent(by_setting[load, setting]) for setting in SETTINGS),
                f"{counts.hits / counts.total * 1e6:,.0f}",
                f"{published[load]:.1%}",
            )
        )
    return Table(
        id="peek-probes",
        title="What probes cost (Table 5, first row)",
        columns=(
            "load",
            "instructions",
            *SETTINGS,
            "interrupts disabled, a million instructions",
            "paper",
        ),
        rows=tuple(lines),
        caption="Instructions that probes add to all of the guest's, from a load's start to its "
        "end, idle time left out; medians of runs in one boot with the probes off and on by "
        "turns, ± how far runs of the same setting lie apart at most. "
        + "; ".join(f"{name}: {words}" for name, words in SETTINGS.items())
        + ". The paper's probes are `both`.",
        kind="counted",
    )


def steps_table(rows: Sequence[Row]) -> Table:
    by_setting, steps = costs(rows), steps_of(rows)
    lines = []
    for name, words in workloads.STEPS.items():
        none = by_setting[name, "both"].total / steps[name]
        added = [f"{by_setting[name, setting].added / steps[name]:.1f}" for setting in SETTINGS]
        hits = by_setting[name, "counts"].hits / steps[name]
        lines.append((words, f"{none:,.0f}", *added, f"{hits:.1f}"))
    return Table(
        id="peek-probes-each",
        title="What probes add to one entry of the kernel",
        columns=("what", "instructions", *SETTINGS, "interrupts disabled"),
        rows=tuple(lines),
        caption="Instructions each, of loops of many, the program around them included. Interrupts "
        "disabled: how often probes saw that, for each; an exception or interrupt from user mode "
        "disables them without a probe.",
        kind="counted",
    )
