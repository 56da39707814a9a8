# SPDX-License-Identifier: GPL-2.0-only
"""What a program's outcome means.

A program holds when it ends with 0, the kernel logged no complaint while it ran, nothing of the
module stayed in use after it, and it left no CPU offline. 77 is a skip with the program's own
reason; a complaint of the kernel is not skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trapless.vm.splats import splats

EXIT_SKIP = 77


@dataclass(frozen=True)
class Outcome:
    """How one program ended, as the runner in the guest saw it."""

    end: str  # exit | signal | timeout | unkillable | crash (of the VM) | missing
    code: int  # exit status or signal
    output: str
    kernel: str  # what the kernel logged while it ran
    ms: int = 0
    in_use: int = 0  # users of the module afterwards; -1: the module was gone
    cpus_offline: int = 0  # that it left so


@dataclass(frozen=True)
class Verdict:
    """The test item's end, with what a person needs to know."""

    kind: Literal["pass", "skip", "fail"]
    text: str = ""


def judge(outcome: Outcome) -> Verdict:
    """The verdict on one program."""
    said = outcome.output.strip()
    if outcome.end == "crash":
        return Verdict("fail", f"the VM died:\n{said}")
    if outcome.end == "missing":
        return Verdict("fail", f"was not run: {said}")
    complaints = splats(outcome.kernel)
    if complaints:
        return Verdict("fail", "the kernel complained:\n" + "\n\n".join([*complaints, said]))
    if outcome.end != "exit":
        text = f"ended by {outcome.end} {outcome.code} after {outcome.ms} ms\n{said}"
        return Verdict("fail", text)
    if outcome.in_use:
        return Verdict("fail", f"the module has {outcome.in_use} users left\n{said}")
    if outcome.cpus_offline:
        return Verdict("fail", f"left {outcome.cpus_offline} CPU(s) offline\n{said}")
    if outcome.code == EXIT_SKIP:
        return Verdict("skip", said or "no reason given")
    if outcome.code != 0:
        return Verdict("fail", f"exit status {outcome.code}\n{said}")
    return Verdict("pass")
