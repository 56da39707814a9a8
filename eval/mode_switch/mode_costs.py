# SPDX-License-Identifier: GPL-2.0-only
"""Computes what a call costs from rows of the workload: a loop less the empty loop of the same
length.

This file owns the arithmetic on counted rows that part_calls.py, switches.py and
modelled_clocks.py share; no judgement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trapless.experiments.collection import Row
from trapless.model.trap_clocks import Counts

ABSENT, SUPERVISOR = "trap", "supervisor"
BACK = "trap-back"
"""By trap, after coming back from supervisor mode."""
PAPER_CALLS = ("getpid", "sbrk", "read", "write")
EMPTY = "empty"
NOT_OFFERED = "supervisor mode was not offered here; a row of the raw data says why"


@dataclass(frozen=True)
class Key:
    """The subject of a run: a call, its form, and the state of the machine."""

    call: str
    form: str
    mechanism: str

    def by(self, mechanism: str) -> Key:
        return replace(self, mechanism=mechanism)

    def linked(self, form: str) -> Key:
        return replace(self, form=form)


@dataclass(frozen=True)
class Cost:
    """Instructions of one call: the smallest of `n` repeats, and how far they lie apart."""

    least: float
    spread: float
    n: int


def samples(rows: Sequence[Row]) -> dict[Key, list[int]]:
    """Counted runs as they are; the name of an empty loop carries its length."""
    runs: dict[Key, list[int]] = {}
    for row in rows:
        if row.get("kind") == "counted" and "mechanism" in row:
            call = row["call"] if row["call"] != EMPTY else f"{EMPTY}{row['ops']}"
            key = Key(call, row["form"], row["mechanism"])
            runs.setdefault(key, []).append(row["value"])
    return runs


def calls(rows: Sequence[Row]) -> dict[Key, Cost]:
    """Cost of one call. Bare calls are in the boots of both links: the repeats of all count."""
    lengths = {
        (row["call"], row["form"]): row["ops"]
        for row in rows
        if row.get("kind") == "counted" and "mechanism" in row
    }
    runs = samples(rows)
    costs = {}
    for key, values in runs.items():
        if key.call.startswith(EMPTY):
            continue
        ops = lengths[key.call, key.form]
        empty = min(runs[replace(key, call=f"{EMPTY}{ops}")])
        costs[key] = Cost(
            (min(values) - empty) / ops, (max(values) - min(values)) / ops, len(values)
        )
    return costs


def saved(costs: Mapping[Key, Cost]) -> dict[str, float]:
    """ "call, form" -> instructions that supervisor mode saves; every call in every form."""
    return {
        f"{key.call}, {key.form}": costs[key.by(ABSENT)].least - cost.least
        for key, cost in costs.items()
        if key.mechanism == SUPERVISOR and key.by(ABSENT) in costs
    }


def counts(costs: Mapping[Key, Cost], form: str) -> dict[str, Counts]:
    """call -> instructions in both modes, of calls that were counted in both."""
    return {
        key.call: Counts(cost.least, costs[key.by(SUPERVISOR)].least)
        for key, cost in costs.items()
        if key.mechanism == ABSENT and key.form == form and key.by(SUPERVISOR) in costs
    }


def transitions(row: Row) -> float:
    """A call begun in user mode enters by one change, one that ends there leaves by one; so does
    the return from each interrupt that found the program in supervisor mode."""
    demoted = row["demotions"]
    return float((row["begun_user"] + row["ended_user"] + demoted) / row["calls"])
