# SPDX-License-Identifier: GPL-2.0-only
"""The first screen of a report: where it was measured, what a user gains, what peek saw, and the
claims of the papers in short.

It chooses metrics of results and puts them side by side, for the page, the terminal and README. It
measures nothing and judges nothing. What was not evaluated is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trapless.report import tables
from trapless.report.document import Report
from trapless.report.figures import Figure, Mark, Table, bars
from trapless.results import claims
from trapless.results.estimate_file import Range
from trapless.results.result_file import Claim, Metric

WHAT = (
    "Trapless makes system calls without the trap, on the Linux kernel you already run: by "
    "batches, by workers in the kernel, or in supervisor mode. And it observes a kernel from "
    "outside. This report says what that saves here, beside what four papers published."
)
AT = 32  # calls a crossing: the batch size that the paper evaluates
CALLS, MODES, PROGRAMS, SEEN = "batch-size", "mode-switch", "ls", "os-behaviour"
GAINS = (CALLS, MODES, PROGRAMS)
"""The experiments of which the table of gains is made."""
# The columns, and for each the mechanisms to look for; io_uring has no getpid, its NOP stands in.
WRAPPED = {"plain call": ("plain",), "batch": ("batch",), "io_uring": ("io_uring", "io_uring-nop")}
UNMODIFIED = {"by trap": "trap", "supervisor": "supervisor"}
COLUMNS = ("", *WRAPPED, *UNMODIFIED, "unit")
# Rows: the subject's name in batch-size and in mode-switch where they make the same call.
ROWS = {
    "getpid": ("getpid", "getpid"),
    "getppid": ("getppid", "getppid"),
    "sbrk": ("", "sbrk"),
    "read of 1 B, tmpfs": ("read1", "read1"),
    "read of 4 KB, tmpfs": ("read4k", "read"),
    "read of 1 B, ext4": ("read1_disk", ""),
    "write of 1 B, /dev/null": ("write1", ""),
    "write of 1 B, tmpfs": ("", "write1"),
    "stat of a file": ("stat", ""),
}
ABSENT = "–"
BYTES = {"read of 4 KB, tmpfs": "†", "stat of a file": "†"}
HANDED, HANDED_FROM = "‡", 1000
ALWAYS_HANDED = ("stat of a file",)
"""io_uring leaves calls to a thread: these on every kernel, reads of tmpfs on newer ones. Then they
take a thousand instructions more than the plain call, and more."""
MARKS = {
    "*": "A NOP stands in, since io_uring has no such call.",
    "†": "Up to 4,096 of these are bytes: where a processor copies or clears a page by one "
    "instruction (rep movsb, rep stosb), the emulator counts each byte, so the share that is saved "
    "looks smaller than it is.",
    "‡": "io_uring leaves this call to a thread of the kernel, whose instructions are in it.",
}
"""Marks of rows, and of io_uring's cells, and what they say below the table."""
COUNTED, TIMED = "instructions", "ns"
"""The units of a call: counted in the lab, timed on a machine's own kernel."""
EVEN = {
    COUNTED: {
        "getpid.batch.break_even.n": "the count",
        "getpid.batch.break_even_measured.n": "the emulator's clock",
    },
    TIMED: {"getpid.batch.break_even_measured.n": "the clock"},
}
ESTIMATED = {
    "getpid": "uring.nop", "getppid": "uring.nop", "brk": "", "pread1": "uring.read", "pread4k": "",
    "write": "", "pwrite1": "", "stat": "", "openclose": "",
}  # fmt: skip
"""The calls of an estimate that are shown, and io_uring's request beside each."""
UNIT_WORDS = {COUNTED: "Instructions", TIMED: "Time"}
DRAWN = {"batch": "plain call", "io_uring": "plain call", "supervisor": "by trap"}
ACCOUNTS = {
    "user": "user", "kernel": "other kernel", "bottom-half": "bottom half", "top-half": "top half",
    "idle": "idle",
}  # fmt: skip
"""Shares of time that peek tells apart: the name in a metric, and in a figure."""
LOADS = ("nop", "qsort", "make", "httpd")


PLACES = {
    "tcg": "as distributed, in an emulated VM (QEMU, TCG) on",
    "kvm": "as distributed, in a VM (QEMU, KVM) on",
    "none": "its own kernel, on",
}
"""Where results were made, by their accelerator."""


@dataclass(frozen=True)
class Line:
    """One row of the table of gains."""

    name: str
    unit: str
    cells: Mapping[str, float]  # by column
    notes: Mapping[str, str]

    def text(self, column: str) -> str:
        """A cell as it is printed."""
        if column not in self.cells:
            return ABSENT
        return tables.number(self.cells[column]) + self.notes.get(column, "")


