# SPDX-License-Identifier: GPL-2.0-only
"""Runs 127 requests by K a notify, and makes their metrics and two of the claims.

This file owns sizes, numbers of workers and repeats, the metrics' names and the judgement. The
requests themselves are made by the C program beside it; part_slow_read.py shares its measured boot.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from trapless.experiments import fit, repetition
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Part, Raw, workload
from trapless.experiments.repetition import Key, Samples
from trapless.report.figures import Figure, Mark, Series, Table, lines
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

REQUESTS = 127
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 127)
QUICK_SIZES = (1, 2, 3, 4, 8, 16, 32, 127)
WORKERS = (1, 2, 4)
COUNTED_MECHANISMS = "plain,batch,psc,psc-plain,io_uring"
MEASURED_MECHANISMS = COUNTED_MECHANISMS + ",io_uring-sqpoll"
REPEATS = {"counted": 5, "measured": 25}
QUICK_REPEATS = {"counted": 3, "measured": 7}
TIMEOUT_S = 2 * 3600.0
GUEST_PROGRAM = "/bin/parallel"
ATTEMPTS = 3
AGREED = 0.5
"""Rounds agree when the middle half of them lies within this share of the median."""
BEST_FROM = 16
"""The paper's best is claimed from this many requests a notify on."""


def guest_command(**options: object) -> list[str]:
    """The workload's command line in the guest."""
    words = [GUEST_PROGRAM, "--directory", guest_disk.MOUNT_POINT]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return guest_disk.command(words)


def collect(run: Collection) -> None:
    """One boot that counts on one CPU; one that measures on two, again where rounds disagree."""
    sizes = ",".join(str(n) for n in (QUICK_SIZES if run.quick else SIZES))
    repeats = QUICK_REPEATS if run.quick else REPEATS
    files = ((workload("parallel"), GUEST_PROGRAM),)
    modules = guest_disk.modules(run.kernel, run.progress)
    counted = LabConfig(
        kernel=run.kernel, cpus=1, icount=True, files=files, modules=modules, timeout_s=TIMEOUT_S
    )
    measured = LabConfig(
        kernel=run.kernel, cpus=2, files=files, modules=modules, timeout_s=TIMEOUT_S
    )
    run.boot(
        "counted",
        counted,
        guest_command(
            kind="counted",
            mechanisms=COUNTED_MECHANISMS,
            sizes=sizes,
            repeats=repeats["counted"],
            seed=3,
        ),
    )
    for attempt in range(ATTEMPTS):
        rows = run.boot(
            f"measured-{attempt + 1}",
            measured,
            guest_command(
                kind="measured",
                mechanisms=MEASURED_MECHANISMS,
                sizes=sizes,
                workers=",".join(str(w) for w in WORKERS),
                calls="gettid" if run.quick else "gettid,read1_disk",
                polled="gettid",
                repeats=repeats["measured"],
                seed=3,
            ),
        )
        if disagreement(rows) <= AGREED:
            break


def disagreement(rows: Sequence[Row]) -> float:
    """How far rounds differ: of the interquartile ranges of psc, in medians, the middle one."""
    summaries = paired(rows, "gettid", "psc").values()
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
    if row["workers"] > WORKERS[0]:
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


def paired(rows: Sequence[Row], call: str, mechanism: str) -> dict[int, fit.Summary]:
    """K -> time / time of plain calls in the same round of the same program."""
    base: dict[tuple[int, int, int], float] = {}
    other: dict[tuple[int, int, int], float] = {}
    for row in rows:
        if row.get("kind") == "measured" and row.get("phase") == "total":
            key = (row["n"], row["crew"], row["repeat"])
            if row["mechanism"] == "plain" and row["call"] == call:
                base[key] = row["value"]
            elif (call, mechanism) == placed(row):
                other[key] = row["value"]
    summaries = {}
    for n in sorted({key[0] for key in other}):
        pairs = fit.paired_ratios({k: v for k, v in other.items() if k[0] == n}, base)
        if pairs:
            summaries[n] = fit.summary(pairs)
    return summaries


