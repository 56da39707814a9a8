# SPDX-License-Identifier: GPL-2.0-only
"""Experiment parallel on a machine's own kernel: the same workload, timed and not counted.

This file owns the rounds there, the metrics in nanoseconds, and the claims that clocks decide.
part_requests.py has the ratios, part_slow_read.py what the slow disk shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from eval.parallel import part_requests, part_slow_read, spec
from trapless.experiments import fit
from trapless.experiments.clocks import Clock
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Part, Raw, Spec, workload
from trapless.experiments.here import disk
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Claim, Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

ROUNDS, QUICK_ROUNDS = 41, 7
QUICK_WORKERS = (1, 2)
QUICK_SIZES = (1, 3, 8, 16, 32, 127)
LEAST_WORKERS, LEAST_SIZES = (1,), (1, 16)
PHASES = {"total": "ns", "submit": "requester-ns"}


def collect(run: Collection) -> None:
    """One run of all mechanisms and numbers of workers, in alternating rounds."""
    modules, why = ((), "") if run.quick else disk.ram_disk()
    if why:
        run.write([{"skipped": "read1_disk", "reason": why}])
    options = {
        "kind": "measured",
        "mechanisms": part_requests.MEASURED_MECHANISMS,
        "sizes": _list(run.chosen(part_requests.SIZES, QUICK_SIZES, LEAST_SIZES)),
        "workers": _list(run.chosen(part_requests.WORKERS, QUICK_WORKERS, LEAST_WORKERS)),
        "calls": "gettid,read1_disk" if modules else "gettid",
        "polled": "gettid",
        "repeats": str(run.chosen(ROUNDS, QUICK_ROUNDS, fit.SAMPLES_MIN)),
        "seed": "3",
        "directory": guest_disk.MOUNT_POINT if modules else "/tmp",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    argv = [part_requests.GUEST_PROGRAM, *words]
    config = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=((workload("parallel"), part_requests.GUEST_PROGRAM),),
        modules=modules,
        timeout_s=part_requests.TIMEOUT_S,
    )
    run.boot("measured", config, guest_disk.command(argv) if modules else argv)


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def analyse(raw: Raw) -> Findings:
    clock = Clock.of(raw.rows)
    metrics: dict[str, Metric] = {}
    for phase, unit in PHASES.items():
        selected = part_requests.select(raw.rows, "measured", phase, "value")
        for (call, mechanism), samples in selected.items():
            for n, values in samples.items():
                one = clock.ns(values)
                metrics[f"{call}.{mechanism}.n{n}.{unit}"] = dataclasses.replace(one, unit=unit)
    metrics |= part_requests.measured_metrics(raw.rows)
    ratios = part_requests.paired(raw.rows, "gettid", "psc")
    wins_from = part_requests.break_even(ratios)
    if wins_from is not None:
        metrics["gettid.psc.break_even.n"] = Metric(wins_from, "n", "measured")
    return Findings(metrics, tuple(claims_of(ratios, clock)))


def claims_of(ratios: Mapping[int, fit.Summary], clock: Clock) -> list[Claim]:
    by_clock = part_requests.break_even(ratios)
    best, at = min((one.median, n) for n, one in ratios.items() if n >= part_requests.BEST_FROM)
    note = (
        "With one worker the time is the worker's, and each notify wakes it on another CPU. "
        + part_requests.noise_note(ratios)
    )
    change = 1 - best
    return [
        clock.judge(
            "psc-break-even",
            f"{by_clock or 'never'} (by the clock, until all results are in)",
            {"K": by_clock},
            note,
            tuple(ratios.values()),
        ),
        clock.judge(
            "psc-best",
            f"{abs(change):.0%} {'less' if change >= 0 else 'more'} time at {at} requests a notify",
            {"saved": change},
            note,
            [ratios[at]],
        ),
    ]


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    return (part_requests.figure_3(raw.rows, ""),)


def collect_slow_read(run: Collection) -> None:
    modules, why = disk.usable((part_slow_read.NULL_BLK,))
    if modules:
        part_slow_read.collect(run)
    else:
        run.write([{"skipped": "the slow disk", "reason": why}])


def _was_read(rows: Sequence[Row]) -> bool:
    return bool(part_slow_read.by_way(rows))


SLOW_READ = Part(
    name="slow_read",
    collect=collect_slow_read,
    analyse=lambda raw: part_slow_read.analyse(raw) if _was_read(raw.rows) else Findings(),
    figures=lambda raw: part_slow_read.figures(raw) if _was_read(raw.rows) else (),
)

SPEC = Spec(
    name="parallel",
    paper=spec.SPEC.paper,
    question=spec.SPEC.question,
    method=(
        "127 requests by K a notify, served by 1 to 4 workers of the same process, beside plain "
        "calls, batches and liburing (Fig. 3 of the paper), on this machine's own kernel with the "
        "module loaded. Measured by the time-stamp counter in alternating rounds, mechanisms in "
        "random order. Reads of a slow disk (null_blk) show whether the requester stands still."
    ),
    limits=(
        "The requester is on CPU 0, and workers are on CPU 1: whether both are threads of one core "
        "decides what they share.",
        "The time-stamp counter runs at its own rate, not at the core's: times are nanoseconds.",
        "io_uring has no gettid: its NOP stands beside it.",
    ),
    parts=(Part("requests", collect, analyse, figures), SLOW_READ),
    minutes=(0.3, 1.5),
)
