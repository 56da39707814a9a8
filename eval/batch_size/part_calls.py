# SPDX-License-Identifier: GPL-2.0-only
"""Runs the workload of calls, and makes figures and claims of its rows: the main part of
batch-size.

This file owns the sizes and repeats, the metrics' names and the judgement of the paper's claims.
The calls themselves are made by the C program beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from trapless.base.console import TraplessError
from trapless.experiments import fit, repetition
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Part, Raw, workload
from trapless.experiments.repetition import Key, Samples
from trapless.report.figures import Figure, Table, lines
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
QUICK_SIZES = (1, 2, 3, 4, 8, 16, 32, 128)
SUBJECTS = ("getpid", "getppid", "read1", "read4k", "read1_disk", "write1", "stat")
EMPTY = "nosys"
"""The call that is none: what its trap costs is A."""
COUNTED_MECHANISMS = "plain,plain-int,batch,batch-int,batch-plain,io_uring"
MEASURED_MECHANISMS = COUNTED_MECHANISMS + ",io_uring-sqpoll"
POLLED = ",".join(SUBJECTS)
QUICK_POLLED = "getppid,read1_disk"
"""Calls that io_uring's polling thread also serves: on a busy host it is slow to answer."""
REPEATS = {"counted": 5, "measured": 25}
QUICK_REPEATS = {"counted": 3, "measured": 7}
TIMEOUT_S = 2 * 3600.0
GUEST_PROGRAM = "/bin/batch-size"


def collect(run: Collection) -> None:
    """One boot that counts, in full runs a second that must count the same; one that measures."""
    sizes = ",".join(str(n) for n in (QUICK_SIZES if run.quick else SIZES))
    repeats = QUICK_REPEATS if run.quick else REPEATS
    files = ((workload("batch-size"), GUEST_PROGRAM),)
    counted = LabConfig(
        kernel=run.kernel,
        cpus=1,
        icount=True,
        files=files,
        modules=guest_disk.modules(run.kernel, run.progress),
        timeout_s=TIMEOUT_S,
    )
    measured = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=files,
        modules=guest_disk.modules(run.kernel, run.progress),
        timeout_s=TIMEOUT_S,
    )

    def argv(kind: str, mechanisms: str) -> list[str]:
        options = {"kind": kind, "mechanisms": mechanisms, "sizes": sizes}
        options |= {"repeats": str(repeats[kind]), "seed": "11"}
        options |= {"calls": ",".join((EMPTY, *SUBJECTS)), "disk": guest_disk.MOUNT_POINT}
        options["polled"] = QUICK_POLLED if run.quick else POLLED
        words = [word for k, v in options.items() for word in (f"--{k}", v)]
        return guest_disk.command([GUEST_PROGRAM, *words])

    first = run.boot("counted", counted, argv("counted", COUNTED_MECHANISMS))
    if not run.quick:
        second = run.boot("counted-again", counted, argv("counted", COUNTED_MECHANISMS))
        run.write([compare_boots(first, second)])
    run.boot("measured", measured, argv("measured", MEASURED_MECHANISMS))


def compare_boots(first: Sequence[Row], second: Sequence[Row]) -> Row:
    """Two boots of the same counting must print the same rows; else nothing here is to trust."""
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


