# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek check`: compares what memory says of each CPU with the CPU's own registers.

Owns the comparison. The VM is stopped at random moments through its emulator's monitor. Memory is
judged by the functions that judge recordings (judgement.py). The registers have the privilege level
and the interrupt flag; register_stacks.py judges the kernel's stack, which drgn unwinds from the
registers. Every difference is kept with the place where the CPU was.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import numpy as np

from trapless.peek.check.bounds import bounds
from trapless.peek.check.register_stacks import Stack, Unwinder
from trapless.peek.errors import PeekError
from trapless.peek.interop.drgn_program import program
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Machine
from trapless.peek.sampling import probes, tier0, tier1
from trapless.peek.sampling.judgement import where
from trapless.peek.sampling.probes import Mode, ProbeMap
from trapless.peek.sampling.recording_tables import COLUMNS
from trapless.peek.sampling.sampling_plan import Base, Field
from trapless.peek.sampling.tier0 import Part
from trapless.peek.stacks.stops import monitor_of
from trapless.report.figures import Table
from trapless.vm.qmp import Monitor, Registers

INTERVAL_MEAN_S = 0.02
INTERVAL_MAX_S = 0.5
"""The longest time between two stops; the times are random, with an exponential distribution."""

TIER1 = Mode.PARTS | Mode.INTERRUPTS
ERROR_MAX = 0.01
"""The largest error of a share outside of entry and exit code with which memory is believed."""
DOUBT = 0.05
"""The probability with which a verdict about all shares together may be wrong."""
MORE_MAX = 64
"""Stops are proposed up to this multiple of those that were made."""

NAMES = {**COLUMNS, Part.IDLE: "idle"}
INTERRUPTS = {True: "interrupts off", False: "interrupts on"}
TASKS = {True: "the current task", False: "another's stack"}
DIFFERENCES_SHOWN = 20


class Verdict(IntEnum):
    """The verdict of the samples on memory; the numbers are exit statuses."""

    RIGHT = 0  # no share is wrong by more than ERROR_MAX
    WRONG = 1  # one is
    OPEN = 3  # the samples are too few to tell


@dataclass(frozen=True)
class Statement:
    """The state of a CPU at one moment, by its memory or by its registers."""

    part: Part
    off: bool | None  # whether interrupts are off, never in an idle CPU; None: not known


@dataclass(frozen=True)
class Difference:
    """One CPU at one stop, of which memory and registers say different things."""

    stop: int
    cpu: int
    what: str  # "part", "interrupts" or "task"
    memory: str
    registers: str
    stack: Stack

    @property
    def in_transition(self) -> bool:
        """Whether the CPU is in entry or exit code, where memory changes after the CPU."""
        return self.stack.in_transition

    def __str__(self) -> str:
        return (
            f"stop {self.stop}, CPU {self.cpu}: memory says {self.memory}, registers say "
            f"{self.registers}, at {self.stack}"
        )


