# SPDX-License-Identifier: GPL-2.0-only
"""Follows calls by single steps, and says to which functions their instructions belong.

This file owns the groups that functions are put into, and the table. Following is
eval/tools/steps/steps.py's. Sums must equal what the time-stamp counter counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from eval.tools.steps import steps
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric

GROUPS = (
    ("program and library", re.compile(""), steps.PROGRAM),
    ("the module", re.compile(""), steps.OWN_MODULE),
    (
        "entry and exit of the trap",
        re.compile(
            r"entry_SYS|do_syscall_64$|syscall_(enter|exit|return)|exit_to_user|fpregs_assert|"
            r"amd_clear_divider|arch_exit|fpregs_restore"
        ),
        "kernel",
    ),
    (
        "dispatch, and lseek to the module",
        re.compile(r"x64_sys_call$|lseek|fdget|fget|fput|indirect_thunk"),
        "kernel",
    ),
    ("the call itself", re.compile(""), "kernel"),
)
"""Name, its functions and the part of the system they are in; the first that fits has it."""

PIECES = {
    "nosys.trap": "no call, by trap",
    "nosys.supervisor": "no call, supervisor mode",
    "getpid.trap": "getpid, by trap",
    "getpid.supervisor": "getpid, supervisor mode",
    "getppid.trap": "getppid, by trap",
    "getppid.supervisor": "getppid, supervisor mode",
    "getppid.batch": "two getppid, one batch",
}


def collect(run: Collection) -> None:
    """One VM, followed from outside."""
    with run.turn(alone=False):
        followed = steps.follow(run.kernel, run.progress)
    run.write(followed)


def group_of(row: Row) -> str:
    return next(
        name
        for name, functions, part in GROUPS
        if part == row["of"] and functions.search(row["function"])
    )


def sums(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Piece -> group -> instructions."""
    pieces: dict[str, dict[str, int]] = {}
    for row in rows:
        if "steps" in row:
            groups = pieces.setdefault(row["steps"], {})
            name = group_of(row)
            groups[name] = groups.get(name, 0) + row["count"]
    return pieces


def analyse(raw: Raw) -> Findings:
    metrics = {}
    for piece, groups in sums(raw.rows).items():
        call, mechanism = piece.split(".")
        metrics[f"{call}.{mechanism}.total.steps"] = Metric(
            sum(groups.values()), "steps", "counted"
        )
        if "the module" in groups:
            metrics[f"{call}.{mechanism}.module.steps"] = Metric(
                groups["the module"], "steps", "counted"
            )
    return Findings(metrics)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    pieces = sums(raw.rows)
    if not pieces:
        return ()
    rows = [
        (
            PIECES[piece],
            *(f"{pieces[piece].get(name, 0) or ''}" for name, _, _ in GROUPS),
            str(sum(pieces[piece].values())),
        )
        for piece in PIECES
        if piece in pieces
    ]
    return (
        Table(
            id="steps",
            title="Where the instructions of a call go",
            columns=("work", *(name for name, _, _ in GROUPS), "all"),
            rows=tuple(rows),
            caption="Each followed once, instruction by instruction, through the emulator's "
            "debugger; no interrupt comes in between. A few instructions of the program around "
            "the call are in it. In supervisor mode the module's are all that is left of the way "
            "in and out.",
            kind="counted",
        ),
    )
