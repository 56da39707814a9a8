# SPDX-License-Identifier: GPL-2.0-only
"""Experiment batch-size on a machine's own kernel: the same workload, timed and not counted.

This file owns the sizes and rounds there, the metrics in nanoseconds, and the claims that clocks
decide. part_calls.py has the ratios, here_walk.py the program.
"""

from __future__ import annotations

from collections.abc import Mapping

from eval.batch_size import here_walk, part_calls, spec
from eval.batch_size.part_calls import EMPTY, SUBJECTS
from trapless.experiments import fit, repetition
from trapless.experiments.clocks import Clock, event_metrics
from trapless.experiments.collection import Collection
from trapless.experiments.experiment import Findings, Part, Raw, Spec, workload
from trapless.experiments.here import disk
from trapless.experiments.repetition import Key, Samples
from trapless.report.figures import Figure, Table, lines
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

DISK = "read1_disk"
QUICK_SIZES = (1, 2, 3, 8, 32, 128)
LEAST_SIZES = (1, 2, 32)
ROUNDS, QUICK_ROUNDS = 41, 9


def collect(run: Collection) -> None:
    """One run of all mechanisms, in alternating rounds."""
    modules, why = disk.ram_disk()
    subjects = [call for call in SUBJECTS if call != DISK or modules]
    if why:
        run.write([{"skipped": DISK, "reason": why}])
    options = {
        "kind": "measured",
        "mechanisms": part_calls.MEASURED_MECHANISMS,
        "sizes": ",".join(map(str, run.chosen(part_calls.SIZES, QUICK_SIZES, LEAST_SIZES))),
        "repeats": str(run.chosen(ROUNDS, QUICK_ROUNDS, fit.SAMPLES_MIN)),
        "seed": "11",
        "calls": ",".join((EMPTY, *subjects)),
        "polled": part_calls.QUICK_POLLED if run.quick else part_calls.POLLED,
    }
    if modules:
        options["disk"] = guest_disk.MOUNT_POINT
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    argv = [part_calls.GUEST_PROGRAM, *words, "--counters"]
    config = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=((workload("batch-size"), part_calls.GUEST_PROGRAM),),
        modules=modules,
        timeout_s=part_calls.TIMEOUT_S,
    )
    run.boot("measured", config, guest_disk.command(argv) if modules else argv)


def analyse(raw: Raw) -> Findings:
    clock = Clock.of(raw.rows)
    measured = part_calls.per_call(raw.rows, "measured")
    equations = part_calls.fits(measured)
    metrics = {
        f"{call}.{mechanism}.n{n}.ns": clock.ns(values)
        for (call, mechanism), samples in measured.items()
        for n, values in samples.items()
    }
    metrics |= part_calls.measured_metrics(measured)
    metrics |= fit_metrics(equations, clock)
    metrics |= break_even_metrics(measured)
    metrics |= event_metrics(raw.rows, "{call}.{mechanism}.n{n}")
    return Findings(
        metrics,
        (
            claim_break_even("wsc-int", "plain-int", "batch-int", measured, clock),
            claim_break_even("wsc-sysenter", "plain", "batch", measured, clock),
            claim_fast_trap(measured, clock),
            claim_equation(equations, measured, clock),
        ),
    )


def fit_metrics(equations: Mapping[Key, fit.Equation1], clock: Clock) -> dict[str, Metric]:
    """The terms of the paper's equation (1), in time."""
    metrics = {}
    for (call, mechanism), eq in equations.items():
        for name, value in (("a", eq.a), ("s", eq.s), ("work", eq.work), ("fixed", eq.fixed)):
            metrics[f"{call}.{mechanism}.fit_{name}.ns"] = Metric(
                round(value / clock.per_ns, 2), "ns", "measured"
            )
    return metrics


def break_even_metrics(measured: Mapping[Key, Samples]) -> dict[str, Metric]:
    metrics = {}
    for call, mechanism in sorted(measured):
        base = "plain-int" if mechanism.endswith("-int") else "plain"
        n = part_calls.measured_break_even(measured, call, base, mechanism)
        if mechanism != base and n is not None:
            metrics[f"{call}.{mechanism}.break_even_measured.n"] = Metric(n, "n", "measured")
    return metrics


def claim_break_even(
    claim_id: str,
    base: str,
    mechanism: str,
    measured: Mapping[Key, Samples],
    clock: Clock,
) -> Claim:
    """From which N a batched getpid takes less time; the paper's N, or a smaller one for INT."""
    if not {("getpid", base), ("getpid", mechanism)} <= measured.keys():
        return claims.not_run(claim_id, part_calls.NO_INT)
    n = part_calls.measured_break_even(measured, "getpid", base, mechanism)
    ours = part_calls.from_n(n) + " (by the clock)"
    note = (
        "Storing and fetching a request cost little beside the trap of this processor: a smaller N "
        "wins."
        if n is not None and n < claims.limit(claim_id)
        else "The trap costs this processor less, beside a request, than it did the paper's."
    )
    rests_on = tuple(part_calls.ratios(measured, "getpid", mechanism, base).values())
    return clock.judge(claim_id, ours, {"N": n}, note, rests_on)


