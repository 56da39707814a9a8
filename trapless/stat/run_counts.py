# SPDX-License-Identifier: GPL-2.0-only
"""The counts of one run: the model's rows, added up by whose work they are.

This file owns how rows become counts, by the codes of labels.py, and their form in JSON. The report
is made of these counts alone. They are not judged here.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trapless.abi import Demotion
from trapless.base.console import TraplessError
from trapless.model import rows
from trapless.model.model_plan import Plan, Variant
from trapless.model.rows import Recording, Row
from trapless.stat import labels
from trapless.supervisor.control import Calls

UNANSWERED = (1 << labels.VALUE_BITS) - 1
"""The refusals that are recorded where no module answered."""

CROSSINGS = ("syscall", "interrupt", "syscall_interrupted", "iret_kernel", "int", "sysenter")
"""The crossings of the ledger by which loops are compared."""

MODES = ("trap", "supervisor")


@dataclass(frozen=True)
class Loop:
    """One loop of the calibration in one mode, or one of several runs of the program: its
    instructions, and how often each other event happened."""

    instructions: int
    features: Mapping[str, int]


GETPPID = 110
"""The call of the loop that says what telling calls apart costs."""
SCAN_WAYS = {217: "getdents64", 332: "statx", 8: "scandir"}
"""The calls of the loop that reads a folder, by number: the last one enters a batch."""


@dataclass(frozen=True)
class CallCounts:
    """The work of one system call in a run whose calls were told apart.

    A region goes from an entry of the call to the entry of the next one. `user` and `kernel` are
    the instructions of all its regions, `inside` those of the kernel before user mode goes on.
    `in_kernel`: interrupts and faults inside the call. The others are its events.
    """

    nr: int
    number: int
    user: int
    kernel: int
    inside: int
    in_kernel: int
    failed: int
    shared: int  # made this number of calls wait for files of the machine that runs the guest
    slept_out: int
    slept_within: int
    preempted: int
    left_again: int = 0


@dataclass(frozen=True)
class RunCounts:
    """The counts of one run. `program`, `others` and `idle`: the model's columns, added up.

    `loops`: by name and mode ("trap", "supervisor"). Where the program ran by turns, `repeats` has
    each of its runs, by mode and in their order, and `program` is empty; `calls` and `demotions`
    are the module's counts of all runs in supervisor mode. `calls_made`: each system call, where
    they were told apart; `traced`: those of the loop that says what this costs. `scan_loop`: the
    kernel's instructions, inside calls, for the entries of a folder by each way (SCAN_WAYS).
    """

    release: str
    processors: tuple[str, ...]
    columns: tuple[str, ...]
    program: tuple[int, ...]
    others: tuple[int, ...]
    idle: tuple[int, ...]
    turns: int  # how often the program came onto the processor
    status: int
    left_running: bool
    worked: int  # calls that found work on their way out, in an uncounted run
    refusals: int
    events: Mapping[str, int]
    loops: Mapping[str, Mapping[str, Loop]]
    repeats: Mapping[str, tuple[Loop, ...]] = field(default_factory=dict)
    warm: int = 0  # how often the program, or its load, ran before, uncounted
    served: bool = False  # whether the program is a server under load
    complaints: tuple[str, ...] = ()  # the model's
    calls: Calls | None = None
    demotions: Mapping[str, int] = field(default_factory=dict)
    calls_made: tuple[CallCounts, ...] = ()
    traced: CallCounts | None = None
    numberless: int = 0  # calls whose number no call has, in an uncounted run
    scan_loop: Mapping[str, int] = field(default_factory=dict)

    @property
    def gates(self) -> int:
        """Calls by another way than SYSCALL: int $0x80, SYSENTER."""
        return gates(self.row.crossings())

    @property
    def has_elsewhere(self) -> bool:
        """Whether each processor was also modelled beside another one."""
        return any("+elsewhere." in column for column in self.columns)

    @property
    def row(self) -> Row:
        """The program's counts."""
        return self._row(labels.PROGRAM, self.program)

    @property
    def rows(self) -> Mapping[str, Row]:
        """The counts of each group by name."""
        return {
            "program": self.row,
            "others": self._row(labels.OTHER, self.others),
            "idle": self._row(labels.IDLE, self.idle),
        }

    @property
    def instructions(self) -> int:
        """The program's instructions, in both modes."""
        return _instructions(self.row)

    def _row(self, label: int, counts: tuple[int, ...]) -> Row:
        places = {name: place for place, name in enumerate(self.columns)}
        return Row(label, 0, counts, places)

    def joined(self, other: RunCounts) -> RunCounts:
        """These counts, with the repeats of another boot behind those of this one."""
        runs = {mode: self.repeats.get(mode, ()) + other.repeats.get(mode, ()) for mode in MODES}
        causes = {
            cause: number + other.demotions.get(cause, 0)
            for cause, number in self.demotions.items()
        }
        calls = self.calls
        if calls is not None and other.calls is not None:
            both = zip(astuple(calls), astuple(other.calls), strict=True)
            calls = Calls(*(one + another for one, another in both))
        return replace(self, repeats=runs, calls=calls, demotions=causes)

    def as_json(self) -> dict[str, Any]:
        """All counts, in the form of a file."""
        data = dict(vars(self))
        data["loops"] = {
            name: {mode: vars(loop) for mode, loop in modes.items()}
            for name, modes in self.loops.items()
        }
        data["repeats"] = {mode: [vars(run) for run in runs] for mode, runs in self.repeats.items()}
        data["calls"] = None if self.calls is None else vars(self.calls)
        del data["calls_made"], data["traced"], data["numberless"]
        if not self.scan_loop:
            del data["scan_loop"]
        if self.numberless:
            data["numberless"] = self.numberless
        if self.calls_made:
            data["calls_made"] = [vars(call) for call in self.calls_made]
        if self.traced is not None:
            data["traced"] = vars(self.traced)
        return data

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> RunCounts:
        """The counts that as_json() gave."""
        loops = {
            name: {mode: Loop(**loop) for mode, loop in modes.items()}
            for name, modes in data["loops"].items()
        }
        repeats = {
            mode: tuple(Loop(**run) for run in runs)
            for mode, runs in data.get("repeats", {}).items()
        }
        calls = None if data["calls"] is None else Calls(**data["calls"])
        tuples = ("processors", "columns", "program", "others", "idle", "complaints")
        plain = {name: tuple(data[name]) for name in tuples}
        made = tuple(CallCounts(**call) for call in data.get("calls_made", ()))
        traced = CallCounts(**data["traced"]) if "traced" in data else None
        told = {"calls_made": made, "traced": traced}
        return cls(**{**data, **plain, **told, "loops": loops, "repeats": repeats, "calls": calls})


