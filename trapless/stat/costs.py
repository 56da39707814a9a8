# SPDX-License-Identifier: GPL-2.0-only
"""What a mechanism would save a program, in instructions.

A prediction is made of the events of the program's run and of loops that were counted in the same
boot. Each loop of the calibration adds one kind of event to those of the loops before it. The
difference between a loop's counts in both modes, less the part that the earlier kinds account for,
is what this kind costs, or saves, once. No such figure is written down here; each boot counts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trapless.stat import labels
from trapless.stat.run_counts import Loop, RunCounts, gates


@dataclass(frozen=True)
class Term:
    """One kind of event, and the instructions that supervisor mode saves at each."""

    name: str
    text: str
    saved: float


STEPS = (
    ("calls", "calls", "a system call"),
    ("demoting", "faults", "an interrupt or fault in the program's code, by which it leaves"),
    ("demoted", "double_faults", "another one before the next call"),
    ("in_kernel", "kernel_faults", "an interrupt or fault inside a call"),
    ("signals", "handed", "a call that the kernel's own entry makes (a signal's return)"),
    ("worked", "closes", "a call that finds work on its way out (a file's last close)"),
    ("slept_out", "sleeps", "a call in which it sleeps while others run"),
    ("preempted", "preemptions", "a call that ends with another's turn"),
    ("slept_within", "sleeps_within", "a call in which one thread of it gives way to another"),
    ("left_again", "sleeps_twice", "of these, in a call that has left the processor before"),
    ("forks", "forks", "a process, begun and ended"),
    ("execs", "execs", "a program executed"),
)
"""Each kind of event, the loop that adds it, and its name in tables, in the order of solving."""


NEWER = ("sleeps_twice",)
"""Loops that runs which were saved earlier do not have; what they add is 0 there."""


def features(counts: Mapping[str, int]) -> dict[str, float]:
    """How often each kind of event of STEPS happened."""
    return {
        "calls": counts["syscall"],
        "demoting": counts["syscall_interrupted"],
        # A call by the 32-bit gate is one to supervisor mode: it leaves, and saves nothing.
        "demoted": max(counts["interrupt"] + gates(counts) - counts["syscall_interrupted"], 0),
        "in_kernel": counts["iret_kernel"],
        "signals": counts["signals"] + counts.get("numberless", 0),
        "worked": counts.get("worked", 0),
        # A call that is preempted in its middle does the same work on its way out as one that
        # slept.
        "slept_out": counts["slept_out"] + counts.get("preempted_within", 0),
        "preempted": counts["preempted"],
        "slept_within": counts["slept_within"],
        "left_again": counts.get("left_again", 0),
        "forks": (counts["forks"] + counts["exits"]) / 2,
        "execs": counts["execs"],
    }


def of_run(run: RunCounts) -> dict[str, float]:
    """How often each kind of event happened in the program's run."""
    return features({**run.row.crossings(), **run.events, **_watched(run)})


def _watched(run: RunCounts) -> dict[str, int]:
    """The events that only an uncounted run shows."""
    return {"worked": run.worked, "numberless": run.numberless}


UNSEEN = {"handed": ("signals", labels.OPERATIONS), "closes": ("worked", labels.OPERATIONS)}
"""Events of loops that no counter sees, and how often they happen in one."""


def _of_loop(name: str, loop: Loop) -> dict[str, float]:
    counts = features(loop.features)
    if name in UNSEEN:
        feature, number = UNSEEN[name]
        counts[feature] = number
    return counts


def supervisor_terms(run: RunCounts) -> tuple[Term, ...]:
    """The saving in supervisor mode of each kind of event; empty if the mode is not offered."""
    steps = [step for step in STEPS if step[1] in run.loops or step[1] not in NEWER]
    if any(set(run.loops.get(loop, {})) != {"trap", "supervisor"} for _, loop, _ in steps):
        return ()
    saved: dict[str, float] = {}
    terms = []
    for name, loop, text in steps:
        modes = run.loops[loop]
        numbers = _of_loop(loop, modes["trap"])
        rest: float = modes["trap"].instructions - modes["supervisor"].instructions
        rest -= sum(numbers[earlier] * each for earlier, each in saved.items())
        # A loop in which the event did not happen (no thread is preempted) says nothing about it.
        saved[name] = rest / numbers[name] if numbers[name] else 0.0
        terms.append(Term(name, text, saved[name]))
    return tuple(terms)


@dataclass(frozen=True)
class Saving:
    """Instructions that a mechanism would save. `wrong_by`: the figure's uncertainty."""

    instructions: float
    wrong_by: float
    crossings: float  # system calls by trap that would not be made
    parts: Mapping[str, float]


NOISE_PER_TICK = 8000
"""Instructions by which a run may differ from its repeat for each timer interrupt in it. The
interrupt's work, and the work that the kernel has put off until then, are not the program's."""


def supervisor_saving(run: RunCounts, turn: Loop | None = None) -> Saving | None:
    """The saving in supervisor mode from the first call to the last; None where not offered.

    `turn`: of that run by turns, in user mode, instead of the one run of the program.
    """
    terms = supervisor_terms(run)
    if not terms:
        return None
    numbers = of_run(run) if turn is None else features({**turn.features, **_watched(run)})
    parts = {term.name: numbers[term.name] * term.saved for term in terms}
    handed = numbers["forks"] * 2 + numbers["execs"] + numbers["signals"]
    return Saving(
        instructions=sum(parts.values()),
        wrong_by=uncertainty(run),
        crossings=max(numbers["calls"] - numbers["demoting"] - handed, 0),
        parts=parts,
    )


def uncertainty(run: RunCounts) -> float:
    """Instructions by which two runs of the program may differ."""
    return NOISE_PER_TICK * math.sqrt(1 + ticks(run))


def sleeping(run: RunCounts) -> float:
    """The instructions of a sleep in a call, by the calibration."""
    loops = run.loops
    if not {"calls", "sleeps"} <= loops.keys():
        return 0.0
    calls, sleeps = loops["calls"]["trap"], loops["sleeps"]["trap"]
    call = calls.instructions / calls.features["syscall"]
    rest = sleeps.instructions - call * sleeps.features["syscall"]
    return rest / max(sleeps.features["slept_out"], 1)


TICK_INSTRUCTIONS = 4_000_000
"""Instructions between two timer interrupts: 250 a second, one instruction per nanosecond."""


def ticks(run: RunCounts) -> float:
    """About how many timer interrupts came while the program ran."""
    return run.instructions / TICK_INSTRUCTIONS


def batch_saving(run: RunCounts) -> Saving | None:
    """The saving if every call went into a batch; None where batches are not offered."""
    loops = run.loops
    if not {"nothing", "calls", "batches"} <= loops.keys():
        return None
    nothing, calls, batches = (loops[name]["trap"] for name in ("nothing", "calls", "batches"))
    number = calls.features["syscall"] - nothing.features["syscall"]
    each = (calls.instructions - batches.instructions) / number
    total = run.row.crossings()["syscall"] - run.numberless
    saved = total * each
    crossings = total * (1 - 1 / labels.BATCH)
    return Saving(saved, uncertainty(run), crossings, {"calls": saved})
