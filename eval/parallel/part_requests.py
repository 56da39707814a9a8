# SPDX-License-Identifier: GPL-2.0-only
"""Runs 127 requests by K a notify, and makes their metrics and two of the claims: counted and
measured in the lab, timed on a machine's own kernel.

This file owns the commands, the metrics' names and the values that decide the claims. The requests
themselves are made by the C program beside it; part_slow_read.py shares its measured boot.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.parallel import spec
from trapless.experiments import fit, repeated_counts
from trapless.experiments.collection import Collection, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.here import disk
from trapless.experiments.repeated_counts import Key, Samples
from trapless.experiments.timed_rows import Clock, ratio_metric
from trapless.report.figures import Figure, Mark, Series, Table, lines
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

REQUESTS = 127
COUNTED_MECHANISMS = "plain,batch,psc,psc-plain,io_uring"
MECHANISMS = {"counted": COUNTED_MECHANISMS, "measured": f"{COUNTED_MECHANISMS},io_uring-sqpoll"}
TIMEOUT_S = 2 * 3600.0
GUEST_PROGRAM = "/bin/parallel"
ATTEMPTS = 3
AGREED = 0.5
"""Rounds agree when the middle half of them lies within this share of the median."""
BEST_FROM = 16
"""The paper's best is claimed from this many requests a notify on."""
JUDGED: Key = ("gettid", "psc")
"""The call and the mechanism that the paper's claims are about."""


def command(run: Collection, kind: str, *, calls: str = "", has_disk: bool = True) -> list[str]:
    """The workload's command line. Only what is measured names workers and calls."""
    options: dict[str, object] = {
        "directory": guest_disk.MOUNT_POINT if has_disk else "/tmp",
        "kind": kind,
        "mechanisms": MECHANISMS[kind],
        "sizes": run.chosen(spec.SIZES),
    }
    if kind == "measured":
        options |= {"workers": run.chosen(spec.WORKERS), "calls": calls, "polled": "gettid"}
    options |= {
        "repeats": run.chosen(spec.ROUNDS if run.timed else spec.REPEATS[kind]),
        "seed": 3,
    }
    argv = [GUEST_PROGRAM, *option_words(options)]
    return guest_disk.command(argv) if has_disk else argv


def collect(run: Collection) -> None:
    """One boot that counts on one CPU; one that measures on two, again where rounds disagree. On a
    machine's own kernel one run of all mechanisms, in alternating rounds."""
    reads_disk = not run.quick
    modules, why = disk.of_run(run) if reads_disk or not run.timed else ((), "")
    if why:
        run.write([{"skipped": "read1_disk", "reason": why}])
    calls = "gettid,read1_disk" if reads_disk and modules else "gettid"
    measured = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=((workload("parallel"), GUEST_PROGRAM),),
        modules=modules,
        timeout_s=TIMEOUT_S,
    )
    argv = command(run, "measured", calls=calls, has_disk=bool(modules))
    if run.timed:
        run.boot("measured", measured, argv)
        return
    run.boot("counted", replace(measured, cpus=1, icount=True), command(run, "counted"))
    for attempt in range(ATTEMPTS):
        if disagreement(run.boot(f"measured-{attempt + 1}", measured, argv)) <= AGREED:
            break


def disagreement(rows: Sequence[Row]) -> float:
    """How far rounds differ: of the interquartile ranges of psc, in medians, the middle one."""
    summaries = paired(rows).get(JUDGED, {}).values()
    return statistics.median(one.spread / one.median for one in summaries)


def quietest(rows: Sequence[Row]) -> list[Row]:
    """The measured rows of the boot whose rounds agree best; it is chosen by that alone."""
    boots: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("kind") == "measured":
            boots[row["boot"]].append(row)
    return min(boots.values(), key=disagreement)


def placed(row: Row) -> Key:
    """In which table a row stands; more workers than one are mechanisms of their own."""
    mechanism = row["mechanism"]
    if row["workers"] > 1:
        mechanism = f"{mechanism}-w{row['workers']}"
    return row["call"], mechanism


