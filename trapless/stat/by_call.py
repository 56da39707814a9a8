# SPDX-License-Identifier: GPL-2.0-only
"""What each system call of a run costs, and what each mechanism would take away from it.

This file owns the arithmetic of `trapless stat --calls`, and which calls a filter of `-e` means.
stat_text.py owns the table.

To tell calls apart costs instructions, the same for each call. A loop of the calibration is counted
both ways, and the difference is taken off.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from trapless import calls as table
from trapless.base.console import TraplessError
from trapless.calls import Call, CallClass
from trapless.stat import costs, labels
from trapless.stat.call_sets import SETS
from trapless.stat.run_counts import CallCounts, RunCounts

HANDED = frozenset(
    ("clone", "clone3", "fork", "vfork", "execve", "execveat", "exit", "exit_group", "rt_sigreturn")
)
"""Calls that supervisor mode leaves to the kernel's own entry."""
BARE = frozenset(("file", "desc", "memory", "process", "network", "ipc", "signal"))
"""The sets that strace also knows without their %."""
WORKERS_MAKE = (CallClass.ANY, CallClass.NULL_MASK, CallClass.SELF_VALUE)
UNSEEN = frozenset(("exit", "exit_group"))
"""Calls that do not return: strace -c leaves them out."""


@dataclass(frozen=True)
class CallCost:
    """One system call of a program. Instructions are those of all its calls together; `user` are
    those from its return to the next call. `wrapped`: who may make it; None where no table says.
    `supervisor` and `batches` are the instructions that these would take away. `worker` are those
    that a worker would execute, so that the caller does not."""

    name: str
    number: int
    user: int
    kernel: float
    slept: int
    failed: int
    shared: int
    wrapped: CallClass | None
    supervisor: float | None
    batches: float | None
    worker: float | None

    @property
    def gain(self) -> float:
        """The most that one mechanism would take away."""
        return max(self.supervisor or 0.0, self.batches or 0.0)


@dataclass(frozen=True)
class ScanSaving:
    """What TL_NR_SCANDIR would do for a program: of `names` that it read by getdents64, it asked
    for the attributes of `stats`. `saved` are the instructions that one request for all entries of
    a directory would take away; None where no loop could tell."""

    names: int
    stats: int
    saved: float | None


class ByCall:
    """The calls of a run in which they were told apart."""

    def __init__(self, run: RunCounts) -> None:
        self.run = run
        self._table = {call.nr: call for call in table.load()}

    @cached_property
    def calls(self) -> tuple[CallCost, ...]:
        """All calls, those first from which most could be taken away."""
        costs = (self._cost(call) for call in self.run.calls_made if call.number)
        return tuple(sorted(costs, key=lambda one: (-one.gain, -one.number, one.name)))

    @cached_property
    def added(self) -> float:
        """Instructions to add to those counted inside a call: its way in, less what telling apart
        costs."""
        traced, loops = self.run.traced, self.run.loops
        if traced is None or not {"nothing", "calls"} <= loops.keys():
            return 0.0
        plain, nothing = (loops[name]["trap"].features["kernel"] for name in ("calls", "nothing"))
        return (plain - nothing) / labels.OPERATIONS - traced.inside / traced.number

    @property
    def scan(self) -> ScanSaving:
        """The names that the program read and asked about, and what a compound call would save.

        The request takes the attributes of all entries, also of those that nobody asks about.
        """
        names, stats = (self.run.events.get(name, 0) for name in ("names", "name_stats"))
        loop, saved = self.run.scan_loop, None
        if loop:
            statx = loop["statx"] / labels.OPERATIONS + self.added
            more = (loop["scandir"] - loop["getdents64"]) / labels.OPERATIONS
            saved = stats * statx - names * more
        return ScanSaving(names, stats, saved)

    @property
    def number(self) -> int:
        """How many calls there were."""
        return sum(call.number for call in self.run.calls_made)

    @property
    def outside(self) -> float:
        """The kernel's instructions outside of calls: interrupts and faults in user mode."""
        traced = self.run.traced
        way_in = (traced.kernel - traced.inside) / traced.number if traced else 0.0
        inside = sum(call.inside for call in self.run.calls_made)
        return max(self.run.row["kernel.instructions"] - inside - self.number * way_in, 0.0)

    @property
    def kernel(self) -> float:
        """All instructions of the kernel, without those that telling calls apart costs."""
        return sum(one.kernel for one in self.calls) + self.outside

    def _cost(self, call: CallCounts) -> CallCost:
        row = self._table.get(call.nr)
        wrapped = row.allowed if row else None
        kernel = call.inside + call.number * self.added
        return CallCost(
            name=_name(call.nr, row),
            number=call.number,
            user=call.user,
            kernel=kernel,
            slept=call.slept_out + call.slept_within,
            failed=call.failed,
            shared=call.shared,
            wrapped=wrapped,
            supervisor=self._supervisor(call, row),
            batches=self._batches(call, wrapped),
            worker=kernel if wrapped in WORKERS_MAKE else None,
        )

    @cached_property
    def _terms(self) -> dict[str, float]:
        return {term.name: term.saved for term in costs.supervisor_terms(self.run)}

    def _supervisor(self, call: CallCounts, row: Call | None) -> float | None:
        terms = self._terms
        if not terms:
            return None
        each = terms["calls"]
        if row is None or row.name in HANDED:
            each += terms["signals"]
        # How many of these calls came by the gate is known, but not which.
        gates = min(self.run.gates, call.number) if call.nr == labels.CALL_UNKNOWN else 0
        events = ("in_kernel", "slept_out", "slept_within", "preempted", "left_again")
        parts: list[float] = [getattr(call, name) * terms.get(name, 0.0) for name in events]
        return (call.number - gates) * each + gates * terms["demoted"] + sum(parts)

    def _batches(self, call: CallCounts, wrapped: CallClass | None) -> float | None:
        whole = costs.batch_saving(self.run)
        if whole is None or wrapped in (None, CallClass.REFUSED):
            return None
        batchable = self.run.row.crossings()["syscall"] - self.run.numberless
        return call.number * whole.instructions / max(batchable, 1)


