# SPDX-License-Identifier: GPL-2.0-only
"""Measures how closely reads of a running machine's memory can follow each other.

This file owns Fig. 2 and 3 of the paper: sizes, repeats, metrics and claims. How a guest is found
is trapless/experiments/observer.py's, the reading is the sampler's (sampler/interval.c).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from eval.peek_interval import spec
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.observer import Observed, run_beside
from trapless.peek.sampling import sampler
from trapless.report.figures import Figure, Mark, Series, Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

GUEST_PROGRAM = "/bin/peek-interval"
MEMORY = "256M"
TIMEOUT_S = 3600.0

READS = 200_000
EVEN_SIZES = (8, 2048)
EVEN_READS = 10_000
"""As in Fig. 3 of the paper: how evenly so many reads follow one another."""
PHASES = ("quiet", "written")
CLOCK = {"clock": "cost", "step": "resolution"}
"""The figures of the observer's clock: the name in a row, and in a metric."""
PUBLISHED = (4, 2048)
"""Bytes of a read whose interval the paper gives."""
NOTE = (
    "The paper's observer asked for each read over a bus of 400 Mb/s. This one maps the memory of "
    "a virtual machine, so a read is a load instruction, and reading the clock takes longer than a "
    "short read: a load is compared with a transfer over a bus, so this claim cannot fail here. In "
    "the longest intervals the host ran something else on the observer's processor."
)


def collect(run: Collection) -> None:
    repeats = run.chosen(spec.REPEATS)

    def observe(guest: Observed) -> None:
        for number, phase in enumerate(PHASES, 1):
            guest.await_phase(number)
            for repeat in range(repeats):
                measure(run, guest, phase, repeat)
            guest.go_on()

    config, argv = guest_of(run, PHASES)
    run_beside(run, "observed", config, argv, observe)


def guest_of(run: Collection, phases: Sequence[str]) -> tuple[LabConfig, list[str]]:
    """The observed machine, and its command: each phase lasts until it is told to go on."""
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        memory=MEMORY,
        module=False,
        files=((workload("peek-interval"), GUEST_PROGRAM),),
        timeout_s=TIMEOUT_S,
    )
    return config, [GUEST_PROGRAM, *phases]


def measure(run: Collection, guest: Observed, phase: str, repeat: int) -> None:
    """One repeat of all sizes."""
    source, cpu = sampler.ram(guest.ram), sampler.own_cpu()
    rows = sampler.intervals(source, guest.page, spec.SIZES, READS, cpu)
    even = sampler.intervals(source, guest.page, EVEN_SIZES, EVEN_READS, cpu)
    place = {"phase": phase, "repeat": repeat, "cpu": cpu}
    run.write([{**row, **place, "even": False} for row in rows])
    run.write([{**row, **place, "even": True} for row in even])


def of(rows: Sequence[Row], phase: str, size: int, even: bool = False) -> list[Row]:
    repeats = [
        row
        for row in rows
        if (row.get("phase"), row.get("bytes"), row.get("even")) == (phase, size, even)
    ]
    if not repeats:
        raise ValueError(f"no reads of {size} bytes in phase {phase}")
    return repeats


def quantile(row: Row, part: float) -> float:
    return float(dict(map(tuple, row["quantiles"]))[part])


def figures_of(rows: Sequence[Row]) -> Mapping[str, list[float]]:
    """Per repeat: the intervals' median, 99% and 99.99%, and the mean of the shortest 99%."""
    return {
        "median": [quantile(row, 0.5) for row in rows],
        "p99": [quantile(row, 0.99) for row in rows],
        "p9999": [quantile(row, 0.9999) for row in rows],
        "mean99": [float(row["mean99_ns"]) for row in rows],
    }


def alone(rows: Sequence[Row]) -> list[float]:
    """Per repeat: what one read takes with the clock taken out."""
    return [float(row["bare_ns"]) for row in rows]


def metric(values: Sequence[float]) -> Metric:
    spread = round(max(values) - min(values), 2)
    return Metric(round(statistics.median(values), 2), "ns", "measured", len(values), spread)


def analyse(raw: Raw) -> Findings:
    check(raw.rows)
    metrics = {}
    for phase in PHASES:
        kind = "" if phase == "quiet" else f"-{phase}"
        mechanism = f"interval{kind}"
        for size in spec.SIZES:
            metrics[f"read{size}.alone{kind}.median.ns"] = metric(alone(of(raw.rows, phase, size)))
            for name, values in figures_of(of(raw.rows, phase, size)).items():
                metrics[f"read{size}.{mechanism}.{name}.ns"] = metric(values)
        for size in EVEN_SIZES:
            values = [quantile(row, 0.99) for row in of(raw.rows, phase, size, True)]
            metrics[f"read{size}.{mechanism}.p99-of-10000.ns"] = metric(values)
    for key, name in CLOCK.items():
        values = [float(row[f"{key}_ns"]) for row in raw.rows if "quantiles" in row]
        metrics[f"clock.{name}.median.ns"] = metric(values)
    return Findings(metrics, tuple(make_claims(metrics)))


def check(rows: Sequence[Row]) -> None:
    """Checks that the reads were real: they saw every change, and none where nothing was
    written."""
    for row in rows:
        changes = row.get("changes")
        if row.get("phase") == "quiet" and changes:
            raise ValueError(f"a page that nobody writes to changed {changes} times")
    written = [row["changes"] for row in rows if row.get("phase") == "written"]
    if not any(written):
        raise ValueError("a page that is written to never changed")


