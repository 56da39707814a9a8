# SPDX-License-Identifier: GPL-2.0-only
"""Measures how much of its memory bandwidth a program loses to an observer of the same region (Fig.
6).

The program (bandwidth.c) and its observer (sweep.c) run on a processor each. This file owns the
forms in which memory is shared, sizes and repeats, which runs are sound, metrics, claim and
figures.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from eval.peek_overhead import spec, workloads
from trapless.base.console import TraplessError
from trapless.experiments import fit
from trapless.experiments.collection import Collection, Row, option_words
from trapless.experiments.experiment import Findings, Raw
from trapless.experiments.observer import Observed, pin_emulator, run_beside, shared_folder
from trapless.peek.sampling import sampler
from trapless.report.figures import Figure, Mark, Series, Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

GUEST_PROGRAM = "/bin/peek-bandwidth"
MEMORY = "256M"
TIMEOUT_S = 4 * 3600.0
KIB, MIB = 1 << 10, 1 << 20

SHOWN_SIZES = (2 * KIB, 16 * KIB, 128 * KIB, MIB)
STOP_S = 60.0

FORMS = {
    "mapped": "a program on this machine; the observer maps its memory",
    "process": "a program on this machine; the observer reads by system calls",
    "guest": "a program in an emulated guest; the observer maps the guest's memory",
}
ACCESSES = ("read", "write")
READS = {"other": "another region", "paced": "the same, 2 KB each 100 µs", "same": "the same"}
SHARE_MIN = 0.9
"""An observer that reads for less of a run's time was not what is to be measured."""
PAPER_MB_S = 2048 / 85.3


def processors() -> tuple[int, int]:
    """One for the program, one for its observer."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise TraplessError("a program and its observer need a processor each; there is one")
    return usable[0], usable[-1]


def options(run: Collection, where: str) -> list[str]:
    return option_words(
        {
            "sizes": run.chosen(spec.REGION_BYTES),
            "repeats": run.chosen(spec.REGION_REPEATS[where]),
            "total-mb": run.chosen(spec.REGION_TOTAL_MB[where]),
        }
    )


def observer(source: str, announcement: int, region: int) -> subprocess.Popen[bytes]:
    words = [
        str(workloads.program("peek-sweep")),
        "--source",
        source,
        "--cpu",
        str(processors()[1]),
    ]
    words += ["--announcement", str(announcement), "--region", str(region)]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def attend(watch: subprocess.Popen[bytes], go_on: Callable[[], object]) -> list[Row]:
    """Read an observer's output to its end. Each time that it is ready for a run, and when it has
    seen the last one, the program that waits for it is told to continue."""
    rows: list[Row] = []
    assert watch.stdout is not None
    for line in watch.stdout:
        row = json.loads(line)
        if "ready" in row:
            go_on()
        else:
            rows.append(row)
    return rows


def sound(rows: Sequence[Row]) -> list[Row]:
    """The output of an observer; a TraplessError if it did not come to its end."""
    failures = [row["failure"] for row in rows if "failure" in row]
    if failures or not rows or not rows[-1].get("complete"):
        raise TraplessError(f"the observer failed: {failures[0] if failures else 'it was killed'}")
    return list(rows[:-1])


def collect(run: Collection) -> None:
    for form in ("mapped", "process"):
        run.progress.step(f"{run.name}: {form}")
        run.write({"form": form, **row} for row in collect_local(run, form))
        run.progress.done()
    collect_guest(run)


def collect_local(run: Collection, form: str) -> list[Row]:
    """Both sides on this machine; memory is a file, or the program's own."""
    with tempfile.TemporaryDirectory(prefix="trapless-peek-", dir=shared_folder()) as folder:
        file = Path(folder) / "memory"
        file.touch()
        words = [
            str(workloads.program("peek-bandwidth")),
            "--file",
            str(file),
            *options(run, "local"),
        ]
        words += ["--cpu", str(processors()[0])]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
            assert target.stdin is not None and target.stdout is not None
            input_fd = target.stdin.fileno()
            own = json.loads(target.stdout.readline())
            if form == "mapped":
                watch = observer(sampler.ram(file), 0, 2 * MIB)
            else:
                source = sampler.process(target.pid)
                watch = observer(source, own["announcement"], own["regions"])
            with watch, ThreadPoolExecutor(1) as pool:
                try:
                    sweeps = pool.submit(attend, watch, lambda: os.write(input_fd, b"\n"))
                    rows = follow(run, target)
                    return [*rows, *sound(sweeps.result())]
                finally:
                    target.kill()
                    watch.kill()