def _name(nr: int, row: Call | None) -> str:
    if row is not None:
        return row.name
    return "(32-bit or unknown)" if nr == labels.CALL_UNKNOWN else f"call {nr}"


def choose(wanted: Sequence[str], names: Iterable[str]) -> frozenset[str]:
    """The names that filters of `-e` mean, as strace has them: trace=read,write or '!futex', a set
    (%file), a regular expression (/^epoll), a name that need not exist (?uselib). A name may be a
    pattern, too; the last filter counts.

    >>> sorted(choose(["trace=read,pwr*"], ["read", "write", "pwrite64"]))
    ['pwrite64', 'read']
    >>> sorted(choose(["!read"], ["read", "write"]))
    ['write']
    >>> sorted(choose(["%stat,/^pwr"], ["read", "stat", "pwrite64"]))
    ['pwrite64', 'stat']
    """
    every = frozenset(names)
    if not wanted:
        return every
    text = wanted[-1].replace("\\!", "!").replace("trace!=", "!")
    text = text.removeprefix("trace=").removeprefix("t=")
    plain = text.lstrip("!")
    patterns = [pattern for pattern in plain.split(",") if pattern]
    if not patterns:
        raise _unknown(wanted[-1], "it names no system call")
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == "all":
            chosen |= every
        elif pattern != "none":
            chosen |= _matches(pattern, every)
    inverted = (len(text) - len(plain)) % 2 == 1
    return every - chosen if inverted else frozenset(chosen)


def _matches(pattern: str, names: frozenset[str]) -> Set[str]:
    """The names of one pattern; without any it is an error, unless a question mark leads it."""
    word = pattern.lstrip("?").removesuffix("@64")
    if word.startswith("%") or word in BARE:
        if word.removeprefix("%") in SETS:
            return names & SETS[word.removeprefix("%")]
        known = ", ".join(f"%{name}" for name in SETS)
        raise _unknown(pattern, f"there is no such set; there are {known}")
    if word.startswith("/"):
        found = _of_expression(pattern, word[1:], names)
    elif word.isdecimal():
        found = {call.name for call in table.load() if call.nr == int(word)} & names
    else:
        found = set(fnmatch.filter(names, word))
    if not found and not pattern.startswith("?"):
        near = difflib.get_close_matches(word, names, 1)
        raise _unknown(
            pattern,
            f"did you mean '{near[0]}'?" if near else "there is no system call of that name",
        )
    return found


def _of_expression(pattern: str, text: str, names: frozenset[str]) -> set[str]:
    if "[:" in text:
        raise _unknown(pattern, "classes as [:alpha:] are not known here; write [a-z]")
    try:
        return {name for name in names if re.search(text, name)}
    except (re.error, OverflowError, RecursionError) as error:
        raise _unknown(pattern, f"no regular expression: {error}") from error


def _unknown(pattern: str, why: str) -> TraplessError:
    return TraplessError(
        f"-e: '{pattern}': {why}; give names, patterns or sets, as in trace=read,'epoll_*', "
        f"%file or '!futex'",
        status=2,
    )


def all_names() -> list[str]:
    """Every system call that the table knows."""
    return [call.name for call in table.load()]
