# SPDX-License-Identifier: GPL-2.0-only
"""Makes tables of sums for people, for `trapless peek report` and for each second of `top`.

Owns the columns, and the words about what cannot be known. sample_summary.py has the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel import counters
from trapless.peek.sampling.probes import Mode, ProbeMap
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.sample_rows import Flag
from trapless.peek.sampling.sample_summary import (
    NO_PID,
    Cpu,
    Routine,
    Summary,
    left_out_text,
    summarise,
)
from trapless.peek.sampling.tier0 import Part
from trapless.peek.sampling.tier1 import WHO_TEXT, Entry, knowledge_text
from trapless.report.figures import Figure, Table

PROCESSES_SHOWN = 10
ROUTINES_SHOWN = 15
COLUMNS = {
    Part.USER: "user",
    Part.KERNEL: "other kernel",
    Part.PROCESS: "user or kernel",
    Part.TOP_HALF: "top half",
    Part.BOTTOM_HALF: "bottom half",
    Part.IDLE: "idle",
}
STILL_TEXT = "it never moved: the machine was stopped, or nobody runs what is in this memory"
ENTRIES = {
    Entry.SYSTEM_CALL: "system call",
    Entry.INTERRUPT: "interrupt or exception",
    Entry.SIGNAL: "signal",
    Entry.UNKNOWN: "not known",
}


def tables(recording: Recording, summary: Summary | None = None) -> Sequence[Table]:
    """The tables of a recording, from its summary."""
    summary = summary if summary is not None else summarise(recording)
    interval_ns = int(recording.meta["interval_ns"])
    contents = [about(recording, summary), shares(summary, interval_ns), *counts(summary)]
    if summary.judged:
        contents += [interrupts(summary, interval_ns)]
    if any(cpu.entries.any() for cpu in summary.cpus.values()):
        contents += [entries(summary)]
    return (*contents, processes(summary), *programs(summary), sampling(recording, summary))


def of_all_boots(recording: Recording) -> list[Table]:
    """The tables of each boot in a recording."""
    boots = recording.boots()
    return [
        table
        for number, boot in enumerate(boots, 1)
        for table in of_boot(tables(boot), number, len(boots))
    ]


Item = TypeVar("Item", Table, Figure, Table | Figure)


def of_boot(items: Sequence[Item], number: int, count: int) -> list[Item]:
    """Tables or figures with the boot in their titles, where there are several.

    All that is shown of a recording passes through here: no character of it is a command for a
    terminal.
    """
    boot = f" (boot {number} of {count})" if count > 1 else ""
    return [replace(item, title=visible(item.title) + boot, **_plain(item)) for item in items]


def _plain(item: Table | Figure) -> dict[str, Any]:
    """The texts of a table with all that is not printable made visible, whoever wrote them."""
    if not isinstance(item, Table):
        return {}
    return {
        "columns": tuple(map(visible, item.columns)),
        "rows": tuple(tuple(map(visible, row)) for row in item.rows),
        "caption": " ".join(map(visible, item.caption.split(" "))),  # whole: it may be long
    }


def seconds(summary: Summary, interval_ns: int) -> float:
    """The seconds from the first slot to the last."""
    first, last = summary.slots if summary.slots else (0, -1)
    return (last - first + 1) * interval_ns / 1e9


def tier_text(summary: Summary, loaded: int | None = None) -> str:
    """The tier of the samples, and what cannot be known from them.

    `loaded`: the probes that were on at first, a Mode; None where the module was not there.
    """
    shares = {mode: summary.probed[mode] / max(summary.rows, 1) for mode in Mode}
    both = Mode.PARTS | Mode.INTERRUPTS
    probed = [shares[mode] for mode in both]
    if min(probed) == 1:
        return (
            f"tier 1: probes show user mode, interrupts{', counts' if shares[Mode.COUNTS] else ''}"
        )
    if max(probed) == 0:
        probes = None
        if loaded is not None:  # only this member of the map changes the words
            probes = ProbeMap(0, 0, Mode(loaded & 0xF & ~both), *(0,) * 10)
        return knowledge_text(probes, user_mode=summary.share(Part.PROCESS) == 0)
    return (
        f"tier 1 in part: probes show user mode in {probed[0]:.1%} of the samples, interrupts in "
        f"{probed[1]:.1%}; the rest is tier 0"
    )


def about(recording: Recording, summary: Summary) -> Table:
    """The table of facts about the recording."""
    rows = [
        ("kernel", visible(str(recording.meta["about"].get("release", "?")))),
        ("time", f"{seconds(summary, int(recording.meta['interval_ns'])):.3g} s"),
        ("known", tier_text(summary, recording.meta["about"].get("probes"))),
    ]
    if left_out := recording.left_out():
        rows.append(("left out", left_out_text(left_out)))
    if summary.still:
        rows.append(("clock", STILL_TEXT))
    course = summary.course
    if summary.counts and course is not None and len(course.filled):
        counts, threads = course.mean(course.processes), course.mean(course.threads)
        rows += [
            ("processes", f"{_range_text(counts.tolist())}, kernel threads with them"),
            ("threads", _range_text(threads.tolist())),
        ]
    return Table(id="about", title="What was recorded", columns=("", ""), rows=tuple(rows))


def _range_text(values: Sequence[float]) -> str:
    """From the smallest to the largest of some means.

    >>> _range_text([55.0, 55.2]), _range_text([54.0, 55.0])
    ('55', '54 to 55')
    """
    return " to ".join(dict.fromkeys((f"{min(values):.0f}", f"{max(values):.0f}")))


def shares(summary: Summary, interval_ns: int) -> Table:
    """The table of shares, with a row for each CPU."""
    cpus = summary.cpus.values()
    occurring = [part for part in COLUMNS if any(cpu.parts[part] for cpu in cpus)]
    columns = ["CPU", *(COLUMNS[part] for part in occurring)]
    if summary.judged:
        columns.append("interrupts off")
    if summary.threads:
        columns.append("steal")
    columns += ["run queue", "longest"]
    switches = all(cpu.switches is not None for cpu in cpus)
    if switches:
        columns.append("switches a second")
    time_s = seconds(summary, interval_ns) if switches else 0.0
    return Table(
        id="shares",
        title="Where each CPU was",
        columns=(*columns, "left out"),
        rows=tuple(
            _row(name, cpu, occurring, summary, time_s) for name, cpu in summary.cpus.items()
        ),
        caption=_shares_caption(summary, occurring),
    )


def _shares_caption(summary: Summary, parts: Sequence[Part]) -> str:
    text = "Left out: samples that were torn, and samples of a virtual CPU that stood still."
    if summary.threads:
        text += (
            " Shares are of the time that a CPU had. Steal is the part of the wall-clock time in "
            "which this machine kept it from running; the other shares of wall-clock time are so "
            "much smaller."
        )
    if Part.PROCESS in parts and not summary.probed[Mode.PARTS]:
        text += " This kernel's memory does not separate user mode from the kernel"
        if Part.KERNEL in parts:
            text += ", except for kernel threads, which are other kernel"
        text += "; the module's probes, or the boot parameter nohz_full, do."
    return " ".join((text, *summary.differences))


def counts(summary: Summary) -> Sequence[Table]:
    """The table of what the kernel itself counts, with a row for each CPU; none where not read."""
    known = [values for values in summary.rates.values() if values]
    if not known:
        return ()
    kinds = list(counters.interrupts(known[0]))
    soft = [
        name
        for name in counters.softirqs(known[0])
        if any(counters.softirqs(values).get(name) for values in known)
    ]
    delays = all(counters.DELAY in values for values in known)
    rows: list[tuple[str, ...]] = []
    for cpu, values in summary.rates.items():
        each, softly = counters.interrupts(values), counters.softirqs(values)
        rates = [each.get(name, 0.0) for name in kinds] + [softly.get(name, 0.0) for name in soft]
        delay = [f"{values[counters.DELAY] / 1e9:.2f}"] if delays else []
        rows.append((str(cpu), *(f"{rate:,.0f}" for rate in rates), *delay))
    return (
        Table(
            id="counts",
            title="What the kernel counts, a second",
            columns=(
                *("CPU", *kinds, *(f"softirq {name}" for name in soft)),
                *(["run delay, s"] if delays else []),
            ),
            rows=tuple(rows),
            caption="Interrupts and softirqs by the kernel's own counters. Run delay: for how long "
            "all threads together waited for the CPU although they could run.",
        ),
    )


def _row(
    name: str, cpu: Cpu, parts: Sequence[Part], summary: Summary, time_s: float
) -> tuple[str, ...]:
    first, last = cpu.switches or (0, 0)
    return (
        name.removeprefix("cpu"),
        *(f"{cpu.share(part):.1%}" for part in parts),
        *([f"{cpu.disabled:.1%}"] if summary.judged else []),
        *([f"{cpu.steal:.1%}"] if summary.threads else []),
        f"{cpu.queue_sum / max(cpu.samples, 1):.2f}",
        str(cpu.queue_max),
        *([f"{(last - first) / time_s:,.0f}"] if time_s else []),
        str(cpu.left_out),
    )


def interrupts(summary: Summary, interval_ns: int, limit: int = ROUTINES_SHOWN) -> Table:
    """The table of routines that switched interrupts off: for what share of the time, how long."""
    routines = summary.routines()
    total = max(sum(routine.samples for routine in routines), 1)
    counted = any(routine.runs for routine in routines)
    sample_us = seconds(summary, interval_ns) * 1e6 / max(summary.rows, 1)
    columns: tuple[str, ...] = ("routine", "of the time off", "of all time")
    caption = (
        f"Off in {summary.disabled:.2%} of all samples of all CPUs; "
        f"{min(limit, len(routines))} of {len(routines)} routines. What a lock function switches "
        "off counts for its caller."
    )
    if counted:
        columns = (*columns, "times", "mean, µs")
        caption += " Times and mean are those of a cli of its own. "
        caption += _locks_text(summary, routines, sample_us)
    return Table(
        id="interrupts",
        title="Who switched interrupts off",
        columns=columns,
        rows=tuple(
            (
                routine.name,
                f"{routine.samples / total:.1%}",
                f"{routine.samples / max(summary.judged, 1):.2%}",
                *(_runs(routine, sample_us) if counted else ()),
            )
            for routine in routines[:limit]
        ),
        caption=caption,
    )


def _locks_text(summary: Summary, routines: Sequence[Routine], sample_us: float) -> str:
    """How often lock functions switched interrupts off, and for how long, for all callers
    together."""
    runs = summary.sites.runs_of_locks()
    if not runs:
        return ""
    no_functions = set(WHO_TEXT.values())
    held = sum(one.counted - one.own for one in routines if one.name not in no_functions)
    return f"Lock functions did it {runs:,} times, for {held * sample_us / runs:.2f} µs each."


def _runs(routine: Routine, sample_us: float) -> tuple[str, str]:
    """The count, and the mean length in µs: a sample stands for the time to the next one."""
    if not routine.runs or not routine.own:
        return "", ""
    return f"{routine.runs:,}", f"{routine.own * sample_us / routine.runs:.2f}"


def entries(summary: Summary) -> Table:
    """The table of reasons for which processes were in the kernel."""
    counts = {
        entry: sum(int(cpu.entries[entry]) for cpu in summary.cpus.values()) for entry in ENTRIES
    }
    total = max(sum(counts.values()), 1)
    return Table(
        id="entries",
        title="Why processes were in the kernel",
        columns=("entered for", "of other kernel"),
        rows=tuple(
            (ENTRIES[entry], f"{count / total:.1%}") for entry, count in counts.items() if count
        ),
        caption="The reason is that of the CPU's last entry: after a switch inside the kernel, it "
        "belongs to the process before.",
    )


def processes(summary: Summary) -> Table:
    """The table of processes that ran most."""
    total = summary.samples
    rows = tuple(
        (str(pid) if pid != NO_PID else "", str(name), f"{count / max(total, 1):.1%}")
        for (pid, name), count in summary.processes.most_common(PROCESSES_SHOWN)
    )
    return Table(
        id="processes",
        title="Processes, of the time of all CPUs",
        columns=("PID", "name", "share without interrupts"),
        rows=rows,
        caption=f"{len(rows)} of {len(summary.processes)}. Top and bottom halves are in no "
        "process's share.",
    )


def programs(summary: Summary) -> Sequence[Table]:
    """The table of sums by name, where processes share a name."""
    shares, counts = Counter[GuestText](), Counter[GuestText]()
    for (pid, name), count in summary.processes.items():
        if pid != NO_PID:
            shares[name] += count
            counts[name] += 1
    if len(counts) == counts.total():
        return ()
    rows = tuple(
        (str(name), f"{counts[name]:,}", f"{count / max(summary.samples, 1):.1%}")
        for name, count in shares.most_common(PROCESSES_SHOWN)
    )
    return (
        Table(
            id="programs",
            title="The same by name",
            columns=("name", "processes", "share without interrupts"),
            rows=rows,
            caption=f"{len(rows)} of {len(counts)}. Threads count as processes.",
        ),
    )


def sampling(recording: Recording, summary: Summary) -> Table:
    """The table of how well the recording was sampled."""
    marks = (Flag.LATE, Flag.TORN, Flag.FROZEN)
    return Table(
        id="sampling",
        title="How well it was sampled",
        columns=(
            "samples",
            "interval",
            "lag, median",
            "lag, 99%",
            "lost",
            *(flag.name.lower() for flag in marks if flag.name),
        ),
        rows=(
            (
                str(summary.rows),
                f"{int(recording.meta['interval_ns']) / 1e3:g} µs",
                *(summary.lag_text(part) for part in (0.5, 0.99)),
                f"{summary.lost():.2%}",
                *(f"{summary.flagged(flag):.2%}" for flag in marks),
            ),
        ),
        caption="; ".join(recording.problems),
    )