def follow(run: Collection, target: subprocess.Popen[bytes]) -> list[Row]:
    """The rows of a program that runs here, to its end."""
    rows: list[Row] = []
    assert target.stdout is not None
    for line in target.stdout:
        row = json.loads(line)
        if "failure" in row:
            raise TraplessError(f"peek-bandwidth: {row['failure']}")
        if "progress" in row:
            run.progress.advance(row["progress"], row["total"])
        elif row.get("complete"):
            return rows
        else:
            rows.append(row)
    raise TraplessError(f"peek-bandwidth ended with status {target.wait()}")


def end_with(guest: Observed, watch: subprocess.Popen[bytes]) -> None:
    """End an observer that does not see the end of its guest."""
    guest.over.wait()
    try:
        watch.wait(STOP_S)
    except subprocess.TimeoutExpired:
        watch.kill()


def collect_guest(run: Collection) -> None:
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        memory=MEMORY,
        module=False,
        files=((workloads.program("peek-bandwidth"), GUEST_PROGRAM),),
        timeout_s=TIMEOUT_S,
    )

    def observe(guest: Observed) -> None:
        pin_emulator(guest.ram, processors()[0])
        with observer(sampler.ram(guest.ram), guest.announcement, guest.page) as watch:
            ending = threading.Thread(target=end_with, args=(guest, watch))
            ending.start()
            sweeps = attend(watch, guest.go_on)
        ending.join()
        run.write({"form": "guest", **row} for row in sound(sweeps))

    run_beside(run, "guest", config, [GUEST_PROGRAM, *options(run, "guest")], observe)


Key = tuple[str, int, str]  # access, bytes, what was read
Losses = Mapping[Key, Sequence[float]]


def form_of(row: Row) -> str:
    return str(row.get("form", "guest"))


@dataclass(frozen=True)
class Pair:
    """A run that was observed, beside the run of the same repeat that was not."""

    lost: float  # part of the bandwidth: 1 - time alone / time observed
    share: float  # of the run, that the observer was reading
    changes: int  # that the observer saw


def pairs_of(rows: Sequence[Row], form: str) -> Mapping[Key, Sequence[Pair]]:
    """All pairs; time is the program's own on its processor, whatever else ran there."""
    own = [row for row in rows if form_of(row) == form]
    sweeps = {row["phase"]: row for row in own if "sweep_reads" in row}
    alone = {
        (row["access"], row["bytes"], row["repeat"]): row["ns"]
        for row in own
        if row.get("reads") == "none"
    }
    pairs: dict[Key, list[Pair]] = defaultdict(list)
    for row in own:
        if row.get("reads") not in READS:
            continue
        lost = 1 - alone[row["access"], row["bytes"], row["repeat"]] / row["ns"]
        share, changes = 0.0, 0
        sweep = sweeps.get(row["phase"])  # none: its processor was taken from it for all of the run
        if sweep is not None:
            check(row, sweep)
            share = min(sweep["share"], 1) if sweep["sweep_reads"] else 0.0
            changes = sweep["changes"]
        pairs[row["access"], row["bytes"], row["reads"]].append(Pair(lost, share, changes))
    check_seen(pairs)
    return pairs