def make_claims(metrics: Mapping[str, Metric]) -> list[Claim]:
    judged = []
    for size in PUBLISHED:
        quiet = metrics[f"read{size}.interval.median.ns"].value
        written = metrics[f"read{size}.interval-written.median.ns"].value
        p99 = metrics[f"read{size}.interval.p99.ns"].value
        bare = metrics[f"read{size}.alone.median.ns"].value
        clock = metrics["clock.cost.median.ns"].value
        ours = (
            f"{quiet:.0f} ns (median; 99% within {p99:.0f} ns), of which reading the clock takes "
            f"{clock:.0f} ns: a read alone takes {bare:.1f} ns; while the target writes to the "
            f"same bytes {written:.0f} ns"
        )
        judged.append(claims.judge(f"peek-interval-{size}", ours, {"interval in ns": quiet}, NOTE))
    quiet = metrics["read8.interval.p99-of-10000.ns"].value
    written = metrics["read8.interval-written.p99-of-10000.ns"].value
    ours = f"{quiet:.0f} ns; while the target writes to the same bytes {written:.0f} ns"
    judged.append(claims.judge("peek-p99-8", ours, {"interval in ns": max(quiet, written)}, NOTE))
    return judged


def time_text(ns: float) -> str:
    for limit, scale, unit in ((1e4, 1, "ns"), (1e7, 1e3, "µs")):
        if ns < limit:
            return f"{ns / scale:.0f} {unit}"
    return f"{ns / 1e6:.0f} ms"


def medians(rows: Sequence[Row]) -> list[float]:
    """Per repeat: the median interval."""
    return figures_of(rows)["median"]


def by_size(
    rows: Sequence[Row],
    phase: str,
    name: str,
    values_of: Callable[[Sequence[Row]], list[float]] = medians,
) -> Series:
    points = [values_of(of(rows, phase, size)) for size in spec.SIZES]
    return Series(
        name,
        tuple(map(float, spec.SIZES)),
        tuple(statistics.median(values) for values in points),
        tuple(min(values) for values in points),
        tuple(max(values) for values in points),
    )


def distribution(rows: Sequence[Row], phase: str, size: int, name: str) -> Series:
    """Which part of the reads was done within which interval: medians over the repeats."""
    repeats = [dict(map(tuple, row["quantiles"])) for row in of(rows, phase, size, True)]
    parts = sorted(repeats[0])
    return Series(
        name,
        tuple(statistics.median(repeat[part] for repeat in repeats) for part in parts),
        tuple(parts),
    )


def table(rows: Sequence[Row]) -> Table:
    measured = [row for row in rows if "quantiles" in row]
    clock = {name: statistics.median(row[f"{name}_ns"] for row in measured) for name in CLOCK}
    lines = []
    for size in spec.SIZES:
        for phase in PHASES:
            repeats = of(rows, phase, size)
            values = {name: statistics.median(each) for name, each in figures_of(repeats).items()}
            longest = max(quantile(row, 1) for row in repeats)
            lines.append(
                (
                    f"{size} B",
                    "yes" if phase == "written" else "no",
                    f"{statistics.median(alone(repeats)):.1f} ns",
                    *(time_text(values[name]) for name in ("median", "p99", "p9999")),
                    time_text(longest),
                    f"{size / values['mean99']:.2f}",
                )
            )
    return Table(
        id="peek-intervals",
        title="Reads of a running machine's memory, back to back",
        columns=(
            "read",
            "target writes there",
            "read alone",
            "interval, median",
            "99% within",
            "99.99% within",
            "longest",
            "GB/s",
        ),
        rows=tuple(lines),
        caption=f"{READS} reads a repeat; medians of the repeats, the longest of all. An interval "
        f"has one reading of the clock, which takes {clock['clock']:.1f} ns and tells times "
        f"{clock['step']:.1f} ns apart; a read alone is what many reads between two "
        "readings of the clock take. Throughput is that of the shortest 99% of the intervals: the "
        "rest is time that the observer's processor spent elsewhere.",
        kind="measured",
    )


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    check(raw.rows)
    return (
        Figure(
            id="peek-interval",
            title="Shortest interval of repeated reads (Fig. 2)",
            x_label="bytes a read",
            y_label="ns from one read to the next",
            series=(
                by_size(raw.rows, "quiet", "nobody writes there"),
                by_size(raw.rows, "written", "the target writes there"),
                by_size(raw.rows, "quiet", "nobody writes, without the clock", alone),
                by_size(raw.rows, "written", "target writes, without the clock", alone),
            ),
            log_x=True,
            log_y=True,
            from_zero=False,
            caption="Medians, with the lowest and highest repeat. An interval has one reading of "
            "the clock; where reads are short, it shows the clock's cost and resolution. Without "
            "the clock: many reads between two readings of it.",
            kind="measured",
            marks=(
                Mark(claims.limit("peek-interval-4"), "paper: 4 B"),
                Mark(claims.limit("peek-interval-2048"), "paper: 2048 B"),
            ),
        ),
        Figure(
            id="peek-distribution",
            title="How evenly 10,000 reads follow one another (Fig. 3)",
            x_label="ns from one read to the next, at most",
            y_label="part of the reads",
            series=tuple(
                distribution(raw.rows, phase, size, f"{size} B, {words}")
                for size in EVEN_SIZES
                for phase, words in (("quiet", "nobody writes"), ("written", "target writes"))
            ),
            log_x=True,
            caption="The paper's 99% were within 24.6 µs (8 B) and 93.2 µs (2048 B).",
            kind="measured",
        ),
        table(raw.rows),
    )
