# SPDX-License-Identifier: GPL-2.0-only
"""Runs the workload of calls, and makes metrics and claims of its rows: the main part of
mode-switch. In the lab calls are counted, and ratios measured; on a machine's own kernel all is
timed, but for the changes of the mode.

This file owns which runs are made, the metrics' names, and the claims about calls. switches.py owns
switches and their delay, modelled_clocks.py the modelled clocks; mode_figures.py draws.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eval.mode_switch import mode_costs, mode_figures, modelled_clocks, spec, switches
from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.experiments import fit
from trapless.experiments.collection import Collection, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.timed_rows import Clock, event_metrics, paired, ratio_metric
from trapless.report.figures import Figure, Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

LINKS = ("static", "dynamic")
ALIKE = 900 / 800
"""The paper's savings differ by an eighth at the most."""
TIMEOUT_S = 2 * 3600.0
PRESENT = "supervisor=1"


def collect(run: Collection) -> None:
    """Counted without the module and with it, for both kinds of linking; measured. On a machine's
    own kernel timed without the module and with it."""
    first = {"events": run.chosen(spec.EVENTS), "delays": run.chosen(spec.DELAYS)}
    rest = {"events": 0, "delays": 0}
    for label, parameters in (("absent", None), ("present", PRESENT)):
        if run.timed:
            config = boot_config(run, parameters, cpus=2 if parameters else 1)
            command = guest_command(
                LINKS[0],
                kind="measured",
                repeats=run.chosen(spec.ROUNDS),
                **(first if parameters else rest),
            )
            run.boot(f"measured-{label}", config, [*command, "--counters"])
            continue
        commands = [
            guest_command(
                link, kind="counted", repeats=run.chosen(spec.REPEATS["counted"]), **extra
            )
            for link, extra in zip(LINKS, (first, rest), strict=True)
        ]
        script = ["/bin/sh", "-c", " && ".join(map(shlex.join, commands))]
        config = boot_config(run, parameters, cpus=1, icount=True)
        check(run.boot(f"counted-{label}", config, script))
    if not run.timed:
        repeats = run.chosen(spec.REPEATS["measured"])
        command = guest_command(LINKS[0], kind="measured", repeats=repeats, **first)
        run.boot("measured", boot_config(run, PRESENT, cpus=2), command)


def program(link: str) -> Path:
    """The workload, linked as asked for."""
    static = workload("mode-switch")
    return static if link == LINKS[0] else static.with_name(f"{static.name}-{link}")


def boot_config(
    run: Collection, parameters: str | None, *, cpus: int, icount: bool = False
) -> LabConfig:
    """A VM with the workloads; without `parameters` the module is not even loaded."""
    paths = [program(link) for link in LINKS]
    for path in paths:
        if not path.exists():
            raise TraplessError(f"{path} is missing; run `make all` in {repo_root()}")
    return LabConfig(
        kernel=run.kernel,
        cpus=cpus,
        icount=icount,
        module=parameters is not None,
        module_parameters=parameters or "",
        files=tuple((path, f"/bin/{path.name}") for path in paths),
        timeout_s=TIMEOUT_S,
    )


def guest_command(link: str, **options: object) -> list[str]:
    return [f"/bin/{program(link).name}", *option_words({"link": link, "seed": 5, **options})]


def check(rows: Sequence[Row]) -> None:
    """Under --icount the empty loop and calls that touch no file must give equal counts, unless the
    timer interrupts them, as on the newest kernel a thousand times a second: the least count, which
    is the one that is used, must occur again."""
    for key, values in mode_costs.samples(rows).items():
        once = values.count(min(values)) < 2 <= len(values)
        if key.call in ("empty", "nosys", "getpid") and once:
            raise TraplessError(f"mode-switch: {key} counted {sorted(set(values))} in one boot")


def counted_metrics(calls: Mapping[mode_costs.Key, mode_costs.Cost]) -> dict[str, Metric]:
    """The cost of a call, in each mode, form and state of the machine."""
    return {
        f"{key.call}.{key.mechanism}.{key.form}.instructions": Metric(
            round(cost.least, 2), "instructions", "counted", cost.n, round(cost.spread, 2)
        )
        for key, cost in calls.items()
    }


def ratio_metrics(calls: Mapping[mode_costs.Key, mode_costs.Cost]) -> dict[str, Metric]:
    """Counted, to a trap with the mechanism absent; what supervisor mode saves a call."""
    metrics = {}
    for key, cost in calls.items():
        base = calls.get(key.by(mode_costs.ABSENT))
        if base is None or key.mechanism == mode_costs.ABSENT:
            continue
        metrics[f"{key.call}.{key.mechanism}.{key.form}.instruction-ratio"] = Metric(
            round(cost.least / base.least, 4), "instruction-ratio", "counted", cost.n
        )
        if key.mechanism == mode_costs.SUPERVISOR:
            metrics[f"{key.call}.supervisor.{key.form}.saved-instructions"] = Metric(
                round(base.least - cost.least, 2), "saved-instructions", "counted", cost.n
            )
    return metrics