def settings(report: Report) -> list[str]:
    """On which kernels and machines the results were made, and when; a sentence each."""
    lines: dict[str, list[str]] = {}
    for section in report.sections:
        result = section.result
        where = PLACES.get(result.accelerator, f"{result.accelerator} on")
        text = f"Linux {result.kernel}, {where} {result.machine}"
        lines.setdefault(text, []).append(str(section.meta.get("date", ""))[:10])
    return [
        f"{text}; {days[0]}{f' to {days[-1]}' if days[0] != days[-1] else ''}."
        if (days := sorted(filter(None, dates)))
        else f"{text}."
        for text, dates in lines.items()
    ]


def metrics_of(report: Report, name: str) -> Mapping[str, Metric]:
    """The metrics of an experiment; none where it was not evaluated."""
    return next((one.result.metrics for one in report.sections if one.name == name), {})


def _line(name: str, unit: str, metrics: Mapping[str, Metric | None]) -> Iterator[Line]:
    """A row with its unit and kind, where there are at least two values to compare. Behind what was
    measured stands its spread."""
    cells = {column: metric.value for column, metric in metrics.items() if metric}
    kinds = {metric.kind for metric in metrics.values() if metric}
    if len(cells) < 2:
        return
    scale = 1.0
    if min(cells.values()) > 1e6:
        scale = 1e6
        unit, cells = f"million {unit}", {column: value / 1e6 for column, value in cells.items()}
    spreads = {
        column: f" ({tables.number(metric.spread / scale)})"
        for column, metric in metrics.items()
        if metric and metric.kind == "measured" and metric.spread
    }
    yield Line(name, f"{unit}, {' and '.join(sorted(kinds))}", cells, spreads)


def _beyond(found: Mapping[str, Metric | None], column: str, base: str) -> float:
    value, plain = found.get(column), found.get(base)
    return value.value - plain.value if value and plain else 0.0


def calls(report: Report) -> list[Line]:
    """What each call takes by each mechanism: instructions, or time where none were counted."""
    return _calls(report, COUNTED) or _calls(report, TIMED)


def _calls(report: Report, unit: str) -> list[Line]:
    wrapped, modes = metrics_of(report, CALLS), metrics_of(report, MODES)
    lines = []
    for name, (ours, other) in ROWS.items():
        found: dict[str, Metric | None] = {}
        notes = {}
        for column, mechanisms in WRAPPED.items():
            for mechanism in mechanisms:
                if column not in found and (
                    metric := wrapped.get(f"{ours}.{mechanism}.n{AT}.{unit}")
                ):
                    found[column] = metric
                    notes[column] = "*" if mechanism.endswith("-nop") else ""
        if unit == COUNTED and (
            name in ALWAYS_HANDED
            or ("tmpfs" in name and _beyond(found, "io_uring", "plain call") > HANDED_FROM)
        ):
            notes["io_uring"] = HANDED
        for column, mode in UNMODIFIED.items():
            # Where calls are timed, supervisor mode is compared with the calls that alternated with
            # it.
            mechanism = "trap-back" if (mode, unit) == ("trap", TIMED) else mode
            found[column] = modes.get(f"{other}.{mechanism}.static.{unit}")
        lines += [
            replace(
                line,
                notes={
                    column: notes.get(column, "") + line.notes.get(column, "") for column in COLUMNS
                },
            )
            for line in _line(name, unit, found)
        ]
    return lines


def others(report: Report) -> list[Line]:
    """A call's time, and that of whole programs, in which calls are only a part."""
    wrapped, modes, ls = (metrics_of(report, name) for name in (CALLS, MODES, PROGRAMS))
    one = Metric(1.0, "ratio", "measured")
    time: dict[str, Metric | None] = {
        "batch": wrapped.get(f"getpid.batch.n{AT}.ratio"),
        "io_uring": wrapped.get(f"getpid.io_uring-nop.n{AT}.ratio"),
        "supervisor": modes.get("getpid.supervisor.static.ratio"),
    }
    time |= {base: one for column, base in DRAWN.items() if time[column]}
    walk = {"plain call": "walk.plain", "batch": "walk.batch"}
    return [
        *_line("getpid, timed", "time, without = 1", time),
        *_line("walk of a tree", "instructions", {
            column: wrapped.get(f"{name}.total.instructions") for column, name in walk.items()
        }),
        *_line("walk of a tree", "ns", {
            column: wrapped.get(f"{name}.total.ns") for column, name in walk.items()
        }),
        *_line("walk of a tree", "crossings", {
            column: wrapped.get(f"{name}.crossings.count") for column, name in walk.items()
        }),
        *_line("ls -lR", "instructions", {
            column: ls.get(f"ls-lr.{mode}.busybox.instructions")
            for column, mode in UNMODIFIED.items()
        }),
        *_line("ls -lR", "ns", {
            column: ls.get(f"ls-lr.{mode}.busybox.ns") for column, mode in UNMODIFIED.items()
        }),
    ]  # fmt: skip


