# SPDX-License-Identifier: GPL-2.0-only
"""Runs the workload of calls, and makes metrics and claims of its rows: the main part of
batch-size. In the lab instructions are counted, and ratios measured beside them; on a machine's own
kernel all is timed.

This file owns the commands, the metrics' names, and the values that decide the paper's claims. The
calls themselves are made by the C program beside it; batch_figures.py shows what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eval.batch_size import batch_figures, spec
from eval.batch_size.call_costs import (
    DISK,
    EMPTY,
    PAIRS,
    SUBJECTS,
    counted_break_even,
    fits,
    measured_break_even,
    off_line,
    per_call,
    ratios,
)
from trapless.base.architecture import ARM64
from trapless.base.console import TraplessError
from trapless.experiments import fit, repeated_counts
from trapless.experiments.collection import Collection, Extent, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.here import disk
from trapless.experiments.repeated_counts import Key, Samples
from trapless.experiments.timed_rows import Clock, event_metrics
from trapless.report.figures import Figure, Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

COUNTED_MECHANISMS = "plain,plain-int,batch,batch-int,batch-plain,io_uring"
MECHANISMS = {"counted": COUNTED_MECHANISMS, "measured": f"{COUNTED_MECHANISMS},io_uring-sqpoll"}
POLLED = Extent(SUBJECTS, ("getppid", DISK))
"""Calls that io_uring's polling thread also serves: on a busy host it is slow to answer."""
TIMEOUT_S = 2 * 3600.0
GUEST_PROGRAM = "/bin/batch-size"
NO_INT = "this kernel answers no int $0x80"
DIRECT_FROM = 8
"""From so many alike requests on the module calls hot handlers directly (docs/batches.md)."""


def collect(run: Collection) -> None:
    """One boot that counts, in full runs a second that must count the same, and one that measures;
    on a machine's own kernel one run of all mechanisms, in alternating rounds."""
    modules, why = disk.of_run(run)
    if why:
        run.write([{"skipped": DISK, "reason": why}])
    measured = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=((workload("batch-size", run.arch), GUEST_PROGRAM),),
        modules=modules,
        timeout_s=TIMEOUT_S,
    )
    if not run.timed:
        counted, argv = replace(measured, cpus=1, icount=True), command(run, "counted")
        first = run.boot("counted", counted, argv)
        if not run.quick:
            second = run.boot("counted-again", counted, argv)
            run.write([compare_boots(first, second)])
    run.boot("measured", measured, command(run, "measured", disk=bool(modules)))


def command(run: Collection, kind: str, *, disk: bool = True) -> list[str]:
    """The workload's command line; without a disk it reads none."""
    options: dict[str, object] = {
        "kind": kind,
        "mechanisms": MECHANISMS[kind],
        "sizes": run.chosen(spec.SIZES),
        "repeats": run.chosen(spec.ROUNDS if run.timed else spec.REPEATS[kind]),
        "seed": 11,
        "calls": (EMPTY, *(call for call in SUBJECTS if disk or call != DISK)),
    }
    if disk:
        options["disk"] = guest_disk.MOUNT_POINT
    options["polled"] = run.chosen(POLLED)
    argv = [GUEST_PROGRAM, *option_words(options), *(["--counters"] if run.timed else [])]
    return guest_disk.command(argv) if disk else argv


def compare_boots(first: Sequence[Row], second: Sequence[Row]) -> Row:
    """Two boots that count the same must print the same rows; otherwise no figure can be
    trusted."""
    if len(first) != len(second):
        raise TraplessError(
            f"batch-size: two boots printed different numbers of rows, {len(first)} and "
            f"{len(second)}"
        )
    for one, other in zip(first, second, strict=True):
        if one != other:
            raise TraplessError(
                f"batch-size: two boots counted differently: {one} and then {other}; counted "
                f"figures must repeat exactly"
            )
    return {"check": "two boots count the same", "made": len(first), "executed": len(second)}


def measured_metrics(measured: Mapping[Key, Samples]) -> dict[str, Metric]:
    metrics = {}
    for call, mechanism in measured:
        for base, unit in (("plain", "ratio"), ("plain-int", "ratio-to-int")):
            by_int = unit == "ratio-to-int"
            if mechanism == base or (by_int and mechanism not in ("plain", "batch-int")):
                continue
            for n, summary in ratios(measured, call, mechanism, base).items():
                metrics[f"{call}.{mechanism}.n{n}.{unit}"] = Metric(
                    round(summary.median, 4), unit, "measured", summary.n, round(summary.spread, 4)
                )
    return metrics