def losses(rows: Sequence[Row], form: str) -> Losses:
    """The loss in runs during which the observer really read.

    If its processor was taken from it too often, the runs in which that happened least count; they
    are chosen by that alone.
    """
    by_key = {}
    for key, pairs in pairs_of(rows, form).items():
        if len(pairs) < fit.SAMPLES_MIN:
            raise ValueError(f"{form}: only {len(pairs)} runs of {key}")
        pairs = sorted(pairs, key=lambda pair: -pair.share)
        if not pairs[0].share:
            raise ValueError(f"{form}: the observer had no processor in any run of {key}")
        sound = sum(pair.share >= SHARE_MIN for pair in pairs)
        by_key[key] = [pair.lost for pair in pairs[: max(sound, fit.SAMPLES_MIN)]]
    if not by_key:
        raise ValueError(f"{form}: no runs")
    return by_key


def share(rows: Sequence[Row]) -> float:
    """The share of the runs with a back-to-back observer in which it really read back to back."""
    pairs = [
        pair
        for form in FORMS
        for (_, _, reads), pairs in pairs_of(rows, form).items()
        for pair in pairs
        if reads != "paced"
    ]
    return sum(pair.share >= SHARE_MIN for pair in pairs) / len(pairs)


def check(row: Row, sweep: Row) -> None:
    """The observer read what it was to read: nothing changes where nobody writes.

    Words of an earlier run are remembered until a piece is read again.
    """
    is_stale = sweep["early"] * 2048 > row["bytes"]
    if row["reads"] == "other" and is_stale and sweep["changes"]:
        raise ValueError(
            f"{row['access']} of {row['bytes']} bytes: a region that nobody touches changed "
            f"{sweep['changes']} times"
        )


def check_seen(by_key: Mapping[Key, Sequence[Pair]]) -> None:
    """Checks that written memory is seen to change, in at least one run: in others, each side may
    have had its processor only while the other had none."""
    for (access, size, reads), pairs in by_key.items():
        if (access, reads) == ("write", "same") and not any(pair.changes for pair in pairs):
            raise ValueError(
                f"write of {size} bytes: the observer saw nothing change; where this machine is "
                "busy, program and observer may have run at no common time"
            )


def rate_mb_s(rows: Sequence[Row], form: str, access: str) -> float:
    """How fast the observer read while the program did the same back to back, all sizes."""
    runs = {
        row["phase"]: row["ns"]
        for row in rows
        if form_of(row) == form and row.get("reads") == "same" and row["access"] == access
    }
    speeds = [
        row["sweep_reads"] * 2048 / runs[row["phase"]] * 1e3
        for row in rows
        if form_of(row) == form and "sweep_reads" in row and row["phase"] in runs
    ]
    return float(statistics.median(speeds))


def alone_gb_s(rows: Sequence[Row], form: str, access: str, size: int) -> float:
    speeds = [
        row["total"] / row["ns"]
        for row in rows
        if form_of(row) == form
        and (row.get("access"), row.get("bytes"), row.get("reads")) == (access, size, "none")
    ]
    return float(statistics.median(speeds))


def sizes_of(by_key: Losses) -> list[int]:
    return sorted({size for _, size, _ in by_key})


def analyse(raw: Raw) -> Findings:
    metrics, by_form = {}, {form: losses(raw.rows, form) for form in FORMS}
    for form, by_key in by_form.items():
        for (access, size, reads), values in sorted(by_key.items()):
            spread = fit.summary(values).spread
            metrics[f"{access}{size}.{form}.{reads}.ratio"] = Metric(
                round(statistics.median(values), 4), "ratio", "measured", len(values),
                round(spread, 4),
            )  # fmt: skip
    return Findings(metrics, (claim(raw.rows, by_form),))


def worst(by_key: Losses, reads: str, access: str = "") -> fit.Interval:
    """The largest loss of all sizes."""
    intervals = [
        fit.confidence(values)
        for (each, _, what), values in by_key.items()
        if what == reads and access in ("", each)
    ]
    return max(intervals, key=lambda interval: interval.median)


def percent(interval: fit.Interval) -> str:
    """
    >>> percent(fit.Interval(0.0123, 0.01, 0.02, 9))
    '1.2% (1.0 to 2.0)'
    """
    low, median, high = (100 * value for value in (interval.low, interval.median, interval.high))
    return f"{median:.1f}% ({low:.1f} to {high:.1f})"


