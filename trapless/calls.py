# SPDX-License-Identifier: GPL-2.0-only
"""Which system calls may be wrapped, and why the others may not: `trapless doctor --calls`.

The rows are those of include/uapi/linux/trapless_calls.h, the one table that the module and the
library are compiled with; this file reads it as text, with the numbers of one architecture. It owns
how rows are read, selected and shown.
"""

from __future__ import annotations

import enum
import fnmatch
import io
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TextIO

import click

from trapless.base.console import TraplessError, colours
from trapless.base.paths import header_path

HEADER = "trapless_calls.h"
COMPOUND = "compound"
"""The word that selects the requests which are no system calls."""
ROW = re.compile(
    r"(TL_ANY|TL_HOT|TL_NULL_MASK|TL_SELF_VALUE|TL_BATCH_ONLY|TL_REFUSED)"
    r"\((?P<name>\w+), (?:TL_BY_ARCH\((?P<x86>\d+), (?P<arm>\d+)\)|(?P<nr>\d+))"
    r"(?P<argument>, [0-5](?P<value>, 0x[0-9a-f]+, 0x[0-9a-f]+)?)?"
    r'(?:, "(?P<why>(?:[^"\\]|\\.)*)")?\)'
)
X86_ALONE = "#ifdef __x86_64__", "#endif"
"""The lines around the rows of calls that only x86-64 has."""


class CallClass(enum.Enum):
    """Who may execute a call; the value is the word that people write and read."""

    ANY = "any"
    NULL_MASK = "null-mask"
    SELF_VALUE = "self-value"
    BATCH_ONLY = "batch-only"
    REFUSED = "refused"


MACROS = {
    "TL_ANY": CallClass.ANY,
    "TL_HOT": CallClass.ANY,
    "TL_NULL_MASK": CallClass.NULL_MASK,
    "TL_SELF_VALUE": CallClass.SELF_VALUE,
    "TL_BATCH_ONLY": CallClass.BATCH_ONLY,
    "TL_REFUSED": CallClass.REFUSED,
}
MEANING = {
    CallClass.ANY: "in a batch or by a worker",
    CallClass.NULL_MASK: "the same, where its signal mask is null",
    CallClass.SELF_VALUE: "as any, but a worker refuses a value that means the calling thread",
    CallClass.BATCH_ONLY: "in one's own batch, not by a worker",
    CallClass.REFUSED: "never; a request for it is answered -EOPNOTSUPP",
}
COLOURS = {
    CallClass.ANY: "green",
    CallClass.NULL_MASK: "green",
    CallClass.SELF_VALUE: "green",
    CallClass.BATCH_ONLY: "yellow",
    CallClass.REFUSED: "red",
}


@dataclass(frozen=True)
class Call:
    """One row: a system call, its number, and the reason why it is restricted."""

    nr: int
    name: str
    allowed: CallClass
    reason: str = ""


@dataclass(frozen=True)
class CompoundCall:
    """A request that is no system call, and why it is off where it is."""

    nr: int
    name: str
    offered: bool
    reason: str


def parse(text: str, where: str = HEADER, machine: str = "x86_64") -> list[Call]:
    """Every row of the table that the architecture `machine` (as uname says it) has, by number.

    A row may go on in the next line. A line that begins like a row and is malformed is an error.
    """
    calls: dict[int, Call] = {}
    begin, last, skips, of_x86 = "", -1, False, False
    for number, line in enumerate(text.splitlines(), 1):
        if line in X86_ALONE:
            of_x86, last = line == X86_ALONE[0], -1
            skips = of_x86 and machine != "x86_64"
        if not begin and not line.startswith("TL_"):
            continue
        begin += line.strip()
        if begin.endswith(","):
            begin += " "
            continue
        row, begin, shown = ROW.fullmatch(begin), "", begin
        if (
            row is None
            or (row[1] in ("TL_ANY", "TL_HOT")) != (row["why"] is None)
            or (row[1] in ("TL_NULL_MASK", "TL_SELF_VALUE")) != (row["argument"] is not None)
            or (row[1] == "TL_SELF_VALUE") != (row["value"] is not None)
        ):
            raise TraplessError(f"{where}, line {number}: not a row of the table: {shown}")
        order = int(row["nr"] or row["x86"])
        if order <= last:
            raise TraplessError(
                f"{where}, line {number}: {row['name']} ({order}) stands after {last}"
            )
        last = order
        if skips:
            continue
        nr = int(row["arm"]) if row["arm"] and machine == "aarch64" else order
        if nr in calls:
            name = calls[nr].name
            raise TraplessError(f"{where}, line {number}: {row['name']} has the number of {name}")
        reason = re.sub(r"\\(.)", r"\1", row["why"] or "")
        calls[nr] = Call(nr, row["name"], MACROS[row[1]], reason)
    if not calls:
        raise TraplessError(f"{where} holds no row of the table")
    return [calls[nr] for nr in sorted(calls)]


