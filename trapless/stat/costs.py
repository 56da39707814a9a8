# SPDX-License-Identifier: GPL-2.0-only
"""What a mechanism would save a program, in instructions: from what it did, and from loops counted
in the same boot.

Each loop of the calibration adds one thing to what those before it do, so the difference between
its modes, less what the known things account for, is what that thing costs (or saves) once. No
figure here is typed in; what holds on one kernel is found again on the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trapless.stat.run_counts import Counted, Loop

BATCH = 32
"""Calls of a batch in the calibration; BATCH of stat/guest/calibrate.c."""


@dataclass(frozen=True)
class Term:
    """One thing that a program does, as supervisor mode sees it: how often, and what each saves."""

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
    ("forks", "forks", "a process, begun and ended"),
    ("execs", "execs", "a program executed"),
)
"""Each thing, the loop that adds it, and what it is called. The order is that of solving."""


def features(done: Mapping[str, int]) -> dict[str, float]:
    """How often each thing of STEPS happened."""
    return {
        "calls": done["syscall"],
        "demoting": done["syscall_interrupted"],
        "demoted": max(done["interrupt"] - done["syscall_interrupted"], 0),
        "in_kernel": done["iret_kernel"],
        "signals": done["signals"],
        "worked": done.get("worked", 0),
        "slept_out": done["slept_out"],
        "preempted": done["preempted"],
        "slept_within": done["slept_within"],
        "forks": (done["forks"] + done["exits"]) / 2,
        "execs": done["execs"],
    }


def of_run(found: Counted) -> dict[str, float]:
    """Of the program itself."""
    return features({**found.row.crossings(), **found.events, "worked": found.worked})


UNSEEN = {"handed": ("signals", 64), "closes": ("worked", 64)}
"""What loops do that no counter sees, and how often: OPERATIONS of stat/guest/calibrate.c."""


def _of_loop(name: str, loop: Loop) -> dict[str, float]:
    counts = features(loop.features)
    if name in UNSEEN:
        feature, number = UNSEEN[name]
        counts[feature] = number
    return counts


def supervisor_terms(found: Counted) -> tuple[Term, ...]:
    """What each thing saves in supervisor mode; nothing where that is not offered."""
    if any(set(found.loops.get(loop, {})) != {"trap", "supervisor"} for _, loop, _ in STEPS):
        return ()
    saved: dict[str, float] = {}
    terms = []
    for name, loop, text in STEPS:
        modes = found.loops[loop]
        did = _of_loop(loop, modes["trap"])
        rest: float = modes["trap"].instructions - modes["supervisor"].instructions
        rest -= sum(did[known] * each for known, each in saved.items())
        # A loop that could not do its thing (a scheduler that preempts nobody) says nothing of it.
        saved[name] = rest / did[name] if did[name] else 0.0
        terms.append(Term(name, text, saved[name]))
    return tuple(terms)


@dataclass(frozen=True)
class Saving:
    """Instructions that a mechanism would save; `wrong_by`: what the figure may be wrong by."""

    instructions: float
    wrong_by: float
    crossings: float  # system calls by trap that would not be made
    parts: Mapping[str, float]


NOISE_PER_TICK = 8000
"""Instructions by which a run may differ from its repeat for each timer interrupt in it: what the
kernel does then, and what it has put off until then, is not the program's doing."""


def supervisor_saving(found: Counted) -> Saving | None:
    """In supervisor mode from the first call to the last; None where it is not offered."""
    terms = supervisor_terms(found)
    if not terms:
        return None
    did = of_run(found)
    parts = {term.name: did[term.name] * term.saved for term in terms}
    handed = did["forks"] * 2 + did["execs"] + did["signals"]
    return Saving(
        instructions=sum(parts.values()),
        wrong_by=uncertainty(found),
        crossings=max(did["calls"] - did["demoting"] - handed, 0),
        parts=parts,
    )


def uncertainty(found: Counted) -> float:
    """Instructions by which two runs of the program may differ."""
    return NOISE_PER_TICK * math.sqrt(1 + ticks(found))


def sleeping(found: Counted) -> float:
    """Instructions of going to sleep in a call and coming back, by the calibration."""
    loops = found.loops
    if not {"calls", "sleeps"} <= loops.keys():
        return 0.0
    calls, sleeps = loops["calls"]["trap"], loops["sleeps"]["trap"]
    call = calls.instructions / calls.features["syscall"]
    rest = sleeps.instructions - call * sleeps.features["syscall"]
    return rest / max(sleeps.features["slept_out"], 1)


TICK_INSTRUCTIONS = 4_000_000
"""Between two timer interrupts: 250 a second, an instruction a nanosecond."""


def ticks(found: Counted) -> float:
    """Timer interrupts that came while the program ran, about."""
    return found.instructions / TICK_INSTRUCTIONS


def batch_saving(found: Counted) -> Saving | None:
    """If every call went into batches of 32; None where batches are not offered."""
    loops = found.loops
    if not {"nothing", "calls", "batches"} <= loops.keys():
        return None
    nothing, calls, batches = (loops[name]["trap"] for name in ("nothing", "calls", "batches"))
    number = calls.features["syscall"] - nothing.features["syscall"]
    each = (calls.instructions - batches.instructions) / number
    made = found.row.crossings()["syscall"]
    return Saving(made * each, uncertainty(found), made * (1 - 1 / BATCH), {"calls": made * each})