def fit_metrics(
    equations: Mapping[Key, fit.Equation1], counted: Mapping[Key, Samples]
) -> dict[str, Metric]:
    """The terms of the paper's equation (1), in instructions."""
    repeats = min(len(values) for samples in counted.values() for values in samples.values())
    metrics = {}
    for (call, mechanism), eq in equations.items():
        values = {"a": eq.a, "s": eq.s, "work": eq.work, "o1": eq.o1, "o2": eq.o2}
        for name, value in values.items():
            metrics[f"{call}.{mechanism}.fit_{name}.instructions"] = Metric(
                round(value, 2), "instructions", "counted", repeats
            )
        metrics[f"{call}.{mechanism}.fit_residual.percent"] = Metric(
            round(100 * eq.residual, 3), "percent", "counted", repeats
        )
        if eq.break_even is not None:
            metrics[f"{call}.{mechanism}.fit_break_even.n"] = Metric(
                round(eq.break_even, 2), "n", "counted", repeats
            )
    return metrics


def timed_fits(equations: Mapping[Key, fit.Equation1], clock: Clock) -> dict[str, Metric]:
    """The terms of the paper's equation (1), in time."""
    metrics = {}
    for (call, mechanism), eq in equations.items():
        for name, value in (("a", eq.a), ("s", eq.s), ("work", eq.work), ("fixed", eq.fixed)):
            metrics[f"{call}.{mechanism}.fit_{name}.ns"] = Metric(
                round(value / clock.per_ns, 2), "ns", "measured"
            )
    return metrics


def break_even_metrics(
    counted: Mapping[Key, Samples], measured: Mapping[Key, Samples]
) -> dict[str, Metric]:
    metrics = {}
    for call, mechanism in sorted(counted or measured):
        base = "plain-int" if mechanism.endswith("-int") else "plain"
        if mechanism == base:
            continue
        n = counted_break_even(counted, call, base, mechanism)
        if n is not None:
            metrics[f"{call}.{mechanism}.break_even.n"] = Metric(n, "n", "counted")
        n = measured_break_even(measured, call, base, mechanism)
        if n is not None:
            metrics[f"{call}.{mechanism}.break_even_measured.n"] = Metric(n, "n", "measured")
    return metrics


def analyse(raw: Raw) -> Findings:
    counted, measured = per_call(raw.rows, "counted"), per_call(raw.rows, "measured")
    clock = Clock.of(raw.rows) if raw.timed else None
    equations = fits(counted or measured)
    metrics = clock.metrics(measured) if clock else repeated_counts.metrics(counted, "instructions")
    metrics |= measured_metrics(measured)
    metrics |= timed_fits(equations, clock) if clock else fit_metrics(equations, counted)
    metrics |= break_even_metrics(counted, measured)
    metrics |= event_metrics(raw.rows, "{call}.{mechanism}.n{n}")
    emulated = raw.meta.get("accelerator") == "tcg"
    return Findings(metrics, tuple(claims_of(counted, measured, clock, emulated, fast_trap(raw))))


def from_n(n: int | None) -> str:
    return "never" if n is None else f"N = {n}"


def claims_of(
    counted: Mapping[Key, Samples],
    measured: Mapping[Key, Samples],
    clock: Clock | None,
    emulated: bool,
    trap: str,
) -> Iterator[Claim]:
    equations = fits(counted or measured)
    for claim_id, base, mechanism in (
        ("wsc-int", "plain-int", "batch-int"),
        ("wsc-sysenter", "plain", "batch"),
    ):
        if not {("getpid", base), ("getpid", mechanism)} <= (counted or measured).keys():
            yield claims.not_run(claim_id, NO_INT)
            continue
        by_clock = measured_break_even(measured, "getpid", base, mechanism)
        if clock:
            rests_on = tuple(ratios(measured, "getpid", mechanism, base).values())
            ours, why = f"{from_n(by_clock)} (by the clock)", why_timed(claim_id, by_clock)
            yield clock.judge(claim_id, ours, {"N": by_clock}, why, rests_on)
        else:
            by_count = counted_break_even(counted, "getpid", base, mechanism)
            ours = f"{from_n(by_count)} (counted), {from_n(by_clock)} (measured ratio)"
            eq = equations["getpid", mechanism]
            note, why = about_int() if claim_id == "wsc-int" else about_sysenter(eq, trap)
            against = claim_id == "wsc-int"  # a count understates what a batch saves of this trap
            yield claims.judge(claim_id, ours, {"N": by_count}, note, why=why, biased=against)
    yield claim_fast_trap(counted, measured, clock, emulated)
    yield claim_equation(equations, counted, measured, clock)


def why_timed(claim_id: str, n: int | None) -> str:
    if n is not None and n < claims.limit(claim_id):
        return (
            "Storing and fetching a request cost little beside the trap of this processor: a "
            "smaller N wins."
        )
    return "The trap costs this processor less, beside a request, than it did the paper's."


def about_int() -> tuple[str, str]:
    return (
        "Both sides cross by int $0x80.",
        "A count takes the INT trap and its return for two instructions, however long they take a "
        "processor, and so understates what a batch saves.",
    )


def fast_trap(raw: Raw) -> str:
    """The trap of the processor, in place of the one that the paper calls fast."""
    return "arm64's SVC" if raw.meta.get("architecture") == ARM64.name else "x86-64's SYSCALL"


