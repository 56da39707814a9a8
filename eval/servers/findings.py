# SPDX-License-Identifier: GPL-2.0-only
"""Makes figures a request of a server's counts: what its crossings are, what supervisor mode saves
and would save, and what a batch could take away.

This file owns the arithmetic; the terms of a prediction and all modelled clocks are those of
`trapless stat` (trapless/stat/costs.py, run_report.py). server_results.py owns words and digits.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trapless.experiments import fit
from trapless.experiments.collection import Row
from trapless.experiments.fit import Interval
from trapless.stat import costs
from trapless.stat.run_counts import MODES, Loop, RunCounts
from trapless.stat.run_report import Report, calls_apart, did_the_same

NEAR = 0.2
"""How near a prediction has to be to the count."""


def _of_program(turn: Loop) -> int:
    return turn.instructions - turn.features["kernel"]


@dataclass(frozen=True)
class Pair:
    """Two turns that follow each other, one in each mode."""

    trap: Loop
    supervisor: Loop

    @property
    def saved(self) -> int:
        """Instructions of the kernel. The program itself executes the same in both modes, except
        for work of its own: to collect garbage, to wait in a loop, to serve a timer.
        """
        return self.trap.features["kernel"] - self.supervisor.features["kernel"]

    @property
    def program_apart(self) -> float:
        """By which share more the program itself executed in the turn in supervisor mode."""
        return _of_program(self.supervisor) / _of_program(self.trap) - 1

    @property
    def calls_apart(self) -> float:
        """By which share of its calls the turn in supervisor mode made more."""
        return calls_apart(self.trap, self.supervisor)

    @property
    def did_the_same(self) -> bool:
        return did_the_same(self.trap, self.supervisor)


@dataclass(frozen=True)
class Counted:
    """One server under one load: the run by turns, and of some the one under the model."""

    server: str
    version: str
    load: str
    words: str  # of the load, for people
    requests: int
    turns: RunCounts
    modelled: RunCounts | None

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs."""
        trap, supervisor = (self.turns.repeats[mode] for mode in MODES)
        return tuple(Pair(one, other) for one, other in zip(trap, supervisor, strict=True))

    @cached_property
    def alike(self) -> tuple[Pair, ...]:
        """Pairs whose turns did the same work."""
        return tuple(pair for pair in self.pairs if pair.did_the_same)

    @property
    def did_the_same(self) -> bool:
        """Whether the turns of most pairs did the same work; otherwise no saving is reported."""
        return 2 * len(self.alike) > len(self.pairs)

    @cached_property
    def saved(self) -> Interval:
        """Instructions a request that supervisor mode saved in the kernel: the median of the pairs
        that did the same work, and where it lies at 95%."""
        each = [pair.saved / self.requests for pair in self.alike]
        if len(each) < fit.SAMPLES_MIN:
            return Interval(statistics.median(each), min(each), max(each), len(each))
        return fit.confidence(each)

    @cached_property
    def predicted(self) -> float:
        """The same from turns in user mode and the loops of the same boot; their median."""
        turns = [pair.trap for pair in self.alike or self.pairs]
        savings = [costs.supervisor_saving(self.turns, turn) for turn in turns]
        if None in savings:
            raise ValueError(f"{self.server}: supervisor mode was not calibrated")
        return statistics.median(one.instructions for one in savings if one) / self.requests

    @property
    def error(self) -> float:
        """By how much the prediction is above what was saved."""
        saved = self.saved.median
        return self.predicted / saved - 1 if saved > 0 else float("inf")

    @property
    def is_near(self) -> bool:
        """Whether the prediction is near to what was counted."""
        return abs(self.error) <= NEAR

    @property
    def is_predicted(self) -> bool:
        """Whether the prediction is near, or within the interval of the pairs."""
        return self.is_near or self.saved.low <= self.predicted <= self.saved.high

    @property
    def own_turns_apart(self) -> float:
        """By how many of the kernel's instructions a request the turns by trap differ."""
        turns = [turn.features["kernel"] for turn in self.turns.repeats["trap"]]
        return (max(turns) - min(turns)) / self.requests

    @property
    def sleeps(self) -> tuple[int, int]:
        """The fewest and the most sleeps of a turn, of either mode."""
        turns = [turn.features for mode in MODES for turn in self.turns.repeats[mode]]
        sleeps = [turn["slept_out"] + turn["slept_within"] for turn in turns]
        return min(sleeps), max(sleeps)

    def each(self, mode: str, feature: str) -> float:
        """How often an event happened a request, in that mode; the median of its turns."""
        turns = self.turns.repeats[mode]
        return statistics.median(turn.features[feature] for turn in turns) / self.requests

    def instructions(self, mode: str) -> dict[str, float]:
        """Instructions a request in user mode and in the kernel; medians of the mode's turns."""
        turns = self.turns.repeats[mode]
        kernel = statistics.median(turn.features["kernel"] for turn in turns)
        total = statistics.median(turn.instructions for turn in turns)
        return {"user": (total - kernel) / self.requests, "kernel": kernel / self.requests}

    @property
    def total(self) -> float:
        """Instructions a request by trap."""
        return sum(self.instructions("trap").values())

    @cached_property
    def batch_saves(self) -> float:
        """Instructions a request that batches would take away at most, if each call of the server
        waited for 31 others."""
        loops = self.turns.loops
        nothing, calls, batches = (loops[name]["trap"] for name in ("nothing", "calls", "batches"))
        number = calls.features["syscall"] - nothing.features["syscall"]
        each = (calls.instructions - batches.instructions) / number
        return each * self.each("trap", "syscall")

    @cached_property
    def report(self) -> Report | None:
        """The report of the run under the model."""
        return None if self.modelled is None else Report(self.modelled)

    def shares(self, processor: str) -> Mapping[str, float]:
        """Of the modelled clocks: what crossings cost directly and by pollution, and what batches
        would take away at most."""
        assert self.report is not None
        clocks = self.report.clocks(processor)
        batch = next(m for m in self.report.mechanisms if m.name.startswith("batches"))
        parts = {
            "direct": clocks.direct.middle,
            "pollution": clocks.pollution.middle,
            "batch-at-most": batch.clocks[processor].middle,
        }
        return {name: part / clocks.total.middle for name, part in parts.items()}


