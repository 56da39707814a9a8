# SPDX-License-Identifier: GPL-2.0-only
"""`trapless ps`: the processes that were switched, their modes, and which way their calls went.

This file owns the three forms: a table on a terminal, one line each in pipes, JSON.
include/uapi/linux/trapless.h defines the numbers; control.py reads them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trapless.abi import Demotion, Mode
from trapless.base.console import colours
from trapless.supervisor import control
from trapless.supervisor.control import Process
from trapless.supervisor.refusals import of_mask

ENDED = "(ended)"

COLUMNS = (
    *("PID", "MODE", "THREADS", "SUPERVISOR", "OPTIONS", "SWITCHES"),
    *("CALLS", "SHARE", "DIRECT", "WORKED", "LEFT", "KERNEL"),
    *(cause.name for cause in Demotion),
    "COMMAND",
)


def run(*, as_json: bool = False) -> int:
    """Print the processes; always 0."""
    refusals = control.refusals()
    show(control.processes(), refusals, sys.stdout, as_json=as_json)
    return 0


def show(
    processes: Sequence[Process], refusals: int, stream: TextIO, *, as_json: bool = False
) -> None:
    """Print them in the form that suits the reader."""
    living = [process for process in processes if process.pid]
    ended = [process for process in processes if not process.pid and process.calls.total]
    if as_json:
        stream.write(json.dumps(_data(living, ended, refusals), indent=2) + "\n")
    elif not stream.isatty():
        stream.writelines(line + "\n" for line in _lines([*living, *ended]))
    elif living or ended:
        console = Console(
            file=stream, color_system=colours(), highlight=False, markup=False, emoji=False
        )
        console.print(_table([*living, *ended]))
    else:
        stream.write(f"No process was switched{_refused(refusals)}.\n")


def _refused(refusals: int) -> str:
    rows = of_mask(refusals)
    if not rows:
        return "; trapless switch --supervisor PID does it"
    return f", and none can be: {rows[0].reason} (see trapless doctor)"


def _data(living: Sequence[Process], ended: Sequence[Process], refusals: int) -> dict[str, object]:
    return {
        "refusals": [row.name for row in of_mask(refusals)],
        "processes": [{"pid": one.pid, **_details(one)} for one in living],
        "ended": _counts(ended[0]) if ended else None,
    }


def _details(process: Process) -> dict[str, object]:
    return {
        "command": process.command,
        "mode": process.mode.name.lower(),
        "threads": process.threads,
        "threads_in_supervisor_mode": process.supervisor,
        "options": list(process.options),
        "memory_locked": process.resident == 1,
        "switches": process.switches,
        **_counts(process),
    }


def _counts(process: Process) -> dict[str, object]:
    demotions = {cause.name.lower(): count for cause, count in process.demotions.items()}
    calls = {**asdict(process.calls), "total": process.calls.total}
    return {"calls": calls, "share": process.calls.share, "demotions": demotions}


def _lines(processes: Sequence[Process]) -> list[str]:
    rows = [COLUMNS, *(_columns(process) for process in processes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS) - 1)]
    return [
        " ".join(
            [*(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]
        )
        for row in rows
    ]


def _columns(process: Process) -> tuple[str, ...]:
    calls = process.calls
    numbers = (calls.direct, calls.worked, calls.left, calls.kernel, *process.demotions.values())
    return (
        str(process.pid or "-"),
        process.mode.name.lower() if process.pid else "-",
        str(process.threads),
        str(process.supervisor),
        ",".join(process.options) or "-",
        str(process.switches),
        str(calls.total),
        "-" if calls.share is None else f"{calls.share:.4f}",
        *(str(number) for number in numbers),
        process.command if process.pid else ENDED,
    )


def _table(processes: Sequence[Process]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("process")
    for title in ("calls", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("by path", "demoted by"):
        table.add_column(title, no_wrap=True)
    for process in processes:
        calls = process.calls
        table.add_row(
            _about(process),
            f"{calls.total:,}",
            "" if calls.share is None else f"{calls.share:.1%}",
            _listed(asdict(calls)),
            _listed({_word(cause): count for cause, count in process.demotions.items()}),
        )
    return table


def _about(process: Process) -> Text:
    """Process ID, command, mode, threads and options."""
    if not process.pid:
        return Text(ENDED)
    text = Text(f"{process.pid} {process.command}", style="bold")
    style = "yellow" if process.mode is Mode.SUPERVISOR else ""
    text.append(f"\n{process.mode.name.lower()} mode", style=f"not bold {style}")
    text.append(f", {process.supervisor} of {process.threads} threads", style="not bold")
    options = [*process.options, *_locking(process)]
    if options:
        text.append(f"\nwith {', '.join(options)}", style="not bold")
    return text


def _locking(process: Process) -> tuple[str, ...]:
    """The error where the memory could not be locked."""
    if process.resident < 0:
        return (f"but not locked: {os.strerror(-process.resident)}",)
    return ()


def _word(cause: Demotion) -> str:
    return cause.name.lower().replace("_", " ")


def _listed(numbers: dict[str, int]) -> Text:
    """The numbers that are not zero, one a line, aligned."""
    cells = {name: f"{number:,}" for name, number in numbers.items() if number}
    width = max((len(number) for number in cells.values()), default=0)
    return Text("\n".join(f"{number:>{width}} {name}" for name, number in cells.items()))