def time(report: Report) -> Table | None:
    """What a call takes in time, by the estimate of the machine that made the results."""
    found = report.estimate
    if found is None:
        return None
    least, most = found.supervisor_saves
    rows = []
    for name, request in ESTIMATED.items():
        call, beside = found.calls.get(name), found.uring.get(request)
        if call is None:
            continue
        plain, saved = call.plain.ns, call.saved[AT].ns
        mark = "*" if request == "uring.nop" else ""
        rows.append((
            call.title, _interval(call.plain), _interval(call.batch), f"{saved / plain:.0%}",
            _interval(beside, mark) if beside else ABSENT,
            f"{plain - call.crossings * most:,.0f} to {plain - call.crossings * least:,.0f}",
        ))  # fmt: skip
    shown = "".join(cell for row in rows for cell in row)
    return Table(
        id="time-table",
        title="What one call takes, in ns: an estimate",
        columns=("", "plain call", "batch", "saved by it", "io_uring", "supervisor"),
        rows=tuple(rows),
        caption=f"An estimate, in nanoseconds, for {found.machine}; intervals are in parentheses. "
        "Plain calls, io_uring and "
        f"traps were measured on its own kernel, with {AT} calls a crossing by io_uring and batch; "
        "the module's loop ran in user space (`trapless estimate`). The module itself ran in the "
        "emulator alone, which counted the instructions below."
        + (f" * {MARKS['*']}" if "*" in shown else ""),
    )


def _interval(time: Range, mark: str = "") -> str:
    """A median with its interval, in nanoseconds."""
    return f"{time.ns:,.0f}{mark} ({time.low:,.0f} to {time.high:,.0f})"


def time_headline(report: Report) -> str:
    """The same in a few sentences, and what a trap takes; nothing without an estimate."""
    found = report.estimate
    if found is None or not found.calls:
        return ""
    saved = {call.title: call.saved[AT].ns / call.plain.ns for call in found.calls.values()}
    most, least = max(saved, key=saved.__getitem__), min(saved, key=saved.__getitem__)
    one = next(iter(found.calls.values()))
    n = next((n for n, value in one.saved.items() if value.low > 0), None)
    low, high = found.supervisor_saves
    wins = f" A batch would win from {n} calls on." if n else ""
    return (
        f"By an estimate of time, a trap takes {found.trap.ns:.0f} ns, and a batch of {AT} would "
        f"save {one.saved[AT].ns:.0f} ns of each call: {saved[most]:.0%} of {most}, "
        f"{saved[least]:.0%} of {least}. Supervisor mode would save {low:.0f} to {high:.0f} ns."
        f"{wins}"
    )


def gain(report: Report) -> Table | None:
    """What a user gains: calls and programs, each mechanism beside the one that it replaces."""
    lines = [*calls(report), *others(report)]
    if not lines:
        return None
    pipeline = "Counted instructions leave out what a trap costs a processor's pipeline."
    rows = _rows(lines)
    return Table(
        id="gain-table",
        title="What one call takes",
        columns=COLUMNS,
        rows=tuple((*row, line.unit) for row, line in zip(rows, lines, strict=True)),
        caption=f"Batch and io_uring with {AT} calls a crossing, to be compared with the plain "
        "call of the same program; supervisor mode with the trap, of a program that was not "
        "modified. A smaller number is better. In parentheses: how far the quartiles of what was "
        "measured lie apart. " + (pipeline if _unit(lines) == COUNTED else "") + _marks(rows),
    )


def _rows(lines: list[Line]) -> list[tuple[str, ...]]:
    """The lines' names and cells, with their marks."""
    return [
        (
            line.name + (BYTES.get(line.name, "") if line.unit.startswith(COUNTED) else ""),
            *(line.text(column) for column in COLUMNS[1:-1]),
        )
        for line in lines
    ]


def _marks(rows: list[tuple[str, ...]]) -> str:
    """What the marks in these rows say."""
    shown = "".join(cell for row in rows for cell in row)
    return "".join(f" {mark} {text}" for mark, text in MARKS.items() if mark in shown)


def _unit(lines: list[Line]) -> str:
    """The unit of the calls: all lines have the same."""
    return TIMED if any(line.unit.startswith(TIMED) for line in lines) else COUNTED


def headline(report: Report) -> str:
    """The gain in a few sentences: in time, where there is an estimate, and counted."""
    return " ".join(filter(None, (time_headline(report), gain_headline(report))))


