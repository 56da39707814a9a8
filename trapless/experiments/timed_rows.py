# SPDX-License-Identifier: GPL-2.0-only
"""Rows that were timed by a machine's own time-stamp counter, as metrics in nanoseconds.

This file owns how clocks become nanoseconds, what the processor's counters say beside them, and
that an emulator's clock decides no claim. All functions are pure functions of rows.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trapless.experiments import fit
from trapless.experiments.collection import Row
from trapless.experiments.repeated_counts import Key, Samples
from trapless.results import claims
from trapless.results.result_file import Claim, Metric

EMULATORS = frozenset({"TCGTCGTCGTCG"})
"""The names that emulators give where a hypervisor gives its name."""
EMULATED = (
    "Undecided: this machine is emulated, and its clock is not a processor's. The same command "
    "decides it on a processor."
)
OF_THE_KERNEL = ("page_faults", "context_switches")
"""Events that are counted on any machine. They show whether a run was disturbed, and cost nothing
in the rows; metrics are made only of the processor's events."""
UNSTEADY = (
    "Undecided: the rounds differ by more than half. Other programs ran meanwhile, or the "
    "frequency changed; run it again on an idle machine."
)
DIGITS = 3


@dataclass(frozen=True)
class Clock:
    """The machine's time-stamp counter, and whether a real processor has it."""

    per_ns: float
    hypervisor: str

    @staticmethod
    def of(rows: Iterable[Row]) -> Clock:
        """From the calibrations of the programs; the median of all."""
        found = [row for row in rows if "clocks_per_ns" in row]
        if not found:
            raise ValueError("no row says how fast the time-stamp counter runs")
        rate = statistics.median(row["clocks_per_ns"] for row in found)
        if rate <= 0:
            raise ValueError("the time-stamp counter stood still")
        return Clock(rate, str(found[0].get("hypervisor", "")))

    @property
    def emulated(self) -> bool:
        return self.hypervisor in EMULATORS

    def ns(self, samples: Sequence[float]) -> Metric:
        """Samples in clocks, as a metric: the median, and the quartiles' distance."""
        one = fit.summary([value / self.per_ns for value in samples])
        return Metric(round(one.median, DIGITS), "ns", "measured", one.n, round(one.spread, DIGITS))

    def metrics(self, samples: Mapping[Key, Samples]) -> dict[str, Metric]:
        """The metrics of each call, mechanism and N."""
        return {
            f"{call}.{mechanism}.n{n}.ns": self.ns(values)
            for (call, mechanism), by_n in samples.items()
            for n, values in by_n.items()
        }

    def judge(
        self,
        claim_id: str,
        ours: str,
        values: Mapping[str, claims.Value],
        why: str = "",
        rests_on: Sequence[fit.Summary] = (),
    ) -> Claim:
        """A claim that clocks decide. Where they are an emulator's, or rounds of what it rests on
        differ by more than half, it stays open."""
        if self.emulated:
            return claims.undecided(claim_id, ours, EMULATED)
        if any(one.spread > fit.NOISY * abs(one.median) for one in rests_on):
            return claims.undecided(claim_id, ours, UNSTEADY)
        return claims.judge(claim_id, ours, values, why=why)


def ratio_metric(one: fit.Summary) -> Metric:
    """Rounds of two subjects, paired."""
    return Metric(round(one.median, 4), "ratio", "measured", one.n, round(one.spread, 4))


def paired(
    values: Mapping[int, float] | Sequence[float], base: Mapping[int, float] | Sequence[float]
) -> fit.Summary | None:
    """The ratio of two times of the same round, for each round; None where no round has both."""
    ours = dict(enumerate(values)) if isinstance(values, Sequence) else values
    others = dict(enumerate(base)) if isinstance(base, Sequence) else base
    pairs = fit.paired_ratios(ours, others)
    return fit.summary(pairs) if pairs else None


def event_metrics(rows: Sequence[Row], name: str) -> dict[str, Metric]:
    """Events of the processor's counters a call; `name` is a metric's, without its unit, with the
    fields of a row in braces."""
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.get("kind") == "events":
            for event, count in row["events"].items():
                if event not in OF_THE_KERNEL:
                    subject = name.format(**row)
                    samples[subject, event.replace("_", "-")].append(count / row["ops"])
    metrics = {}
    for (subject, event), values in samples.items():
        one = fit.summary(values)
        metrics[f"{subject}.{event}"] = Metric(
            round(one.median, DIGITS), event, "measured", one.n, round(one.spread, DIGITS)
        )
    return metrics
