# SPDX-License-Identifier: GPL-2.0-only
"""Claims of the papers as an estimate decides them (`trapless estimate`): ratios of times that
plain calls and traps of a machine's own kernel, and the module's loop in user space, make up.

Such a verdict stands beside that of an experiment, and never in its place. claims.py judges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from trapless.results import claims
from trapless.results.claims import Value
from trapless.results.estimate_file import Range, Saved
from trapless.results.result_file import Claim

MODES = {"dms-getpid": "getpid", "dms-sbrk": "brk", "dms-read": "pread1", "dms-write": "pwrite1"}
"""The estimate's calls that stand for those of the paper on supervisor mode."""
HANDLED_FROM = 10.0
"""In a virtual machine an INT that takes so many plain calls goes through the hypervisor."""
HANDLED = (
    "An INT leaves this virtual machine for its hypervisor, so its time is not the processor's."
)
UNSTEADY = "The bound lies within the interval of what was measured."
WITHIN = "The bound lies within the range: what `syscall` takes of a trap cannot be measured alone."
CHEAPER = "A trap costs this processor less, beside the call's own work, than the paper's."


def judged(estimate: Saved | None) -> Mapping[str, Claim]:
    """The claims by id; none without an estimate, or where it lacks what a claim is about."""
    found = _all(estimate) if estimate else ()
    return {claim.id: claim for claim in found}


def _all(estimate: Saved) -> Iterator[Claim]:
    if plain := estimate.calls.get("getpid"):
        yield _batches("wsc-sysenter", plain.saved)
        if estimate.by_int:
            yield from _by_int(estimate, plain.plain, *estimate.by_int)
    yield _saving(estimate)
    for claim_id, name in MODES.items():
        if call := estimate.calls.get(name):
            least, most = estimate.supervisor_saves
            ratio = 1 - most / call.plain.low, 1 - least / call.plain.high
            ours = f"{ratio[0]:.0%} to {ratio[1]:.0%} of the time ({call.title})"
            yield _judged(claim_id, ours, {"ratio": ratio}, CHEAPER, WITHIN)


def _by_int(
    estimate: Saved, plain: Range, by_int: Range, saved: Mapping[int, Range]
) -> Iterator[Claim]:
    ratio = plain.low / by_int.high, plain.high / by_int.low
    if estimate.hypervisor and by_int.ns > HANDLED_FROM * plain.ns:
        ours = f"getpid takes {plain.ns:,.0f} ns, and {by_int.ns:,.0f} ns by INT"
        yield claims.undecided("wsc-int", ours, HANDLED)
        yield claims.undecided("wsc-fast-trap", ours, HANDLED)
        return
    yield _batches("wsc-int", saved)
    why = "Today's INT trap costs this processor less, beside SYSCALL, than the paper's did."
    ours = f"{ratio[0]:.2f} to {ratio[1]:.2f} of the time"
    yield _judged("wsc-fast-trap", ours, {"ratio": ratio}, why, UNSTEADY)


def _batches(claim_id: str, saved: Mapping[int, Range]) -> Claim:
    """From which N batches win: possibly, and beyond doubt."""
    possible = next((n for n, value in saved.items() if value.high > 0), math.inf)
    certain = next((n for n, value in saved.items() if value.low > 0), math.inf)
    least, most = ("never" if n == math.inf else f"N = {n}" for n in (possible, certain))
    earlier = certain < claims.limit(claim_id)
    why = (
        "Storing and fetching a request cost little beside this processor's trap: a smaller N wins."
        if earlier
        else "A trap costs this processor less, beside a request, than the paper's."
    )
    ours = least if possible == certain else f"{least} or {most}"
    return _judged(claim_id, ours, {"N": (possible, certain)}, why, UNSTEADY)


def _saving(estimate: Saved) -> Claim:
    least, most = estimate.supervisor_saves
    clocks = least * estimate.clock_ghz, most * estimate.clock_ghz
    ours = f"{clocks[0]:.0f} to {clocks[1]:.0f} clocks a call"
    why = f"A whole trap takes this processor {estimate.trap.ns * estimate.clock_ghz:.0f} clocks."
    values = {"fewest clocks saved": clocks, "most clocks saved": clocks}
    return _judged("dms-saving", ours, values, why, WITHIN)


def _judged(
    claim_id: str, ours: str, values: Mapping[str, Value], why: str, why_open: str
) -> Claim:
    claim = claims.judge(claim_id, ours, values, why=why)
    return replace(claim, note=why_open) if claim.holds is None else claim
