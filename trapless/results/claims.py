# SPDX-License-Identifier: GPL-2.0-only
"""The papers' claims: ids, wording and published figures, from claims.json.

An experiment names a claim by its id and adds its own result. claims.json is the only place that
repeats what a paper published. The experiments judge claims; this file does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.results.result_file import Claim

DATA = Path(__file__).parent / "claims.json"


@dataclass(frozen=True)
class Published:
    """One claim of a paper, as published."""

    id: str
    paper: str
    experiment: str
    claim: str
    published: str


@dataclass(frozen=True)
class Paper:
    """A paper, and the machine and kernel it was measured on."""

    name: str
    title: str
    setting: str


@cache
def _data() -> tuple[Mapping[str, Paper], Mapping[str, Published]]:
    data = json.loads(DATA.read_text(encoding="utf-8"))
    papers = {name: Paper(name, **fields) for name, fields in data["papers"].items()}
    claims = {fields["id"]: Published(**fields) for fields in data["claims"]}
    return papers, claims


def papers() -> Mapping[str, Paper]:
    """The papers by name."""
    return _data()[0]


def published() -> Mapping[str, Published]:
    """All claims by id, in the order of the papers."""
    return _data()[1]


def make(claim_id: str, ours: str, holds: bool | None, note: str = "") -> Claim:
    """The claim `claim_id` with the result of an experiment; `note` says why it does not hold."""
    claim = published().get(claim_id)
    if claim is None:
        raise TraplessError(
            f"no claim '{claim_id}'; there are {', '.join(published())}"
            " (trapless/results/claims.json)"
        )
    return Claim(claim_id, claim.paper, claim.published, ours, holds, note)
