# SPDX-License-Identifier: GPL-2.0-only
"""`trapless doctor`: what this machine and kernel can run, and for each 'no' the reason and remedy.

This file asks the questions of capabilities.py, supervisor_offer.py and peek_sources.py and shows
the answers: a table on a terminal, one line each in pipes or where Python lacks rich, or JSON. It
changes nothing, and a 'no' is no failure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TextIO

from trapless.base.console import ConsoleProgress, Progress, Silent, colours, terminal_columns
from trapless.doctor import capabilities, peek_sources, supervisor_offer
from trapless.doctor.capabilities import GROUPS, Capability, Host

LAB_NEEDS = ("python", "qemu", "memory")
"""Without these no VM starts; kernels come from the cache or from the mirror."""

HOST_NEEDS = ("x86-64", "symbols", "headers", "loading", "unsigned")
"""Without these the module cannot be loaded into the running kernel."""

PEEK = "peek"
"""The name of the one group that is shown alone: operators of VMs need no other."""

TABLE_COLUMNS_MIN = 60
"""On a narrower terminal the table's marks and answers would be left out; lines wrap."""


@dataclass(frozen=True)
class Group:
    """Capabilities under one heading."""

    title: str
    capabilities: tuple[Capability, ...]


def run(
    *, calls: bool = False, names: Sequence[str] = (), as_json: bool = False, online: bool = False
) -> int:
    """Print the findings, with the name `peek` only its own, or with `calls` the table of calls;
    always 0."""
    if calls:
        from trapless import calls as calls_table
        from trapless.doctor import compound_calls

        calls_table.show(names, as_json=as_json, compound=compound_calls.examine(Host()))
        return 0
    if tuple(names) == (PEEK,):
        groups: tuple[Group, ...] = (peek_group(Host()),)
    else:
        with ConsoleProgress() as progress:
            groups = examine(Host(), online=online, progress=progress)
    show(groups, sys.stdout, as_json=as_json)
    return 0


def examine(
    host: Host, *, online: bool = False, progress: Progress | None = None
) -> tuple[Group, ...]:
    """Ask every question; with `online` also whether the mirror answers."""
    reporter = progress if progress is not None else Silent()
    groups = []
    for title, questions in GROUPS:
        answers = []
        for question in questions:
            reporter.step(_step(title, question.__name__))
            answers.append(question(host))
        if online and capabilities.fetching in questions:
            reporter.step(_step(title, capabilities.mirror.__name__))
            answers.append(capabilities.mirror(host))
        groups.append(Group(title, tuple(answers)))
    reporter.step(_step(supervisor_offer.TITLE))
    groups.insert(-1, Group(supervisor_offer.TITLE, supervisor_offer.examine(host)))
    reporter.step(_step(peek_sources.TITLE))
    groups.insert(-1, peek_group(host))
    reporter.done()
    return tuple(groups)


def peek_group(host: Host) -> Group:
    """What peek can look into."""
    return Group(peek_sources.TITLE, peek_sources.examine(host))


def _step(title: str, question: str = "") -> str:
    """What a step says while it lasts, and whoever stops the command.

    >>> _step("The command", "build_tools")
    'looking at the command (build tools)'
    """
    about = f"looking at {title[0].lower()}{title[1:]}"
    return f"{about} ({question.replace('_', ' ')})" if question else about


def verdict(groups: Sequence[Group]) -> list[str]:
    """What can be done here, in a few sentences; none of peek alone."""
    answers = {one.id: one for group in groups for one in group.capabilities}
    if "device" not in answers:
        return []

    def lacking(needs: Sequence[str]) -> list[str]:
        return [answers[need].title for need in needs if not answers[need].ok]

    kernels = answers["kernels"].ok or answers["fetch"].ok
    in_lab = lacking(LAB_NEEDS) + ([] if kernels else ["a kernel"])
    on_host = lacking(HOST_NEEDS)
    if in_lab:
        lines = [f"The lab does not run here; it lacks: {', '.join(in_lab)}."]
    else:
        speed = "at full speed" if answers["kvm"].ok else "emulated"
        lines = [f"The lab runs here, {speed}. Try: trapless lab -- uname -r"]
    if answers["device"].ok:
        lines.append("The module is loaded: programs with libtrapless use it.")
    elif on_host:
        lines.append(f"This machine's own kernel cannot take the module: {', '.join(on_host)}.")
    else:
        lines.append("This machine's own kernel can take the module: trapless module load")
    by = "the module" if answers["device"].ok else "threads that make plain calls"
    lines.append(f"Files for asyncio, Node and tokio work by {by}, without root and io_uring.")
    return lines


def show(groups: Sequence[Group], stream: TextIO, *, as_json: bool = False) -> None:
    """Print the answers in the form that suits the reader."""
    if as_json:
        data = {
            "verdict": verdict(groups),
            "capabilities": [
                {"group": group.title, **asdict(one)}
                for group in groups
                for one in group.capabilities
            ],
        }
        stream.write(json.dumps(data, indent=2) + "\n")
    elif stream.isatty() and find_spec("rich") and terminal_columns(stream) >= TABLE_COLUMNS_MIN:
        _show_table(groups, stream)
    else:
        stream.writelines(line + "\n" for line in _lines(groups))


def _lines(groups: Sequence[Group]) -> list[str]:
    lines = []
    for group in groups:
        lines.append(f"{group.title}:")
        for one in group.capabilities:
            lines.append(f"  {'yes' if one.ok else 'no ':<4} {one.title}: {one.found}")
            if not one.ok or _hint(one):
                lines.append(f"       -> {one.remedy}")
    can = verdict(groups)
    return [*lines, "", *can] if can else lines


def _hint(one: Capability) -> bool:
    """Whether a yes has a remedy: some kernels or machines are there, and others could be."""
    return one.ok and one.id in ("kernels", "guests") and bool(one.remedy)


def _show_table(groups: Sequence[Group], stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(
        file=stream, color_system=colours(), highlight=False, markup=False, emoji=False
    )
    for group in groups:
        table = Table(
            box=box.SIMPLE,
            show_header=False,
            pad_edge=False,
            title=Text(group.title, style="bold"),
            title_justify="left",
        )
        table.add_column(width=3, no_wrap=True)
        table.add_column(width=34)
        table.add_column()
        for one in group.capabilities:
            mark = Text("yes", style="green") if one.ok else Text("no", style="red")
            answer = Text(one.found)
            if not one.ok or _hint(one):
                answer.append(f"\n{one.remedy}", style="dim" if one.ok else "yellow")
            table.add_row(mark, one.title, answer)
        console.print(table)
    for line in verdict(groups):
        console.print(Padding(Text(line, style="bold"), (0, 0, 0, 0)))
