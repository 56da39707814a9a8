# SPDX-License-Identifier: GPL-2.0-only
"""What one run was found to do: the model's rows, added up by whose work they are.

Owns the meaning of labels (stat/kmod/trapless_stat.c and stat/guest/ make them) and a form that
goes to JSON and back. Everything that is shown is made of it alone; it judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from trapless.abi import Demotion
from trapless.base.console import TraplessError
from trapless.model import rows
from trapless.model.plan import Plan, Variant
from trapless.model.rows import Recording, Row
from trapless.supervisor.control import Calls

OTHER, PROGRAM, IDLE = 0, 1, 2
"""The lowest four bits of a label."""

APART = 5
"""The same in a phase: a loop that says what calls cost, or one of several runs of the program."""

FACT = 15
"""An empty region, whose label carries a number: value, then what it is, then this."""

STATUS, LEFT_RUNNING, WORKED, REFUSALS = 0xFF0, 0xFF1, 0xFF2, 0xFF3
CALLS, DEMOTIONS = 0xFE0, 0xFD0
UNANSWERED = (1 << 48) - 1
"""Refusals where no module could be asked."""

EVENTS = (
    "forks", "execs", "exits", "signals", "page_faults", "slept_out", "slept_within", "preempted",
)  # fmt: skip
"""What the module counts, in its order. The last three are calls in which a thread slept (and the
processor went to others, or stayed within the program), or that ended with another's turn."""

LOOPS = (
    "nothing", "calls", "batches", "faults", "double_faults", "kernel_faults", "handed", "closes",
    "sleeps", "preemptions", "sleeps_within", "forks", "execs",
)  # fmt: skip
"""As in stat/guest/calibrate.c."""

CROSSINGS = ("syscall", "interrupt", "syscall_interrupted", "iret_kernel")
"""Of the ledger, what loops are compared by."""

PHASE_CALIBRATION, PHASE_LOOPS, PHASE_SUPERVISOR = 0x80, 15, 0x40
"""Bits of a phase; stat/guest/calibrate.c."""
TURN_SUPERVISOR = 1
"""In a phase that is no calibration's; above it is the number of the turn. stat/guest/main.c."""
MODES = ("trap", "supervisor")


@dataclass(frozen=True)
class Loop:
    """One loop of the calibration in one mode, or one of several runs of the program: its
    instructions, and what else it did."""

    instructions: int
    features: Mapping[str, int]


@dataclass(frozen=True)
class Counted:
    """A run. `program`, `others` and `idle`: the model's columns, added up.

    `loops`: by name and mode ("trap", "supervisor"). Where the program ran by turns, `repeats` has
    each of its runs, by mode in their order, and `program` has none; `calls` and `demotions` are
    the module's, of all those in supervisor mode.
    """

    release: str
    processors: tuple[str, ...]
    columns: tuple[str, ...]
    program: tuple[int, ...]
    others: tuple[int, ...]
    idle: tuple[int, ...]
    turns: int  # times that the program came onto the processor
    status: int
    left_running: bool
    worked: int  # calls that found work on their way out, in an uncounted run
    refusals: int
    events: Mapping[str, int]
    loops: Mapping[str, Mapping[str, Loop]]
    repeats: Mapping[str, tuple[Loop, ...]] = field(default_factory=dict)
    warm: int = 0  # times that it, or its load, had run before
    served: bool = False  # a server under load
    complaints: tuple[str, ...] = ()  # of the model
    calls: Calls | None = None
    demotions: Mapping[str, int] = field(default_factory=dict)

    @property
    def row(self) -> Row:
        """The program's counts."""
        return self._row(PROGRAM, self.program)

    @property
    def rows(self) -> Mapping[str, Row]:
        """The counts of each group by name."""
        return {
            "program": self.row,
            "others": self._row(OTHER, self.others),
            "idle": self._row(IDLE, self.idle),
        }

    @property
    def instructions(self) -> int:
        """Of the program, in both modes."""
        return _instructions(self.row)

    def _row(self, label: int, counts: tuple[int, ...]) -> Row:
        places = {name: place for place, name in enumerate(self.columns)}
        return Row(label, 0, counts, places)

    def joined(self, other: Counted) -> Counted:
        """With the repeats of another boot behind its own."""
        ran = {mode: self.repeats.get(mode, ()) + other.repeats.get(mode, ()) for mode in MODES}
        causes = {
            cause: number + other.demotions.get(cause, 0)
            for cause, number in self.demotions.items()
        }
        calls = self.calls
        if calls is not None and other.calls is not None:
            both = zip(astuple(calls), astuple(other.calls), strict=True)
            calls = Calls(*(one + another for one, another in both))
        return replace(self, repeats=ran, calls=calls, demotions=causes)

    def as_json(self) -> dict[str, Any]:
        """All of it, for a file."""
        made = dict(vars(self))
        made["loops"] = {
            name: {mode: vars(loop) for mode, loop in modes.items()}
            for name, modes in self.loops.items()
        }
        made["repeats"] = {mode: [vars(one) for one in ran] for mode, ran in self.repeats.items()}
        made["calls"] = None if self.calls is None else vars(self.calls)
        return made

    @classmethod
    def of_json(cls, made: Mapping[str, Any]) -> Counted:
        """What as_json() made."""
        loops = {
            name: {mode: Loop(**loop) for mode, loop in modes.items()}
            for name, modes in made["loops"].items()
        }
        repeats = {
            mode: tuple(Loop(**one) for one in ran) for mode, ran in made.get("repeats", {}).items()
        }
        calls = None if made["calls"] is None else Calls(**made["calls"])
        tuples = ("processors", "columns", "program", "others", "idle", "complaints")
        plain = {name: tuple(made[name]) for name in tuples}
        return cls(**{**made, **plain, "loops": loops, "repeats": repeats, "calls": calls})


