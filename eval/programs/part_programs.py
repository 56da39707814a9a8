# SPDX-License-Identifier: GPL-2.0-only
"""Runs the workload of programs, and makes figures and the claim of its rows: counted and measured
in the lab, timed on a machine's own kernel.

This file owns the commands, the metrics' names and the value that decides the claim. The calls
themselves are made by the C programs beside it.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eval.programs import spec
from eval.tools.trees.trees import STOCK, UNZEROED, UNZEROED_APPEND
from trapless.experiments import fit, repeated_counts
from trapless.experiments.collection import Collection, LeftOutError, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.here import disk, modules
from trapless.experiments.repeated_counts import Key, Samples
from trapless.experiments.timed_rows import Clock, ratio_metric
from trapless.report.figures import Figure, Mark, Table, lines
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.stock import kernels
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

TIMEOUT_S = 3600.0
GUEST_PROGRAM, GUEST_MODULE = "/bin/programs", "/array.ko"
MODULE = "array.ko"
PEER = "c-blake"
HERE = Path(__file__).resolve().parent
AT = 32
"""The number of files and calls that the tables show."""

TIMED = ("file", "getppid")
"""The subjects that are also measured by the clock."""

BPF_LOOP = "CONFIG_IO_URING_BPF_OPS"
"""A kernel with it runs programs of BPF in io_uring's loop."""

PARAMETERS = {"file": "n", "getppid": "n", "copy": "k", "accept": "n", "burst": "w"}
"""The unit of a row's number: calls or files, KiB a step, connections, workers."""


def collect(run: Collection) -> None:
    devices, why = disk.of_run(run)
    module, no_module = modules.find(run, HERE, MODULE)
    if module is None or not devices:
        raise LeftOutError(why or no_module)
    config = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=((module, GUEST_MODULE), (workload("programs"), GUEST_PROGRAM)),
        modules=devices,
        timeout_s=TIMEOUT_S,
    )
    if run.timed:
        rounds, calls = run.chosen(spec.ROUNDS), ("--calls", ",".join(TIMED))
        run.boot("measured", config, command("measured", run.chosen(spec.SIZES), rounds, *calls))
    else:
        collect_counted(run, config)


def collect_counted(run: Collection, config: LabConfig) -> None:
    """Two boots that count on one CPU, as the kernel is and with its zeroing of fresh memory off;
    one that measures by the clock on two."""
    counted = replace(config, cpus=1, icount=True)
    repeats, often = (run.chosen(spec.REPEATS[kind]) for kind in ("counted", "measured"))
    run.boot(STOCK, counted, command("counted", run.chosen(spec.SIZES), repeats))
    run.boot(
        UNZEROED,
        replace(counted, append=UNZEROED_APPEND),
        command("counted", (AT,), repeats, "--calls", "file"),
    )
    run.boot("measured", config, command("measured", (AT,), often, "--calls", ",".join(TIMED)))
    kernel = kernels.resolve(run.kernel, run.progress)
    assert kernel.build_dir is not None  # otherwise there would be no module for it
    run.write([{"bpf_loop": has_bpf_loop(kernel.build_dir)}])


def has_bpf_loop(build_dir: Path) -> bool:
    """Was the kernel with these headers configured with io_uring's programs of BPF?"""
    return f"{BPF_LOOP}=y" in (build_dir / "include/config/auto.conf").read_text().splitlines()


def command(kind: str, sizes: tuple[int, ...], repeats: int, *more: str) -> list[str]:
    """The command that loads the module of the peer and runs the workload on a disk."""
    options = {"kind": kind, "sizes": sizes, "repeats": repeats, "seed": 13}
    words = option_words({**options, "directory": guest_disk.MOUNT_POINT})
    program = shlex.join([GUEST_PROGRAM, *words, *more])
    return guest_disk.command(["/bin/sh", "-c", f"insmod {GUEST_MODULE} && exec {program}"])