@dataclass
class Findings:
    """The sums over all stops; one CPU at one stop is one sample."""

    tier: int
    stops: int = 0
    samples: int = 0
    memory: Counter[str] = field(default_factory=Counter)  # parts, and INTERRUPTS_OFF
    registers: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of what occurred, always in the same order."""
        names = (*NAMES.values(), *INTERRUPTS.values(), *TASKS.values())
        return [name for name in names if self.memory[name] or self.registers[name]]

    def outside(self) -> list[Difference]:
        """Differences that entry and exit code do not explain."""
        return [one for one in self.differences if not one.in_transition]

    def _excess(self, name: str) -> tuple[int, int]:
        """How often only memory has this state, and how often only the registers have it."""
        outside = self.outside()
        return (
            sum(one.memory == name for one in outside),
            sum(one.registers == name for one in outside),
        )

    def error(self, name: str) -> float:
        """The error of memory's share from differences outside of entry and exit code, 0 to 1."""
        more, less = self._excess(name)
        return abs(more - less) / max(self.samples, 1)

    def error_bounds(self, name: str, times: int = 1) -> tuple[float, float]:
        """The error that is possible, given the samples: the bounds of all names hold together,
        with a doubt of DOUBT.

        With `times`, as if there were that many times the samples, with the same share of
        differences.
        """
        doubt = DOUBT / (4 * len(self.names))  # two counts a name, and two bounds a count
        samples = times * self.samples
        more, less = (bounds(times * count, samples, doubt) for count in self._excess(name))
        over, under = more[0] - less[1], less[0] - more[1]
        return max(over, under, 0.0), max(more[1] - less[0], less[1] - more[0])

    def verdict(self, times: int = 1) -> Verdict:
        """Whether memory can be believed; `times` is as for error_bounds()."""
        limits = [self.error_bounds(name, times) for name in self.names]
        if any(low > ERROR_MAX for low, _ in limits):
            return Verdict.WRONG
        if limits and all(high <= ERROR_MAX for _, high in limits):
            return Verdict.RIGHT
        return Verdict.OPEN

    def verdict_text(self) -> str:
        """The verdict as a sentence."""
        sure = f"{1 - DOUBT:.0%} sure"
        verdict = self.verdict()
        if verdict is Verdict.RIGHT:
            return f"memory is right: {sure}, no share is wrong by more than {ERROR_MAX:.0%}"
        if verdict is Verdict.WRONG:
            worst = max(self.names, key=lambda name: self.error_bounds(name)[0])
            low, high = self.error_bounds(worst)
            return f"memory is wrong: {sure}, by {low:.1%} to {high:.1%} about {worst!r}"
        text = (
            f"not decided: {self.samples} samples are too few to tell whether a share is wrong by "
            f"more than {ERROR_MAX:.0%}"
        )
        for power in range(1, MORE_MAX.bit_length()):
            if self.samples and self.verdict(2**power) is not Verdict.OPEN:
                return f"{text}; --stops {2**power * self.stops} may do"
        return text


class Witness:
    """Compares one target's memory with its emulator's registers. One thread."""

    def __init__(self, target: Target, monitor: Monitor) -> None:
        self._target, self._monitor = target, monitor
        self._unwinder = Unwinder(target, program(target))
        self._bases = tier0.bases(target)
        self._probes = _probes(target)
        self._fields = {cpu: tuple(self._wanted(cpu)) for cpu in target.cpus_online}
        self._context_user = tier0.context_user(target)
        self.findings = Findings(1 if self._probes is not None else 0)

    def _wanted(self, cpu: int) -> Iterator[Field]:
        groups = tier0.groups(self._target)
        if self._probes is not None:
            groups = tier1.groups(self._target, self._probes, groups)
        for group in groups:
            if group.name == f"cpu{cpu}":
                yield from group.fields

    def stop_once(self) -> None:
        """Stop the VM, compare every CPU, let it go on."""
        findings = self.findings
        with self._monitor.stopped():
            findings.stops += 1
            for registers in self._monitor.registers():
                if registers.cpu in self._fields:
                    self._compare(registers)

    def _compare(self, registers: Registers) -> None:
        findings, stack = self.findings, self._unwinder.stack(registers)
        values = self._values(registers.cpu)
        memory, truth = self._judge(values), _truth(registers, stack)
        findings.samples += 1

        def compare(what: str, text: str, true_text: str) -> None:
            findings.memory[text] += 1
            findings.registers[true_text] += 1
            if text != true_text:
                findings.differences.append(
                    Difference(findings.stops, registers.cpu, what, text, true_text, stack)
                )

        compare("part", NAMES[memory.part], NAMES[_as_known(truth.part, memory.part)])
        if memory.off is not None:
            compare("interrupts", INTERRUPTS[memory.off], INTERRUPTS[bool(truth.off)])
        runs = self._unwinder.runs(registers, stack, values["current"])
        compare("task", TASKS[True], TASKS[runs])

    def _values(self, cpu: int) -> dict[str, int]:
        return {one.name: read(self._target, self._bases, one) for one in self._fields[cpu]}

    def _judge(self, values: dict[str, int]) -> Statement:
        """The judgement that a recording would give to one row with these values."""
        columns = {name: np.array([values[name]]) for name in values}
        parts = where(columns, np.array([TIER1], np.uint32), self._context_user)
        off = None
        if "state" in columns:
            off = bool(tier1.disabled_by(parts, columns["state"])[0])
        return Statement(Part(parts[0]), off)