def measured_keys(rows: Sequence[Row]) -> list[Key]:
    """Every (call, mechanism) that was measured beside plain calls, in order of appearance."""
    return list(
        dict.fromkeys(
            placed(row)
            for row in rows
            if row.get("kind") == "measured" and "phase" in row and row["mechanism"] != "plain"
        )
    )


def measured_metrics(rows: Sequence[Row]) -> dict[str, Metric]:
    return {
        f"{call}.{mechanism}.n{n}.ratio": Metric(
            round(summary.median, 4), "ratio", "measured", summary.n, round(summary.spread, 4)
        )
        for call, mechanism in measured_keys(rows)
        for n, summary in paired(rows, call, mechanism).items()
    }


def break_even(ratios: Mapping[int, fit.Summary]) -> int | None:
    """Smallest K from which the median ratio stays below 1."""
    return fit.observed_break_even(
        dict.fromkeys(ratios, 1.0), {n: one.median for n, one in ratios.items()}
    )


def requester_break_even(free: Mapping[Key, Samples]) -> int | None:
    """Smallest K from which the requester executes fewer instructions than by plain calls."""
    plain, psc = free["gettid", "plain"], free["gettid", "psc"]
    return fit.observed_break_even(repetition.least(plain), repetition.least(psc))


def analyse(raw: Raw) -> Findings:
    quiet = quietest(raw.rows)
    total = select(raw.rows, "counted", "total", "value")
    free = select(raw.rows, "counted", "submit", "value")
    crossings = select(raw.rows, "counted", "total", "crossings")
    metrics = (
        repetition.metrics(total, "instructions")
        | repetition.metrics(free, "requester-instructions")
        | repetition.metrics(crossings, "crossings")
        | measured_metrics(quiet)
    )
    ratios = paired(quiet, "gettid", "psc")
    for name, n, kind in (
        ("break_even", break_even(ratios), "measured"),
        ("requester_break_even", requester_break_even(free), "counted"),
    ):
        if n is not None:
            metrics[f"gettid.psc.{name}.n"] = Metric(n, "n", kind)
    return Findings(metrics, (claim_break_even(raw, ratios), claim_best(raw, ratios)))


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


def reasons(raw: Raw, ratios: Mapping[int, fit.Summary]) -> str:
    total = select(raw.rows, "counted", "total", "value")
    free = select(raw.rows, "counted", "submit", "value")
    notes = [worker_note(total, free), noise_note(ratios)]
    if raw.meta.get("accelerator") == "tcg":
        notes.append(EMULATED_NOTE)
    return " ".join(note for note in notes if note)


def claim_break_even(raw: Raw, ratios: Mapping[int, fit.Summary]) -> Claim:
    free = select(raw.rows, "counted", "submit", "value")
    by_clock, by_count = break_even(ratios), requester_break_even(free)
    ours = (
        f"{by_clock or 'never'} (measured, until all results are in), {by_count or 'never'} "
        "(counted, the requester's own instructions)"
    )
    return claims.judge("psc-break-even", ours, {"K": by_clock}, why=reasons(raw, ratios))


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
    return claims.judge("psc-best", ours, {"saved": change}, why=reasons(raw, ratios))


FIGURE_3 = ("psc", "psc-w2", "psc-w4", "psc-plain", "batch", "io_uring-nop", "io_uring-nop-sqpoll")


def figure_3(rows: Sequence[Row], caption: str) -> Figure:
    """The time of 127 gettid."""
    series = []
    for mechanism in FIGURE_3:
        points = sorted(paired(rows, "gettid", mechanism).items())
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
        series=lines(repetition.of_call(free, "gettid"), {name: name for name in REQUESTERS}),
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


PART = Part(name="requests", collect=collect, analyse=analyse, figures=figures)
