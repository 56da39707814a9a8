# SPDX-License-Identifier: GPL-2.0-only
"""Times on a machine's own kernel what the module's probes add to one entry of the kernel.

This file owns the numbers of steps, and what is made of the rows. What an observer beside a VM
costs is for the lab.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from eval.peek_overhead import spec
from trapless.experiments import fit
from trapless.experiments.collection import Collection, LeftOutError, Row
from trapless.experiments.experiment import Findings, Raw, program
from trapless.experiments.timed_rows import paired, ratio_metric
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig

NONE, SETTINGS = "none", spec.PROBE_SETTINGS.full
STEPS = {
    "calls": "a system call that does next to nothing",
    "faults": "a page fault that gives a fresh page",
    "switches": "a byte through a pipe to another process, and back",
}
COUNTS = {"calls": 1_000_000, "faults": 100_000, "switches": 20_000}
TIMEOUT_S = 3600.0
PROBES = "/sys/module/trapless/parameters/probes"
SKIPPED = '{"skipped": "probes", "reason": "the module refuses them; the kernel\'s log says why"}'
Times = Mapping[tuple[str, str], Mapping[int, float]]
"""Steps and setting -> round -> nanoseconds of one step."""


def collect(run: Collection) -> None:
    """All settings of the probes by turns, in random order in each round."""
    share = run.chosen(spec.PROBE_SHARE)
    counts = {name: n // share for name, n in COUNTS.items()}
    rounds = run.chosen(spec.PROBE_ROUNDS)
    loads = [
        word for name, n in counts.items() for word in (name, f"exec /bin/peek-calls {name} {n}")
    ]
    settings = run.chosen(spec.PROBE_SETTINGS)
    options = ["--kind", "measured", "--settings", ",".join((NONE, *settings))]
    argv = ["/bin/peek-overhead", *options, "--repeats", str(rounds), "--", *loads]
    names = ("peek-overhead", "peek-calls")
    config = LabConfig(
        kernel=run.kernel,
        files=tuple((program(f"peek_overhead/{name}"), f"/bin/{name}") for name in names),
        timeout_s=TIMEOUT_S,
    )
    # It waits for a line of an observer; there is none here.
    guests, ours = os.pipe()
    try:
        os.write(ours, b"\n")
        os.close(ours)
        rows = run.boot("measured", config, ["/bin/sh", "-c", script(argv)], stdin=guests)
    finally:
        os.close(guests)
    for row in rows:
        if "skipped" in row:
            raise LeftOutError(row["reason"])
    run.write([{"steps": counts}])


def script(argv: Sequence[str]) -> str:
    """The shell's lines: whether there are probes, then the runs."""
    return "\n".join(
        (
            f"if (echo 3 > {PROBES}) 2>/dev/null; then echo 0 > {PROBES}",
            f"{shlex.join(argv)} || exit 1",
            f"else echo {shlex.quote(SKIPPED)}; fi",
            "echo '{\"complete\": true}'",
        )
    )


def times(rows: Sequence[Row]) -> Times:
    steps: Mapping[str, int] = next((row["steps"] for row in rows if "steps" in row), {})
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if "setting" in row:
            of = found.setdefault((row["load"], row["setting"]), {})
            of[row["repeat"]] = row["value"] / steps[row["load"]]
    return found


def added(found: Times, load: str, setting: str) -> list[float]:
    """Nanoseconds that a setting adds to one step, round by round."""
    none = found.get((load, NONE), {})
    values = found.get((load, setting), {})
    return [value - none[number] for number, value in values.items() if number in none]


def analyse(raw: Raw) -> Findings:
    found = times(raw.rows)
    metrics: dict[str, Metric] = {}
    for load, setting in found:
        values = list(found[load, setting].values())
        metrics[f"{load}.{setting}.each.ns"] = _metric(fit.summary(values))
        if setting == NONE:
            continue
        metrics[f"{load}.{setting}.added.ns"] = _metric(fit.summary(added(found, load, setting)))
        if one := paired(found[load, setting], found[load, NONE]):
            metrics[f"{load}.{setting}.each.ratio"] = ratio_metric(one)
    return Findings(metrics)


def _metric(one: fit.Summary) -> Metric:
    return Metric(round(one.median, 2), "ns", "measured", one.n, round(one.spread, 2))


def figures(raw: Raw) -> tuple[Table, ...]:
    found = times(raw.rows)
    rows = [
        (
            words,
            f"{fit.summary(list(found[load, NONE].values())).median:,.1f}",
            *(_interval(added(found, load, setting)) for setting in SETTINGS),
        )
        for load, words in STEPS.items()
        if (load, NONE) in found
    ]
    return (
        Table(
            id="peek-probes-each",
            title="What probes add to one entry of the kernel, in nanoseconds",
            columns=("what", "without", *SETTINGS),
            rows=tuple(rows),
            caption="Loops of many, the program around them included; medians of paired rounds "
            "with a 95% interval. modes: user mode or kernel, and why; both: and interrupts, and "
            "who disabled them; counts: and how often.",
            kind="measured",
        ),
    )


def _interval(values: Sequence[float]) -> str:
    if len(values) < fit.SAMPLES_MIN:
        return ""
    one = fit.confidence(values)
    return f"{one.median:,.1f} ({one.low:,.1f} to {one.high:,.1f})"