def gain_headline(report: Report) -> str:
    """What the experiments found, without the estimate."""
    lines = calls(report)
    unit = _unit(lines)
    words = []
    for column, name in (("batch", f"a batch of {AT}"), ("supervisor", "supervisor mode")):
        both = [line for line in lines if {column, DRAWN[column]} <= line.cells.keys()]
        saved = [line.cells[DRAWN[column]] - line.cells[column] for line in both]
        shares = [
            (saving / line.cells[DRAWN[column]], line.name)
            for saving, line in zip(saved, both, strict=True)
        ]
        if both:
            (least, little), (most, much) = min(shares), max(shares)
            between = " to ".join(sorted({f"{min(saved):,.0f}", f"{max(saved):,.0f}"}))
            ends = [f"{most:.0%} of {much}", f"{least:.0%} of {little}"][: len(both)]
            words.append(f"{name} saves {between} {unit} of each call: {', '.join(ends)}.")
    if not words:
        return ""
    metrics = metrics_of(report, CALLS)
    even = [
        f"from {tables.number(metrics[name].value)} calls on by {by}"
        for name, by in EVEN[unit].items()
        if name in metrics
    ]
    wins = f" A batch wins {', '.join(even)}." if even else ""
    if time_headline(report):
        words[0] = f"Counted, {words[0]}"
    return " ".join(one[0].upper() + one[1:] for one in words) + wins


def gain_figure(report: Report) -> Figure | None:
    """Instructions of each call in percent of what it takes without the mechanism."""
    groups = {
        line.name: {
            column: 100 * line.cells[column] / line.cells[base]
            for column, base in DRAWN.items()
            if {column, base} <= line.cells.keys()
        }
        for line in calls(report)
    }
    if not groups:
        return None
    return Figure(
        id="gain-figure",
        title=f"{UNIT_WORDS[_unit(calls(report))]} of a call, where the plain call takes 100%",
        x_label="",
        y_label="% of the plain call's",
        series=bars(groups, {column: column for column in DRAWN}),
        names=tuple(name.replace(", ", ",\n").replace(" of ", "\nof ", 1) for name in groups),
        marks=(Mark(100, ""),),
    )


def seen(report: Report) -> Figure | None:
    """Where a processor's time went under each load, seen from outside."""
    metrics = metrics_of(report, SEEN)
    found = {
        load: {
            part: metrics[name]
            for part in ACCOUNTS
            if (name := f"{load}.sampled.{part}.percent") in metrics
        }
        for load in LOADS
    }
    if not all(len(shares) == len(ACCOUNTS) for shares in found.values()):
        return None
    groups = {
        load: {part: share.value for part, share in shares.items()}
        for load, shares in found.items()
    }
    apart, load = max(
        (share.spread, load) for load, shares in found.items() for share in shares.values()
    )
    return Figure(
        id="seen-figure",
        title="Where the processor's time went under four loads",
        x_label="",
        y_label="% of the time",
        series=bars(groups, ACCOUNTS),
        caption="Read from the memory of a running VM each 100 µs, from outside, with probes in "
        "its kernel. nop does nothing, qsort sorts, make compiles, httpd is Apache under more "
        f"requests than it can serve. The quartiles of a share lie at most {apart:.1f} apart "
        f"({load}).",
        kind="measured",
        names=LOADS,
        stacked=True,
    )


def sentence(claim: Claim) -> str:
    """A claim's finding: what was published and the first part of what was found."""
    here = re.match(r"(?:[^;(]|\([^)]*\))*", claim.ours)
    return f"Published: {claim.published}. Here: {here[0].strip() if here else claim.ours}."


def estimated_text(claim: Claim | None) -> str:
    """A cell of the column of verdicts by an estimate."""
    if claim is None:
        return ABSENT
    return f"{claim.verdict}: {claim.ours}{f'. {claim.note}' if claim.note else ''}"


def papers_table(report: Report) -> Table | None:
    """How each of the four papers fares; nothing where claims of fewer than two were tested."""
    rows = []
    for name in claims.MADE_REAL:
        found = [claim for claim in report.claims if claim.paper == name]
        if found:
            held = [claim.holds for claim in found]
            ids = f"{name}: {found[0].id.partition('-')[0]}-*"
            counts = (str(held.count(verdict)) for verdict in (True, False, None))
            rows.append((claims.papers()[name].title, ids, *counts))
    columns = ("paper", "its claims here", "holds", "does not hold", "open")
    title = "How the four papers fare"
    return Table("papers-table", title, columns, tuple(rows)) if len(rows) > 1 else None


def by_paper(report: Report) -> list[tuple[str, list[Claim]]]:
    """The claims by paper, in the order of the papers; the key says also where it measured."""
    order = {name: place for place, name in enumerate(claims.published())}
    groups: dict[str, list[Claim]] = {}
    for claim in sorted(report.claims, key=lambda one: order.get(one.id, len(order))):
        paper = claims.papers().get(claim.paper)
        text = f"{claim.paper} ({paper.setting})" if paper else claim.paper
        groups.setdefault(text, []).append(claim)
    return list(groups.items())