def counted_of(rows: Sequence[Row]) -> tuple[Counted, ...]:
    """All that was counted, in the order of the rows that say what; ValueError where a run is
    missing or failed."""
    runs = {str(row["run"]): row for row in rows if "counted" in row}
    counted = []
    for about in (row for row in rows if "load" in row):
        label = f"{about['server']}-{about['load']}"
        if label not in runs:
            raise ValueError(f"{label} was not counted")
        turns = RunCounts.of_json(runs[label]["counted"])
        model = runs.get(f"{label}-modelled")
        check(label, turns, str(runs[label]["proof"]), int(about["requests"]))
        counted.append(
            Counted(
                str(about["server"]),
                str(about["version"]),
                str(about["load"]),
                str(about["words"]),
                int(about["requests"]),
                turns,
                RunCounts.of_json(model["counted"]) if model else None,
            )
        )
    if not counted:
        raise ValueError("no server was counted")
    return tuple(counted)


def check(label: str, turns: RunCounts, proof: str, requests: int) -> None:
    """All loads were answered, and half of the turns made calls in supervisor mode."""
    if proof != f"{requests} replies, each compared":
        raise ValueError(f"{label}: '{proof}' and not {requests} replies")
    if turns.status:
        raise ValueError(f"{label}: the load ended with status {turns.status}")
    if turns.calls is None or not turns.calls.direct:
        raise ValueError(f"{label} made no call in supervisor mode")
    if len({len(turns.repeats.get(mode, ())) for mode in MODES}) != 1:
        raise ValueError(f"{label} did not run as often in both modes")