def gates(crossings: Mapping[str, int]) -> int:
    """Entries by an instruction that is not SYSCALL; loops that were saved earlier lack them."""
    return crossings.get("int", 0) + crossings.get("sysenter", 0)


LEAST = f"footprint code unit=4096 from=fetch label={labels.PROGRAM}"
"""The cheapest structure. The model needs one even where only instructions are asked for."""


def plan_of(processors: tuple[str, ...], *, elsewhere: bool = False) -> Plan:
    """The plan of a run: each processor as it is, and with its caches and TLBs split by mode; with
    `elsewhere` also beside another one that does the kernel's work.

    Without processors the run has neither misses nor footprints, only instructions and crossings.
    """
    if not processors:
        return Plan((), {}, (LEAST,))
    variants = [Variant(name, split=split) for name in processors for split in (False, True)]
    variants += [Variant(name, elsewhere=True) for name in processors if elsewhere]
    return Plan.of(variants, footprint_of=labels.PROGRAM)


def read(
    path: Path, release: str, processors: tuple[str, ...], *, told_apart: bool = False
) -> RunCounts:
    """Add up the rows of a run; a TraplessError where it was not counted to its end.

    `told_apart`: the labels also say which system call a region belongs to.
    """
    recording = rows.add_up(path, _call_group if told_apart else _group)
    facts = {
        row.label >> labels.FACT_SHIFT & labels.FACT_MASK: row.label >> labels.VALUE_SHIFT
        for row in recording.rows
        if _is_fact(row.label)
    }
    if labels.FACT_STATUS not in facts:
        raise TraplessError("the run was not counted to its end: its rows have no last one")
    groups = _groups(recording) if told_apart else {row.label: row for row in recording.rows}
    apart = [row for row in recording.rows if told_apart and not _is_fact(row.label)]
    calls = [facts.get(labels.FACT_CALLS + n) for n in range(len(labels.CALLS))]
    return RunCounts(
        release=release,
        processors=processors,
        columns=recording.columns,
        program=_counts(groups, labels.PROGRAM, recording),
        others=_counts(groups, labels.OTHER, recording),
        idle=_counts(groups, labels.IDLE, recording),
        turns=groups[labels.PROGRAM].number if labels.PROGRAM in groups else 0,
        status=facts[labels.FACT_STATUS],
        left_running=bool(facts[labels.FACT_LEFT_RUNNING]),
        worked=facts[labels.FACT_WORKED],
        refusals=facts[labels.FACT_REFUSALS],
        numberless=facts.get(labels.FACT_NUMBERLESS, 0),
        complaints=tuple(dict.fromkeys(recording.events)),
        events=_events(facts, 0),
        loops=_loops(groups, facts),
        repeats=_repeats(groups, facts),
        calls=Calls(*(n for n in calls if n is not None)) if None not in calls else None,
        demotions={
            cause.name.lower(): facts[labels.FACT_DEMOTIONS + cause]
            for cause in Demotion
            if labels.FACT_DEMOTIONS + cause in facts
        },
        calls_made=_calls(apart, 0),
        traced=_traced(apart, groups),
        scan_loop=_scan_loop(apart, groups),
    )


