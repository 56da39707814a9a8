# SPDX-License-Identifier: GPL-2.0-only
"""Formats a report as text: tables of aligned columns, the same on a terminal and in a pipe.

This file owns words, units and digits. Counts are shown as they are, modelled figures with as many
digits as their assumptions justify. run_report.py computes the figures.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence

from trapless.calls import CallClass
from trapless.results import estimate_file
from trapless.stat.by_call import CallCost
from trapless.stat.run_counts import UNANSWERED
from trapless.stat.run_report import MODES, Ends, Mechanism, Report
from trapless.supervisor.refusals import of_mask

NAMES = {
    "itlb": "instruction TLB",
    "dtlb": "data TLB",
    "dtlb_large": "data TLB, large pages",
    "stlb": "second-level TLB",
    "l1i": "L1 instructions",
    "l1d": "L1 data",
    "l2": "L2",
    "l3": "L3",
}
WIDTH = 80
"""The width of lines on every output; the command that the user typed is not broken."""
SLEEPS_SHOWN = 20
"""The number of calls among which one that sleeps is worth a remark."""
SHARED_SHOWN = 100
"""The same for a request for files of this machine."""
NAMED = 3
"""How many calls a remark names."""

Table = Sequence[tuple[str, ...]]


def lines(report: Report, argv: Sequence[str]) -> Iterator[str]:
    """The whole report."""
    counts = report.counts
    yield f"{shlex.join(argv)}"
    yield from _head(report)
    yield ""
    yield from aligned(_crossings(report))
    yield ""
    yield from aligned(_footprints(report))
    for processor in counts.processors:
        yield ""
        yield from aligned(_misses(report, processor))
        yield ""
        yield from aligned(_clocks(report, processor))
    if trap := estimate_file.of_this_machine():
        yield from ("", *sentence(own_trap(report, trap)))
    yield ""
    yield from _mechanisms(report)
    yield "if it reads directories: --calls says what walks (tl_walk) would take away"
    if report.real is not None:
        yield ""
        yield from _comparison(report)
    yield ""
    yield from _assumptions(report)


def call_lines(report: Report, argv: Sequence[str], hidden: Container[str]) -> Iterator[str]:
    """The report of a run whose calls were told apart; `hidden`: names that are not asked for."""
    yield f"{shlex.join(argv)}"
    yield from _head(report)
    yield ""
    yield "user, kernel, by mode, by batch: instructions; number, slept, failed: how often"
    yield from aligned(_call_table(report, hidden))
    yield ""
    yield from _mechanisms(report)
    yield from _scan(report)
    yield from ("", "Read as:")
    for text in CALL_NOTES:
        yield from sentence(text, indent="  ")


CALL_NOTES = (
    "user: from a call's return to the next call; kernel: from its entry to its return, without "
    "what it costs to tell calls apart",
    "by mode, by batch: what supervisor mode would take away, and batches of 32 at most; the "
    "other events (processes begun, interrupts of the program's code) are only in the sums",
    "wrapped: `any`, in a batch or by a worker, which then executes the kernel's instructions in "
    "the caller's place; `batch`, in a batch only; `no`: trapless doctor --calls says why",
)
SCAN_NAMES_MIN = 10


def _scan(report: Report) -> Iterator[str]:
    """Whether the program asks for the attributes of enough names that it read from directories."""
    scan = report.by_call.scan
    if scan.stats < SCAN_NAMES_MIN:
        return
    would = "is not offered on this kernel"
    if scan.saved is not None:
        share = scan.saved / max(report.counts.instructions, 1)
        does = "take away" if share > 0 else "add"
        would = f"would {does} {short(abs(scan.saved))} instructions ({abs(share):.1%})"
    text = (
        f"of {scan.names:,} names read by getdents64 it asked for attributes of {scan.stats:,}: "
        f"TL_NR_SCANDIR (tl_scan, tl_walk) gives both in one request, and {would}; a program that "
        "uses them does so already, and --calls makes its calls plain: run stat without --calls"
    )
    yield from ("", *sentence(text))


WRAPPED = {
    CallClass.ANY: "any",
    CallClass.NULL_MASK: "any",
    CallClass.SELF_VALUE: "any",
    CallClass.BATCH_ONLY: "batch",
    CallClass.REFUSED: "no",
    None: "no",
}


def _call_table(report: Report, hidden: Container[str]) -> Table:
    """A row for each call that is shown, and what all of them come to."""
    calls = report.by_call
    head = ("call", "number", "user", "kernel", "slept", "failed", "by mode", "by batch", "wrapped")
    shown = [one for one in calls.calls if one.name not in hidden]
    rows = [_call_row(one) for one in shown]
    if len(shown) < len(calls.calls):
        number = sum(one.number for one in calls.calls if one.name in hidden)
        rows.append((f"{len(calls.calls) - len(shown)} that are not shown", f"{number:,}"))
    rows.append(("no call", "", "", short(calls.outside)))
    user = report.row["user.instructions"]
    rows.append(("all", f"{calls.number:,}", short(user), short(calls.kernel)))
    return [head, *rows]


def _call_row(one: CallCost) -> tuple[str, ...]:
    return (
        one.name,
        f"{one.number:,}",
        short(one.user),
        short(one.kernel),
        f"{one.slept:,}" if one.slept else "",
        f"{one.failed:,}" if one.failed else "",
        "" if one.supervisor is None else short(one.supervisor),
        "" if one.batches is None else short(one.batches),
        WRAPPED[one.wrapped],
    )


def counters(argv: Sequence[str], events: Mapping[str, int]) -> Iterator[str]:
    """The events that counters of processor and kernel counted, by mode."""
    yield shlex.join(argv)
    yield ""
    names = dict.fromkeys(column.partition(".")[2] for column in events)
    head = ("counted on this machine", *MODES)
    cells = [[events.get(f"{mode}.{name}") for mode in MODES] for name in names]
    rows = [
        (name.replace("_", " "), *("" if count is None else f"{count:,}" for count in counts))
        for name, counts in zip(names, cells, strict=True)
    ]
    yield from aligned([head, *rows])
    clocks = [events.get(f"{mode}.clocks", 0) for mode in MODES]
    if sum(clocks):
        yield ""
        yield f"{clocks[1] / sum(clocks):.1%} of its clocks were the kernel's"


def _head(report: Report) -> Iterator[str]:
    counts = report.counts
    user, kernel = (report.row[f"{mode}.instructions"] for mode in MODES)
    calls = report.crossings["syscall"]
    ended = "its load ended" if counts.served else "it ended"
    yield f"Linux {counts.release} in the lab; {ended} with status {counts.status}"
    yield f"{amount(user)} instructions in user mode, {amount(kernel)} in the kernel"
    if calls:
        yield f"a system call each {amount(counts.instructions / calls)} instructions"
    for complaint in counts.complaints:
        yield from sentence(f"the model says: {complaint}")
    if counts.warm:
        times = "once" if counts.warm == 1 else f"{counts.warm} times"
        what = "its load had run" if counts.served else "it had run"
        yield f"{what} {times} before, uncounted: what it reads was in memory"
    if counts.served:
        yield from sentence(
            "the load shared the guest's one processor with it, uncounted: whose turn it was "
            "decides how many requests it found at once"
        )
    yield from _remarks(report)
    if counts.left_running and not counts.served:
        yield "processes that it left running were ended"


def _remarks(report: Report) -> Iterator[str]:
    """The work of the program in the lab that it would not do on a machine of its own."""
    counts, calls = report.counts, report.crossings["syscall"]
    requests, first = counts.events.get("shared", 0), counts.events.get("file_faults", 0)
    if requests * SHARED_SHOWN > calls:
        yield from sentence(
            f"NOT AS ON A MACHINE OF ITS OWN: it asked this machine for files {requests:,} times, "
            f"by the lab's share (9p){_askers(report)}, and each request waits and costs tens of "
            "thousands of instructions; copy the files first: --prepare 'cp -r FOLDER /tmp', and "
            "give it the copy"
        )
    elif counts.events["slept_out"] * SLEEPS_SHOWN > calls and calls and not counts.served:
        yield f"{counts.events['slept_out']:,} of its calls slept"
    if first:
        yield from sentence(
            f"{first:,} of its page faults read from a file: work of a first run, which --warm "
            "leaves out"
        )
    if not counts.warm and not counts.served:
        yield "it had not run before: what it does only at first is in these figures"


def _askers(report: Report) -> str:
    """Which calls asked for files, where they were told apart."""
    calls = sorted(report.by_call.calls, key=lambda one: -one.shared)
    named = [f"{one.name} {one.shared:,}" for one in calls[:NAMED] if one.shared]
    return f" in {sum(one.shared for one in calls):,} calls ({', '.join(named)})" if named else ""


def _crossings(report: Report) -> Table:
    ledger, calls = report.crossings, report.crossings["syscall"]
    events, millions = report.counts.events, report.counts.instructions / 1e6
    rows = [
        ("system calls", calls + ledger["sysenter"] + ledger["int"]),
        ("interrupts and exceptions in user mode", ledger["interrupt"]),
        ("interrupts and exceptions in the kernel", ledger["iret_kernel"]),
        ("page faults, of both", events["page_faults"]),
        ("calls in which it slept", events["slept_out"] + events["slept_within"]),
        ("turns on the processor", report.counts.turns),
        ("changes of address space", ledger["cr3"]),
        ("processes and threads begun", events["forks"]),
        ("programs executed", events["execs"]),
        ("signals delivered", events["signals"]),
    ]
    head = ("crossings, counted", "number", "per M instructions")
    return [head, *((name, f"{n:,}", _rate(n, millions)) for name, n in rows if n)]


def _rate(number: int, millions: float) -> str:
    return f"{number / millions:,.1f}" if millions else ""


def _footprints(report: Report) -> Table:
    head = ("memory touched, counted", "user", "kernel")
    rows: list[tuple[str, list[float | None]]] = [
        ("whole run, lines of 64 bytes", [report.footprint(mode, 64) for mode in MODES]),
        ("whole run, pages of 4 KB", [report.footprint(mode, 4096) for mode in MODES]),
        ("between two crossings, lines, mean", [report.visit(mode, 64) for mode in MODES]),
        ("between two crossings, pages, mean", [report.visit(mode, 4096) for mode in MODES]),
    ]
    return [head, *((name, *(size(value) for value in values)) for name, values in rows)]


def _misses(report: Report, processor: str) -> Table:
    name = report.clocks(processor).name
    head = (f"misses, modelled: {name}", "user", "kernel", "by the other side")
    rows = report.misses(processor)
    return [
        head,
        *(
            (NAMES.get(one.role, one.role), amount(one.user), amount(one.kernel), amount(one.other))
            for one in rows
            if one.user or one.kernel
        ),
    ]


def _clocks(report: Report, processor: str) -> Table:
    clocks = report.clocks(processor)
    head = (f"clocks, modelled: {clocks.name}", "middle", "range", "share")
    rows = [
        ("all", clocks.total),
        ("crossings, directly", clocks.direct),
        ("crossings, by pollution", clocks.pollution),
        *((f"taken away {_by(one)}", one.clocks[processor]) for one in report.mechanisms),
    ]
    lines = [
        (name, rough(one.middle), _ends(one), "" if name == "all" else _share(one, clocks.total))
        for name, one in rows
    ]
    if clocks.calls_per_second:
        lines.append(("system calls a second", rough(clocks.calls_per_second), "", ""))
    return [head, *lines]


def own_trap(report: Report, own: estimate_file.Saved) -> str:
    """The cost of the crossings with this machine's trap, as measured by `trapless estimate`."""
    low, middle, high = (
        rough(report.entries * ns / 1000) for ns in (own.trap.low, own.trap.ns, own.trap.high)
    )
    return (
        f"on this machine ({own.processor}): {report.entries:,} crossings take {middle} us "
        f"({low} to {high}), an estimate by its trap of {own.trap.ns:.0f} ns{own.when}"
    )


