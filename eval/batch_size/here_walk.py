# SPDX-License-Identifier: GPL-2.0-only
"""Times a real program on a machine's own kernel: examples/walk on a tree, beside du, find and
itself without the module.

This file owns the tree and its figures; part_walk.py has the commands and what they print alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.batch_size import part_walk
from eval.batch_size.part_walk import COMMANDS, NAMES, ORIGINAL
from eval.tools.crossings import crossings
from eval.tools.trees import trees
from trapless.base import programs
from trapless.experiments import fit
from trapless.experiments.clocks import Clock, paired, ratio_metric
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Part, Raw, tool
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig

ROUNDS, QUICK_ROUNDS = 15, 5
FOLDERS, QUICK_FOLDERS, LEAST_FOLDERS = 100, 20, 4
Times = Mapping[tuple[str, str], Mapping[int, float]]
"""Command and mechanism -> round -> clocks."""


def collect(run: Collection) -> None:
    """All commands once a round, so that what drifts meanwhile is in all of them."""
    absent = [name for name in ("true", "du", "find") if not trees.is_installed(name)]
    if absent:
        run.write([{"skipped": "walk", "reason": f"this machine lacks {', '.join(absent)}"}])
        return
    files = (
        (tool("crossings/crossings"), crossings.GUEST_PROGRAM),
        (programs.find("examples/walk"), "/bin/walk"),
        *((trees.host_program(name), f"/bin/{name}-of-host") for name in ("true", "du", "find")),
    )
    config = LabConfig(
        kernel=run.kernel,
        files=files,
        env=(("LC_ALL", "C"),),
        timeout_s=part_walk.TIMEOUT_S,
    )
    folders = run.chosen(FOLDERS, QUICK_FOLDERS, LEAST_FOLDERS)
    rounds = run.chosen(ROUNDS, QUICK_ROUNDS, fit.SAMPLES_MIN)
    run.boot("measured", config, ["/bin/sh", "-c", "\n".join(script(folders, rounds))])
    versions = {name: trees.version_of(name) for name in ("du", "find")}
    run.write([{"tree": "made", "entries": trees.entries(folders), "programs": versions}])


def script(folders: int, rounds: int) -> list[str]:
    """Make the tree; in each round run every command, and compare what they print."""
    lines = list(trees.made(folders))
    for number in range(rounds):
        lines += [crossings.timed_line(command, number) for command in COMMANDS]
        lines.append(f'echo "{{\\"progress\\": {number + 1}, \\"total\\": {rounds}}}"')
    return [*lines, *part_walk.comparisons(), "echo '{\"complete\": true}'"]


def times(rows: Sequence[Row]) -> Times:
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "measured" and row.get("unit") == "tsc":
            of = found.setdefault((row["call"], row["mechanism"]), {})
            of[row["repeat"]] = row["value"]
    return found


def analyse(raw: Raw) -> Findings:
    found = times(raw.rows)
    if not found:
        return Findings()
    clock = Clock.of(raw.rows)
    metrics: dict[str, Metric] = {}
    for (call, mechanism), values in found.items():
        metrics[f"{call}.{mechanism}.total.ns"] = clock.ns(list(values.values()))
    for key, base in comparisons(found):
        if one := paired(found[key], found[base]):
            name = "ratio" if base[0] == key[0] else f"ratio-to-{base[0]}"
            metrics[f"{key[0]}.{key[1]}.total.{name}"] = ratio_metric_as(one, name)
    return Findings(metrics)


def ratio_metric_as(one: fit.Summary, unit: str) -> Metric:
    metric = ratio_metric(one)
    return Metric(metric.value, unit, metric.kind, metric.n, metric.spread)


def comparisons(found: Times) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Batches beside plain calls of the same program, and beside the program that it copies."""
    pairs = []
    for call, original in ORIGINAL.items():
        pairs += [((call, "batch"), (call, "plain")), ((call, "batch"), (original, "plain"))]
    return [(one, base) for one, base in pairs if one in found and base in found]


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    found = times(raw.rows)
    if not found:
        return ()
    clock = Clock.of(raw.rows)
    facts: Row = next((row for row in raw.rows if "tree" in row), {})
    beside: dict[tuple[str, str], list[fit.Summary | None]] = {key: [] for key in found}
    for key, base in comparisons(found):
        beside[key].append(paired(found[key], found[base]))
    rows = tuple(
        (
            NAMES.get(call, call),
            "batches" if mechanism == "batch" else "plain calls",
            f"{clock.ns(list(values.values())).value / 1e6:.2f}",
            *(
                fit.percent(one) if one else ""
                for one in (*beside[call, mechanism], None, None)[:2]
            ),
        )
        for (call, mechanism), values in found.items()
    )
    return (
        Table(
            id="walk",
            title=f"A real program: a tree of {facts.get('entries', 0):,} entries",
            columns=("program", "calls by", "ms", "of its plain calls' time", "of du's or find's"),
            rows=rows,
            caption="From exec to exit, medians of alternating rounds; "
            f"{', '.join(facts.get('programs', {}).values())}. Files are empty and in memory. "
            "Output was the same, byte for byte.",
            kind="measured",
        ),
    )


PART = Part(name="walk", collect=collect, analyse=analyse, figures=figures)
