# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek check`: compares what memory says of each CPU with the CPU's own registers.

Owns the comparison. The VM is stopped at random moments through its emulator's monitor. Memory is
judged by the functions that judge recordings (judgement.py). The registers have the privilege level
and the interrupt flag; stacks.py judges the kernel's stack, which drgn unwinds from the registers.
Every difference is kept with the place where the CPU was.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from trapless.peek.errors import PeekError
from trapless.peek.kernel.drgn_program import program
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import probes, tier0, tier1
from trapless.peek.sampling.judgement import where
from trapless.peek.sampling.plan import Base, Field
from trapless.peek.sampling.probes import Mode, ProbeMap
from trapless.peek.sampling.stacks import Stack, Unwinder
from trapless.peek.sampling.tables import COLUMNS
from trapless.peek.sampling.tier0 import Part
from trapless.report.figures import Table
from trapless.vm.qmp import Monitor, Registers

INTERVAL_MEAN_S = 0.02
INTERVAL_MAX_S = 0.5
"""The longest time between two stops; the times are random, with an exponential distribution."""

TIER1 = Mode.PARTS | Mode.INTERRUPTS
ERROR_MAX = 0.01
"""The largest error of a share outside of entry and exit code with which memory is believed."""

NAMES = {**COLUMNS, Part.IDLE: "idle"}
INTERRUPTS = {True: "interrupts off", False: "interrupts on"}
TASKS = {True: "the current task", False: "another's stack"}
DIFFERENCES_SHOWN = 20


@dataclass(frozen=True)
class Statement:
    """What memory or registers say of a CPU at one moment."""

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

    def error(self, name: str) -> float:
        """The error of memory's share from differences outside of entry and exit code, 0 to 1."""
        excess = Counter[str]()
        for one in self.outside():
            excess[one.memory] += 1
            excess[one.registers] -= 1
        return abs(excess[name]) / max(self.samples, 1)

    @property
    def good(self) -> bool:
        """Whether memory can be believed."""
        return self.samples > 0 and all(self.error(name) <= ERROR_MAX for name in self.names)


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
    """What the registers say. Interrupts count as on in an idle CPU, as in every judgement."""
    part = Part.USER if registers.user else stack.part
    return Statement(part, not registers.interrupts_on and part is not Part.IDLE)


def _as_known(truth: Part, said: Part) -> Part:
    """The truth in the words of memory, which may not separate user mode from the kernel."""
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
    ram: Path,
    hole: int | None,
    monitor: Path,
    stops: int,
    seed: int | None = None,
    advance: Callable[[float, float], None] = lambda _now, _all: None,
) -> Findings:
    """Stop the VM `stops` times, and compare memory and registers each time.

    `monitor` is the emulator's socket, `hole` is in bytes. PeekError where the target restarts.
    """
    moments = random.Random(seed)
    with Target.open(ram, hole) as target, Monitor(monitor) as connection:
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
            columns=("a CPU is in", "memory", "registers", "error elsewhere"),
            rows=shares,
            caption=f"{findings.samples} samples: each CPU at each stop. Error elsewhere: of "
            "memory's share, from differences outside of entry and exit code.",
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
