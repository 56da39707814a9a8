# SPDX-License-Identifier: GPL-2.0-only
"""Models the clocks of single calls: counted instructions, and the published cost of a trap.

The model is that of the mode-switch paper. A call by trap costs its instructions and a transition,
which is the same for all calls; a call in supervisor mode costs its instructions alone. Every
result is modelled, over a range of clocks per instruction. What the published calls took is in
the processors' files (processors.py); clocks.py adds up work whose cache misses are counted, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trapless.model.clocks import total
from trapless.model.processors import Case, Processor, Range


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
        """The ratio of supervisor mode to a trap: the dearer the trap, the smaller it is."""
        return Range(self.supervisor / self.trap.high, self.supervisor / self.trap.low)


def estimate(case: Case, cpi: float, work: Counts, references: Mapping[str, Counts]) -> Estimate:
    """The clocks of `work` in both modes, at so many clocks per instruction.

    `references`: counts of the calls, by name, that published figures are about.

    >>> saves = Case("x", "", "", "", saved=Range(800, 900))
    >>> estimate(saves, 2, Counts(300, 100), {}).trap
    Range(low=1000.0, high=1100.0)
    >>> takes = Case("x", "", "", "", trap=Range(150, 150), call="nosys")
    >>> estimate(takes, 0.5, Counts(300, 100), {"nosys": Counts(240, 40)}).trap
    Range(low=180.0, high=180.0)
    """
    supervisor = work.supervisor * cpi
    if case.saved is not None:
        # The published saving includes all that the trap adds, also its instructions.
        instructions, transition = work.supervisor, case.saved
    elif case.trap is not None:
        # A transition is what the published call takes beyond its instructions.
        own = references[case.call].trap * cpi
        instructions, transition = work.trap, Range(case.trap.low - own, case.trap.high - own)
    else:
        raise ValueError(f"case {case.id} says nothing about what a trap costs")
    counts = {"instruction": instructions, "trap": work.calls}
    low, high = (
        total(counts, {"instruction": cpi, "trap": clocks})
        for clocks in (transition.low, transition.high)
    )
    return Estimate(Range(low, high), supervisor)


def possible(case: Case, cpi: float, references: Mapping[str, Counts]) -> bool:
    """Whether the published call's instructions alone take no longer than the whole call did."""
    return case.trap is None or references[case.call].trap * cpi <= case.trap.high


def largest_cpi(case: Case, work: Counts, ratio: float) -> float:
    """The clocks per instruction up to which supervisor mode takes at most `ratio` of the time by
    trap, if each call saves the lower end of what was published."""
    if case.saved is None:
        raise ValueError(f"case {case.id} does not say what a call saves")
    return case.saved.low * work.calls * ratio / ((1 - ratio) * work.supervisor)


def parameter(processor: Processor, case: Case, cpi: float) -> str:
    """The part of a metric's name that names what was modelled: pentium-4_int_cpi100."""
    return f"{processor.id}_{case.id}_cpi{round(100 * cpi):03d}"
