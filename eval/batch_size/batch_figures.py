# SPDX-License-Identifier: GPL-2.0-only
"""Shows what part_calls.py found: Fig. 11 of the paper, the terms of equation (1), and on a
machine's own kernel what a batch takes away. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eval.batch_size.call_costs import (
    SUBJECTS,
    counted_break_even,
    fits,
    is_noisy,
    measured_break_even,
    ratios,
)
from trapless.experiments import fit, repeated_counts
from trapless.experiments.repeated_counts import Key, Samples
from trapless.experiments.timed_rows import Clock
from trapless.report.figures import Figure, Table, lines

FIGURE_11 = {
    "plain-int": "conventional (INT)",
    "batch-int": "wrapped (INT)",
    "plain": "conventional (fast trap)",
    "batch": "wrapped (fast trap)",
    "io_uring-nop": "io_uring NOP",
}


def counted(
    counts: Mapping[Key, Samples], measured: Mapping[Key, Samples]
) -> tuple[Figure | Table, ...]:
    """The results of the lab, in instructions."""
    drawn = figure_11(
        counts,
        "instructions for 512 calls",
        lambda cost: cost,
        "The paper shows clocks of a Pentium 4, where each INT trap costs far more than its "
        "instructions tell.",
        "counted",
    )
    return (drawn, fit_table(fits(counts), counts, measured))


def timed(measured: Mapping[Key, Samples], clock: Clock) -> tuple[Figure | Table, ...]:
    """The times on a machine's own kernel."""
    drawn = figure_11(
        measured,
        "µs for 512 calls",
        lambda clocks: clocks / clock.per_ns / 1000,
        "The least of the rounds. The paper shows clocks of a Pentium 4.",
        "measured",
    )
    return (drawn, saving_table(measured, clock))


def figure_11(
    found: Mapping[Key, Samples],
    y_label: str,
    scale: Callable[[float], float],
    caption: str,
    kind: str,
) -> Figure:
    totals = {
        mechanism: {n: scale(512 * cost) for n, cost in costs.items()}
        for mechanism, costs in repeated_counts.of_call(found, "getpid").items()
    }
    return Figure(
        id="fig11",
        title="512 getpid by batch size, as Fig. 11 of the paper",
        x_label="calls in a batch, N",
        y_label=y_label,
        series=lines(totals, FIGURE_11),
        log_x=True,
        log_y=kind == "measured",
        caption=caption,
        kind=kind,
    )


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


def measured_text(measured: Mapping[Key, Samples], call: str, base: str, other: str) -> str:
    """The N from which it wins by the clock, with a ? where the rounds disagree about any N."""
    n = measured_break_even(measured, call, base, other)
    doubt = any(map(is_noisy, ratios(measured, call, other, base).values()))
    return ("never" if n is None else str(n)) + ("?" if doubt else "")


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


def saving_table(measured: Mapping[Key, Samples], clock: Clock) -> Table:
    """The saving of a batch of 32 for each call, with its interval."""
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
        n = measured_text(measured, call, "plain", "batch")
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