def load(machine: str = "") -> list[Call]:
    """All rows of the installed table for an architecture, as uname says it; else for this one."""
    path = header_path(HEADER)
    try:
        return parse(path.read_text(encoding="utf-8"), str(path), machine or platform.machine())
    except (OSError, UnicodeDecodeError) as error:
        raise TraplessError(f"{path}: cannot be read: {error}") from error


def choose(calls: Iterable[Call], wanted: Sequence[str]) -> list[Call]:
    """The rows that `wanted` selects by names, patterns (epoll_*), numbers, and classes.

    Names and numbers select rows; classes then keep those of their class.

    >>> rows = [Call(0, "read", CallClass.ANY), Call(59, "execve", CallClass.REFUSED, "no")]
    >>> [call.name for call in choose(rows, ["refused"])]
    ['execve']
    >>> [call.name for call in choose(rows, ["re*", "59"])]
    ['read', 'execve']
    """
    words = {allowed.value: allowed for allowed in CallClass}
    classes = {words[word] for word in wanted if word in words}
    patterns = [word for word in wanted if word not in words]
    rows = list(calls)
    for pattern in patterns:
        if not any(_means(pattern, call) for call in rows):
            raise TraplessError(
                f"no system call '{pattern}' in the table; a number without a row may not be "
                f"wrapped (-ENOSYS). Give a name, a pattern as in 'epoll_*', a number, or "
                f"one of {', '.join([*words, COMPOUND])}",
                status=2,
            )
    return [
        call
        for call in rows
        if (not classes or call.allowed in classes)
        and (not patterns or any(_means(pattern, call) for pattern in patterns))
    ]


def _means(pattern: str, call: Call | CompoundCall) -> bool:
    return pattern == str(call.nr) or fnmatch.fnmatchcase(call.name, pattern)


def show(
    wanted: Sequence[str],
    *,
    as_json: bool,
    stream: TextIO | None = None,
    compound: Sequence[CompoundCall] = (),
) -> None:
    """Print the rows that `wanted` selects: JSON, a paged table on a terminal, or plain lines.

    The compound calls follow: all where nothing is selected or the word "compound" is, else those
    that `wanted` names.
    """
    out = stream if stream is not None else sys.stdout
    rows = load()
    after = [
        call
        for call in compound
        if not wanted or COMPOUND in wanted or any(_means(word, call) for word in wanted)
    ]
    words = [
        word
        for word in wanted
        if word != COMPOUND
        and (any(_means(word, row) for row in rows) or not any(_means(word, one) for one in after))
    ]
    calls = choose(rows, words) if words or not wanted else []
    if as_json:
        data: dict[str, object] = {"calls": [_as_data(call) for call in calls]}
        if after:
            data[COMPOUND] = [asdict(call) for call in after]
        out.write(json.dumps(data, indent=2) + "\n")
    elif out.isatty() and find_spec("rich"):
        _page(calls, out, "".join(map(_compound_line, after)))
    else:
        out.writelines(_line(call) for call in calls)
        out.writelines(map(_compound_line, after))


def _compound_line(call: CompoundCall) -> str:
    state = "offered here" if call.offered else f"off: {call.reason}"
    return f"{call.nr:>4}  {call.name:<24} {COMPOUND:<11} {state}\n"


def _as_data(call: Call) -> dict[str, int | str]:
    return {
        "nr": call.nr,
        "name": call.name,
        "class": call.allowed.value,
        "reason": call.reason,
    }


def _line(call: Call) -> str:
    return f"{call.nr:>4}  {call.name:<24} {call.allowed.value:<11} {call.reason}".rstrip() + "\n"


def _page(calls: Sequence[Call], out: TextIO, after: str) -> None:
    """Print a table, through the pager where it is longer than the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=_summary(calls))
    table.caption_justify = "left"
    table.add_column("nr", justify="right")
    table.add_column("call", no_wrap=True)
    table.add_column("wrapped", no_wrap=True)
    table.add_column("why not everywhere")
    for call in calls:
        allowed = Text(call.allowed.value, style=COLOURS[call.allowed])
        table.add_row(str(call.nr), call.name, allowed, call.reason)
    columns, lines = shutil.get_terminal_size()
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=columns,
        force_terminal=True,
        color_system=colours(),
        highlight=False,
        markup=False,
        emoji=False,
    )
    if calls:
        console.print(table)
    text = buffer.getvalue() + after
    if text.count("\n") < lines:
        out.write(text)
        return
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager(text, color=True)


def _summary(calls: Sequence[Call]) -> str:
    lines = []
    for allowed, meaning in MEANING.items():
        count = sum(call.allowed is allowed for call in calls)
        if count:
            lines.append(f"{count} {allowed.value}: {meaning}")
    return "\n".join(lines)
