# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek top`: shows live from outside what a running kernel does.

Owns the view: each second, the rows of that second are added up and shown. The sampler follows the
same plan as for a recording; when probes come into the target or leave it, sampling begins again
with a new plan. A terminal shows one page that changes; a pipe gets the text of each second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from trapless.base.console import Progress, Silent
from trapless.peek.emulator import emulator_of, missing_text
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import tables, tier0, tier1
from trapless.peek.sampling.names import Names
from trapless.peek.sampling.probe_watch import Watch
from trapless.peek.sampling.record import (
    ENDINGS,
    ended_by_signals,
    is_same,
    plan_for,
    source_of,
)
from trapless.peek.sampling.recording import table_of
from trapless.peek.sampling.rows import Flag, Rows
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.sampling.summary import Summary
from trapless.peek.sandbox.client import open_target
from trapless.report.text_report import FILE_COLUMNS, block_of

REFRESH_S = 1.0
ROUTINES_SHOWN = 6


@dataclass
class Window:
    """The rows of one second."""

    began: float = field(default_factory=time.monotonic)
    rows: list[Rows] = field(default_factory=list)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began


class View:
    """Shows seconds on a terminal or in a pipe, each with the note `missing`, if there is one.

    `left`: how many are still to be shown.
    """

    def __init__(self, stream: TextIO, updates: int | None, missing: str | None) -> None:
        self.left = updates
        self._missing = missing
        self._terminal = stream.isatty()
        width = None if self._terminal else FILE_COLUMNS
        self._console = Console(
            file=stream, width=width, highlight=False, markup=False, emoji=False
        )
        self._live: Live | None = None
        self._last = Group()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._console.print(self._last)  # stays when the terminal is as it was before

    @property
    def width(self) -> int:
        return self._console.width

    def show(self, *parts: RenderableType) -> bool:
        """Show a second, and return whether another one is to follow."""
        head, *rest = parts
        note = () if self._missing is None else (Text(self._missing, style="dim"),)
        second = Group(head, *note, *rest)
        self._last = second
        if self._terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, screen=True)
                self._live.start()
            self._live.update(second, refresh=True)
        else:
            self._console.print(second)
        if self.left is not None:
            self.left -= 1
        return self.left != 0


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
    """Show `updates` seconds, or all until Ctrl-C or the target's end. `hole` is in bytes."""
    progress.step(f"resolving the kernel in {ram}")
    with open_target(ram, hole) as target:
        emulator = emulator_of(ram)
        names = Names(target)
        view = View(stream if stream is not None else sys.stdout, updates, missing_text(emulator))
        with view:
            more = True
            while more:
                watch = Watch(target, Silent().note)
                plan = plan_for(target, interval_ns, 0, cpu, emulator, watch.first)
                progress.done()
                with Sampler(source_of(target), plan) as run, ended_by_signals(run.stop):
                    more = _show(target, run, view, watch, names, progress)
    if run.end is not None:
        progress.note(ENDINGS[run.end.ending])


def _show(
    target: Target, run: Sampler, view: View, watch: Watch, names: Names, progress: Progress
) -> bool:
    """Show seconds until the view has enough; return whether to go on with a new plan."""
    for window in _windows(run):
        more = view.show(*_second(target, run, window, watch, names, view.width))
        if not more or not is_same(target, progress):
            return False
        watch.look()
        if watch.gone or watch.came:
            return is_same(target, progress)  # the whole machine may have gone
    return False


def _windows(run: Sampler) -> Iterator[Window]:
    window = Window()
    for rows in run.batches():
        window.rows.append(rows)
        if window.age_s >= REFRESH_S:
            yield window
            window = Window()


def _second(
    target: Target, run: Sampler, window: Window, watch: Watch, names: Names, width: int
) -> Sequence[RenderableType]:
    summary = Summary(
        run.head.groups,
        len(run.head.threads),
        names=names.known,
        context_user=tier0.context_user(target),
    )
    for rows in window.rows:
        names.see(rows)
        summary.add(table_of(rows))
    interval_ns = run.head.interval_ns
    contents = [tables.shares(summary, interval_ns)]
    if summary.judged:
        contents.append(tables.interrupts(summary, interval_ns, ROUTINES_SHOWN))
    contents += [tables.processes(summary), *tables.programs(summary)]
    head = Text(_headline(target, run, window, summary), style="bold")
    user_mode = tier0.tells_user_mode(run.head.dtype.names or ())
    knowledge = Text(tier1.knowledge_text(watch.now, user_mode=user_mode), style="dim")
    return (head, knowledge, *(block_of(table, width) for table in contents))


def _headline(target: Target, run: Sampler, window: Window, summary: Summary) -> str:
    frozen = f"{summary.flagged(Flag.FROZEN):.1%}" if run.head.threads else "not known"
    text = (
        f"{target.release}  {summary.rows / max(window.age_s, 1e-9):,.0f} samples/s of "
        f"{1e9 / run.head.interval_ns:,.0f}, lag {summary.lag_text(0.5)}, 99% "
        f"{summary.lag_text(0.99)}, lost {summary.lost():.1%}, "
        f"torn {summary.flagged(Flag.TORN):.1%}, frozen {frozen}"
    )
    if summary.counts is not None:
        processes, threads = summary.counts
        text += f"; {processes} processes, {threads} threads"
    return text