def _share(part: Ends, whole: Ends) -> str:
    return f"{part.middle / whole.middle:.1%}" if whole.middle else ""


def _ends(one: Ends) -> str:
    low, high = rough(one.low), rough(one.high)
    return f"{low} to {high}" if low != high else ""


def _mechanisms(report: Report) -> Iterator[str]:
    if not report.mechanisms:
        yield from sentence(f"no mechanism could be calibrated here: {_refusals(report)}")
        return
    head = ("what would be taken away", "instructions", "of all", "of crossings")
    yield from aligned([head, *(_mechanism(report, one) for one in report.mechanisms)])
    if report.predicted is not None and not report.is_predictable:
        yield from sentence(
            f"{NOT_PREDICTABLE}: its own runs differ by {amount(report.own_runs_apart)} "
            "instructions in one mode, more than supervisor mode takes away"
        )
    if report.counts.refusals:
        yield from sentence(f"supervisor mode is not offered: {_refusals(report)}")


def _by(one: Mechanism) -> str:
    return f"at most by {one.name}" if one.name.startswith("batches") else f"by {one.name}"


NOT_PREDICTABLE = "not predictable"


def _mechanism(report: Report, one: Mechanism) -> tuple[str, ...]:
    if one is report.predicted and not report.is_predictable:
        share = f"{one.crossings / max(report.entries, 1):.1%}"
        return (_by(one), NOT_PREDICTABLE, "", share)
    return (
        _by(one),
        uncertain(one.instructions, one.wrong_by),
        f"{one.instructions / max(report.counts.instructions, 1):.2%}",
        f"{one.crossings / max(report.entries, 1):.1%}",
    )