Times = Mapping[tuple[str, str, str], Mapping[int, float]]
"""Call, form and mechanism -> round -> clocks of one call, the loop around it included."""


def times(rows: Sequence[Row]) -> Times:
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "measured" and "mechanism" in row:
            key = (row["call"], row["form"], row["mechanism"])
            found.setdefault(key, {})[row["repeat"]] = row["value"] / row["ops"]
    return found


def ratios_of(found: Times) -> dict[tuple[str, str], fit.Summary]:
    """(call, form) -> time in supervisor mode to time by trap, runs of the same round."""
    every = {
        (call, form): paired(values, found.get((call, form, mode_costs.BACK), {}))
        for (call, form, mechanism), values in found.items()
        if mechanism == mode_costs.SUPERVISOR
    }
    return {key: one for key, one in every.items() if one is not None}


def measured_metrics(ratios: Mapping[tuple[str, str], fit.Summary]) -> dict[str, Metric]:
    return {
        f"{call}.supervisor.{form}.ratio": ratio_metric(one) for (call, form), one in ratios.items()
    }


def saved_ns(found: Times, clock: Clock) -> dict[tuple[str, str], list[float]]:
    """(call, form) -> nanoseconds that supervisor mode saves, round by round."""
    return {
        (call, form): [
            (by_trap[number] - value) / clock.per_ns
            for number, value in values.items()
            if number in by_trap
        ]
        for (call, form, mechanism), values in found.items()
        if mechanism == mode_costs.SUPERVISOR
        and (by_trap := found.get((call, form, mode_costs.BACK), {}))
    }


def transition_metrics(rows: Sequence[Row]) -> dict[str, Metric]:
    """Changes between user and supervisor mode, for each call of a long run with interrupts; by the
    kind of the boot, and on a machine's own kernel by whether the module was there."""
    metrics = {}
    for row in rows:
        if isinstance(row.get("events"), str):
            _, kind, *state = row["boot"].split("-")
            name = f"getpid.{row['events']}.{state[0] if kind == 'measured' and state else kind}"
            metrics[f"{name}.transitions"] = Metric(
                round(mode_costs.transitions(row), 6), "transitions", "counted"
            )
    return metrics


def analyse(raw: Raw) -> Findings:
    found = times(raw.rows)
    return analyse_timed(raw, found) if raw.timed else analyse_counted(raw, ratios_of(found))


def analyse_counted(raw: Raw, ratios: Mapping[tuple[str, str], fit.Summary]) -> Findings:
    calls = mode_costs.calls(raw.rows)
    metrics = (
        counted_metrics(calls)
        | ratio_metrics(calls)
        | measured_metrics(ratios)
        | transition_metrics(raw.rows)
        | switches.metrics(raw.rows)
        | modelled_clocks.metrics(calls)
    )
    trap = calls[mode_costs.Key("getpid", "static", mode_costs.ABSENT)].least
    return Findings(
        metrics,
        (
            claim_saving(calls),
            *modelled_clocks.claims_of(calls, ratios),
            claim_trap_overhead(calls),
            claim_static(calls),
            *switches.claims_of(raw.rows, trap),
        ),
    )


def analyse_timed(raw: Raw, found: Times) -> Findings:
    clock, ratios = Clock.of(raw.rows), ratios_of(found)
    metrics = {
        f"{call}.{mechanism}.{form}.ns": clock.ns(list(values.values()))
        for (call, form, mechanism), values in found.items()
    }
    metrics |= measured_metrics(ratios)
    for (call, form), values in saved_ns(found, clock).items():
        one = fit.summary(values)
        metrics[f"{call}.supervisor.{form}.saved-ns"] = Metric(
            round(one.median, 2), "saved-ns", "measured", one.n, round(one.spread, 2)
        )
    metrics |= event_metrics(raw.rows, "{call}.{mechanism}.{form}")
    metrics |= transition_metrics(raw.rows)
    metrics |= switches.delay_metrics(raw.rows)
    made = (
        claim_saving_timed(found, clock),
        claim_trap_overhead_timed(found, clock),
        *claims_of_ratios(ratios, clock),
        switches.claim_delay(raw.rows),
    )
    return Findings(metrics, made)


def claims_of_ratios(
    ratios: Mapping[tuple[str, str], fit.Summary], clock: Clock
) -> Iterator[Claim]:
    """The calls of Fig. 7, by time."""
    for call in modelled_clocks.PUBLISHED:
        one = ratios.get((modelled_clocks.SMALL.get(call, call), modelled_clocks.FORM))
        if one is None:
            yield claims.not_run(f"dms-{call}", mode_costs.NOT_OFFERED)
            continue
        why = "A trap costs this processor less, beside the call's own work, than the paper's."
        ours = f"{fit.percent(one)} of the time by trap"
        yield clock.judge(f"dms-{call}", ours, {"ratio": one.median}, why, [one])


