# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek top`: what a running kernel does, live, from outside.

The sampler follows the same plan as for a recording; each second its rows are added up and shown.
On a terminal the tables stand still and change; into a pipe each second is printed. It owns no
sampling (record.py) and no sums (summary.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from trapless.console import Progress
from trapless.peek.record import ENDINGS, ended_by_signals, is_same, plan_for, source_of
from trapless.peek.recording import table_of
from trapless.peek.rows import Flag, Rows
from trapless.peek.sampler import Sampler
from trapless.peek.summary import Summary, processes, shares
from trapless.peek.target import Target
from trapless.peek.vcpus import emulator_of
from trapless.reporting.text_report import FILE_COLUMNS, grid_of

REFRESH_S = 1.0


@dataclass
class Window:
    """The rows of one second."""

    began: float = field(default_factory=time.monotonic)
    rows: list[Rows] = field(default_factory=list)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began


def top(
    ram: Path,
    hole: int | None,
    *,
    interval_ns: int,
    cpu: int | None,
    updates: int | None,
    progress: Progress,
    stream: TextIO | None = None,
) -> None:
    """Show `updates` times, or until Ctrl-C or the target's end."""
    progress.step(f"resolving the kernel in {ram}")
    with Target.open(ram, hole) as target:
        plan = plan_for(target, interval_ns, 0, cpu, emulator_of(ram))
        progress.done()
        with Sampler(source_of(target), plan) as run, ended_by_signals(run.stop):
            _show(target, run, updates, progress, stream if stream is not None else sys.stdout)


def _show(
    target: Target, run: Sampler, updates: int | None, progress: Progress, stream: TextIO
) -> None:
    terminal = stream.isatty()
    console = Console(file=stream, width=None if terminal else FILE_COLUMNS, highlight=False)
    shown = 0
    with Live(console=console, auto_refresh=False, screen=terminal) as live:
        for window in _windows(run):
            view = _view(target, run, window, console.width)
            if terminal:
                live.update(view, refresh=True)
            else:
                console.print(view)
            shown += 1
            if shown == updates or not is_same(target, progress):
                break
    if run.end is not None:
        progress.note(ENDINGS[run.end.ending])


def _windows(run: Sampler) -> Iterator[Window]:
    window = Window()
    for rows in run.batches():
        window.rows.append(rows)
        if window.age_s >= REFRESH_S:
            yield window
            window = Window()


def _view(target: Target, run: Sampler, window: Window, width: int) -> Group:
    summary = Summary(run.head.groups, len(run.head.threads))
    for rows in window.rows:
        summary.add(table_of(rows))
    tables = (grid_of(table, width) for table in (shares(summary), processes(summary)))
    return Group(Text(_headline(target, run, window, summary), style="bold"), *tables)


def _headline(target: Target, run: Sampler, window: Window, summary: Summary) -> str:
    return (
        f"{target.release}  {summary.rows / max(window.age_s, 1e-9):,.0f} samples/s of "
        f"{1e9 / run.head.interval_ns:,.0f}, lag {summary.lag_text(0.5)}, 99% "
        f"{summary.lag_text(0.99)}, lost {summary.lost():.1%}, "
        f"torn {summary.flagged(Flag.TORN):.1%}, frozen {summary.flagged(Flag.FROZEN):.1%}"
    )