def _probes(target: Target) -> ProbeMap | None:
    probe_map = probes.find(target)
    return probe_map if probe_map is not None and probe_map.active & TIER1 == TIER1 else None


def _truth(registers: Registers, stack: Stack) -> Statement:
    """The state by the registers. Interrupts count as on in an idle CPU, as in every judgement."""
    part = Part.USER if registers.user else stack.part
    return Statement(part, not registers.interrupts_on and part is not Part.IDLE)


def _as_known(truth: Part, said: Part) -> Part:
    """The registers' state in the terms of memory, which may not tell user mode from the kernel."""
    process = truth in (Part.USER, Part.KERNEL) and said is Part.PROCESS
    return Part.PROCESS if process else truth


def read(target: Target, bases: Sequence[Base], field_: Field) -> int:
    """One field as the sampler reads it: at an address, or at the end of a chain of pointers."""
    place = field_.address
    for offset in field_.follow:
        pointer = int.from_bytes(target.memory.read(place, 8), "little") + offset
        for base in bases:
            if base.virtual <= pointer < base.virtual + base.length:
                place = pointer - base.virtual + base.physical
                break
        else:
            raise PeekError(f"{field_.name}: {pointer:#x} is not an address of the kernel's data")
    return int.from_bytes(target.memory.read(place, field_.bytes), "little")


def check(
    machine: Machine,
    monitor: Path,
    stops: int,
    seed: int | None = None,
    advance: Callable[[float, float], None] = lambda _now, _all: None,
) -> Findings:
    """Stop the VM `stops` times, and compare memory and registers each time.

    `monitor` is the emulator's socket. PeekError where the target restarts.
    """
    moments = random.Random(seed)
    emulator = machine.emulator()
    with machine.open(sandbox=False) as target, monitor_of(emulator, monitor) as connection:
        target.need_x86_64("check")
        witness = Witness(target, connection)
        for stop in range(stops):
            pause_s = moments.expovariate(1 / INTERVAL_MEAN_S)
            time.sleep(min(pause_s, INTERVAL_MAX_S))
            witness.stop_once()
            advance(stop + 1, stops)
        target.check_same()
    return witness.findings


def tables(findings: Findings) -> list[Table]:
    """The tables of shares, and of the functions in which memory changes after the CPU."""
    samples = max(findings.samples, 1)
    shares = tuple(
        (
            name,
            f"{findings.memory[name] / samples:.1%}",
            f"{findings.registers[name] / samples:.1%}",
            f"{findings.error(name):.1%}",
            "{:.1%} to {:.1%}".format(*findings.error_bounds(name)),
        )
        for name in findings.names
    )
    places = Counter(
        (one.stack.place, one.memory, one.registers)
        for one in findings.differences
        if one.in_transition
    )
    return [
        Table(
            id="witness",
            title=f"Memory (tier {findings.tier}) and registers at {findings.stops} stops",
            columns=("a CPU is in", "memory", "registers", "error elsewhere", "bounds"),
            rows=shares,
            caption=f"{findings.samples} samples: each CPU at each stop. Error elsewhere: of "
            "memory's share, from differences outside of entry and exit code. Bounds: of that "
            f"error, {1 - DOUBT:.0%} sure for all rows together.",
        ),
        Table(
            id="transitions",
            title="In entry and exit code, where memory changes after the CPU",
            columns=("function", "memory", "registers", "samples"),
            rows=tuple((*place, str(count)) for place, count in places.most_common()),
            caption=f"{len(findings.outside())} differences elsewhere"
            + "".join(f"; {one}" for one in findings.outside()[:DIFFERENCES_SHOWN])
            + ".",
        ),
    ]