def _is_fact(label: int) -> bool:
    return label & labels.FACT == labels.FACT


def _group(label: int) -> int:
    """The label under which a row is added up: of a fact its own, else the phase and the group."""
    return label if _is_fact(label) else label & (labels.PHASE_MAX << labels.PHASE_SHIFT | 15)


def _call_group(label: int) -> int:
    """The same, with the call and the part of the call."""
    return label if _is_fact(label) else label & ((labels.CALL_MASK + 1 << labels.CALL_SHIFT) - 1)


def _groups(recording: Recording) -> dict[int, Row]:
    """The rows of calls, added up as by _group()."""
    groups: dict[int, Row] = {}
    for row in recording.rows:
        to, counts, number = _group(row.label), row.counts, row.number
        if to in groups:
            counts = tuple(map(operator.add, groups[to].counts, counts))
            number += groups[to].number
        groups[to] = Row(to, number, counts, row.places)
    return groups


EVENT_PARTS = {
    labels.PART_FAILED: "failed",
    labels.PART_SHARED: "shared",
    labels.PART_SLEPT_OUT: "slept_out",
    labels.PART_SLEPT_WITHIN: "slept_within",
    labels.PART_PREEMPTED: "preempted",
    labels.PART_LEFT_AGAIN: "left_again",
}


def _calls(apart: Iterable[Row], phase: int) -> tuple[CallCounts, ...]:
    """The work of each call in that phase, by number."""
    wanted = phase << labels.PHASE_SHIFT | labels.PROGRAM + (labels.PHASE if phase else 0)
    calls: dict[int, Counter[str]] = {}
    for row in apart:
        part = row.label >> labels.PART_SHIFT & 15
        if _group(row.label) != wanted or part == labels.PART_NONE:
            continue
        counter = calls.setdefault(row.label >> labels.CALL_SHIFT & labels.CALL_MASK, Counter())
        if part in EVENT_PARTS:
            counter[EVENT_PARTS[part]] += row.number
            continue
        counter["number"] += row.number if part == labels.PART_ENTERED else 0
        counter["user"] += row["user.instructions"]
        counter["kernel"] += row["kernel.instructions"]
        counter["inside"] += row["kernel.before_user"]
        counter["in_kernel"] += row["crossings.iret_kernel"]
    names = [one.name for one in fields(CallCounts)][1:]
    return tuple(CallCounts(nr, *(calls[nr][name] for name in names)) for nr in sorted(calls))


