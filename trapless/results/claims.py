# SPDX-License-Identifier: GPL-2.0-only
"""The papers' claims: ids, wording, published figures and what must hold, from claims.json.

claims.json is the only place that repeats what a paper published. Its `holds` says which values
must lie where for the claim to hold, as `"ratio": "<= 0.35"`; its `wanted`, by experiment, which
machine would decide what that experiment leaves open. An experiment names a claim by its id
and gives its values, its words and the note; this file alone judges.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.results.result_file import Claim

DATA = Path(__file__).parent / "claims.json"
NOT_RUN = "not run"
MADE_REAL = ("wrapped-system-call", "parallel-system-call", "running-mode-switch", "memory-peeping")
"""The four papers whose mechanisms are here; all others are related works."""


@dataclass(frozen=True)
class Published:
    """One claim of a paper, as published."""

    id: str
    paper: str
    experiment: str
    claim: str
    published: str
    holds: Mapping[str, str]
    """The bound of each value, by words for readers: "<= 0.35", "== 2", "0.3 to 0.5"; empty if no
    experiment decides the claim."""

    cannot_fail: bool = False
    """Whether what is compared here makes the claim hold, whatever is measured."""


@dataclass(frozen=True)
class Paper:
    """A paper, and the machine and kernel it was measured on."""

    name: str
    title: str
    setting: str


@cache
def _data() -> tuple[Mapping[str, Paper], Mapping[str, Published], Mapping[str, str]]:
    data = json.loads(DATA.read_text(encoding="utf-8"))
    papers = {name: Paper(name, **fields) for name, fields in data["papers"].items()}
    claims = {fields["id"]: Published(**fields) for fields in data["claims"]}
    return papers, claims, data["wanted"]


def papers() -> Mapping[str, Paper]:
    """The papers by name."""
    return _data()[0]


def published() -> Mapping[str, Published]:
    """All claims by id, in the order of the papers."""
    return _data()[1]


def cannot_fail(claim: Claim) -> bool:
    """Whether a claim can only hold here; its note says why."""
    known = published().get(claim.id)
    return known is not None and known.cannot_fail


def with_wanted(claim: Claim) -> Claim:
    """An open claim of a paper with the machine that would decide it; any other as it is."""
    known = published().get(claim.id)
    if known is None or claim.holds is not None:
        return claim
    return replace(claim, note=f"{claim.note} Wanted: {_data()[2][known.experiment]}.".lstrip())


Value = float | None | tuple[float, float]
"""A number; None, if it was never reached; or the lowest and the highest number that it may be."""
COMPARISONS = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip
SIGNS = {"<=": "≤", "==": "=", ">=": "≥"}
"""The comparisons that a page shows by another sign."""


def judge(
    claim_id: str,
    ours: str,
    values: Mapping[str, Value],
    note: str = "",
    *,
    why: str | Mapping[str, str] = "",
    biased: bool = False,
) -> Claim:
    """The claim with the verdict that its values make. `note` is added to any verdict; `why` only
    if the claim does not hold, and may have a text for each value that fails. A claim is open where
    the ends of a range are judged differently. It is also open where it does not hold by values
    that are `biased` against it: such values can confirm a claim and never refute it."""
    bounds = _claim(claim_id).holds
    if not bounds or values.keys() != bounds.keys():
        raise ValueError(f"{claim_id} is judged by {sorted(bounds)}, not by {sorted(values)}")
    verdicts = {
        name: {
            _within(end, bounds[name]) for end in (value if isinstance(value, tuple) else (value,))
        }
        for name, value in values.items()
    }
    failing = [name for name in bounds if False in verdicts[name]]
    never = any(verdicts[name] == {False} for name in failing)
    holds = None if failing and (biased or not never) else not failing
    if not isinstance(why, str):
        why = "; ".join(why[name] for name in failing)
    return _made(claim_id, ours, holds, " ".join(filter(None, (note, "" if holds else why))))


def undecided(claim_id: str, ours: str, note: str) -> Claim:
    """The claim left open, for the reason that `note` gives."""
    return _made(claim_id, ours, None, note)


def not_run(claim_id: str, why: str) -> Claim:
    """The claim left open, because what would decide it was not run."""
    return undecided(claim_id, NOT_RUN, why)


def limit(claim_id: str) -> float:
    """The number with which the one value of a claim is compared."""
    (bound,) = _claim(claim_id).holds.values()
    return float(bound.partition(" ")[2])


def reason(claim: Claim) -> str:
    """The bound within which a claim holds, and the note: what a report says behind the verdict."""
    known = published().get(claim.id)
    bounds = " and ".join(f"{name} {bound}" for name, bound in known.holds.items()) if known else ""
    for typed, printed in SIGNS.items():
        bounds = bounds.replace(typed, printed)
    return " ".join(filter(None, (f"It holds if {bounds}." if bounds else "", claim.note)))


def _within(value: float | None, bound: str) -> bool:
    """Whether a value is within a bound.

    >>> _within(0.3, "<= 0.35"), _within(0.3, "0.4 to 0.5"), _within(None, "== 2")
    (True, False, False)
    """
    if value is None:
        return False
    if found := re.fullmatch(r"(\S+) to (\S+)", bound):
        return float(found[1]) <= value <= float(found[2])
    comparison, number = bound.split()
    return bool(COMPARISONS[comparison](value, float(number)))


def _claim(claim_id: str) -> Published:
    claim = published().get(claim_id)
    if claim is None:
        raise TraplessError(
            f"no claim '{claim_id}'; there are {', '.join(published())}"
            " (trapless/results/claims.json)"
        )
    return claim


def _made(claim_id: str, ours: str, holds: bool | None, note: str) -> Claim:
    claim = _claim(claim_id)
    return Claim(claim_id, claim.paper, claim.published, ours, holds, note)
