# SPDX-License-Identifier: GPL-2.0-only
"""A report as data: the content of each experiment, from which the page and the text are made.

This file owns the parts of a report and the wording of its verdict. experiments/report_files.py
fills it from files; the page, the text and README's part use nothing else.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trapless.base.architecture import AMD64
from trapless.report import tables
from trapless.report.figures import Figure, Map, Table
from trapless.results import claims, estimated_claims
from trapless.results.estimate_file import Saved
from trapless.results.result_file import Claim, Result

DAY_CHARS, DIGEST_CHARS = len("2001-02-03"), 16


@dataclass(frozen=True)
class Section:
    """One experiment of the report."""

    name: str
    question: str
    method: str
    limits: tuple[str, ...]
    result: Result
    figures: tuple[Figure | Map, ...]
    drawn_tables: tuple[Table, ...]
    meta: Mapping[str, Any]
    remarks: tuple[str, ...] = ()  # on the saved files themselves

    @property
    def drawings(self) -> tuple[Figure | Map | Table, ...]:
        return (*self.figures, *self.drawn_tables)

    @property
    def pivots(self) -> tuple[tables.Pivot, ...]:
        return tables.pivots(self.result)

    @property
    def checks(self) -> tuple[Mapping[str, Any], ...]:
        """The self-checks that meta.json records."""
        rows = self.meta.get("checks")
        return tuple(row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        """The self-checks that did not pass."""
        return tuple(check for check in self.checks if not check.get("ok"))

    @property
    def checks_text(self) -> str:
        """One line on the self-checks."""
        if not self.checks:
            return "No self-check is recorded."
        if self.failed:
            return f"{len(self.failed)} of {len(self.checks)} self-checks FAILED."
        left_out = sum(1 for check in self.checks if check.get("left_out"))
        words = f"All {len(self.checks) - left_out} self-checks passed"
        return f"{words}; {left_out} left out." if left_out else f"{words}."

    @property
    def repeat(self) -> str:
        """The command line that makes this experiment again."""
        command = self.meta.get("command") or ["trapless", "evaluate", self.name]
        return shlex.join(map(str, command)) if isinstance(command, list) else str(command)

    @property
    def citation(self) -> str:
        """What somebody who cites a figure gives, so that others can find the same figures."""
        result = self.result
        day = str(self.meta.get("date", "an unknown day"))[:DAY_CHARS]
        version = self.meta.get("trapless", "an unknown version")
        digest = hashlib.sha256(result.to_json().encode()).hexdigest()[:DIGEST_CHARS]
        return (
            f"Linux {result.kernel} on {result.machine}; {day}, by trapless {version}: "
            f"`{self.repeat}`. `result.json` has {len(result.metrics):,} metrics "
            f"(SHA-256 {digest}...)."
        )


@dataclass(frozen=True)
class Unfinished:
    """An experiment that was started and has no result."""

    name: str
    reason: str = ""  # why it failed; empty if it was interrupted
    command: str = ""  # continues it
    place: str = ""  # where it was interrupted

    @property
    def state(self) -> str:
        """How it ended, as words to be put after its name."""
        return f"failed: {self.reason}" if self.reason else f"was not finished{self.place}."

    @property
    def go_on(self) -> str:
        """The command that continues where it stopped."""
        return self.command or f"trapless evaluate {self.name}"


WORDS = {True: "found to hold", False: "found not to hold", None: "left open"}
"""Each verdict in words."""


def _counted(found: Sequence[Claim]) -> str:
    """How many claims have each verdict, and which of those that hold could not fail."""
    held = [claim.holds for claim in found]
    counts = {words: held.count(verdict) for verdict, words in WORDS.items()}
    if sure := [claim.id for claim in found if claim.holds and claims.cannot_fail(claim)]:
        listed = f"of which {len(sure)} cannot fail here: {', '.join(sure)}"
        counts = {
            f"{words} ({listed})" if words == WORDS[True] else words: count
            for words, count in counts.items()
        }
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count)


@dataclass(frozen=True)
class Report:
    """The whole report."""

    directory: Path
    sections: tuple[Section, ...]
    unfinished: tuple[Unfinished, ...]
    decided: Mapping[str, Claim] = field(default_factory=dict)
    """Open claims by id, as other machines' clocks decide them."""

    estimate: Saved | None = None
    """What `trapless estimate` said of the machine, where that was saved beside the results."""

    @property
    def processor(self) -> str:
        """The architecture of the kernels, as `--arch` names it."""
        return next(
            (str(one.meta["architecture"]) for one in self.sections if "architecture" in one.meta),
            AMD64.name,
        )

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of all experiments; an open claim has the verdict of other machines, if there
        is one, and else says which machine is wanted."""
        every = (claim for section in self.sections for claim in section.result.claims)
        return tuple(
            claims.with_wanted(self.decided.get(claim.id, claim) if claim.holds is None else claim)
            for claim in every
        )

    @property
    def estimated(self) -> Mapping[str, Claim]:
        """The verdicts of the estimate on claims of this report, which stand beside the others."""
        found = estimated_claims.judged(self.estimate)
        return {claim.id: found[claim.id] for claim in self.claims if claim.id in found}

    def verdict(self, *, is_short: bool = False) -> str:
        """One sentence on the papers' claims; the long form goes on to related works and to the
        estimate."""
        held = [claim.holds for claim in self.claims]
        if not held:
            return "No claim of a paper is decided by these experiments."
        if len(held) == 1:
            return (
                f"One published claim is tested here: it is {WORDS[held[0]]}.{self._by_estimate()}"
            )
        ours = [claim for claim in self.claims if claim.paper in claims.MADE_REAL]
        others = [claim for claim in self.claims if claim.paper not in claims.MADE_REAL]
        if is_short and ours:
            return f"{len(ours)} claims of the four papers are tested here: {_counted(ours)}."
        if not ours or not others:
            return f"{len(held)} published claims are tested here: {_counted(self.claims)}." + (
                self._by_estimate()
            )
        return (
            f"{len(ours)} claims of the four papers are tested here: {_counted(ours)}. Claims of "
            f"related works: {_counted(others)}.{self._by_estimate()}"
        )

    def _by_estimate(self) -> str:
        found = self.estimated
        if not found:
            return ""
        held = [claim.holds for claim in found.values()]
        decided = [
            f"{claim.id} {'holds' if found[claim.id].holds else 'does not hold'}"
            for claim in self.claims
            if claim.id in found and claim.holds is None and found[claim.id].holds is not None
        ]
        open_ones = f"{len(decided)} of the claims that are left open: {', '.join(decided)}"
        return (
            f" By an estimate of time, in a column of its own, {held.count(True)} of {len(found)} "
            f"claims hold, {held.count(False)} do not, and {held.count(None)} stay open. It "
            f"decides {open_ones if decided else 'none of the claims that are left open'}."
        )