def per_call(rows: Sequence[Row], kind: str) -> dict[Key, dict[int, list[float]]]:
    """Cost of one call: (call, mechanism) -> N -> repeats, in order."""
    costs: dict[Key, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.get("kind") == kind:
            cost = row["value"] / row["ops"]
            costs[row["call"], row["mechanism"]][row["n"]].append(cost)
    return costs


def ratios(
    measured: Mapping[Key, Samples], call: str, mechanism: str, base: str
) -> dict[int, fit.Summary]:
    """N -> ratio of two mechanisms, paired by round."""
    summaries = {}
    for n, values in measured.get((call, mechanism), {}).items():
        others = measured.get((call, base), {}).get(n, ())
        pairs = fit.paired_ratios(dict(enumerate(values)), dict(enumerate(others)))
        if pairs:
            summaries[n] = fit.summary(pairs)
    return summaries


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


def is_noisy(summary: fit.Summary) -> bool:
    return summary.spread > fit.NOISY * summary.median


def noise_note(measured: Mapping[Key, Samples]) -> str:
    """A warning where rounds differ so much that measured ratios say little; else nothing."""
    summaries = [
        summary
        for call, mechanism in measured
        if mechanism != "plain"
        for summary in ratios(measured, call, mechanism, "plain").values()
    ]
    noisy = sum(map(is_noisy, summaries))
    if not noisy:
        return ""
    return (
        f" In {noisy} of {len(summaries)} measured ratios the rounds differ by more than half, as "
        "on a host with other work: such a median says little, and ? marks an N that rests on one."
    )


PAIRS = (("plain", "batch"), ("plain-int", "batch-int"))
"""Conventional and wrapped calls by the same trap."""


def fits(counted: Mapping[Key, Samples]) -> dict[Key, fit.Equation1]:
    """Equation (1) for each call and each kind of trap: cost of N calls against N."""

    def totals(call: str, mechanism: str) -> dict[int, float]:
        return {n: n * cost for n, cost in repetition.least(counted[call, mechanism]).items()}

    return {
        (call, mechanism): fit.equation1(
            totals(EMPTY, base), totals(call, base), totals(call, mechanism)
        )
        for call in SUBJECTS
        for base, mechanism in PAIRS
        if {(EMPTY, base), (call, base), (call, mechanism)} <= counted.keys()
    }


def fit_metrics(equations: Mapping[Key, fit.Equation1], repeats: int) -> dict[str, Metric]:
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


def counted_break_even(
    counted: Mapping[Key, Samples], call: str, base: str, other: str
) -> int | None:
    return fit.observed_break_even(
        repetition.least(counted.get((call, base), {})),
        repetition.least(counted.get((call, other), {})),
    )


def measured_break_even(
    measured: Mapping[Key, Samples], call: str, base: str, other: str
) -> int | None:
    medians = {n: summary.median for n, summary in ratios(measured, call, other, base).items()}
    return fit.observed_break_even(dict.fromkeys(medians, 1.0), medians)


def measured_text(measured: Mapping[Key, Samples], call: str, base: str, other: str) -> str:
    """From which N it wins by the clock, with a ? where the rounds disagree about any N."""
    n = measured_break_even(measured, call, base, other)
    doubt = any(map(is_noisy, ratios(measured, call, other, base).values()))
    return ("never" if n is None else str(n)) + ("?" if doubt else "")


def break_even_metrics(
    counted: Mapping[Key, Samples], measured: Mapping[Key, Samples]
) -> dict[str, Metric]:
    metrics = {}
    for call, mechanism in sorted(counted):
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
    counted = per_call(raw.rows, "counted")
    measured = per_call(raw.rows, "measured")
    equations = fits(counted)
    repeats = min(len(values) for samples in counted.values() for values in samples.values())
    metrics = (
        repetition.metrics(counted, "instructions")
        | measured_metrics(measured)
        | fit_metrics(equations, repeats)
        | break_even_metrics(counted, measured)
    )
    return Findings(
        metrics,
        (
            claim_int(counted, measured),
            claim_sysenter(counted, measured, equations),
            claim_fast_trap(counted, measured, raw.meta.get("accelerator") == "tcg"),
            claim_equation(equations),
        ),
    )


def from_n(n: int | None) -> str:
    return "never" if n is None else f"N = {n}"


NO_INT = "this kernel answers no int $0x80"


def claim_int(counted: Mapping[Key, Samples], measured: Mapping[Key, Samples]) -> Claim:
    if ("getpid", "plain-int") not in counted or ("getpid", "batch-int") not in counted:
        return claims.not_run("wsc-int", NO_INT)
    by_count = counted_break_even(counted, "getpid", "plain-int", "batch-int")
    by_clock = measured_break_even(measured, "getpid", "plain-int", "batch-int")
    ours = f"{from_n(by_count)} (counted), {from_n(by_clock)} (measured ratio)"
    note = "Both sides cross by int $0x80."
    why = (
        "A count takes the INT trap and its return for two instructions, however long they take a "
        "processor, and so understates what a batch saves."
    )
    return claims.judge("wsc-int", ours, {"N": by_count}, note, why=why)


def claim_sysenter(
    counted: Mapping[Key, Samples],
    measured: Mapping[Key, Samples],
    equations: Mapping[Key, fit.Equation1],
) -> Claim:
    by_count = counted_break_even(counted, "getpid", "plain", "batch")
    by_clock = measured_break_even(measured, "getpid", "plain", "batch")
    ours = f"{from_n(by_count)} (counted), {from_n(by_clock)} (measured ratio)"
    eq = equations["getpid", "batch"]
    note = (
        f"x86-64's SYSCALL stands for SYSENTER. A trap costs {eq.a:.0f} instructions, a request "
        f"in a batch {eq.s:.0f}, and a batch {eq.fixed:.0f} once, so it is paid back after "
        f"{eq.fixed / eq.saving:.1f} calls. In the paper, storing and fetching a request cost "
        "nearly as much as the fast trap: only a larger N could win."
    )
    return claims.judge("wsc-sysenter", ours, {"N": by_count}, note)


def claim_fast_trap(
    counted: Mapping[Key, Samples], measured: Mapping[Key, Samples], emulated: bool
) -> Claim:
    plain = repetition.least(counted["getpid", "plain"])
    by_int = repetition.least(counted.get(("getpid", "plain-int"), {}))
    clock = ratios(measured, "getpid", "plain", "plain-int")
    n = max(plain)
    if n not in by_int or n not in clock:
        return claims.not_run("wsc-fast-trap", NO_INT)
    ours = f"{plain[n] / by_int[n]:.2f} of the instructions, {clock[n].median:.2f} of the clocks"
    if emulated:
        note = (
            "Undecided: the claim is about a processor's clocks. A count takes a trap and its "
            "return for two instructions each way, and the clock here is an emulator's."
        )
        return claims.undecided("wsc-fast-trap", ours, note)
    why = "Today's INT trap costs this processor less than the paper's did."
    return claims.judge("wsc-fast-trap", ours, {"ratio": clock[n].median}, why=why)


def claim_equation(equations: Mapping[Key, fit.Equation1]) -> Claim:
    """S and A nearly constant: over N (straight lines), and S over the calls."""
    fast = {call: eq for (call, mechanism), eq in equations.items() if mechanism == "batch"}
    residual = max(eq.residual for eq in fast.values())
    costs = {call: eq.s for call, eq in fast.items()}
    least, most = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    trap = fast[least].a
    ours = (
        f"A = {trap:.0f} instructions, S = {costs[least]:.0f} ({least}) to {costs[most]:.0f} "
        f"({most}); over N the largest residual of a straight line is {100 * residual:.1f}%"
    )
    values = apart(residual, costs[most] - costs[least], trap)
    why = {
        "residual of a line": "Cost is not linear in N for every call",
        "S apart, in A": "S differs between the calls by more than a fifth of A",
    }
    return claims.judge("wsc-eq1", ours, values, why=why)


def apart(residual: float, difference: float, trap: float) -> dict[str, float]:
    """The values by which equation (1) is judged."""
    return {"residual of a line": residual, "S apart, in A": difference / trap}


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    counted = per_call(raw.rows, "counted")
    measured = per_call(raw.rows, "measured")
    return (figure_11(counted), fit_table(fits(counted), counted, measured))


FIGURE_11 = {
    "plain-int": "conventional (INT)",
    "batch-int": "wrapped (INT)",
    "plain": "conventional (fast trap)",
    "batch": "wrapped (fast trap)",
    "io_uring-nop": "io_uring NOP",
}


def figure_11(counted: Mapping[Key, Samples]) -> Figure:
    totals = {
        mechanism: {n: 512 * cost for n, cost in costs.items()}
        for mechanism, costs in repetition.of_call(counted, "getpid").items()
    }
    return Figure(
        id="fig11",
        title="512 getpid by batch size, as Fig. 11 of the paper",
        x_label="calls in a batch, N",
        y_label="instructions for 512 calls",
        series=lines(totals, FIGURE_11),
        log_x=True,
        caption="The paper shows clocks of a Pentium 4, where each INT trap costs far more than "
        "its instructions tell.",
        kind="counted",
    )


def fit_table(
    equations: Mapping[Key, fit.Equation1],
    counted: Mapping[Key, Samples],
    measured: Mapping[Key, Samples],
) -> Table:
    rows = []
    for (call, mechanism), eq in equations.items():
        base = "plain-int" if mechanism.endswith("-int") else "plain"
        counted_n = counted_break_even(counted, call, base, mechanism)
        rows.append(
            (
                call,
                "INT" if base == "plain-int" else "fast",
                *(f"{value:.1f}" for value in (eq.a, eq.s, eq.work, eq.o1, eq.o2)),
                f"{100 * eq.residual:.2f}%",
                "never" if eq.break_even is None else f"{eq.break_even:.2f}",
                "never" if counted_n is None else str(counted_n),
                measured_text(measured, call, base, mechanism),
            )
        )
    return Table(
        id="equation1",
        title="Equation (1): T1 = O1 + N*A, T2 = O2 + N*S + A",
        columns=(
            "call",
            "trap",
            "A",
            "S",
            "own work",
            "O1",
            "O2",
            "largest residual",
            "N (fit)",
            "wins from (counted)",
            "wins from (measured)",
        ),
        rows=tuple(rows),
        caption="Instructions; least squares over N. A is a trap that asks for nothing (a number "
        "without a call), the call's own work is what the call adds to it, S what a request in a "
        "batch costs beyond that work. O1 and O2 are without N times the work. By INT, stat is "
        "fstatat64, which copies a smaller structure than the batch's newfstatat."
        + noise_note(measured),
        kind="counted",
    )


PART = Part(name="calls", collect=collect, analyse=analyse, figures=figures, alone=True)
