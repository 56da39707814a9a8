# SPDX-License-Identifier: GPL-2.0-only
"""Experiment ls on a machine's own kernel: whole commands in both modes, timed and not counted.

This file owns the tree and rounds there, and the claims that clocks decide. part_commands.py has
the commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eval.ls import part_commands, spec
from eval.ls.part_commands import MODES, PUBLISHED, WORK_NAMES, commands, split
from eval.tools.crossings import crossings
from eval.tools.trees import trees
from trapless.experiments import fit
from trapless.experiments.clocks import Clock, ratio_metric
from trapless.experiments.collection import Collection, LeftOutError, Row
from trapless.experiments.experiment import Findings, Part, Raw, Spec, tool
from trapless.report.figures import Table
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

ROUNDS, QUICK_ROUNDS = 25, 5
FOLDERS, QUICK_FOLDERS, LEAST_FOLDERS = 100, 20, 4
NOT_OFFERED = "supervisor mode was not offered here; a row of the raw data says why"


def collect(run: Collection) -> None:
    """Every command in both modes by turns, all of them once a round."""
    if not trees.is_installed("ls"):
        raise LeftOutError("this machine has no ls to be brought along")
    folders = run.chosen(FOLDERS, QUICK_FOLDERS, LEAST_FOLDERS)
    rounds = run.chosen(ROUNDS, QUICK_ROUNDS, fit.SAMPLES_MIN)
    config = LabConfig(
        kernel=run.kernel,
        files=(
            (tool("crossings/crossings"), crossings.GUEST_PROGRAM),
            (trees.host_program("ls"), "/bin/ls-of-host"),
        ),
        env=(("LC_ALL", "C"),),
        module_parameters="supervisor=1",
        timeout_s=part_commands.TIMEOUT_S,
    )
    run.boot("measured", config, ["/bin/sh", "-c", "\n".join(script(folders, rounds))])
    versions = [trees.version_of("ls")]
    run.write([{"tree": "made", "entries": trees.entries(folders), "programs": versions}])


def script(folders: int, rounds: int) -> Iterator[str]:
    yield from trees.made(folders)
    for folder, files in part_commands.FOLDERS.items():
        yield f"mkdir /{folder}; for i in $(seq {files}); do : > /{folder}/file-$i; done"
    for number in range(rounds):
        for command in commands():
            yield crossings.timed_line(command, number, MODES)
        yield f'echo "{{\\"progress\\": {number + 1}, \\"total\\": {rounds}}}"'
    yield from (part_commands.comparison(command) for command in commands())
    yield "echo '{\"complete\": true}'"


def times(raw: Raw) -> dict[tuple[str, str], list[float]]:
    """Command and mode -> clocks, a round each."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in raw.rows:
        if row.get("kind") == "measured" and "value" in row:
            found.setdefault((row["call"], row["mechanism"]), []).append(row["value"])
    return found


def shares(raw: Raw) -> dict[str, tuple[int, int]]:
    """Command -> calls that stayed in supervisor mode, and those that left it."""
    return {
        row["call"]: (row["stayed"], row["left"])
        for row in raw.rows
        if row.get("mechanism") == "supervisor" and "stayed" in row
    }


def analyse(raw: Raw) -> Findings:
    found = times(raw)
    clock, ratios = Clock.of(raw.rows), part_commands.clock_ratios(raw)
    metrics: dict[str, Metric] = {}
    for (call, mode), values in found.items():
        work, program = split(call)
        metrics[f"{work}.{mode}.{program}.ns"] = clock.ns(values)
    for call, one in ratios.items():
        work, program = split(call)
        metrics[f"{work}.supervisor.{program}.ratio"] = ratio_metric(one)
    for call, (stayed, left) in shares(raw).items():
        work, program = split(call)
        metrics[f"{work}.supervisor.{program}.share"] = Metric(
            round(stayed / (stayed + left), 4), "share", "counted"
        )
    return Findings(metrics, tuple(claims_of(ratios, clock)))


def claims_of(ratios: Mapping[str, fit.Summary], clock: Clock) -> Iterator[Claim]:
    for work in PUBLISHED:
        one = ratios.get(f"{work}-busybox")
        if one is None:
            yield claims.not_run(f"dms-{work}", NOT_OFFERED)
            continue
        other = ratios[f"{work}-coreutils"]
        ours = f"{fit.percent(one)} of the time by trap (busybox); coreutils: {fit.percent(other)}"
        note = "Starting a program is most of so short a command, and no trap is saved there."
        yield clock.judge(f"dms-{work}", ours, {"ratio": one.median}, note, [one])


def figures(raw: Raw) -> tuple[Table, ...]:
    found = times(raw)
    clock, ratios, share = Clock.of(raw.rows), part_commands.clock_ratios(raw), shares(raw)
    facts: Row = next((row for row in raw.rows if "tree" in row), {})
    rows = []
    for call, mode in found:
        if mode != "trap":
            continue
        work, program = split(call)
        stayed, left = share.get(call, (0, 0))
        inside = found.get((call, "supervisor"))
        rows.append(
            (
                f"{WORK_NAMES[work]}, {program}",
                f"{clock.ns(found[call, mode]).value / 1e6:.2f}",
                f"{clock.ns(inside).value / 1e6:.2f}" if inside else "",
                fit.percent(ratios[call]) if call in ratios else "",
                f"{stayed:,}" if stayed else "",
                f"{stayed / (stayed + left):.1%}" if stayed else "",
            )
        )
    return (
        Table(
            id="ls",
            title="ls from exec to exit, in both modes",
            columns=("ls", "trap, ms", "supervisor, ms", "ratio", "calls in it", "share"),
            rows=tuple(rows),
            caption=f"Medians of alternating rounds; {', '.join(facts.get('programs', ()))}; "
            f"busybox is the machine's own. The tree has {facts.get('entries', 0):,} entries in "
            "memory. Calls in it: those that returned in supervisor mode, as the module counts, "
            "and their share. Output was the same, byte for byte.",
            kind="measured",
        ),
    )


SPEC = Spec(
    name="ls",
    paper=spec.SPEC.paper,
    question=spec.SPEC.question,
    method=(
        "ls of 5 files, of 408 files (Fig. 9 of the paper), and ls -lR of a large tree, by "
        "coreutils and by busybox, in user mode and in supervisor mode by turns, on this machine's "
        "own kernel. A child switches itself and becomes the command: nothing of it is recompiled "
        "or preloaded. Measured by the time-stamp counter from exec to exit, modes in random "
        "order. Output is compared byte for byte."
    ),
    limits=(
        "Most of a short command is its start: exec, page faults, the dynamic linker. Supervisor "
        "mode does nothing for those; a page fault then costs somewhat more.",
        "The terminal is missing: output goes to a file in memory. The paper's 408 files include "
        "the display.",
    ),
    parts=(Part("commands", collect, analyse, figures),),
    minutes=(0.2, 0.5),
)
