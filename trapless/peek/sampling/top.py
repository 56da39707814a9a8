# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek top`: shows live from outside what a running kernel does.

Owns the view: each second, the rows of that second are added up and shown. The sampler follows the
same plan as for a recording; when probes come into the target or leave it, sampling begins again
with a new plan. When the machine is restarted, its next kernel is shown. A terminal shows one page
that changes; a pipe gets the text of each second, or a JSON object for each.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from trapless.base.console import Progress, Silent, colours, output_columns
from trapless.peek.errors import PeekError
from trapless.peek.kernel.counters import Counters
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Machine
from trapless.peek.sampling import json_form, recording_tables, tier0, tier1
from trapless.peek.sampling.boots import STILL_S, Boots
from trapless.peek.sampling.code_names import Names
from trapless.peek.sampling.probe_watch import Watch
from trapless.peek.sampling.record import (
    Request,
    ended_by_signals,
    ending_text,
    lack_of,
    plan_for,
    source_of,
)
from trapless.peek.sampling.recording import table_of
from trapless.peek.sampling.sample_rows import Flag, Rows
from trapless.peek.sampling.sample_summary import Summary
from trapless.peek.sampling.sampler import AnySampler, started
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
        self._stream = stream
        self._missing = missing
        self._terminal = stream.isatty()
        self._console = Console(
            file=stream,
            width=None if self._terminal else output_columns(stream, FILE_COLUMNS),
            color_system=colours(),
            highlight=False,
            markup=False,
            emoji=False,
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
        self.say(Group(head, *note, *rest))
        return self.count()

    def say(self, second: Group) -> None:
        """Show something in the place of the last second."""
        self._last = second
        if self._terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, screen=True)
                self._live.start()
            self._live.update(second, refresh=True)
        else:
            self._console.print(second)

    def write(self, one: dict[str, object]) -> None:
        """Write something as a line of JSON."""
        self._stream.write(json.dumps(one) + "\n")
        self._stream.flush()

    def count(self) -> bool:
        if self.left is not None:
            self.left -= 1
        return self.left != 0


