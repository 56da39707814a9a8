# SPDX-License-Identifier: GPL-2.0-only
"""Shows what part_calls.py found: Fig. 7 of the paper, and what a call takes in each mode,
counted or timed. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.mode_switch import mode_costs, modelled_clocks, switches
from trapless.experiments import fit
from trapless.experiments.collection import Row
from trapless.experiments.experiment import Raw
from trapless.experiments.timed_rows import Clock
from trapless.report.figures import Figure, Table, bars

NAMES = {
    mode_costs.ABSENT: "trap, mechanism absent",
    "trap-present": "trap, mechanism present",
    mode_costs.SUPERVISOR: "supervisor",
}


def counted(raw: Raw, ratios: Mapping[tuple[str, str], fit.Summary]) -> tuple[Figure | Table, ...]:
    """The results of the lab, in instructions."""
    calls = mode_costs.calls(raw.rows)
    least = {(key.call, key.form, key.mechanism): cost.least for key, cost in calls.items()}
    return (
        figure_7(
            least,
            NAMES,
            "instructions a call",
            "By the library's function, in user space and kernel together, an empty loop "
            "subtracted; files are in the page cache. The paper shows clocks of a Pentium 4, where "
            "a trap takes far longer than its instructions tell.",
            "counted",
        ),
        *modelled_clocks.figures(calls),
        *switches.figures(raw.rows, calls),
        reach_table(raw, calls),
        call_table(calls, ratios),
        *event_tables(raw.rows),
        *modelled_clocks.tables(calls),
    )


TIMED_NAMES = {
    mode_costs.ABSENT: "trap, mechanism absent", mode_costs.BACK: "trap, present",
    mode_costs.SUPERVISOR: "supervisor",
}  # fmt: skip


def timed(
    rows: Sequence[Row],
    found: Mapping[tuple[str, str, str], Mapping[int, float]],
    ratios: Mapping[tuple[str, str], fit.Summary],
    saved: Mapping[tuple[str, str], Sequence[float]],
    clock: Clock,
) -> tuple[Figure | Table, ...]:
    """The times on a machine's own kernel."""
    ns = {key: clock.ns(list(values.values())).value for key, values in found.items()}
    return (
        figure_7(
            ns,
            TIMED_NAMES,
            "ns a call",
            "By the library's function, the loop around it included; files are in the page "
            "cache. Medians.",
            "measured",
        ),
        timed_table(ns, ratios, saved),
        *([switches.delay_table(rows)] if switches.delays(rows) else []),
    )


def figure_7(
    found: Mapping[tuple[str, str, str], float],
    names: Mapping[str, str],
    y_label: str,
    caption: str,
    kind: str,
) -> Figure:
    groups = {
        call: {
            mechanism: found[call, "static", mechanism]
            for mechanism in names
            if (call, "static", mechanism) in found
        }
        for call in ("getpid", "sbrk", "read1", "write1")
    }
    return Figure(
        id="fig7",
        title="What a system call costs, as Fig. 7 of the paper (static link)",
        x_label="",
        y_label=y_label,
        series=bars(groups, names),
        names=("getpid", "sbrk", "read, 1 B", "write, 1 B"),
        caption=caption,
        kind=kind,
    )


def reach_table(raw: Raw, calls: Mapping[mode_costs.Key, mode_costs.Cost]) -> Table:
    """The project's goals, beside the results."""
    rows = [
        *reach_rows(calls),
        *switches.reach_rows(raw.rows),
        *modelled_clocks.reach_rows(calls),
    ]
    return Table(
        id="reach",
        title="What it set out to reach",
        columns=("figure", "here", "bound", "reached"),
        rows=tuple(rows),
        caption="The module's own path is a whole call of a number without a call: `syscall` and "
        "the two or three instructions of the kernel's function for that are in it. Modelled "
        "figures are estimates, at the dearest clocks an instruction of the range.",
    )


def reach_rows(calls: Mapping[mode_costs.Key, mode_costs.Cost]) -> list[tuple[str, str, str, str]]:
    saved = mode_costs.saved(calls)
    if not saved:
        return []
    getpid = {m: calls[mode_costs.Key("getpid", "bare", m)].least for m in NAMES}
    ratio = getpid[mode_costs.SUPERVISOR] / getpid[mode_costs.ABSENT]
    path = calls[mode_costs.Key("nosys", "bare", mode_costs.SUPERVISOR)].least
    grown = getpid["trap-present"] / getpid[mode_costs.ABSENT] - 1
    lowest = min(saved, key=saved.__getitem__)
    return [
        reached("getpid, supervisor / trap, instructions", f"{ratio:.3f}", "0.38", ratio <= 0.38),
        reached(
            f"instructions saved a call, any call (least: {lowest})",
            f"{saved[lowest]:.0f}",
            "190 or more",
            saved[lowest] >= 190,
        ),
        reached("the module's own path, instructions", f"{path:.0f}", "45", path <= 45),
        reached("trap in user mode with it present", f"{grown:+.1%}", "+2%", grown <= 0.02),
    ]


