# SPDX-License-Identifier: GPL-2.0-only
"""Measures what probes and reads cost: time with neither, with probes, and with both, by turns.

The guest has one processor of this machine, the sampler another. This file owns the measured boot,
its observer, and what is made of the rows; the verdict is part_loss.py's.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

from eval.peek_overhead import part_bandwidth as bandwidth
from eval.peek_overhead import spec, workloads
from eval.tools.modes import modes
from trapless.experiments import fit
from trapless.experiments.collection import Collection, Row, guest_folder
from trapless.experiments.observer import Observed, pin_emulator, run_beside
from trapless.experiments.timed_rows import ratio_metric
from trapless.peek.emulator import emulator_of
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import probes, record
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.sampling.sampling_plan import Plan
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.stock import real_programs

SETTINGS = {"both": "probes", "reads": "probes and reads each 100 µs"}
INTERVAL_NS = 100_000
SIZES = workloads.Sizes(8 << 20, workloads.MANY[:1], 1000, {})
QUICK_SIZES = workloads.Sizes(2 << 20, workloads.FEW, 200, {})
SETTLE_MS, QUICK_SETTLE_MS = 400, 200
TIMEOUT_S = 4 * 3600.0
LOOK_S = 0.02
TAKEN_MIN = 0.5
"""A run of which the sampler took less was not observed as it should be."""


def collect(run: Collection) -> None:
    root = real_programs.unpacked(run.progress)
    options = ["--kind", "measured", "--settings", ",".join(["none", *SETTINGS])]
    options += ["--repeats", str(run.chosen(spec.READ_REPEATS))]
    options += ["--settle-ms", str(QUICK_SETTLE_MS if run.quick else SETTLE_MS)]
    script = workloads.script(QUICK_SIZES if run.quick else SIZES, options)

    def observe(guest: Observed) -> None:
        own, other = bandwidth.processors()
        os.sched_setaffinity(0, {other})  # of this thread: the guest has its processor alone
        pin_emulator(guest.ram, own)
        run.write(follow(guest, other))

    with guest_folder(run.directory) as folder:
        config = workloads.guest(run.kernel, root.root, folder, TIMEOUT_S, icount=False)
        run_beside(run, "measured", config, modes.guest_argv(root, script), observe)


def follow(guest: Observed, cpu: int) -> list[Row]:
    """Sample during each run that is announced as one to be read; a row for each."""
    rows = []
    with Target.open(guest.ram) as target:
        plan = record.plan_for(
            target, INTERVAL_NS, 0, cpu, emulator_of(guest.ram), probes.find(target)
        )
        source = record.source_of(target)
        guest.go_on()
        while not guest.is_over() and not guest.over.wait(LOOK_S):
            phase, reads = guest.state()
            if phase % 2 and reads:
                rows.append(sample(guest, source, plan, phase))
    return rows


def sample(guest: Observed, source: FileMemory, plan: Plan, phase: int) -> Row:
    """Sample from a phase of getting ready, which lasts until samples come, to the end of the run
    after it."""
    ready = ended = False
    with Sampler(source, plan) as sampler:
        for _ in sampler.batches():
            now = guest.phase()
            if now == phase and not ready:
                ready = True
                guest.go_on()
            if not ended and (now > phase + 1 or guest.over.is_set()):
                ended = True
                sampler.stop()  # once: a second request would not wait for what is left
    if sampler.end is None:
        raise PeekError("the sampler was killed")
    end = sampler.end
    return {"phase": phase + 1, "ready": ready, "slots": end.slots, "lost": end.lost}


def slowdowns(rows: Sequence[Row]) -> Mapping[tuple[str, str], Sequence[float]]:
    """(load, setting) -> of each round, by what part longer it took than with neither.

    With reads, of the rounds that were read. Where the sampler's processor was taken from it too
    often, those in which that was least so; they are chosen by that alone.
    """
    taken = {row["phase"]: part_taken(row) for row in rows if "slots" in row}
    measured = [row for row in rows if row.get("unit") == "ns"]
    alone = {
        (row["load"], row["repeat"]): row["value"] for row in measured if row["setting"] == "none"
    }
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in measured:
        part = taken.get(row["phase"], 0.0) if row["setting"] == "reads" else 1.0
        if row["setting"] in SETTINGS and part:
            slower = row["value"] / alone[row["load"], row["repeat"]] - 1
            pairs[row["load"], row["setting"]].append((part, slower))
    by_setting = {}
    for load in workloads.LOADS:
        for setting in SETTINGS:
            best = sorted(pairs[load, setting], key=lambda pair: -pair[0])
            if len(best) < fit.SAMPLES_MIN:
                raise ValueError(f"only {len(best)} runs of {load}, {setting}")
            sound = sum(part >= TAKEN_MIN for part, _ in best)
            by_setting[load, setting] = [
                slower for _, slower in best[: max(sound, fit.SAMPLES_MIN)]
            ]
    return by_setting


def part_taken(sample: Row) -> float:
    """The part of a run's samples that were taken; 0 if the sampler came too late."""
    return float(1 - sample["lost"] / sample["slots"]) if sample["ready"] else 0.0


def lost(rows: Sequence[Row]) -> float:
    """The part of all samples that were not taken in time."""
    taken = [row for row in rows if "slots" in row]
    return float(sum(row["lost"] for row in taken) / sum(row["slots"] for row in taken))


def metrics_of(rows: Sequence[Row]) -> dict[str, Metric]:
    metrics = {}
    for (load, setting), values in slowdowns(rows).items():
        name = "probes" if setting == "both" else "probes-and-reads"
        metrics[f"{load}.{name}.slow-down.ratio"] = ratio_metric(fit.summary(values))
    return metrics


def table(rows: Sequence[Row], published: Mapping[str, Mapping[str, float]]) -> Table:
    slower = slowdowns(rows)
    lines = []
    for load in workloads.LOADS:
        cells = []
        for setting in SETTINGS:
            cells += [bandwidth.percent(fit.confidence(slower[load, setting]))]
            cells += [f"{published[setting][load]:.1%}"]
        lines.append((load, *cells, str(len(slower[load, "reads"]))))
    columns = [word for name in SETTINGS.values() for word in (name, "paper")]
    return Table(
        id="peek-slow-down",
        title="Slow-down by probes and reads (Table 5)",
        columns=("load", *columns, "rounds"),
        rows=tuple(lines),
        caption="Wall time against the run of the same round with neither; medians, 95% confidence "
        "intervals by bootstrap. The guest has one processor, the sampler another, which reads "
        f"each 100 µs; {lost(rows):.1%} of its samples were lost. A slow-down below 0 is noise; "
        "what is smaller than an interval is wide cannot be seen here.",
        kind="measured",
    )