def claim_saving(calls: Mapping[mode_costs.Key, mode_costs.Cost]) -> Claim:
    saved = mode_costs.saved(calls)
    if not saved:
        return claims.not_run("dms-saving", mode_costs.NOT_OFFERED)
    least, most = min(saved.values()), max(saved.values())
    ours = f"{least:.0f} to {most:.0f} instructions a call"
    note = (
        "Undecided: clocks are a processor's. That it is the same for every call, as the paper "
        "says, is found here: of the calls above it differs by "
        f"{most - least:.0f} instructions. What the trap's two instructions take on a processor "
        "comes on top, and is in the modelled figures alone."
    )
    return claims.undecided("dms-saving", ours, note)


def claim_saving_timed(found: Times, clock: Clock) -> Claim:
    """The same for any call, as the paper has it: from 800 to 900 clocks."""
    savings = {key: fit.summary(values) for key, values in saved_ns(found, clock).items()}
    medians = {key: one.median for key, one in savings.items()}
    if not medians:
        return claims.not_run("dms-saving", mode_costs.NOT_OFFERED)
    least, most = min(medians.values()), max(medians.values())
    ours = (
        f"{least * clock.per_ns:.0f} to {most * clock.per_ns:.0f} clocks of the time-stamp counter "
        f"({least:.0f} to {most:.0f} ns) a call"
    )
    values = {"fewest clocks saved": least * clock.per_ns, "most clocks saved": most * clock.per_ns}
    alike = 0 < most <= least * ALIKE
    note = (
        "It is about the same for every call, but not as much as on the paper's Pentium 4."
        if alike
        else "The saving differs between calls by more than an eighth, and from the paper's."
    )
    return clock.judge("dms-saving", ours, values, note, tuple(savings.values()))


def claim_trap_overhead(calls: Mapping[mode_costs.Key, mode_costs.Cost]) -> Claim:
    """The worst of all calls and of all states in which the mechanism is there."""
    states = ("trap-loaded", "trap-present", "trap-back")
    grown = {
        key: cost.least / calls[key.by(mode_costs.ABSENT)].least - 1
        for key, cost in calls.items()
        if key.mechanism in states and key.by(mode_costs.ABSENT) in calls
    }
    if not grown:
        return claims.not_run("dms-trap-overhead", mode_costs.NOT_OFFERED)
    worst = max(grown, key=grown.__getitem__)
    getpid = max(value for key, value in grown.items() if key.call == "getpid")
    ours = (
        f"{getpid:+.1%} for getpid; {grown[worst]:+.1%} at the most ({worst.call}, "
        f"{worst.form}), with the module loaded, with another process in supervisor mode, and "
        "after coming back from it"
    )
    growth = {"growth": grown[worst]}
    return claims.judge("dms-trap-overhead", ours, growth, why="Some call grows by more.")


def claim_trap_overhead_timed(found: Times, clock: Clock) -> Claim:
    """Calls by trap after coming back from supervisor mode, beside those without the module. The
    runs follow each other: what drifts between them is in it."""
    grown = {
        key: fit.summary(list(values.values())).median / fit.summary(list(absent.values())).median
        - 1
        for key, values in found.items()
        if key[2] == mode_costs.BACK
        and (absent := found.get((key[0], key[1], mode_costs.ABSENT), {}))
    }
    if not grown:
        return claims.not_run("dms-trap-overhead", mode_costs.NOT_OFFERED)
    worst = max(grown, key=grown.__getitem__)
    ours = f"{grown[worst]:+.1%} at the most ({worst[0]}, {worst[1]}), after coming back from it"
    if grown[worst] > claims.limit("dms-trap-overhead") and not clock.emulated:
        note = (
            "Undecided: some call takes longer, but the runs follow each other, and drift is in it."
        )
        return claims.undecided("dms-trap-overhead", ours, note)
    return clock.judge("dms-trap-overhead", ours, {"growth": grown[worst]})


def claim_static(calls: Mapping[mode_costs.Key, mode_costs.Cost]) -> Claim:
    shorter = {
        key: 1 - cost.least / calls[key.linked("dynamic")].least
        for key, cost in calls.items()
        if key.form == "static"
        and key.call in mode_costs.PAPER_CALLS
        and key.mechanism in (mode_costs.ABSENT, mode_costs.SUPERVISOR)
        and key.linked("dynamic") in calls
    }
    least, most = min(shorter.values()), max(shorter.values())
    ours = f"{least:.1%} to {most:.1%} fewer instructions"
    values = {"smallest share saved": least, "largest share saved": most}
    return claims.judge("dms-static", ours, values, why="Linking changes some call by more.")


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    found = times(raw.rows)
    if raw.timed:
        clock = Clock.of(raw.rows)
        return mode_figures.timed(raw.rows, found, ratios_of(found), saved_ns(found, clock), clock)
    return mode_figures.counted(raw, ratios_of(found))