def select(
    rows: Sequence[Row], kind: str, what: str, unzeroed: bool = False
) -> dict[Key, dict[int, list[float]]]:
    """(call, mechanism) -> the number of the row -> repeats. A value is for one operation."""
    found: dict[Key, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.get("kind") == kind and row["boot"].endswith(UNZEROED) == unzeroed:
            value = row["value"] / row["ops"] if what == "value" else row[what]
            found[row["call"], row["mechanism"]][row["n"]].append(value)
    return found


COUNTS = {
    "value": ("instructions", ("file", "getppid", "copy", "accept", "burst")),
    "crossings": ("crossings", ("file", "copy", "accept")),
    "calls": ("calls", ("file", "copy", "accept")),
    "wakeups": ("wakeups", ("burst",)),
}
"""Field of a row: the unit of its metrics, and of which subjects they are made."""


def counted_metrics(rows: Sequence[Row]) -> dict[str, Metric]:
    return {
        f"{call}.{mechanism}.{PARAMETERS[call]}{n}.{unit}": repeated_counts.metric(values, unit, 3)
        for what, (unit, subjects) in COUNTS.items()
        for (call, mechanism), samples in select(rows, "counted", what).items()
        if call in subjects
        for n, values in samples.items()
    }


def unzeroed_metrics(rows: Sequence[Row]) -> dict[str, Metric]:
    return {
        f"{call}.{mechanism}.n{n}_unzeroed.instructions": repeated_counts.metric(
            values, "instructions", 3
        )
        for (call, mechanism), samples in select(rows, "counted", "value", True).items()
        for n, values in samples.items()
    }


def ratios(measured: Mapping[Key, Samples]) -> dict[Key, dict[int, fit.Summary]]:
    """Time of each mechanism in that of plain calls, paired by round."""
    return {
        (call, mechanism): {
            n: fit.summary(
                fit.paired_ratios(
                    dict(enumerate(values)), dict(enumerate(measured[call, "plain"][n]))
                )
            )
            for n, values in samples.items()
        }
        for (call, mechanism), samples in measured.items()
        if mechanism != "plain"
    }


def measured_metrics(measured: Mapping[Key, Samples]) -> dict[str, Metric]:
    return {
        f"{call}.{mechanism}.{PARAMETERS[call]}{n}.ratio": ratio_metric(one)
        for (call, mechanism), summaries in ratios(measured).items()
        for n, one in summaries.items()
    }


def analyse(raw: Raw) -> Findings:
    measured = select(raw.rows, "measured", "value")
    if raw.timed:
        clock = Clock.of(raw.rows)
        metrics = {
            f"{call}.{mechanism}.{PARAMETERS[call]}{n}.ns": clock.ns(values)
            for (call, mechanism), samples in measured.items()
            for n, values in samples.items()
        }
        claim = claim_array_timed(ratios(measured).get(("getppid", PEER), {}), clock)
    else:
        metrics = counted_metrics(raw.rows) | unzeroed_metrics(raw.rows)
        claim = claim_array(select(raw.rows, "counted", "value"))
    return Findings(metrics | measured_metrics(measured), (claim,))


NOT_ENTERED = "its module could not be entered"
BY_LSEEK = (
    "Entered by lseek and not by a number of its own, which a stock kernel does not dispatch."
)


def claim_array(counted: Mapping[Key, Samples]) -> Claim:
    """From how many calls the peer's array wins: published as a line in ns, here counted."""
    if ("getppid", PEER) not in counted:
        return claims.not_run("array-break-even", NOT_ENTERED)
    plain = repeated_counts.least(counted["getppid", "plain"])
    array = repeated_counts.least(counted["getppid", PEER])
    n = fit.observed_break_even(plain, array)
    ours = (
        f"{f'N = {n}' if n else 'never'} (counted); a call of {AT} takes "
        f"{array[AT] / plain[AT]:.2f} of a plain call's instructions"
    )
    note = (
        f"{BY_LSEEK} A count takes a trap for one instruction, and the zeroing of memory for one a "
        "byte."
    )
    return claims.judge("array-break-even", ours, {"n": n}, note, biased=True)


def claim_array_timed(ratios: Mapping[int, fit.Summary], clock: Clock) -> Claim:
    """From how many calls the peer's array takes less time than plain calls."""
    if not ratios:
        return claims.not_run("array-break-even", NOT_ENTERED)
    medians = {n: one.median for n, one in ratios.items()}
    n = fit.observed_break_even(dict.fromkeys(medians, 1.0), medians)
    ours = f"{f'n = {n}' if n else 'never'} (by the clock)"
    return clock.judge("array-break-even", ours, {"n": n}, BY_LSEEK, tuple(ratios.values()))


NAMES = {
    "plain": "plain calls",
    "batch": "batches",
    "program": "a program",
    PEER: "c-blake/batch's loop",
    "io_uring": "io_uring, links",
    "io_uring-statx": "io_uring, links and statx",
    "io_uring-bpf": "io_uring, a program of BPF",
}


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    if raw.timed:
        return (timed_table(raw),)
    counted = select(raw.rows, "counted", "value")
    return (
        files_figure(counted),
        files_table(raw, counted),
        calls_table(raw, counted),
        loops_table(raw, counted),
        burst_table(raw, counted),
    )


def files_figure(counted: Mapping[Key, Samples]) -> Figure:
    files = repeated_counts.of_call(counted, "file")
    share = {
        mechanism: {n: 100 * cost / files["plain"][n] for n, cost in costs.items()}
        for mechanism, costs in files.items()
        if mechanism != "plain"
    }
    return Figure(
        id="files",
        title="Open, fstat, read and close small files: instructions, where plain calls take 100%",
        x_label="files, N",
        y_label="% of plain calls'",
        series=lines(share, NAMES),
        log_x=True,
        caption="One crossing for N files, and three for batches. io_uring without statx reads "
        "without asking for the size.",
        marks=(Mark(100, "plain calls"),),
        from_zero=False,
    )


def files_table(raw: Raw, counted: Mapping[Key, Samples]) -> Table:
    crossings = select(raw.rows, "counted", "crossings")
    calls = select(raw.rows, "counted", "calls")
    summaries = ratios(select(raw.rows, "measured", "value"))
    unzeroed = select(raw.rows, "counted", "value", True)
    rows = []
    for mechanism, name in NAMES.items():
        key = ("file", mechanism)
        if key not in counted:
            continue
        time = summaries.get(key, {}).get(AT)
        rows.append(
            (
                name,
                f"{min(crossings[key][AT]):,.0f}",
                f"{min(calls[key][AT]):,.0f}",
                *against_plain(counted, key),
                *against_plain(unzeroed, key),
                fit.percent(time) if time else "",
            )
        )
    return Table(
        id="files",
        title=f"{AT} small files: open, fstat, read of the size found, close",
        columns=(
            "by",
            "crossings",
            "calls or requests",
            "instructions a file",
            "against plain calls",
            "unzeroed",
            "against plain calls",
            "time, plain calls = 100%",
        ),
        rows=tuple(rows),
        caption="Files of 200 to 541 bytes on a disk file system, in the page cache. A stock "
        "kernel zeroes fresh memory (init_on_alloc): each open clears 4 KiB, which the emulator "
        "counts as 4,096 instructions of a `rep stosb`. Unzeroed: init_on_alloc=0. io_uring: "
        "openat into a direct descriptor, read of it, close of it, linked; it can pass on neither "
        "a size nor a descriptor that was opened before, and a thread closes the files later, "
        "which is not counted.",
        kind="counted",
    )


def bpf_loop_note(rows: Sequence[Row]) -> str:
    """Says whether the kernel has io_uring's programs of BPF; empty for results that do not
    tell."""
    for row in rows:
        if "bpf_loop" in row:
            has = "is configured with" if row["bpf_loop"] else "is configured without"
            return f" This kernel {has} io_uring's programs of BPF ({BPF_LOOP})."
    return ""


def against_plain(counted: Mapping[Key, Samples], key: Key) -> tuple[str, str]:
    """Instructions of a file, and how that compares."""
    cost, plain = min(counted[key][AT]), min(counted["file", "plain"][AT])
    return f"{cost:,.0f}", "" if key[1] == "plain" else f"{cost / plain - 1:+.1%}"


def calls_table(raw: Raw, counted: Mapping[Key, Samples]) -> Table:
    plain = min(counted["getppid", "plain"][AT])
    costs = {
        mechanism: min(counted["getppid", mechanism][AT])
        for mechanism in NAMES
        if ("getppid", mechanism) in counted
    }
    return Table(
        id="calls",
        title=f"{AT} getppid in one crossing: what one call costs",
        columns=("by", "instructions a call", "against plain calls"),
        rows=tuple(
            (NAMES[mechanism], f"{cost:,.1f}", f"{cost / plain - 1:+.1%}" if cost != plain else "")
            for mechanism, cost in costs.items()
        ),
        caption="In a program every call takes an argument, which it does not have, from the first "
        "call's result. io_uring has no getppid: NOPs stand in, which a program of BPF queues in "
        "io_uring's loop, where the kernel has such programs." + bpf_loop_note(raw.rows),
        kind="counted",
    )


LOOPS = {
    ("copy", 64): "copy of 1 MiB in steps of 64 KiB",
    ("copy", 16): "copy of 1 MiB in steps of 16 KiB",
    ("copy", 4): "copy of 1 MiB in steps of 4 KiB",
    ("accept", 16): "accept4 until EAGAIN, 16 connections wait",
    ("accept", 1): "accept4 until EAGAIN, one connection waits",
}


def loops_table(raw: Raw, counted: Mapping[Key, Samples]) -> Table:
    crossings = select(raw.rows, "counted", "crossings")
    calls = select(raw.rows, "counted", "calls")
    rows = []
    for (call, n), name in LOOPS.items():
        for mechanism in ("plain", "program"):
            key = (call, mechanism)
            ops = 1 if call == "copy" else n
            rows.append(
                (
                    name,
                    NAMES[mechanism],
                    f"{min(crossings[key][n]):,.0f}",
                    f"{min(calls[key][n]):,.0f}",
                    f"{min(counted[key][n]) * ops:,.0f}",
                )
            )
    return Table(
        id="loops",
        title="Loops whose number of calls nobody knows before",
        columns=("loop", "by", "crossings", "calls", "instructions"),
        rows=tuple(rows),
        caption="Nobody makes a call in vain: the last one finds the end of the file, or EAGAIN.",
        kind="counted",
    )


def burst_table(raw: Raw, counted: Mapping[Key, Samples]) -> Table:
    wakeups = select(raw.rows, "counted", "wakeups")["burst", "psc"]
    costs = counted["burst", "psc"]
    return Table(
        id="burst",
        title="32 short calls notified at once, while all workers sleep on one CPU",
        columns=("workers", "wake-ups a burst", "instructions a request"),
        rows=tuple(
            (str(n), f"{max(wakeups[n]):,.0f}", f"{min(costs[n]):,.0f}") for n in sorted(costs)
        ),
        caption="getppid; until all results are in and all workers sleep again.",
        kind="counted",
    )


def timed_table(raw: Raw) -> Table:
    measured = select(raw.rows, "measured", "value")
    clock, shares = Clock.of(raw.rows), ratios(measured)
    rows = tuple(
        (
            call,
            mechanism,
            f"{clock.ns(samples[AT]).value:,.0f}",
            fit.percent(shares[call, mechanism][AT]) if mechanism != "plain" else "",
        )
        for (call, mechanism), samples in measured.items()
        if AT in samples
    )
    return Table(
        id="programs",
        title=f"{AT} files, and {AT} calls, in a crossing",
        columns=("what", "by", "ns each", "of plain calls' time"),
        rows=rows,
        caption="A file is opened, asked for its size, read and closed. Medians of paired rounds.",
        kind="measured",
    )
