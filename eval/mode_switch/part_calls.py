# SPDX-License-Identifier: GPL-2.0-only
"""Runs the workload of calls, and makes figures and claims of its rows: the main part of
mode-switch.

This file owns which boots are made, the metrics' names, and the claims about calls. switches.py
owns switches and their delay, model.py the modelled clocks.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.mode_switch import costs, model, switches
from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.experiments import fit
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Part, Raw, workload
from trapless.report.figures import Figure, Table, bars
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

LINKS = ("static", "dynamic")
REPEATS, QUICK_REPEATS = {"counted": 5, "measured": 25}, {"counted": 3, "measured": 7}
EVENTS, QUICK_EVENTS = 1_000_000, 200_000
DELAYS, QUICK_DELAYS = 500, 50
TIMEOUT_S = 2 * 3600.0
PRESENT = "supervisor=1"


def collect(run: Collection) -> None:
    """Counted without the module and with it, for both kinds of linking; measured."""
    repeats = QUICK_REPEATS if run.quick else REPEATS
    events, delays = (QUICK_EVENTS, QUICK_DELAYS) if run.quick else (EVENTS, DELAYS)
    first = {"events": events, "delays": delays}
    rest = {"events": 0, "delays": 0}
    for label, parameters in (("absent", None), ("present", PRESENT)):
        commands = [
            guest_command(link, kind="counted", repeats=repeats["counted"], **extra)
            for link, extra in zip(LINKS, (first, rest), strict=True)
        ]
        script = ["/bin/sh", "-c", " && ".join(map(shlex.join, commands))]
        check(run.boot(f"counted-{label}", boot_config(run, parameters, counted=True), script))
    run.boot(
        "measured",
        boot_config(run, PRESENT, counted=False),
        guest_command(LINKS[0], kind="measured", repeats=repeats["measured"], **first),
    )


def program(link: str) -> Path:
    """The workload, linked as asked for."""
    static = workload("mode-switch")
    return static if link == LINKS[0] else static.with_name(f"{static.name}-{link}")


def boot_config(run: Collection, parameters: str | None, *, counted: bool) -> LabConfig:
    """A VM with the workloads; without `parameters` the module is not even loaded."""
    paths = [program(link) for link in LINKS]
    for path in paths:
        if not path.exists():
            raise TraplessError(f"{path} is missing; run `make all` in {repo_root()}")
    return LabConfig(
        kernel=run.kernel,
        cpus=1 if counted else 2,
        icount=counted,
        module=parameters is not None,
        module_parameters=parameters or "",
        files=tuple((path, f"/bin/{path.name}") for path in paths),
        timeout_s=TIMEOUT_S,
    )


def guest_command(link: str, **options: object) -> list[str]:
    words = [f"/bin/{program(link).name}", "--link", link, "--seed", "5"]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


def check(rows: Sequence[Row]) -> None:
    """Under --icount the empty loop and calls that touch no file must count alike, but where the
    timer interrupts them, as the newest kernel's does a thousand times a second: the least count,
    which is the one that is used, must come again."""
    for key, values in costs.samples(rows).items():
        once = values.count(min(values)) < 2 <= len(values)
        if key.call in ("empty", "nosys", "getpid") and once:
            raise TraplessError(f"mode-switch: {key} counted {sorted(set(values))} in one boot")


def counted_metrics(calls: Mapping[costs.Key, costs.Cost]) -> dict[str, Metric]:
    """What a call costs, in each mode, form and state of the machine."""
    return {
        f"{key.call}.{key.mechanism}.{key.form}.instructions": Metric(
            round(cost.least, 2), "instructions", "counted", cost.n, round(cost.spread, 2)
        )
        for key, cost in calls.items()
    }


def ratio_metrics(calls: Mapping[costs.Key, costs.Cost]) -> dict[str, Metric]:
    """Counted, to a trap with the mechanism absent; what supervisor mode saves a call."""
    metrics = {}
    for key, cost in calls.items():
        base = calls.get(key.by(costs.ABSENT))
        if base is None or key.mechanism == costs.ABSENT:
            continue
        metrics[f"{key.call}.{key.mechanism}.{key.form}.instruction-ratio"] = Metric(
            round(cost.least / base.least, 4), "instruction-ratio", "counted", cost.n
        )
        if key.mechanism == costs.SUPERVISOR:
            metrics[f"{key.call}.supervisor.{key.form}.saved-instructions"] = Metric(
                round(base.least - cost.least, 2), "saved-instructions", "counted", cost.n
            )
    return metrics


def measured_ratios(rows: Sequence[Row]) -> dict[tuple[str, str], fit.Summary]:
    """(call, form) -> time in supervisor mode to time by trap, runs of the same round."""
    times: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "measured" and "mechanism" in row:
            key = (row["call"], row["form"], row["mechanism"])
            times.setdefault(key, {})[row["repeat"]] = row["value"]
    ratios = {}
    for (call, form, mechanism), values in times.items():
        if mechanism == costs.SUPERVISOR:
            pairs = fit.paired_ratios(values, times.get((call, form, "trap-back"), {}))
            if pairs:
                ratios[call, form] = fit.summary(pairs)
    return ratios


def measured_metrics(ratios: Mapping[tuple[str, str], fit.Summary]) -> dict[str, Metric]:
    return {
        f"{call}.supervisor.{form}.ratio": Metric(
            round(one.median, 4), "ratio", "measured", one.n, round(one.spread, 4)
        )
        for (call, form), one in ratios.items()
    }


def event_metrics(rows: Sequence[Row]) -> dict[str, Metric]:
    """Changes between user and supervisor mode, for each call of a long run with interrupts."""
    return {
        f"getpid.{row['events']}.{row['boot'].split('-')[1]}.transitions": Metric(
            round(transitions(row), 6), "transitions", "counted"
        )
        for row in rows
        if "events" in row
    }


def transitions(row: Row) -> float:
    """A call begun in user mode enters by one change, one that ends there leaves by one; so does
    the return from each interrupt that found the program in supervisor mode."""
    demoted = row["demotions"]
    return float((row["begun_user"] + row["ended_user"] + demoted) / row["calls"])


def analyse(raw: Raw) -> Findings:
    calls = costs.calls(raw.rows)
    ratios = measured_ratios(raw.rows)
    metrics = (
        counted_metrics(calls)
        | ratio_metrics(calls)
        | measured_metrics(ratios)
        | event_metrics(raw.rows)
        | switches.metrics(raw.rows)
        | model.metrics(calls)
    )
    trap = calls[costs.Key("getpid", "static", costs.ABSENT)].least
    return Findings(
        metrics,
        (
            claim_saving(calls),
            *model.claims_of(calls, ratios),
            claim_trap_overhead(calls),
            claim_static(calls),
            *switches.claims_of(raw.rows, trap),
        ),
    )


def claim_saving(calls: Mapping[costs.Key, costs.Cost]) -> Claim:
    saved = costs.saved(calls)
    if not saved:
        return claims.not_run("dms-saving", costs.NOT_OFFERED)
    least, most = min(saved.values()), max(saved.values())
    ours = f"{least:.0f} to {most:.0f} instructions a call"
    note = (
        "Undecided: clocks are a processor's. That it is the same for every call, as the paper "
        "says, is found here: of the calls above it differs by "
        f"{most - least:.0f} instructions. What the trap's two instructions take on a processor "
        "comes on top, and is in the modelled figures alone."
    )
    return claims.undecided("dms-saving", ours, note)


def claim_trap_overhead(calls: Mapping[costs.Key, costs.Cost]) -> Claim:
    """The worst of all calls and of all states in which the mechanism is there."""
    states = ("trap-loaded", "trap-present", "trap-back")
    grown = {
        key: cost.least / calls[key.by(costs.ABSENT)].least - 1
        for key, cost in calls.items()
        if key.mechanism in states and key.by(costs.ABSENT) in calls
    }
    if not grown:
        return claims.not_run("dms-trap-overhead", costs.NOT_OFFERED)
    worst = max(grown, key=grown.__getitem__)
    getpid = max(value for key, value in grown.items() if key.call == "getpid")
    ours = (
        f"{getpid:+.1%} for getpid; {grown[worst]:+.1%} at the most ({worst.call}, "
        f"{worst.form}), with the module loaded, with another process in supervisor mode, and "
        "after coming back from it"
    )
    growth = {"growth": grown[worst]}
    return claims.judge("dms-trap-overhead", ours, growth, why="Some call grows by more.")


def claim_static(calls: Mapping[costs.Key, costs.Cost]) -> Claim:
    shorter = {
        key: 1 - cost.least / calls[key.linked("dynamic")].least
        for key, cost in calls.items()
        if key.form == "static"
        and key.call in costs.PAPER_CALLS
        and key.mechanism in (costs.ABSENT, costs.SUPERVISOR)
        and key.linked("dynamic") in calls
    }
    least, most = min(shorter.values()), max(shorter.values())
    ours = f"{least:.1%} to {most:.1%} fewer instructions"
    values = {"least shorter": least, "most shorter": most}
    return claims.judge("dms-static", ours, values, why="Linking changes some call by more.")


NAMES = {
    costs.ABSENT: "trap, mechanism absent",
    "trap-present": "trap, mechanism present",
    costs.SUPERVISOR: "supervisor",
}


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    calls = costs.calls(raw.rows)
    return (
        figure_7(calls),
        *model.figures(calls),
        *switches.figures(raw.rows, calls),
        reach_table(raw, calls),
        call_table(calls, measured_ratios(raw.rows)),
        *event_tables(raw.rows),
        *model.tables(calls),
    )


def figure_7(calls: Mapping[costs.Key, costs.Cost]) -> Figure:
    groups = {
        call: {
            mechanism: calls[key].least
            for mechanism in NAMES
            if (key := costs.Key(call, "static", mechanism)) in calls
        }
        for call in ("getpid", "sbrk", "read1", "write1")
    }
    return Figure(
        id="fig7",
        title="What a system call costs, as Fig. 7 of the paper (static link)",
        x_label="",
        y_label="instructions a call",
        series=bars(groups, NAMES),
        names=("getpid", "sbrk", "read, 1 B", "write, 1 B"),
        caption="By the library's function, in user space and kernel together, an empty loop "
        "subtracted; files are in the page cache. The paper shows clocks of a Pentium 4, where a "
        "trap takes far longer than its instructions tell.",
        kind="counted",
    )


def reach_table(raw: Raw, calls: Mapping[costs.Key, costs.Cost]) -> Table:
    """What the project set out to reach, beside what was found."""
    rows = [
        *reach_rows(calls),
        *switches.reach_rows(raw.rows),
        *model.reach_rows(calls),
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


def reach_rows(calls: Mapping[costs.Key, costs.Cost]) -> list[tuple[str, str, str, str]]:
    saved = costs.saved(calls)
    if not saved:
        return []
    getpid = {m: calls[costs.Key("getpid", "bare", m)].least for m in NAMES}
    ratio = getpid[costs.SUPERVISOR] / getpid[costs.ABSENT]
    path = calls[costs.Key("nosys", "bare", costs.SUPERVISOR)].least
    grown = getpid["trap-present"] / getpid[costs.ABSENT] - 1
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
    calls: Mapping[costs.Key, costs.Cost], ratios: Mapping[tuple[str, str], fit.Summary]
) -> Table:
    rows = []
    for key, cost in calls.items():
        if key.mechanism != costs.ABSENT:
            continue
        inside, present = (calls.get(key.by(m)) for m in (costs.SUPERVISOR, "trap-present"))
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
            f"{transitions(row):.5f}",
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


PART = Part(name="calls", collect=collect, analyse=analyse, figures=figures, alone=True)