def select(
    rows: Sequence[Row], kind: str, phase: str, what: str
) -> dict[Key, dict[int, list[float]]]:
    """(call, mechanism) -> K -> repeats, each for one request; crossings for all 127."""
    costs: dict[Key, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.get("kind") == kind and row.get("phase") == phase:
            value = row[what] if what == "crossings" else row[what] / row["ops"]
            costs[placed(row)][row["n"]].append(value)
    return costs


def paired(rows: Sequence[Row]) -> dict[Key, dict[int, fit.Summary]]:
    """(call, mechanism) -> K -> time / time of plain calls in the same round and program."""
    times: dict[Key, dict[int, dict[tuple[int, int], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        if row.get("kind") == "measured" and row.get("phase") == "total":
            times[placed(row)][row["n"]][row["crew"], row["repeat"]] = row["value"]
    summaries: dict[Key, dict[int, fit.Summary]] = {}
    for (call, mechanism), of_sizes in times.items():
        plain = times.get((call, "plain"), {})
        if mechanism != "plain":
            summaries[call, mechanism] = {
                n: fit.summary(pairs)
                for n in sorted(of_sizes)
                if (pairs := fit.paired_ratios(of_sizes[n], plain.get(n, {})))
            }
    return summaries


def measured_metrics(ratios: Mapping[Key, Mapping[int, fit.Summary]]) -> dict[str, Metric]:
    return {
        f"{call}.{mechanism}.n{n}.ratio": ratio_metric(summary)
        for (call, mechanism), of_sizes in ratios.items()
        for n, summary in of_sizes.items()
    }


def break_even(ratios: Mapping[int, fit.Summary]) -> int | None:
    """Smallest K from which the median ratio stays below 1."""
    return fit.observed_break_even(
        dict.fromkeys(ratios, 1.0), {n: one.median for n, one in ratios.items()}
    )


def requester_break_even(free: Mapping[Key, Samples]) -> int | None:
    """Smallest K from which the requester executes fewer instructions than by plain calls."""
    plain, psc = free["gettid", "plain"], free["gettid", "psc"]
    return fit.observed_break_even(repeated_counts.least(plain), repeated_counts.least(psc))


def analyse(raw: Raw) -> Findings:
    if raw.timed:
        return analyse_timed(raw)
    quiet = quietest(raw.rows)
    measured = paired(quiet)
    total = select(raw.rows, "counted", "total", "value")
    free = select(raw.rows, "counted", "submit", "value")
    crossings = select(raw.rows, "counted", "total", "crossings")
    metrics = (
        repeated_counts.metrics(total, "instructions")
        | repeated_counts.metrics(free, "requester-instructions")
        | repeated_counts.metrics(crossings, "crossings")
        | measured_metrics(measured)
    )
    ratios = measured.get(JUDGED, {})
    for name, n, kind in (
        ("break_even", break_even(ratios), "measured"),
        ("requester_break_even", requester_break_even(free), "counted"),
    ):
        if n is not None:
            metrics[f"gettid.psc.{name}.n"] = Metric(n, "n", kind)
    return Findings(metrics, (claim_break_even(raw, ratios), claim_best(raw, ratios)))


PHASES = {"total": "ns", "submit": "requester-ns"}


def analyse_timed(raw: Raw) -> Findings:
    clock = Clock.of(raw.rows)
    metrics: dict[str, Metric] = {}
    for phase, unit in PHASES.items():
        selected = select(raw.rows, "measured", phase, "value")
        for (call, mechanism), samples in selected.items():
            for n, values in samples.items():
                one = clock.ns(values)
                metrics[f"{call}.{mechanism}.n{n}.{unit}"] = replace(one, unit=unit)
    measured = paired(raw.rows)
    metrics |= measured_metrics(measured)
    ratios = measured.get(JUDGED, {})
    wins_from = break_even(ratios)
    if wins_from is not None:
        metrics["gettid.psc.break_even.n"] = Metric(wins_from, "n", "measured")
    return Findings(metrics, tuple(claims_timed(ratios, clock)))


def claims_timed(ratios: Mapping[int, fit.Summary], clock: Clock) -> list[Claim]:
    by_clock = break_even(ratios)
    best, at = min((one.median, n) for n, one in ratios.items() if n >= BEST_FROM)
    note = (
        "With one worker the time is the worker's, and each notify wakes it on another CPU. "
        + noise_note(ratios)
    )
    change = 1 - best
    return [
        clock.judge(
            "psc-break-even",
            f"{by_clock or 'never'} by the time until all results are in (measured)",
            {"K": by_clock},
            f"{quicker(ratios)}{note}",
            tuple(ratios.values()),
        ),
        clock.judge(
            "psc-best",
            f"{abs(change):.0%} {'less' if change >= 0 else 'more'} time at {at} requests a notify",
            {"share of time saved": change},
            note,
            [ratios[at]],
        ),
    ]


EMULATED_NOTE = (
    "Here requester and worker are two threads of an emulator on two CPUs of this host: what they "
    "share costs other than on a processor."
)


def worker_note(total: Mapping[Key, Samples], free: Mapping[Key, Samples]) -> str:
    """Where the time goes, in instructions: why a claim about time may fail."""
    n = max(total["gettid", "psc"])
    psc, plain = min(total["gettid", "psc"][n]), min(total["gettid", "plain"][n])
    mine = min(free["gettid", "psc"][n])
    return (
        f"At {n} a notify a request costs its requester {mine:.0f} instructions and its worker "
        f"{psc - mine:.0f}, a plain call {plain:.0f}: with one worker the time is the worker's."
    )


def noise_note(ratios: Mapping[int, fit.Summary]) -> str:
    """A warning where rounds differ so much that the median says little."""
    n, worst = max(ratios.items(), key=lambda item: item[1].spread / item[1].median)
    if worst.spread < AGREED * worst.median:
        return ""
    return (
        f"This host had other work: rounds differ widely, even in the most even of up to "
        f"{ATTEMPTS} boots (at {n} a notify the quartiles are {worst.low:.2f} and "
        f"{worst.high:.2f})."
    )


def requester_saving(free: Mapping[Key, Samples]) -> float:
    """Largest share of the requester's instructions that parallel calls save, at K >= 16."""
    plain, psc = free["gettid", "plain"], free["gettid", "psc"]
    return max(1 - min(psc[n]) / min(plain[n]) for n in psc if n >= BEST_FROM)


def is_emulated(raw: Raw) -> bool:
    """Requester and worker share an emulator's time: parallel calls then save less than they do on
    two processors."""
    return raw.meta.get("accelerator") == "tcg"


def reasons(raw: Raw, ratios: Mapping[int, fit.Summary]) -> str:
    total = select(raw.rows, "counted", "total", "value")
    free = select(raw.rows, "counted", "submit", "value")
    notes = [worker_note(total, free), noise_note(ratios)]
    if is_emulated(raw):
        notes.append(EMULATED_NOTE)
    return " ".join(note for note in notes if note)


def quicker(ratios: Mapping[int, fit.Summary], least: int = 1) -> str:
    """At which numbers a notify, of at least `least`, parallel calls take less time, and at which
    more."""
    sides = {False: "less", True: "more"}
    runs = itertools.groupby(
        ((n, one.median) for n, one in sorted(ratios.items()) if n >= least),
        key=lambda pair: pair[1] >= 1,
    )
    parts = []
    for loses, run in runs:
        pairs = list(run)
        times, ns = ([pair[i] for pair in pairs] for i in (1, 0))
        place = f"{ns[0]} to {ns[-1]}" if len(ns) > 1 else f"{ns[0]}"
        span = " to ".join(sorted({f"{min(times):.2f}", f"{max(times):.2f}"}))
        parts.append(f"{sides[loses]} at {place} ({span})")
    return f"Time beside plain calls, by requests a notify: {', '.join(parts)}. "


def claim_break_even(raw: Raw, ratios: Mapping[int, fit.Summary]) -> Claim:
    free = select(raw.rows, "counted", "submit", "value")
    by_clock, by_count = break_even(ratios), requester_break_even(free)
    ours = (
        f"{by_clock or 'never'} by the time until all results are in (measured), "
        f"{by_count or 'never'} by the requester's own instructions (counted)"
    )
    return claims.judge(
        "psc-break-even",
        ours,
        {"K": by_clock},
        f"{quicker(ratios)}A break-even is the number from which all larger ones win.",
        why=reasons(raw, ratios),
        biased=is_emulated(raw),
    )


def claim_best(raw: Raw, ratios: Mapping[int, fit.Summary]) -> Claim:
    free = select(raw.rows, "counted", "submit", "value")
    best = min((one.median, n) for n, one in ratios.items() if n >= BEST_FROM)
    change = 1 - best[0]
    if best[0] < 2:
        time = f"{abs(change):.0%} {'less' if change >= 0 else 'more'} time"
    else:
        time = f"{best[0]:.0f} times the time"
    ours = (
        f"{time} at {best[1]} requests a notify (measured); the requester executes up to "
        f"{requester_saving(free):.0%} fewer instructions (counted)"
    )
    return claims.judge(
        "psc-best",
        ours,
        {"share of time saved": change},
        f"The best of all. {quicker(ratios, BEST_FROM)}".rstrip(),
        why=reasons(raw, ratios),
        biased=is_emulated(raw),
    )


FIGURE_3 = ("psc", "psc-w2", "psc-w4", "psc-plain", "batch", "io_uring-nop", "io_uring-nop-sqpoll")


def figure_3(rows: Sequence[Row], caption: str) -> Figure:
    """The time of 127 gettid."""
    series = []
    measured = paired(rows)
    for mechanism in FIGURE_3:
        points = sorted(measured.get(("gettid", mechanism), {}).items())
        if points:
            series.append(
                Series(
                    mechanism,
                    tuple(n for n, _ in points),
                    tuple(one.median for _, one in points),
                    tuple(one.low for _, one in points),
                    tuple(one.high for _, one in points),
                )
            )
    return Figure(
        id="fig3",
        title="127 gettid until all results are in, plain calls = 1 (Fig. 3 of the paper)",
        x_label="requests a notify, K",
        y_label="time / time of plain calls",
        series=tuple(series),
        log_x=True,
        log_y=True,
        caption=f"Median and quartiles of paired rounds, mechanisms in random order.{caption}",
        kind="measured",
        marks=(Mark(1.0, "plain calls"), Mark(1 - claims.limit("psc-best"), "paper, best")),
        from_zero=False,
    )


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    if raw.timed:
        return (figure_3(raw.rows, ""),)
    workers = " w2, w4: two and four workers on the one CPU that the requester leaves."
    return (
        figure_3(quietest(raw.rows), workers),
        requester_figure(select(raw.rows, "counted", "submit", "value")),
        served_table(raw.rows),
    )


REQUESTERS = ("plain", "psc", "psc-plain", "batch", "io_uring-nop")


def requester_figure(free: Mapping[Key, Samples]) -> Figure:
    return Figure(
        id="requester",
        title="What the requester itself executes until it is free for other work",
        x_label="requests a notify, K",
        y_label="instructions a request",
        series=lines(repeated_counts.of_call(free, "gettid"), {name: name for name in REQUESTERS}),
        log_x=True,
        caption="gettid. Workers run afterwards here; in psc the call itself is theirs.",
        kind="counted",
    )


def served_table(rows: Sequence[Row]) -> Table:
    crews: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        if "served" in row and row["boot"].endswith("measured-1"):
            crews[row["workers"]].append(str(row["served"]))
    return Table(
        id="served",
        title="Who served: gettid requests by worker",
        columns=("workers", "requests served by each"),
        rows=tuple((str(workers), ", ".join(counts)) for workers, counts in crews.items()),
        caption="From the results of gettid itself, all runs of the first measured boot together.",
        kind="measured",
    )
