# SPDX-License-Identifier: GPL-2.0-only
"""Computes shares and times from the raw rows of os-behaviour, its metrics, and the paper's claims.

This file owns the paper's figures that have no place among the claims, and what a claim must show
to hold.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trapless.experiments import fit
from trapless.experiments.collection import Row
from trapless.peek.sampling.tier0 import Part
from trapless.peek.sampling.tier1 import WHO_TEXT, Who
from trapless.results import claims
from trapless.results.result_file import Claim, Metric

LOADS = ("nop", "qsort", "make", "httpd")
ACCOUNTS = ("user", "kernel", "idle")
KERNEL_PARTS = (Part.TOP_HALF, Part.BOTTOM_HALF, Part.KERNEL)

PAPER_SHARES: Mapping[Part, tuple[float, ...]] = {
    Part.USER: (0.0, 98.8, 92.9, 44.1),
    Part.TOP_HALF: (0.1, 0.1, 0.2, 9.2),
    Part.BOTTOM_HALF: (0.0, 0.0, 0.1, 21.5),
    Part.KERNEL: (0.0, 1.1, 6.5, 25.2),
    Part.IDLE: (99.9, 0.1, 0.2, 0.1),
}
"""Table 1 of the paper, percent, in the order of LOADS."""
PAPER_OFF = (0.1, 0.1, 0.5, 10.6)
PAPER_QUEUE_MAX = 54
PAPER_INTERRUPTS_US = 62.4
"""Mean interval of interrupts under httpd."""

TOP_HALVES = WHO_TEXT[Who.TOP_HALF]
SCHEDULERS = ("schedule", "__schedule")
COMPILERS_OWN = re.compile(r"\.(constprop|part|isra|cold)(\.\d+)?")
"""The suffixes that compilers append to the names of variants of functions."""
SMALL = 1.0
"""Percent: shares that the paper has as 0.5 or less must stay below."""
FACTOR = 2.0
"""Larger ones must come within this factor of the paper's."""
BETWEEN_RUNS = math.sqrt(2)
"""Two runs on a busy host differ by up to a factor of two in a routine's share of the disabled time
and in its mean time: each may be off by this factor."""
BLOCKS = 8
"""The parts of a third of a load, by whose means it is known how certain the third's mean is."""


@dataclass(frozen=True)
class Routine:
    """A routine that disabled interrupts. `share` is of all disabled time; a mean is None where
    its runs were not counted."""

    name: str
    share: float
    runs: int
    mean_us: float | None