def about_sysenter(eq: fit.Equation1, trap: str) -> tuple[str, str]:
    return (
        f"{trap} stands for SYSENTER. A trap costs {eq.a:.0f} instructions, a request "
        f"in a batch {eq.s:.0f}, and a batch {eq.fixed:.0f} once, so it is paid back after "
        f"{eq.fixed / eq.saving:.1f} calls. In the paper, storing and fetching a request cost "
        "nearly as much as the fast trap: only a larger N could win.",
        "",
    )


def claim_fast_trap(
    counted: Mapping[Key, Samples],
    measured: Mapping[Key, Samples],
    clock: Clock | None,
    emulated: bool,
) -> Claim:
    by_clock = ratios(measured, "getpid", "plain", "plain-int")
    plain, by_int = (
        repeated_counts.least(counted.get(("getpid", by), {})) for by in ("plain", "plain-int")
    )
    n = max(by_clock, default=0) if clock else max(plain)
    if n not in by_clock or (n not in by_int and not clock):
        return claims.not_run("wsc-fast-trap", NO_INT)
    ratio = {"ratio": by_clock[n].median}
    if clock:
        why = "Today's INT trap costs this processor less, beside SYSCALL, than the paper's did."
        ours = f"{fit.percent(by_clock[n])} of the clocks"
        return clock.judge("wsc-fast-trap", ours, ratio, why, [by_clock[n]])
    ours = f"{plain[n] / by_int[n]:.2f} of the instructions, {by_clock[n].median:.2f} of the clocks"
    if emulated:
        note = (
            "Undecided: the claim is about a processor's clocks. A count takes a trap and its "
            "return for two instructions each way, and the clock here is an emulator's."
        )
        return claims.undecided("wsc-fast-trap", ours, note)
    why = "Today's INT trap costs this processor less than the paper's did."
    return claims.judge("wsc-fast-trap", ours, ratio, why=why)


def claim_equation(
    equations: Mapping[Key, fit.Equation1],
    counted: Mapping[Key, Samples],
    measured: Mapping[Key, Samples],
    clock: Clock | None,
) -> Claim:
    """S and A nearly constant: over N (straight lines), and S over the calls."""
    fast = {call: eq for (call, mechanism), eq in equations.items() if mechanism == "batch"}
    residual = max(eq.residual for eq in fast.values())
    costs = {call: eq.s for call, eq in fast.items()}
    least, most = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    trap = fast[least].a
    values = {
        "largest residual of a line": residual,
        "range of S, in A,": (costs[most] - costs[least]) / trap,
    }
    straight = f"over N the largest residual of a straight line is {100 * residual:.1f}%"
    if clock:
        a, s, other = (cost / clock.per_ns for cost in (trap, costs[least], costs[most]))
        ours = f"A = {a:.1f} ns, S = {s:.1f} ({least}) to {other:.1f} ns ({most}); {straight}"
        why = "Time is not linear in N for every call, or S differs by more than a fifth of A."
        rests_on = [
            one for call in costs for one in ratios(measured, call, "batch", "plain").values()
        ]
        return clock.judge("wsc-eq1", ours, values, why, rests_on)
    ours = (
        f"A = {trap:.0f} instructions, S = {costs[least]:.0f} ({least}) to {costs[most]:.0f} "
        f"({most}), and {straight}"
    )
    reasons = {
        "largest residual of a line": why_not_straight(counted),
        "range of S, in A,": "S differs between the calls by more than a fifth of A",
    }
    return claims.judge("wsc-eq1", ours, values, why=reasons)


def why_not_straight(counted: Mapping[Key, Samples]) -> str:
    """Which call's batches are farthest from a straight line over N and at which N, how far its
    plain calls are there, and how far any batch is without that N."""
    keys = {(call, mechanism) for call in SUBJECTS for mechanism in PAIRS[0]} & counted.keys()
    lines = {key: off_line(counted[key]) for key in keys}
    call, n = farthest(lines)
    rest = {key: off_line(counted[key], without=n) for key in keys}
    other, at = farthest(rest)
    return (
        f"Cost is not linear in N for every call: at N = {n} {call} is off its line by "
        f"{lines[call, 'batch'][n]:+.1%} in a batch and {lines[call, 'plain'][n]:+.1%} by plain "
        f"calls. Without N = {n} no batch is off by more than {abs(rest[other, 'batch'][at]):.1%} "
        f"({other}, N = {at}). Where the kernel has retpolines, the module calls hot handlers "
        f"directly from N = {DIRECT_FROM} on, which is a step within that."
    )


def farthest(lines: Mapping[Key, Mapping[int, float]]) -> tuple[str, int]:
    """The call whose batches are farthest off their line, and at which N."""
    shares = {
        (call, n): abs(share)
        for (call, mechanism), off in lines.items()
        if mechanism == "batch"
        for n, share in off.items()
    }
    return max(sorted(shares), key=shares.__getitem__)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    counted, measured = per_call(raw.rows, "counted"), per_call(raw.rows, "measured")
    if raw.timed:
        return batch_figures.timed(measured, Clock.of(raw.rows))
    return batch_figures.counted(counted, measured)