def top(
    machine: Machine,
    *,
    interval_ns: int,
    cpu: int | None,
    updates: int | None,
    progress: Progress,
    as_json: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Show `updates` seconds, or all until Ctrl-C or the machine's end."""
    progress.step(f"resolving the kernel in {machine}")
    first = machine.open()
    target: Target | None = first
    emulator = machine.emulator()
    request, boot = Request(), 1
    view = View(
        stream if stream is not None else sys.stdout, updates, lack_of(first, emulator, cpu)
    )
    with view, ended_by_signals(request):
        while target is not None:
            with target:
                boots, names, more = Boots(target, emulator), Names(target), True
                seconds = Seconds(target, names, view, boot, as_json)
                while more and not request.asked:
                    more = False  # where an error is passed over
                    with boots.passing_errors():
                        watch = Watch(target, Silent().note)
                        plan = plan_for(target, interval_ns, 0, cpu, emulator, watch.first)
                        progress.done()
                        with started(source_of(target), plan) as run:
                            request.run = run
                            more = _show(run, seconds, watch, boots)
                restarted = not seconds.enough and not request.asked and not boots.look()
                target = _next(boots, request, seconds) if restarted else None
                boot += 1
    ending = None if request.run is None else ending_text(request.run)
    if ending is not None:
        progress.note(ending)


def _next(boots: Boots, request: Request, seconds: Seconds) -> Target | None:
    """The kernel after a restart."""
    seconds.tell_restart()
    return boots.next(lambda: request.asked)


def _show(run: AnySampler, seconds: Seconds, watch: Watch, boots: Boots) -> bool:
    """Show seconds until the view has enough; return whether to go on with a new plan."""
    for window in _windows(run):
        if not boots.look():
            return False
        if not seconds.show(run, window, watch, boots.still_s, boots.is_suspect()):
            return False
        watch.look()
        if watch.gone or watch.came:
            return boots.look() and not boots.is_gone()  # the whole machine may have gone
    return False


def _windows(run: AnySampler) -> Iterator[Window]:
    window = Window()
    for rows in run.batches():
        window.rows.append(rows)
        if window.age_s >= REFRESH_S:
            yield window
            window = Window()


@dataclass
class Seconds:
    """Adds up the rows of each second of one boot, and shows them."""

    target: Target
    names: Names
    view: View
    boot: int
    as_json: bool
    enough: bool = False

    def __post_init__(self) -> None:
        self._counters = Counters(self.target)
        self._last = self._counters.read()

    def _rates(self) -> dict[int, dict[str, float]]:
        """The kernel's own counts since the last second."""
        with contextlib.suppress(PeekError):  # the memory is going: the sampler notices that
            now, before = self._counters.read(), self._last
            self._last = now
            return self._counters.rates(before, now)
        return {}

    def show(
        self,
        run: AnySampler,
        window: Window,
        watch: Watch,
        still_s: float,
        is_suspect: bool,
    ) -> bool:
        """Show a second, and return whether another one is to follow.

        `still_s`: for how long the kernel's clock has stood still. If the machine worked meanwhile
        (`is_suspect`), its memory says nothing of it: that is shown in place of figures.
        """
        if is_suspect:
            return self._show_doubt(still_s)
        summary = Summary(
            run.head.groups,
            len(run.head.threads),
            names=self.names.known,
            context_user=tier0.context_user(self.target),
            rates=self._rates(),
            differences=tier0.differences(self.target),
        )
        for rows in window.rows:
            self.names.see(rows)
            summary.add(table_of(rows))
        if self.as_json:
            self.view.write(self._object(run, summary))
            more = self.view.count()
        else:
            more = self.view.show(*self._blocks(run, window, watch, summary, still_s))
        self.enough = not more
        return more

    def _show_doubt(self, still_s: float) -> bool:
        if self.as_json:
            self.view.write({**self._moment(), "clock_still_s": round(still_s, 1)})
            more = self.view.count()
        else:
            text = (
                f"{self.target.release}: its clock has stood still for {still_s:.0f} s, and the "
                "machine works: it was restarted, or its kernel has died; looking for one that runs"
            )
            more = self.view.show(Text(text, style="bold"))
        self.enough = not more
        return more

    def tell_restart(self) -> None:
        """Say that the machine was restarted, and that its next kernel is waited for."""
        if self.as_json:
            self.view.write({"time_ns": time.time_ns(), "boot": self.boot, "restarted": True})
        else:
            text = f"{self.target.release}: the machine was restarted; waiting for a kernel"
            self.view.say(Group(Text(text)))

    def _object(self, run: AnySampler, summary: Summary) -> dict[str, object]:
        return {
            **self._moment(),
            "user_mode_known": json_form.knows_user_mode(summary),
            **json_form.sums(summary, run.head.interval_ns),
        }

    def _moment(self) -> dict[str, object]:
        release = str(self.target.release)
        return {"time_ns": time.time_ns(), "kernel": release, "boot": self.boot}

    def _blocks(
        self,
        run: AnySampler,
        window: Window,
        watch: Watch,
        summary: Summary,
        still_s: float,
    ) -> Sequence[RenderableType]:
        interval_ns = run.head.interval_ns
        contents = [
            recording_tables.shares(summary, interval_ns),
            *recording_tables.counts(summary),
        ]
        if summary.judged:
            contents.append(recording_tables.interrupts(summary, interval_ns, ROUTINES_SHOWN))
        contents += [recording_tables.processes(summary), *recording_tables.programs(summary)]
        head = Text(_headline(self.target, run, window, summary), style="bold")
        if self.boot > 1:
            head.append(f"; boot {self.boot} since this began")
        if still_s >= STILL_S:
            head.append(f"; its clock has stood still for {still_s:.0f} s")
        user_mode = tier0.tells_user_mode(run.head.dtype.names or ())
        knowledge = Text(tier1.knowledge_text(watch.now, user_mode=user_mode), style="dim")
        return (head, knowledge, *(block_of(table, self.view.width) for table in contents))


def _headline(target: Target, run: AnySampler, window: Window, summary: Summary) -> str:
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
