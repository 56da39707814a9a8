# SPDX-License-Identifier: GPL-2.0-only
"""Experiment programs on a machine's own kernel: calls that depend on each other, timed.

This file owns the rounds there and the metrics in nanoseconds; part_programs.py has the ratios and
the command.
"""

from __future__ import annotations

from collections.abc import Mapping

from eval.programs import part_programs, spec
from eval.programs.part_programs import AT, PARAMETERS
from trapless.experiments import fit
from trapless.experiments.clocks import Clock
from trapless.experiments.collection import Collection, LeftOutError
from trapless.experiments.experiment import Findings, Part, Raw, Spec, workload
from trapless.experiments.here import disk, modules
from trapless.report.figures import Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

SUBJECTS = "file,getppid"
PEER = "c-blake"
SIZES, QUICK_SIZES, LEAST_SIZES = (1, 2, 3, 4, 8, 16, 32, 64), (1, 2, AT), (2, AT)
ROUNDS, QUICK_ROUNDS = 41, 7


def collect(run: Collection) -> None:
    """One run of all mechanisms, in alternating rounds."""
    devices, why = disk.ram_disk()
    peer, no_peer = modules.find(run, part_programs.HERE, part_programs.MODULE)
    if peer is None or not devices:
        raise LeftOutError(why or no_peer)
    config = LabConfig(
        kernel=run.kernel,
        cpus=2,
        files=(
            (peer, part_programs.GUEST_MODULE),
            (workload("programs"), part_programs.GUEST_PROGRAM),
        ),
        modules=devices,
        timeout_s=part_programs.TIMEOUT_S,
    )
    sizes = ",".join(map(str, run.chosen(SIZES, QUICK_SIZES, LEAST_SIZES)))
    rounds = run.chosen(ROUNDS, QUICK_ROUNDS, fit.SAMPLES_MIN)
    argv = part_programs.guest_command("measured", sizes, rounds, "--calls", SUBJECTS)
    run.boot("measured", config, argv)


def analyse(raw: Raw) -> Findings:
    measured = part_programs.select(raw.rows, "measured", "value")
    clock = Clock.of(raw.rows)
    metrics: dict[str, Metric] = {
        f"{call}.{mechanism}.{PARAMETERS[call]}{n}.ns": clock.ns(values)
        for (call, mechanism), samples in measured.items()
        for n, values in samples.items()
    }
    ratios = part_programs.ratios(measured)
    claim = claim_array(ratios.get(("getppid", PEER), {}), clock)
    return Findings(metrics | part_programs.measured_metrics(measured), (claim,))


def claim_array(ratios: Mapping[int, fit.Summary], clock: Clock) -> Claim:
    """From how many calls the peer's array takes less time than plain calls."""
    if not ratios:
        return claims.not_run("array-break-even", "its module could not be entered")
    medians = {n: one.median for n, one in ratios.items()}
    n = fit.observed_break_even(dict.fromkeys(medians, 1.0), medians)
    ours = f"{f'n = {n}' if n else 'never'} (by the clock)"
    note = (
        "Entered by lseek and not by a number of its own, which a stock kernel does not dispatch."
    )
    return clock.judge("array-break-even", ours, {"n": n}, note, tuple(ratios.values()))


def figures(raw: Raw) -> tuple[Table, ...]:
    measured = part_programs.select(raw.rows, "measured", "value")
    clock, ratios = Clock.of(raw.rows), part_programs.ratios(measured)
    rows = tuple(
        (
            call,
            mechanism,
            f"{clock.ns(samples[AT]).value:,.0f}",
            fit.percent(ratios[call, mechanism][AT]) if mechanism != "plain" else "",
        )
        for (call, mechanism), samples in measured.items()
        if AT in samples
    )
    return (
        Table(
            id="programs",
            title=f"{AT} files, and {AT} calls, in a crossing",
            columns=("what", "by", "ns each", "of plain calls' time"),
            rows=rows,
            caption="A file is opened, asked for its size, read and closed. Medians of paired "
            "rounds.",
            kind="measured",
        ),
    )


SPEC = Spec(
    name="programs",
    paper=spec.SPEC.paper,
    question=spec.SPEC.question,
    method=(
        "N small files, each opened, asked for its size, read and closed, by plain calls, batches, "
        "programs, io_uring with links and direct descriptors, and an array of calls as "
        "c-blake/batch makes it, on this machine's own kernel. Measured by the time-stamp counter "
        "in alternating rounds."
    ),
    limits=(
        "io_uring does less: it cannot ask a direct descriptor for its size, and a thread of the "
        "kernel closes its files later.",
        "c-blake/batch's loop is written anew and entered by lseek.",
        "Everything is in the caches.",
    ),
    parts=(Part("programs", collect, analyse, figures),),
    minutes=(0.2, 0.5),
)