LEAST = f"footprint code unit=4096 from=fetch label={PROGRAM}"
"""The model wants a structure: its cheapest, for where nothing but instructions is asked for."""


def plan_of(processors: tuple[str, ...]) -> Plan:
    """What is modelled: each processor as it is, and with its caches and TLBs split by mode.

    Without processors there are neither misses nor footprints, only instructions and crossings.
    """
    if not processors:
        return Plan((), {}, (LEAST,))
    variants = [Variant(name, split=split) for name in processors for split in (False, True)]
    return Plan.of(variants, footprint_of=PROGRAM)


def read(path: Path, release: str, processors: tuple[str, ...]) -> Counted:
    """Add up the rows of a run; a TraplessError where it was not counted to its end."""
    found = rows.add_up(path, _group)
    facts = {row.label >> 4 & 0xFFF: row.label >> 16 for row in found.rows if _is_fact(row.label)}
    if STATUS not in facts:
        raise TraplessError("the run was not counted to its end: its rows have no last one")
    groups = {row.label: row for row in found.rows}
    calls = [facts[CALLS + n] for n in range(4) if CALLS + n in facts]
    return Counted(
        release=release,
        processors=processors,
        columns=found.columns,
        program=_counts(groups, PROGRAM, found),
        others=_counts(groups, OTHER, found),
        idle=_counts(groups, IDLE, found),
        turns=groups[PROGRAM].number if PROGRAM in groups else 0,
        status=facts[STATUS],
        left_running=bool(facts[LEFT_RUNNING]),
        worked=facts[WORKED],
        refusals=facts[REFUSALS],
        complaints=tuple(dict.fromkeys(found.events)),
        events=_events(facts, 0),
        loops=_loops(groups, facts),
        repeats=_repeats(groups, facts),
        calls=Calls(*calls) if calls else None,
        demotions={
            cause.name.lower(): facts[DEMOTIONS + cause]
            for cause in Demotion
            if DEMOTIONS + cause in facts
        },
    )


def _is_fact(label: int) -> bool:
    return label & 15 == FACT


def _group(label: int) -> int:
    """Facts stay as they are; slices go by phase and by whose they are."""
    return label if _is_fact(label) else label & 0xFFF


def _counts(groups: Mapping[int, Row], label: int, found: Recording) -> tuple[int, ...]:
    return groups[label].counts if label in groups else (0,) * len(found.columns)


def _events(facts: Mapping[int, int], phase: int) -> dict[str, int]:
    return {name: facts.get(16 * phase + place, 0) for place, name in enumerate(EVENTS)}


def _instructions(row: Row) -> int:
    return row["user.instructions"] + row["kernel.instructions"]


def _phases(groups: Mapping[int, Row], facts: Mapping[int, int]) -> Iterator[tuple[int, Loop]]:
    """What the program, or the loops in its place, did in each phase but its own."""
    for label in sorted(groups):
        if _is_fact(label) or label & 15 != APART:
            continue
        row, phase = groups[label], label >> 4
        crossings = row.crossings()
        features = {kind: crossings[kind] for kind in CROSSINGS} | _events(facts, phase)
        yield phase, Loop(_instructions(row), features)


def _loops(groups: Mapping[int, Row], facts: Mapping[int, int]) -> dict[str, dict[str, Loop]]:
    """Of each loop in each mode the round with the fewest instructions."""
    best: dict[str, dict[str, Loop]] = {}
    for phase, loop in _phases(groups, facts):
        if not phase & PHASE_CALIBRATION:
            continue
        mode = MODES[bool(phase & PHASE_SUPERVISOR)]
        modes = best.setdefault(LOOPS[phase & PHASE_LOOPS], {})
        if mode not in modes or loop.instructions < modes[mode].instructions:
            modes[mode] = loop
    return best


def _repeats(groups: Mapping[int, Row], facts: Mapping[int, int]) -> dict[str, tuple[Loop, ...]]:
    """The program's runs by turns, by mode."""
    found: dict[str, tuple[Loop, ...]] = {}
    for phase, run in _phases(groups, facts):
        if not phase & PHASE_CALIBRATION:
            mode = MODES[phase & TURN_SUPERVISOR]
            found[mode] = (*found.get(mode, ()), run)
    return found
