# SPDX-License-Identifier: GPL-2.0-only
"""Modelled clocks: what counted instructions, and the published cost of a trap, make of a call.

The model is that of the mode-switch paper: a call by trap costs its instructions and, the same for
all calls, the transition; a call in supervisor mode its instructions alone. Every result is an
estimate over a range of clocks an instruction. Owns the model and how processor tables are read;
the tables, each figure with its source, are eval/tools/common/processors/NAME.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trapless.base.console import TraplessError
from trapless.base.paths import repo_root


@dataclass(frozen=True)
class Range:
    """A published figure, from `low` to `high`."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Case:
    """A processor as it was set up when somebody measured it.

    Either `saved`, what a call without a trap was found to save; or `trap`, what one `call` by trap
    took. `pti`: page tables were isolated then; supervisor mode is refused until they are not.
    """

    id: str
    text: str
    source: str
    note: str
    saved: Range | None = None
    trap: Range | None = None
    call: str = ""
    pti: bool = False


@dataclass(frozen=True)
class Processor:
    """One table. `cpi`: the clocks an instruction that the model is tried with."""

    id: str
    name: str
    cpi: tuple[float, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Counts:
    """Instructions of one piece of work in both modes, and the system calls that are in it."""

    trap: float
    supervisor: float
    calls: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """Modelled clocks, at both ends of the published range."""

    trap: Range
    supervisor: float

    @property
    def ratio(self) -> Range:
        """Supervisor mode to trap; the dearer the trap, the smaller."""
        return Range(self.supervisor / self.trap.high, self.supervisor / self.trap.low)


def folder() -> Path:
    """Where the tables are."""
    return repo_root() / "eval" / "tools" / "common" / "processors"


@cache
def processors() -> Mapping[str, Processor]:
    """All tables by id, in the order of their files' names."""
    return {path.stem: load(path) for path in sorted(folder().glob("*.json"))}


def load(path: Path) -> Processor:
    """One table; a TraplessError names what is missing in it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        cases = tuple(_case(fields) for fields in data["cases"])
        return Processor(path.stem, data["name"], tuple(map(float, data["cpi"])), cases)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraplessError(f"{path}: not a table of a processor: {error}") from error


def _case(fields: Mapping[str, Any]) -> Case:
    def clocks(key: str) -> Range | None:
        return Range(*map(float, fields[key])) if key in fields else None

    saved, trap = clocks("saved_clocks"), clocks("call_clocks")
    if (saved is None) == (trap is None) or (trap is not None) != ("call" in fields):
        raise ValueError(
            f"case {fields.get('id')}: either saved_clocks, or call and call_clocks, are needed"
        )
    return Case(
        id=str(fields["id"]),
        text=str(fields["text"]),
        source=str(fields["source"]),
        note=str(fields["note"]),
        saved=saved,
        trap=trap,
        call=str(fields.get("call", "")),
        pti=bool(fields.get("pti", False)),
    )


def estimate(case: Case, cpi: float, work: Counts, references: Mapping[str, Counts]) -> Estimate:
    """Clocks of `work` in both modes at so many clocks an instruction.

    `references`: counts of single calls by name; those that published figures are about.

    >>> saves = Case("x", "", "", "", saved=Range(800, 900))
    >>> estimate(saves, 2, Counts(300, 100), {}).trap
    Range(low=1000.0, high=1100.0)
    >>> takes = Case("x", "", "", "", trap=Range(150, 150), call="nosys")
    >>> estimate(takes, 0.5, Counts(300, 100), {"nosys": Counts(240, 40)}).trap
    Range(low=180.0, high=180.0)
    """
    supervisor = work.supervisor * cpi
    if case.saved is not None:
        low, high = (supervisor + work.calls * saved for saved in (case.saved.low, case.saved.high))
        return Estimate(Range(low, high), supervisor)
    if case.trap is None:
        raise ValueError(f"case {case.id} says nothing about what a trap costs")
    # A transition is what the published call takes beyond its instructions.
    instructions = references[case.call].trap * cpi
    low, high = (
        work.trap * cpi + work.calls * (clocks - instructions)
        for clocks in (case.trap.low, case.trap.high)
    )
    return Estimate(Range(low, high), supervisor)


def possible(case: Case, cpi: float, references: Mapping[str, Counts]) -> bool:
    """Whether a call's instructions alone do not take longer than the whole call was found to."""
    return case.trap is None or references[case.call].trap * cpi <= case.trap.high


def largest_cpi(case: Case, work: Counts, ratio: float) -> float:
    """Up to how many clocks an instruction the ratio stays at or below `ratio`, where each call
    saves so many clocks, at the lower end of what was published."""
    if case.saved is None:
        raise ValueError(f"case {case.id} does not say what a call saves")
    return case.saved.low * work.calls * ratio / ((1 - ratio) * work.supervisor)


def parameter(processor: Processor, case: Case, cpi: float) -> str:
    """The part of a metric's name that says what was modelled: pentium-4_int_cpi100."""
    return f"{processor.id}_{case.id}_cpi{round(100 * cpi):03d}"