def _traced(apart: Sequence[Row], groups: Mapping[int, Row]) -> CallCounts | None:
    """The calls of the loop whose calls are told apart."""
    calls = _told_apart("traced", apart, groups)
    return next((call for call in calls if call.nr == GETPPID), None)


def _scan_loop(apart: Sequence[Row], groups: Mapping[int, Row]) -> dict[str, int]:
    calls = _told_apart("scans", apart, groups)
    found = {SCAN_WAYS[call.nr]: call.inside for call in calls if call.nr in SCAN_WAYS}
    return found if len(found) == len(SCAN_WAYS) else {}


def _told_apart(
    loop_name: str, apart: Sequence[Row], groups: Mapping[int, Row]
) -> tuple[CallCounts, ...]:
    """The calls of a loop that tells them apart, in its round of the fewest instructions."""
    wanted = labels.LOOPS.index(loop_name)
    rounds = {
        phase: loop.instructions
        for phase, loop in _phases(groups, {})
        if phase & labels.CALIBRATION and phase & labels.LOOP_MASK == wanted
    }
    if not apart or not rounds:
        return ()
    return _calls(apart, min(rounds, key=lambda phase: rounds[phase]))


def _counts(groups: Mapping[int, Row], label: int, recording: Recording) -> tuple[int, ...]:
    return groups[label].counts if label in groups else (0,) * len(recording.columns)


def _events(facts: Mapping[int, int], phase: int) -> dict[str, int]:
    first = phase << labels.PHASE_SHIFT
    return {name: facts.get(first + place, 0) for place, name in enumerate(labels.EVENTS)}


def _instructions(row: Row) -> int:
    return row["user.instructions"] + row["kernel.instructions"]


def _phases(groups: Mapping[int, Row], facts: Mapping[int, int]) -> Iterator[tuple[int, Loop]]:
    """The counts of each phase but the program's own: of a loop, or of one turn of the program."""
    for label in sorted(groups):
        if _is_fact(label) or label & 15 != labels.PROGRAM + labels.PHASE:
            continue
        row, phase = groups[label], label >> labels.PHASE_SHIFT
        crossings = row.crossings()
        features = {kind: crossings[kind] for kind in CROSSINGS} | _events(facts, phase)
        features["kernel"] = row["kernel.instructions"]
        yield phase, Loop(_instructions(row), features)


def _loops(groups: Mapping[int, Row], facts: Mapping[int, int]) -> dict[str, dict[str, Loop]]:
    """The round with the fewest instructions of each loop in each mode."""
    best: dict[str, dict[str, Loop]] = {}
    for phase, loop in _phases(groups, facts):
        if not phase & labels.CALIBRATION:
            continue
        mode = MODES[bool(phase & labels.CALIBRATION_SUPERVISOR)]
        modes = best.setdefault(labels.LOOPS[phase & labels.LOOP_MASK], {})
        if mode not in modes or loop.instructions < modes[mode].instructions:
            modes[mode] = loop
    return best


def _repeats(groups: Mapping[int, Row], facts: Mapping[int, int]) -> dict[str, tuple[Loop, ...]]:
    """The program's runs by turns, by mode."""
    repeats: dict[str, tuple[Loop, ...]] = {}
    for phase, run in _phases(groups, facts):
        if not phase & labels.CALIBRATION:
            mode = MODES[phase & labels.TURN_SUPERVISOR]
            repeats[mode] = (*repeats.get(mode, ()), run)
    return repeats
