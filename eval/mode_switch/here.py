# SPDX-License-Identifier: GPL-2.0-only
"""Experiment mode-switch on a machine's own kernel: calls timed by trap and in supervisor mode.

This file owns which runs are made there, the metrics in nanoseconds, and the claims that clocks
decide. The workload is that of part_calls.py; what a switch costs is counted in the lab only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.mode_switch import costs, part_calls, spec, switches
from eval.mode_switch.model import PUBLISHED, SMALL
from trapless.experiments import fit
from trapless.experiments.clocks import Clock, event_metrics, paired, ratio_metric
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Part, Raw, Spec
from trapless.report.figures import Figure, Table, bars
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

ROUNDS, QUICK_ROUNDS = 41, 9
LEAST_EVENTS, LEAST_DELAYS = 20_000, 5
BACK = "trap-back"
FORMS = ("bare", "static")
SAVING = (800.0, 900.0)
"""Clocks that the paper says are saved of any call: they differ by an eighth at the most."""
Key = tuple[str, str, str]
"""Call, form, mechanism."""


def collect(run: Collection) -> None:
    """By trap without the module; then by trap and in supervisor mode, in alternating rounds."""
    rounds = run.chosen(ROUNDS, QUICK_ROUNDS, fit.SAMPLES_MIN)
    events = run.chosen(part_calls.EVENTS, part_calls.QUICK_EVENTS, LEAST_EVENTS)
    delays = run.chosen(part_calls.DELAYS, part_calls.QUICK_DELAYS, LEAST_DELAYS)
    for label, parameters in (("absent", None), ("present", part_calls.PRESENT)):
        long = parameters is not None
        command = part_calls.guest_command(
            part_calls.LINKS[0],
            kind="measured",
            repeats=rounds,
            events=events if long else 0,
            delays=delays if long else 0,
        )
        config = part_calls.boot_config(run, parameters, counted=False)
        run.boot(
            f"measured-{label}", one_cpu(config) if not long else config, [*command, "--counters"]
        )


def one_cpu(config: LabConfig) -> LabConfig:
    """Delays are measured from another CPU; calls alone need none."""
    return LabConfig(**{**vars(config), "cpus": 1})


def times(rows: Sequence[Row]) -> dict[Key, dict[int, float]]:
    """Call, form and mechanism -> round -> clocks of one call, the loop around it included."""
    found: dict[Key, dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "measured" and "mechanism" in row:
            key = (row["call"], row["form"], row["mechanism"])
            found.setdefault(key, {})[row["repeat"]] = row["value"] / row["ops"]
    return found


def ratios(found: Mapping[Key, Mapping[int, float]]) -> dict[tuple[str, str], fit.Summary]:
    """(call, form) -> time in supervisor mode to time by trap, runs of the same round."""
    every = {
        (call, form): paired(values, found.get((call, form, BACK), {}))
        for (call, form, mechanism), values in found.items()
        if mechanism == costs.SUPERVISOR
    }
    return {key: one for key, one in every.items() if one is not None}


def saved(
    found: Mapping[Key, Mapping[int, float]], clock: Clock
) -> dict[tuple[str, str], list[float]]:
    """(call, form) -> nanoseconds that supervisor mode saves, round by round."""
    return {
        (call, form): [
            (by_trap[number] - value) / clock.per_ns
            for number, value in values.items()
            if number in by_trap
        ]
        for (call, form, mechanism), values in found.items()
        if mechanism == costs.SUPERVISOR and (by_trap := found.get((call, form, BACK), {}))
    }


def analyse(raw: Raw) -> Findings:
    clock, found = Clock.of(raw.rows), times(raw.rows)
    metrics = {
        f"{call}.{mechanism}.{form}.ns": clock.ns(list(values.values()))
        for (call, form, mechanism), values in found.items()
    }
    metrics |= {
        f"{call}.supervisor.{form}.ratio": ratio_metric(one)
        for (call, form), one in ratios(found).items()
    }
    for (call, form), values in saved(found, clock).items():
        one = fit.summary(values)
        metrics[f"{call}.supervisor.{form}.saved-ns"] = Metric(
            round(one.median, 2), "saved-ns", "measured", one.n, round(one.spread, 2)
        )
    metrics |= event_metrics(raw.rows, "{call}.{mechanism}.{form}")
    metrics |= {
        f"getpid.{row['events']}.{row['boot'].rpartition('-')[2]}.transitions": Metric(
            round(part_calls.transitions(row), 6), "transitions", "counted"
        )
        for row in raw.rows
        if isinstance(row.get("events"), str)
    }
    metrics |= {
        name: metric for name, metric in switches.metrics(raw.rows).items() if "delay" in name
    }
    return Findings(metrics, tuple(claims_of(raw.rows, found, clock)))


def claims_of(
    rows: Sequence[Row], found: Mapping[Key, Mapping[int, float]], clock: Clock
) -> list[Claim]:
    made = [claim_saving(found, clock), claim_trap_overhead(found, clock)]
    by_call = ratios(found)
    for call in PUBLISHED:
        one = by_call.get((SMALL.get(call, call), "static"))
        if one is None:
            made.append(claims.not_run(f"dms-{call}", costs.NOT_OFFERED))
            continue
        note = "A trap costs this processor less, beside the call's own work, than the paper's."
        ours = f"{fit.percent(one)} of the time by trap"
        made.append(clock.judge(f"dms-{call}", ours, {"ratio": one.median}, note, [one]))
    made.append(switches.claim_delay(rows))
    return made


def claim_saving(found: Mapping[Key, Mapping[int, float]], clock: Clock) -> Claim:
    """The same for any call, as the paper has it: from 800 to 900 clocks."""
    savings = {key: fit.summary(values) for key, values in saved(found, clock).items()}
    medians = {key: one.median for key, one in savings.items()}
    if not medians:
        return claims.not_run("dms-saving", costs.NOT_OFFERED)
    least, most = min(medians.values()), max(medians.values())
    ours = (
        f"{least * clock.per_ns:.0f} to {most * clock.per_ns:.0f} clocks of the time-stamp counter "
        f"({least:.0f} to {most:.0f} ns) a call"
    )
    values = {"least clocks": least * clock.per_ns, "most clocks": most * clock.per_ns}
    alike = 0 < most <= least * SAVING[1] / SAVING[0]
    note = (
        "It is about the same for every call, but not as much as on the paper's Pentium 4."
        if alike
        else "The saving differs between calls by more than an eighth, and from the paper's."
    )
    return clock.judge("dms-saving", ours, values, note, tuple(savings.values()))


def claim_trap_overhead(found: Mapping[Key, Mapping[int, float]], clock: Clock) -> Claim:
    """Calls by trap after coming back from supervisor mode, beside those without the module. The
    runs follow each other: what drifts between them is in it."""
    grown = {
        key: fit.summary(list(values.values())).median / fit.summary(list(absent.values())).median
        - 1
        for key, values in found.items()
        if key[2] == BACK and (absent := found.get((key[0], key[1], costs.ABSENT), {}))
    }
    if not grown:
        return claims.not_run("dms-trap-overhead", costs.NOT_OFFERED)
    worst = max(grown, key=grown.__getitem__)
    ours = f"{grown[worst]:+.1%} at the most ({worst[0]}, {worst[1]}), after coming back from it"
    if grown[worst] > claims.limit("dms-trap-overhead") and not clock.emulated:
        note = (
            "Undecided: some call takes longer, but the runs follow each other, and drift is in it."
        )
        return claims.undecided("dms-trap-overhead", ours, note)
    return clock.judge("dms-trap-overhead", ours, {"growth": grown[worst]})


NAMES = {costs.ABSENT: "trap, mechanism absent", BACK: "trap, present", "supervisor": "supervisor"}


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    clock, found = Clock.of(raw.rows), times(raw.rows)
    groups = {
        call: {
            mechanism: clock.ns(list(found[call, "static", mechanism].values())).value
            for mechanism in NAMES
            if (call, "static", mechanism) in found
        }
        for call in ("getpid", "sbrk", "read1", "write1")
    }
    return (
        Figure(
            id="fig7",
            title="What a system call costs, as Fig. 7 of the paper (static link)",
            x_label="",
            y_label="ns a call",
            series=bars(groups, NAMES),
            names=("getpid", "sbrk", "read, 1 B", "write, 1 B"),
            caption="By the library's function, the loop around it included; files are in the page "
            "cache. Medians.",
            kind="measured",
        ),
        call_table(found, clock),
        *([switches.delay_table(raw.rows)] if switches.delays(raw.rows) else []),
    )


def call_table(found: Mapping[Key, Mapping[int, float]], clock: Clock) -> Table:
    savings, by_call = saved(found, clock), ratios(found)
    rows = []
    for call, form, mechanism in found:
        if mechanism != costs.ABSENT:
            continue
        ns = {
            name: clock.ns(list(found[call, form, name].values())).value
            for name in NAMES
            if (call, form, name) in found
        }
        values = savings.get((call, form), [])
        interval = fit.confidence(values) if len(values) >= fit.SAMPLES_MIN else None
        one = by_call.get((call, form))
        rows.append(
            (
                call,
                form,
                *(f"{ns[name]:.1f}" if name in ns else "" for name in NAMES),
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


SPEC = Spec(
    name="mode-switch",
    paper=spec.SPEC.paper,
    question=spec.SPEC.question,
    method=(
        "Loops of one call each on this machine's own kernel, without the module, and with it by "
        "trap and in supervisor mode, modes in random order in each round (Fig. 7 of the paper). "
        "Measured by the time-stamp counter. Where the processor has counters, a run beside each "
        "counts instructions, clocks, and misses of caches and TLB."
    ),
    limits=(
        "The time-stamp counter runs at its own rate, not at the core's: times are nanoseconds, "
        "and what the frequency did meanwhile is in them.",
        "The run without the module is another run: what drifts between the two is in the "
        "difference. The saving and the ratio are of runs that alternate.",
        "What a switch of modes costs is counted in the lab only.",
    ),
    parts=(Part(name="calls", collect=collect, analyse=analyse, figures=figures),),
    minutes=(0.3, 1),
)