def _refusals(report: Report) -> str:
    if report.counts.refusals == UNANSWERED:
        return "the module did not answer"
    return "; ".join(row.reason for row in of_mask(report.counts.refusals))


def _comparison(report: Report) -> Iterator[str]:
    real, saved, each = report.real, report.really_saved, report.saved_each
    if real is None or saved is None or report.predicted is None:
        return
    predicted = report.predicted
    made = uncertain(predicted.instructions, predicted.wrong_by)
    rows = [
        ("supervisor mode beside user mode, by turns", "instructions"),
        ("predicted saving", made if report.is_predictable else NOT_PREDICTABLE),
        ("counted saving", uncertain(saved, report.wrong_by)),
    ]
    yield from aligned(rows)
    if not report.did_the_same:
        yield from sentence(
            "DIFFERENT WORK: beside its runs in user mode, those in supervisor mode made up to "
            f"{report.calls_apart:+.1%} calls, or their threads took other turns on the processor; "
            "so the counted saving is not that of the mode alone"
        )
    if len(each) > 1:
        yield f"counted: median of {len(each)} pairs, {amount(min(each))} to {amount(max(each))}"
    if report.prediction_error is not None and report.is_predictable and report.did_the_same:
        yield f"the prediction is {report.prediction_error:+.1%} off"
    if real.calls is not None and real.calls.share is not None:
        yield f"{real.calls.share:.1%} of {real.calls.total:,} calls ended in supervisor mode"