def claim(rows: Sequence[Row], by_form: Mapping[str, Losses]) -> Claim:
    mapped, process, guest = (by_form[form] for form in ("mapped", "process", "guest"))
    most = max(worst(by_key, "same").median for by_key in by_form.values())
    ours = (
        f"worst of all sizes, with 95% intervals: the observer maps the memory and reads back to "
        f"back: {percent(worst(mapped, 'same', 'read'))} of reads, "
        f"{percent(worst(mapped, 'same', 'write'))} of writes; by system calls, back to back: "
        f"{percent(worst(process, 'same'))}; an emulated guest: {percent(worst(guest, 'same'))}; "
        f"2 KB each 100 µs, as a recording reads: {percent(worst(mapped, 'paced'))}"
    )
    why = (
        f"The paper's bus carried {PAPER_MB_S:.0f} MB/s. An observer that maps the memory reads "
        f"{rate_mb_s(rows, 'mapped', 'write') / 1e3:,.1f} GB/s of what is being written, and each "
        "line then goes to and fro between two processors. The last figure is at the pace of a "
        "recording, which is near the paper's."
    )
    return claims.judge("peek-memory", ours, {"loss": most}, why=why)


def kib(size: int) -> str:
    return f"{size // MIB} MB" if size >= MIB else f"{size // KIB} KB"


def series(by_key: Losses, access: str, reads: str) -> Series:
    sizes = sizes_of(by_key)
    intervals = [fit.confidence(by_key[access, size, reads]) for size in sizes]
    return Series(
        f"{access}s; {READS[reads]}",
        tuple(size / KIB for size in sizes),
        tuple(100 * interval.median for interval in intervals),
        tuple(100 * interval.low for interval in intervals),
        tuple(100 * interval.high for interval in intervals),
    )


def figure(form: str, by_key: Losses) -> Figure:
    curves = [("read", "same"), ("write", "same"), ("write", "paced"), ("write", "other")]
    return Figure(
        id=f"peek-memory-{form}",
        title=f"Loss of memory bandwidth: {FORMS[form]} (Fig. 6)",
        x_label="KB of the region",
        y_label="% of the bandwidth lost",
        series=tuple(series(by_key, access, reads) for access, reads in curves),
        log_x=True,
        from_zero=False,
        caption="Medians of pairs of runs, with and without an observer, by the "
        "program's processor time; the bands are 95% confidence intervals. What the observer reads "
        "is said behind the access.",
        kind="measured",
        marks=(Mark(100 * claims.limit("peek-memory"), "paper: at most 5%"),),
    )


def table(rows: Sequence[Row], by_form: Mapping[str, Losses]) -> Table:
    lines = []
    for form, by_key in by_form.items():
        for access in ACCESSES:
            for size in (size for size in sizes_of(by_key) if size in SHOWN_SIZES):
                cells = [percent(fit.confidence(by_key[access, size, reads])) for reads in READS]
                alone = alone_gb_s(rows, form, access, size)
                lines.append((form, access, kib(size), f"{alone:.1f}", *cells))
    return Table(
        id="peek-memory",
        title="Loss of memory bandwidth while an observer reads",
        columns=("memory", "access", "region", "GB/s", *READS),
        rows=tuple(lines),
        caption="; ".join(f"{form}: {words}" for form, words in FORMS.items())
        + ". GB/s: unobserved. The last columns are the losses while the observer reads "
        + ", ".join(f"{words} ({reads})" for reads, words in READS.items())
        + ", back to back unless paced: medians of pairs, 95% confidence intervals by bootstrap. "
        "A loss below 0 is noise. "
        f"In {share(rows):.0%} of the runs the observer had its processor for at least "
        f"{SHARE_MIN:.0%} of the time; the others are left out where enough remain.",
        kind="measured",
    )


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    by_form = {form: losses(raw.rows, form) for form in FORMS}
    drawn = (figure(form, by_key) for form, by_key in by_form.items())
    return (*drawn, table(raw.rows, by_form))
