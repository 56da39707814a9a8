# SPDX-License-Identifier: GPL-2.0-only
"""Samples a pinned region of a process in the guest (section 7.1 of the paper).

A process in the guest climbs a staircase in its page: a record with the step's number, its
complement and the time, guarded by two counters. The sampler reads it by its physical address.
Owns what a sound sample of it is, the metrics and the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval.peek_interval import part_intervals as intervals
from eval.peek_interval import spec
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw
from trapless.experiments.observer import Observed, run_beside
from trapless.peek.errors import PeekError
from trapless.peek.sampling import sampler
from trapless.peek.sampling.sample_rows import Ending
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.sampling.sampling_plan import Field, Group, Plan, Rule
from trapless.report.figures import Figure, Series, Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric

INTERVAL_NS = 1_000_000
SHOWN_NS = 300_000_000
ONES = (1 << 64) - 1
COLUMNS = ("slot", "t_ns", "torn", "record.step", "record.complement", "record.time_ns")


def record(page: int) -> Group:
    """The record at the start of the page, as struct record of peek_interval.c has it."""
    fields = tuple(
        Field(name, 8, page + offset)
        for name, offset in (("step", 8), ("complement", 16), ("time_ns", 24))
    )
    return Group("record", Rule.SEQLOCK, fields, seq0=page, seq1=page + 32)


def collect(run: Collection) -> None:
    seconds = run.chosen(spec.SAMPLING_S)

    def observe(guest: Observed) -> None:
        guest.await_phase(1)
        plan = Plan(
            interval_ns=INTERVAL_NS,
            groups=(record(guest.page),),
            duration_ns=seconds * 10**9,
            cpu=sampler.own_cpu(),
        )
        with Sampler(sampler.ram(guest.ram), plan) as run_:
            rows = np.concatenate(list(run_.batches()))
            end = run_.end
        if end is None or end.ending is not Ending.DURATION:
            raise PeekError(f"sampling ended early: {end}")
        guest.go_on()
        columns = {name.split(".")[-1]: rows[name].tolist() for name in COLUMNS}
        run.write([{"samples": columns, "slots": end.slots, "lost": end.lost}])

    config, argv = intervals.guest_of(run, ("steps",))
    run_beside(run, "observed", config, argv, observe)


@dataclass(frozen=True)
class Climb:
    """The staircase as seen. `whole` has (t_ns, step, guest's ns) of the samples not torn."""

    whole: Sequence[tuple[int, int, int]]
    samples: int
    torn: int
    damaged: int  # samples without a mark that match no written record
    back: int  # samples with a step before that of the sample before
    slots: int
    lost: int

    @property
    def seen(self) -> float:
        """The share of the steps between the first and the last that was seen."""
        steps = {step for _, step, _ in self.whole}
        return len(steps) / (max(steps) - min(steps) + 1)


def climb(rows: Sequence[Row]) -> Climb:
    (row,) = (row for row in rows if "samples" in row)
    samples = row["samples"]
    whole: list[tuple[int, int, int]] = []
    damaged = back = 0
    columns = (samples[name] for name in ("t_ns", "torn", "step", "complement", "time_ns"))
    for t_ns, torn, step, complement, time_ns in zip(*columns, strict=True):
        if torn or not step | complement:  # nothing is written before the first step
            continue
        damaged += step ^ complement != ONES
        back += bool(whole) and step < whole[-1][1]
        whole.append((t_ns, step, time_ns))
    if not whole:
        raise ValueError("not one whole sample")
    torn = sum(map(bool, samples["torn"]))
    return Climb(whole, len(samples["t_ns"]), torn, damaged, back, row["slots"], row["lost"])


def analyse(raw: Raw) -> Findings:
    steps = climb(raw.rows)
    values = {
        "seen": steps.seen,
        "torn": steps.torn / steps.samples,
        "lost": steps.lost / steps.slots,
        "damaged": steps.damaged / steps.samples,
    }
    metrics = {
        f"region.user.{name}.ratio": Metric(round(value, 5), "ratio", "measured", steps.samples, 0)
        for name, value in values.items()
    }
    return Findings(metrics, (claim(steps),))


def claim(steps: Climb) -> Claim:
    values = {
        "samples inconsistent or out of order": steps.damaged + steps.back,
        "steps seen": len({step for _, step, _ in steps.whole}),
    }
    why = "Samples that are not marked as torn must be records that the process wrote, in order."
    judged = claims.judge("peek-user", "", values, why=why)
    ours = (
        f"{'yes' if judged.holds else 'no'}: {steps.samples} samples of a pinned page of a process "
        f"in the guest, {steps.damaged} of them inconsistent, {steps.back} out of order; "
        f"{steps.seen:.1%} of its steps seen"
    )
    return replace(judged, ours=ours)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    steps = climb(raw.rows)
    start = steps.whole[0][0]
    points = [(t_ns - start, step) for t_ns, step, _ in steps.whole if t_ns - start < SHOWN_NS]
    first, last = steps.whole[0], steps.whole[-1]
    rate = (last[2] - first[2]) / (last[0] - first[0])
    return (
        Figure(
            id="peek-user",
            title="A process's staircase, seen from outside (section 7)",
            x_label="ms",
            y_label="step",
            series=(
                Series(
                    "samples, one a millisecond",
                    tuple(t_ns / 1e6 for t_ns, _ in points),
                    tuple(float(step) for _, step in points),
                ),
            ),
            caption="The process in the guest takes a step about every 10 ms, by its own clock.",
            kind="measured",
            from_zero=False,
        ),
        Table(
            id="peek-user-samples",
            title="Samples of a process's pinned page",
            columns=("samples", "torn", "lost slots", "inconsistent", "steps seen", "clock's rate"),
            rows=(
                (
                    str(steps.samples),
                    str(steps.torn),
                    f"{steps.lost} of {steps.slots}",
                    str(steps.damaged),
                    f"{steps.seen:.1%}",
                    f"{rate:.4f}",
                ),
            ),
            caption="The rate is the guest's clock, which stands in each sample, against the "
            "observer's, between the first sample and the last.",
            kind="measured",
        ),
    )