@dataclass(frozen=True)
class ObservedLoad:
    """One load as it was observed."""

    name: str
    row: Row
    ended: bool  # by itself, its work done
    ticks: Mapping[str, int]  # of the guest's clock, as its kernel accounts for them

    @property
    def seconds(self) -> float:
        return float(self.row["slots"] * self.row["interval_ns"] / 1e9)

    def percent(self, part: Part) -> float:
        return 100 * float(self.row["parts"][part.name.lower()]) / max(int(self.row["samples"]), 1)

    @property
    def kernel(self) -> float:
        """Percent in the kernel, handlers included."""
        return sum((self.percent(part) for part in KERNEL_PARTS), 0.0)

    def accounted(self, what: str) -> float:
        """Percent by the guest's own account: user, kernel or idle."""
        return 100 * self.ticks[what] / max(sum(self.ticks.values()), 1)

    @property
    def off(self) -> float:
        """Percent with interrupts disabled."""
        return 100 * float(self.row["off"]) / max(int(self.row["judged"]), 1)

    @property
    def sample_us(self) -> float:
        """The time that a sample stands for: that of slots that were lost is shared by all."""
        return self.seconds * 1e6 / max(int(self.row["rows"]), 1)

    def _us(self, samples: float, runs: float) -> float | None:
        """The mean time of runs that were counted over the whole load, from samples of a window."""
        return samples * self.sample_us / (runs * self.whole_share) if samples and runs else None

    @property
    def interrupt_interval_us(self) -> float:
        """Mean, from one to the next, of the time that the guest did not stand still."""
        interrupts = int(self.row["counts"]["interrupts"]) * self.whole_share
        return int(self.row["samples"]) * self.sample_us / max(interrupts, 1.0)

    @property
    def whole_share(self) -> float:
        """Which part of the load the samples are of, and the counts are of all of it."""
        return float(self.row["whole_share"])

    def routines(self) -> list[Routine]:
        """Those that disabled interrupts, most of the time first. Top halves are begun by the
        processor: their runs are the interrupts that the kernel counted."""
        total = max(sum(one["samples"] for one in self.row["routines"]), 1)
        routines = []
        for one in self.row["routines"]:
            handler = one["name"] == TOP_HALVES
            runs = self.row["counts"]["interrupts"] if handler else one["runs"]
            own = one["samples"] if handler else one["own"]
            mean = self._us(own, runs)
            name = COMPILERS_OWN.sub("", one["name"])
            routines.append(Routine(name, 100 * one["samples"] / total, runs if mean else 0, mean))
        return routines

    def block_percents(self, name: str, of: str) -> list[float]:
        blocks = self.row["blocks"]
        return [
            100 * count / total
            for count, total in zip(blocks[name], self._totals(of), strict=True)
            if total
        ]

    def _totals(self, of: str) -> Sequence[int]:
        blocks = self.row["blocks"]
        if of != "samples":
            return [int(count) for count in blocks[of]]
        parts = [blocks[part.name.lower()] for part in Part]
        return [sum(counts) for counts in zip(*parts, strict=True)]


def loads_of(rows: Sequence[Row]) -> dict[str, ObservedLoad]:
    """The loads by name; ValueError where one is missing, or its samples cannot be."""
    ended = {row["load"]: bool(row["ended"]) for row in rows if "load" in row}
    ticks = {
        row["accounted"]: {name: int(row[name]) for name in ACCOUNTS}
        for row in rows
        if "accounted" in row
    }
    names = {row["observed"]: row for row in rows if "observed" in row}
    loads = {name: ObservedLoad(name, row, ended[name], ticks[name]) for name, row in names.items()}
    for name in LOADS:
        row = loads[name].row
        if not row["samples"] or sum(row["parts"].values()) != row["samples"]:
            raise ValueError(f"{name}: its samples do not add up")
        if row["parts"][Part.PROCESS.name.lower()]:
            raise ValueError(f"{name}: user mode and kernel were not told apart in all samples")
        if row["judged"] != row["samples"]:
            raise ValueError(f"{name}: probes were not on in all samples")
    return {name: loads[name] for name in LOADS}


def _metric(value: float, unit: str, values: Sequence[float]) -> Metric:
    spread = fit.summary(values).spread if len(values) > 1 else 0.0
    return Metric(round(value, 3), unit, "measured", max(len(values), 1), round(spread, 3))


def metrics_of(load: ObservedLoad) -> dict[str, Metric]:
    """Shares in percent: of all samples, with how much the parts of the time differ; and counts."""
    metrics = {}
    for part in PAPER_SHARES:
        name = part.name.lower()
        values = load.block_percents(name, "samples")
        key = f"{load.name}.sampled.{name.replace('_', '-')}.percent"
        metrics[key] = _metric(load.percent(part), "percent", values)
    values = load.block_percents("off", "judged")
    metrics[f"{load.name}.sampled.interrupts-off.percent"] = _metric(load.off, "percent", values)
    metrics[f"{load.name}.sampled.interrupt-interval.us"] = _metric(
        load.interrupt_interval_us, "us", ()
    )
    course = load.row["course"]
    metrics[f"{load.name}.sampled.queue-max.tasks"] = _metric(max(course["queue_max"]), "tasks", ())
    metrics[f"{load.name}.sampled.tasks-max.tasks"] = _metric(max(course["tasks"]), "tasks", ())
    return metrics


