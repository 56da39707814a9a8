# SPDX-License-Identifier: GPL-2.0-only
"""Runs whole commands in the lab, and counts their crossings into the kernel and their
instructions.

The program beside this file counts in the guest; this file owns how commands are handed to it and
how its rows are read. Which commands, and what their figures mean, is an experiment's business.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trapless.experiments.collection import Row

GUEST_PROGRAM = "/bin/crossings"
UNITS = ("crossings", "instructions")


@dataclass(frozen=True)
class Command:
    """A command of the guest, and what it is called in rows: call and mechanism.

    `argv[0]` is a path. `output` takes its standard output. It must not sleep: a count of
    instructions would hold the idle time, so the counter refuses it.
    """

    call: str
    mechanism: str
    argv: tuple[str, ...]
    output: str = "/dev/null"
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Counts:
    """The counts of one command's repeats."""

    crossings: tuple[int, ...]
    instructions: tuple[int, ...]


Key = tuple[str, str]  # call, mechanism


def shell_line(
    command: Command, repeats: int, modes: Sequence[str] = (), kind: str = "counted"
) -> str:
    """One line for the guest's shell that counts a command; with `modes`, in each of them by turns.

    >>> shell_line(Command("du", "plain", ("/bin/du", "a b"), env=(("LC_ALL", "C"),)), 3)
    "LC_ALL=C /bin/crossings --call du --mechanism plain --output /dev/null --repeats 3 -- \
/bin/du 'a b'"
    """
    options = {
        "call": command.call,
        "mechanism": command.mechanism,
        "output": command.output,
        "repeats": str(repeats),
    }
    if modes:
        options |= {"modes": ",".join(modes), "kind": kind}
        del options["mechanism"]  # a row carries its mode
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    settings = [f"{name}={shlex.quote(value)}" for name, value in command.env]
    return " ".join([*settings, shlex.join([GUEST_PROGRAM, *words, "--", *command.argv])])


def timed_line(command: Command, number: int, modes: Sequence[str] = ()) -> str:
    """One line for the shell that times a command once; with `modes`, once in each of them. Its row
    carries the number of the round."""
    options = {"call": command.call, "mechanism": command.mechanism, "output": command.output}
    if modes:
        options |= {"modes": ",".join(modes)}
    options |= {"kind": "measured", "first": str(number)}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    settings = [f"{name}={shlex.quote(value)}" for name, value in command.env]
    return " ".join([*settings, shlex.join([GUEST_PROGRAM, *words, "--", *command.argv])])


def counts(rows: Iterable[Row]) -> dict[Key, Counts]:
    """Counted rows by command. KeyError where a command has one unit and not the other."""
    commands: dict[Key, dict[str, list[int]]] = {}
    for row in rows:
        if row.get("kind") == "counted" and row.get("unit") in UNITS:
            units = commands.setdefault((row["call"], row["mechanism"]), {})
            units.setdefault(row["unit"], []).append(int(row["value"]))
    return {
        key: Counts(tuple(units["crossings"]), tuple(units["instructions"]))
        for key, units in commands.items()
    }


def differing(commands: Mapping[Key, Counts]) -> Sequence[Key]:
    """Commands whose repeats made different numbers of crossings: under --icount a fault."""
    return [key for key, count in commands.items() if len(set(count.crossings)) != 1]