def _assumptions(report: Report) -> Iterator[str]:
    sentences = [
        "clocks: nothing overlaps, so real ones are fewer; sources: docs/stat.md",
        "crossings, directly: each interrupt costs as much as a system call's trap",
        "by the other side, pollution: misses that would not be if user mode and the kernel had "
        "caches and TLBs of their own; below 0 where one side finds what the other has loaded: "
        "batches then add clocks",
    ]
    if any(one.name == "supervisor mode" for one in report.mechanisms):
        sentences.append(
            "supervisor mode: all of the program is in it, from its first call on; what that "
            "saves is calibrated on this kernel in the same boot"
        )
    if any(one.name.startswith("batches") for one in report.mechanisms):
        sentences.append("batches: every call may wait for 31 others, which few programs allow")
    yield "Assumed:"
    for text in sentences:
        yield from sentence(text, indent="  ")


def sentence(text: str, indent: str = "") -> list[str]:
    """The text in lines of WIDTH; those after the first are indented."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")


def aligned(table: Table) -> Iterator[str]:
    """The rows as lines: the first column is aligned to the left, the others to the right.

    >>> print("\\n".join(aligned([("calls", "number"), ("read", "12")])))
    calls  number
    read       12
    """
    columns = max(len(row) for row in table)
    padded = [(*row, *("",) * (columns - len(row))) for row in table]
    widths = [max(len(row[place]) for row in padded) for place in range(columns)]
    for row in padded:
        first = row[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join([first, *rest]).rstrip()


def amount(number: float) -> str:
    """A count as people read it: exact up to five digits, then with four.

    >>> amount(4096), amount(17142956), amount(-35.4), amount(2.5e9)
    ('4,096', '17.14 M', '-35', '2.500 G')
    """
    return _scaled(number, 4, 100_000)


def short(number: float) -> str:
    """A count in a wide table: exact up to four digits, then with three.

    >>> short(9999), short(17142956), short(-350400.5)
    ('9,999', '17.1 M', '-350 k')
    """
    return _scaled(number, 3, 10_000)


def uncertain(number: float, wrong_by: float) -> str:
    """A count with its uncertainty, in one unit.

    >>> uncertain(1138312, 42481), uncertain(-93_000, 4_000), uncertain(812, 40)
    ('1.14 ± 0.04 M', '-93 ± 4 k', '812 ± 40')
    """
    power, unit = next(
        ((p, u) for p, u in ((9, " G"), (6, " M"), (3, " k")) if abs(number) >= 10**p), (0, "")
    )
    number, wrong_by = number / 10**power, wrong_by / 10**power
    digits = max(0, min(3, -math.floor(math.log10(wrong_by)))) if wrong_by > 0 else 3
    return f"{number:,.{digits}f} ± {wrong_by:,.{digits}f}{unit}"


def whole(number: float) -> str:
    """The instructions that one event saves or costs, with two digits from 1,000 on.

    >>> whole(193.5), whole(-66.6), whole(-2891.2)
    ('194', '-67', '-2,900')
    """
    return f"{round(number, -2 if abs(number) >= 1000 else 0):,.0f}"


def rough(number: float) -> str:
    """A modelled figure: two digits.

    >>> rough(6543210), rough(123), rough(0.2)
    ('6.5 M', '120', '0.2')
    """
    return _scaled(number, 2, 0)


def _scaled(number: float, digits: int, exact_below: float) -> str:
    if abs(number) < exact_below:
        return f"{number:,.0f}"
    for power, unit in ((9, " G"), (6, " M"), (3, " k")):
        if abs(number) >= 10**power:
            scaled = number / 10**power
            return f"{_significant(scaled, digits)}{unit}"
    return _significant(number, digits)


def _significant(number: float, digits: int) -> str:
    if number == 0:
        return "0"
    before = len(f"{abs(number):.0f}") if abs(number) >= 1 else 1
    if before > digits:
        step = 10 ** (before - digits)
        return f"{round(number / step) * step:,.0f}"
    return f"{number:,.{digits - before}f}"


def size(number: float | None) -> str:
    """Bytes as people read them.

    >>> size(832), size(12_345), size(3_500_000), size(None)
    ('832 B', '12.1 KB', '3.3 MB', '')
    """
    if number is None:
        return ""
    if number < 1024:
        return f"{number:.0f} B"
    if number < 1 << 20:
        return f"{number / 1024:.1f} KB"
    return f"{number / (1 << 20):.1f} MB"