def within(ours: float, published: float) -> bool:
    """Whether a percentage is as the paper's: small where that is, else within a factor.

    >>> within(0.7, 0.1), within(1.2, 0.5), within(30, 44.1), within(20, 44.1)
    (True, False, True, False)
    """
    if published <= SMALL / 2:
        return ours < SMALL
    return published / FACTOR <= ours <= published * FACTOR


def differing(ours: Mapping[str, float], published: Mapping[str, float]) -> list[str]:
    """The differences from the paper, for people."""
    return [
        f"{name} {ours[name]:.1f} where the paper has {value:.1f}"
        for name, value in published.items()
        if not within(ours[name], value)
    ]


MACHINES = {
    "tcg": "These are shares of an emulated machine: the emulator takes far longer for an access "
    "to a device or a change of page tables than for a plain instruction, and all of it is the "
    "guest's time.",
    "kvm": "These are shares of a virtual machine: an access to a device, which leaves the guest, "
    "takes longer than on hardware.",
}


def machine_of(accelerator: str) -> str:
    """The total of which the shares are parts, for people."""
    return MACHINES.get(accelerator, "Which kind of machine these are shares of is not on record.")


def claims_of(results: Mapping[str, ObservedLoad], machine: str) -> Iterator[Claim]:
    """The paper's claims; `machine` says what shares are of."""
    yield claim_shares(results, machine)
    yield claim_off(results, machine)
    yield claim_routines(results["httpd"], machine)
    yield claim_queue(results["httpd"])


def _judged(claim_id: str, text: str, wrong: Sequence[str], more: str) -> Claim:
    note = f"Not as published: {'; '.join(wrong)}. {more}" if wrong else more
    return claims.judge(claim_id, text, {"shares not as published": len(wrong)}, note)


def claim_shares(results: Mapping[str, ObservedLoad], machine: str) -> Claim:
    ours = {
        f"{name} {part.name.lower().replace('_', ' ')}": results[name].percent(part)
        for name in LOADS
        for part in PAPER_SHARES
    }
    published = {
        f"{name} {part.name.lower().replace('_', ' ')}": values[place]
        for place, name in enumerate(LOADS)
        for part, values in PAPER_SHARES.items()
    }
    wrong = differing(ours, published)
    text = ", ".join(
        f"{results[name].percent(Part.USER):.1f}% of {name}" for name in LOADS if name != "nop"
    )
    text = f"user mode {text}; {len(ours) - len(wrong)} of {len(ours)} shares as published"
    note = (
        f"To hold, each share that the paper has above {SMALL / 2:g}% must be within a factor of "
        f"{FACTOR:g}, all others below {SMALL:g}%. {machine}"
    )
    return _judged("peek-shares", text, wrong, note)


def handler_times(load: ObservedLoad) -> str:
    """The parts of a load's top halves, for people."""
    means = [one.mean_us for one in load.routines() if one.name == TOP_HALVES and one.mean_us]
    mean = f"{means[0]:.0f} µs" if means else "no time that was seen"
    return f"{mean} under {load.name}, where one comes every {load.interrupt_interval_us:.0f} µs"


def claim_off(results: Mapping[str, ObservedLoad], machine: str) -> Claim:
    ours = {name: results[name].off for name in LOADS}
    wrong = differing(ours, dict(zip(LOADS, PAPER_OFF, strict=True)))
    text = ", ".join(f"{name} {ours[name]:.1f}%" for name in LOADS)
    times = " and ".join(handler_times(results[name]) for name in ("qsort", "make"))
    note = f"Judged as the shares are. A top half takes {times}. {machine}"
    return _judged("peek-irqoff", text, wrong, note)