def claim_fast_trap(measured: Mapping[Key, Samples], clock: Clock) -> Claim:
    by_n = part_calls.ratios(measured, "getpid", "plain", "plain-int")
    if not by_n:
        return claims.not_run("wsc-fast-trap", part_calls.NO_INT)
    one = by_n[max(by_n)]
    note = "Today's INT trap costs this processor less, beside SYSCALL, than the paper's did."
    ours = f"{fit.percent(one)} of the clocks"
    return clock.judge("wsc-fast-trap", ours, {"ratio": one.median}, note, [one])


def claim_equation(
    equations: Mapping[Key, fit.Equation1], measured: Mapping[Key, Samples], clock: Clock
) -> Claim:
    """S and A nearly constant: over N (straight lines), and S over the calls."""
    fast = {call: eq for (call, mechanism), eq in equations.items() if mechanism == "batch"}
    residual = max(eq.residual for eq in fast.values())
    costs = {call: eq.s for call, eq in fast.items()}
    least, most = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    trap = fast[least].a
    ours = (
        f"A = {trap / clock.per_ns:.1f} ns, S = {costs[least] / clock.per_ns:.1f} ({least}) to "
        f"{costs[most] / clock.per_ns:.1f} ns ({most}); over N the largest residual of a straight "
        f"line is {residual:.1%}"
    )
    values = part_calls.apart(residual, costs[most] - costs[least], trap)
    note = "Time is not linear in N for every call, or S differs by more than a fifth of A."
    rests_on = [
        one
        for call in costs
        for one in part_calls.ratios(measured, call, "batch", "plain").values()
    ]
    return clock.judge("wsc-eq1", ours, values, note, rests_on)


NAMES = {
    "plain-int": "conventional (INT)",
    "batch-int": "wrapped (INT)",
    "plain": "conventional (fast trap)",
    "batch": "wrapped (fast trap)",
    "io_uring-nop": "io_uring NOP",
}


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    clock = Clock.of(raw.rows)
    measured = part_calls.per_call(raw.rows, "measured")
    costs = repetition.of_call(measured, "getpid")
    totals = {
        mechanism: {n: 512 * cost / clock.per_ns / 1000 for n, cost in by_n.items()}
        for mechanism, by_n in costs.items()
    }
    return (
        Figure(
            id="fig11",
            title="512 getpid by batch size, as Fig. 11 of the paper",
            x_label="calls in a batch, N",
            y_label="µs for 512 calls",
            series=lines(totals, NAMES),
            log_x=True,
            log_y=True,
            caption="The least of the rounds. The paper shows clocks of a Pentium 4.",
            kind="measured",
        ),
        saving_table(measured, clock),
    )


def saving_table(measured: Mapping[Key, Samples], clock: Clock) -> Table:
    """What a batch of 32 takes away from each call, with an interval for it."""
    rows = []
    for call in SUBJECTS:
        plain, batch = (measured.get((call, way), {}).get(32, ()) for way in ("plain", "batch"))
        differences = [
            (one - other) / clock.per_ns for one, other in zip(plain, batch, strict=False)
        ]
        if len(differences) < fit.SAMPLES_MIN:
            continue
        saved = fit.confidence(differences)
        alone = fit.summary([value / clock.per_ns for value in plain])
        n = part_calls.measured_text(measured, call, "plain", "batch")
        rows.append(
            (
                call,
                f"{alone.median:.1f}",
                f"{saved.median:.1f} ({saved.low:.1f} to {saved.high:.1f})",
                f"{saved.median / alone.median:.0%}",
                n,
            )
        )
    return Table(
        id="saved",
        title="What a batch of 32 takes away from a call",
        columns=("call", "plain, ns", "saved, ns (95% interval)", "saved", "wins from N"),
        rows=tuple(rows),
        caption="Medians of paired rounds. ? marks an N where rounds differ by more than half.",
        kind="measured",
    )


PART = Part(name="calls", collect=collect, analyse=analyse, figures=figures)

SPEC = Spec(
    name="batch-size",
    paper=spec.SPEC.paper,
    question=spec.SPEC.question,
    method=(
        "512 calls of one kind in batches of N = 1 to 128, by the fast trap, by the INT trap and "
        "by liburing, on this machine's own kernel with the module loaded (Fig. 11 of the paper). "
        "Measured by the time-stamp counter in alternating rounds, mechanisms in random order, "
        "each after a run that warms up. Where the processor has counters, a run beside it counts "
        "instructions, clocks, and misses of caches and TLB."
    ),
    limits=(
        "The time-stamp counter runs at its own rate, not at the core's: times are nanoseconds, "
        "and what the frequency did meanwhile is in them.",
        "io_uring has no getpid: its NOP stands beside it. Its STATX answers more than newfstatat "
        "and is always handed to a kernel thread.",
        "A page that is read again and again is in every cache.",
    ),
    parts=(PART, here_walk.PART),
    minutes=(0.5, 2),
)
