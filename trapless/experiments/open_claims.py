# SPDX-License-Identifier: GPL-2.0-only
"""Claims that the lab leaves open for want of a processor's clocks, decided by results with clocks.

Such results are folders of machines: in the folder of the lab's results, or beside it where both
are in a folder called `results`. This file owns where they are looked for, and the verdict where
several machines decided the same claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.experiments.experiment import OWN_KERNEL, names
from trapless.results import result_file
from trapless.results.result_file import Claim, Result

TOGETHER = "results"


def decided(directory: Path) -> Mapping[str, Claim]:
    """Claim id -> the claim as clocks decide it, with the machine in its words."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for result in _results(directory):
        for claim in result.claims:
            if claim.holds is not None:
                found[claim.id].append(_on(claim, result.machine))
    return {claim_id: _together(claims) for claim_id, claims in found.items()}


def _results(directory: Path) -> Iterator[Result]:
    """Results that a machine's own kernel made, of other folders than `directory` itself."""
    own = directory.resolve()
    places = [own, own.parent] if own.parent.name == TOGETHER else [own]
    for place in places:
        for name in names():
            for path in sorted(place.glob(f"*/{name}/{result_file.FILE_NAME}")):
                if path.parent.parent == own:
                    continue
                try:
                    result = result_file.load(path)
                except TraplessError:  # its own report says what is wrong with it
                    continue
                if result.accelerator == OWN_KERNEL:
                    yield result


def _on(claim: Claim, machine: str) -> Claim:
    return replace(claim, ours=f"{claim.ours}, on {machine}")


def _together(claims: list[Claim]) -> Claim:
    """One claim of several machines; open where they disagree."""
    ours = "; ".join(claim.ours for claim in claims)
    if len({claim.holds for claim in claims}) == 1:
        return replace(claims[0], ours=ours)
    return replace(claims[0], ours=ours, holds=None, note="Undecided: the machines disagree.")