def reached(figure: str, ours: str, bound: str, is_reached: bool) -> tuple[str, str, str, str]:
    return figure, ours, bound, "yes" if is_reached else "no"


def call_table(
    calls: Mapping[mode_costs.Key, mode_costs.Cost], ratios: Mapping[tuple[str, str], fit.Summary]
) -> Table:
    rows = []
    for key, cost in calls.items():
        if key.mechanism != mode_costs.ABSENT:
            continue
        inside, present = (calls.get(key.by(m)) for m in (mode_costs.SUPERVISOR, "trap-present"))
        clock = ratios.get((key.call, key.form))
        rows.append(
            (
                key.call,
                key.form,
                f"{cost.least:.1f}",
                f"{present.least:.1f}" if present else "",
                f"{inside.least:.1f}" if inside else "",
                f"{cost.least - inside.least:.1f}" if inside else "",
                f"{inside.least / cost.least:.0%}" if inside else "",
                f"{clock.median:.2f} ({clock.low:.2f} to {clock.high:.2f})" if clock else "",
            )
        )
    return Table(
        id="calls",
        title="What a call costs in each mode",
        columns=(
            "call",
            "form",
            "trap, absent",
            "trap, present",
            "supervisor",
            "saved",
            "of the instructions",
            "of the emulator's time",
        ),
        rows=tuple(rows),
        caption="Instructions of one call, the smallest of the repeats, an empty loop subtracted. "
        "Absent: the module is not loaded. Present: another process is in supervisor mode. bare: "
        "the instruction in a loop of assembly; static, dynamic: the function of the C library. "
        "nosys is a number without a call. read and write move a page, read1 and write1 a byte, "
        "in a cached file. Last: median and quartiles of alternating runs.",
        kind="counted",
    )


def event_tables(rows: Sequence[Row]) -> tuple[Table, ...]:
    lines = tuple(
        (
            f"{row['events']}, {'counted' if 'counted' in row['boot'] else 'measured'}",
            f"{row['calls']:,}",
            f"{row['begun_user']:,}",
            f"{row['ended_user']:,}",
            f"{row['demotions']:,}",
            f"{row['interrupts']:,}",
            f"{mode_costs.transitions(row):.5f}",
        )
        for row in rows
        if "events" in row
    )
    if not lines:
        return ()
    table = Table(
        id="events",
        title="How often getpid changes between user and supervisor mode",
        columns=(
            "mode, boot",
            "calls",
            "begun in user mode",
            "ended there",
            "demoted",
            "interrupts",
            "changes a call",
        ),
        rows=lines,
        caption="One long run with whatever interrupts it. The program reads its privilege level "
        "before and after each call; demotions are the module's count, interrupts the kernel's "
        "(of all CPUs, also those that hit kernel code).",
        kind="counted",
    )
    return (table,)


def timed_table(
    ns: Mapping[tuple[str, str, str], float],
    ratios: Mapping[tuple[str, str], fit.Summary],
    saved: Mapping[tuple[str, str], Sequence[float]],
) -> Table:
    rows = []
    for call, form, mechanism in ns:
        if mechanism != mode_costs.ABSENT:
            continue
        by = {name: ns[call, form, name] for name in TIMED_NAMES if (call, form, name) in ns}
        values = saved.get((call, form), [])
        interval = fit.confidence(values) if len(values) >= fit.SAMPLES_MIN else None
        one = ratios.get((call, form))
        rows.append(
            (
                call,
                form,
                *(f"{by[name]:.1f}" if name in by else "" for name in TIMED_NAMES),
                f"{interval.median:.1f} ({interval.low:.1f} to {interval.high:.1f})"
                if interval
                else "",
                fit.percent(one) if one else "",
            )
        )
    return Table(
        id="calls",
        title="What a call takes in each mode, in nanoseconds",
        columns=(
            "call",
            "form",
            "trap, absent",
            "trap, present",
            "supervisor",
            "saved (95% interval)",
            "supervisor / trap",
        ),
        rows=tuple(rows),
        caption="Medians, the loop around the call included. Absent: the module is not loaded, in "
        "a run of its own. Present and supervisor alternate. bare: the instruction in a loop of "
        "assembly; static: the function of the C library. nosys is a number without a call. read "
        "and write move a page, read1 and write1 a byte, in a cached file.",
        kind="measured",
    )