def claim_routines(load: ObservedLoad, machine: str) -> Claim:
    """Top halves first, the scheduler second, and no mean time near the interval of interrupts."""
    routines = load.routines()
    by_name = {one.name: one for one in routines}
    scheduler = max(
        (by_name[name] for name in SCHEDULERS if name in by_name),
        key=lambda one: one.share,
        default=Routine("__schedule", 0.0, 0, None),
    )
    handlers = by_name.get(TOP_HALVES, Routine(TOP_HALVES, 0.0, 0, None))
    means = [one.mean_us for one in routines if one.mean_us is not None and one.share >= SMALL]
    longest = max(means, default=0.0) / load.interrupt_interval_us
    values = {
        "percent by top halves": handlers.share,
        "percent by the scheduler": scheduler.share,
        "longest mean, in intervals of interrupts,": longest,
    }
    times = ", ".join(
        f"{one.name} {one.mean_us:.1f} µs" for one in routines[:3] if one.mean_us is not None
    )
    text = (
        f"top halves {handlers.share:.1f}%, {scheduler.name} {scheduler.share:.1f}%; {times}; an "
        f"interrupt every {load.interrupt_interval_us:.0f} µs"
    )
    note = (
        "Judged by ranges: each figure may be off by a factor of 1.4, since two runs on a busy "
        "host differed by up to a factor of 2. The host stops the virtual processor, also while a "
        "routine has disabled interrupts. The paper's scheduler went through all that wanted to "
        "run with interrupts disabled; today's takes the first from a tree, and then changes the "
        "page tables, disabled as well. Allocation of memory, a sixth of the paper's disabled "
        "time, mostly does without disabling "
        f"them now. {machine}"
    )
    ranges = {name: (one / BETWEEN_RUNS, one * BETWEEN_RUNS) for name, one in values.items()}
    return claims.judge("peek-routines", text, ranges, note)


def thirds(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The first and the last third.

    >>> thirds([1.0, 1.0, 5.0, 5.0, 9.0, 11.0])
    ([1.0, 1.0], [9.0, 11.0])
    """
    third = max(len(values) // 3, 1)
    return values[:third], values[-third:]


def growth(values: Sequence[float]) -> tuple[float, float]:
    """By how much the mean of the last third exceeds that of the first: the interval at 95%. What
    follows each other is alike, so the means of blocks say how certain a mean is.

    >>> growth([1.0] * 16 + [5.0] * 16 + [7.0, 7.0, 9.0, 9.0] * 4)
    (6.26, 7.74)
    """
    first, last = thirds(values)
    difference = statistics.fmean(last) - statistics.fmean(first)
    error = 1.96 * math.hypot(_error(first), _error(last))
    return round(difference - error, 2), round(difference + error, 2)


def _error(values: Sequence[float]) -> float:
    """The standard error of a mean, by the means of blocks."""
    length = max(len(values) // BLOCKS, 1)
    starts = range(0, len(values) - length + 1, length)
    means = [statistics.fmean(values[start : start + length]) for start in starts]
    return statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0


def claim_queue(load: ObservedLoad) -> Claim:
    course = load.row["course"]
    tasks, queue = course["tasks"], course["queue"]
    longest = max(course["queue_max"])
    values = {
        "growth of processes": growth(tasks),
        "growth of the queue": growth(queue),
        "longest queue": longest,
    }
    text = (
        f"from the first to the last third of {load.seconds:.0f} s: {_grown(tasks)} processes, at "
        f"most {max(tasks):.0f}; a run queue of {_grown(queue)}, at most {longest}"
    )
    note = (
        "In brackets: the growth, with its interval at 95%. Apache adds processes, up to 150, for "
        "as long as too few are free. The requests' maker is on this machine and has a fixed "
        "number of connections: the queue cannot be longer."
    )
    return claims.judge("peek-runq", text, values, note)


def _grown(values: Sequence[float]) -> str:
    """The means of the first and of the last third, and the growth, for a sentence."""
    (low, high), (first, last) = growth(values), map(statistics.fmean, thirds(values))
    return f"{first:.1f} to {last:.1f} ({low:+.1f} to {high:+.1f})"
