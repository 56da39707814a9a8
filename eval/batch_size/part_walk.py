# SPDX-License-Identifier: GPL-2.0-only
"""Counts a real program, and on a machine's own kernel times it: examples/walk on a tree, beside
du, find and itself without the module.

This file owns the tree, the commands, the comparison of their output, and the figures made of the
rows. Counting and timing are eval/tools/crossings/crossings.py's business.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eval.batch_size import spec
from eval.tools.crossings import crossings
from eval.tools.crossings.crossings import Command, Counts, Key
from eval.tools.trees import trees
from eval.tools.trees.trees import ARCHIVE, STOCK, TREE, UNZEROED, UNZEROED_APPEND
from trapless.base import built_programs
from trapless.base.console import TraplessError
from trapless.experiments import fit, repeated_counts
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw, tool
from trapless.experiments.timed_rows import Clock, paired, ratio_metric
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig

TIMEOUT_S = 2 * 3600.0
LIBRARY_ASIDE = 100
"""Crossings of a run that are not the scheduler's: start, output, exit; about 50."""

PLAIN = (("TRAPLESS_BACKEND", "plain"),)
MODULE = (("TRAPLESS_BACKEND", "module"),)
COMMANDS = (
    Command("true", "plain", ("/bin/true-of-host",)),
    Command("walk", "batch", ("/bin/walk", TREE), "/out/walk-batch", MODULE),
    Command("walk", "plain", ("/bin/walk", TREE), "/out/walk-plain", PLAIN),
    Command("du", "plain", ("/bin/du-of-host", TREE), "/out/du"),
    Command("walk-s", "batch", ("/bin/walk", "-s", TREE), "/out/walk-s-batch", MODULE),
    Command("walk-s", "plain", ("/bin/walk", "-s", TREE), "/out/walk-s-plain", PLAIN),
    Command("du-s", "plain", ("/bin/du-of-host", "-s", TREE), "/out/du-s"),
    Command("walk-find", "batch", ("/bin/walk", "--find", TREE), "/out/walk-find-batch", MODULE),
    Command("walk-find", "plain", ("/bin/walk", "--find", TREE), "/out/walk-find-plain", PLAIN),
    Command("find", "plain", ("/bin/find-of-host", TREE), "/out/find"),
)
ORIGINAL = {"walk": "du", "walk-s": "du-s", "walk-find": "find"}
"""The way of walking whose output each other way must print."""


HOST_PROGRAMS = ("true", "du", "find")


def collect(run: Collection) -> None:
    files = (
        (tool("crossings/crossings"), crossings.GUEST_PROGRAM),
        (built_programs.find("examples/walk"), "/bin/walk"),
    )
    config = LabConfig(kernel=run.kernel, files=files, env=(("LC_ALL", "C"),), timeout_s=TIMEOUT_S)
    if run.timed:
        collect_timed(run, config)
    else:
        collect_counted(run, config)


def collect_counted(run: Collection, config: LabConfig) -> None:
    """Count every command on the headers of the kernel, twice: as the kernel is, and with its
    zeroing of fresh memory switched off by a boot parameter."""
    archive = run.directory / "tree.tar"
    try:
        entries = trees.pack(trees.headers(run), archive)
        files = (*config.files, *brought(), (archive, ARCHIVE))
        config = replace(config, cpus=1, icount=True, files=files)
        argv = ["/bin/sh", "-c", guest_script(run.chosen(spec.WALK_REPEATS))]
        check(run.boot(STOCK, config, argv))
        check(run.boot(UNZEROED, replace(config, append=UNZEROED_APPEND), argv))
    finally:
        archive.unlink(missing_ok=True)
    run.write([about("the kernel's headers", entries)])


def collect_timed(run: Collection, config: LabConfig) -> None:
    """All commands once a round, so that a drift is in all of them."""
    absent = [name for name in HOST_PROGRAMS if not trees.is_installed(name)]
    if absent:
        run.write([{"skipped": "walk", "reason": f"this machine lacks {', '.join(absent)}"}])
        return
    folders = run.chosen(spec.FOLDERS)
    script = "\n".join(timed_script(folders, run.chosen(spec.WALK_ROUNDS)))
    config = replace(config, files=(*config.files, *brought()))
    run.boot("measured", config, ["/bin/sh", "-c", script])
    run.write([about("made", trees.entries(folders))])


def brought() -> Iterator[tuple[Path, str]]:
    """The programs of this machine that the guest is given."""
    return ((trees.host_program(name), f"/bin/{name}-of-host") for name in HOST_PROGRAMS)


def about(tree: str, entries: int) -> Row:
    versions = {name: trees.version_of(name) for name in ("du", "find")}
    return {"tree": tree, "entries": entries, "programs": versions}


def guest_script(repeats: int) -> str:
    """Unpack, count, compare, and let the library say what it counted itself."""
    lines = list(trees.PREPARE)
    for number, command in enumerate(COMMANDS):
        lines.append(crossings.shell_line(command, repeats))
        lines.append(f'echo "{{\\"progress\\": {number + 1}, \\"total\\": {len(COMMANDS)}}}"')
    lines += comparisons()
    lines += [library_line(command) for command in COMMANDS if command.call in ORIGINAL]
    lines.append("echo '{\"complete\": true}'")
    return "\n".join(lines)


def timed_script(folders: int, rounds: int) -> list[str]:
    """Make the tree; in each round run every command, and compare what they print."""
    lines = list(trees.made(folders))
    for number in range(rounds):
        lines += [crossings.timed_line(command, number) for command in COMMANDS]
        lines.append(f'echo "{{\\"progress\\": {number + 1}, \\"total\\": {rounds}}}"')
    return [*lines, *comparisons(), "echo '{\"complete\": true}'"]


def comparisons() -> list[str]:
    """Lines that compare the programs' output, which must be the same."""
    lines = []
    outputs = {(command.call, command.mechanism): command.output for command in COMMANDS}
    for call, original in ORIGINAL.items():
        for mechanism in ("batch", "plain"):
            ours, theirs = outputs[call, mechanism], outputs[original, "plain"]
            lines.append(f"cmp {ours} {theirs} || fail {call} by {mechanism} is not {original}")
        row = f'{{\\"check\\": \\"{call} prints what {original} prints\\", \\"lines\\": $lines}}'
        lines.append(f'lines=$(wc -l < {theirs}); echo "{row}"')
    return lines


def library_line(command: Command) -> str:
    """One row of what the library and the module count while the same command runs once more."""
    settings = " ".join(f"{name}={value}" for name, value in command.env)
    said = f"$({settings} {shlex.join([*command.argv, '--stats'])} 2>&1 >/dev/null)"
    row = (
        f'{{\\"call\\": \\"{command.call}\\", \\"mechanism\\": \\"{command.mechanism}\\", '
        '\\"library_calls\\": $2, \\"library_crossings\\": $4, \\"backend\\": \\"$6\\"}'
    )
    return f'set -- {said}; echo "{row}"'


def check(rows: Sequence[Row]) -> None:
    """Checks that the counts agree with each other; otherwise no figure can be trusted."""
    counts = crossings.counts(rows)
    for call, mechanism in crossings.differing(counts):
        raise TraplessError(f"{call} by {mechanism} crossed {counts[call, mechanism].crossings}")
    by_library = {(r["call"], r["mechanism"]): r for r in rows if "library_calls" in r}
    for key, row in by_library.items():
        aside = counts[key].crossings[0] - row["library_crossings"]
        if not 0 < aside <= LIBRARY_ASIDE:
            raise TraplessError(
                f"{key[0]} by {key[1]}: {counts[key].crossings[0]} crossings were seen, but the "
                f"library says {row['library_crossings']}"
            )
        if row["backend"] != ("module" if key[1] == "batch" else "plain"):
            raise TraplessError(f"{key[0]} by {key[1]} ran by the {row['backend']} backend")
    for call in ORIGINAL:
        numbers = {by_library[call, mechanism]["library_calls"] for mechanism in ("batch", "plain")}
        if len(numbers) != 1:
            raise TraplessError(f"{call}: {numbers} calls were made by batch and by plain calls")


def of_boot(raw: Raw, label: str) -> dict[Key, Counts]:
    return crossings.counts(row for row in raw.rows if row.get("boot") == f"walk-{label}")


def analyse(raw: Raw) -> Findings:
    if raw.timed:
        return analyse_timed(raw)
    metrics = {}
    for label, parameter in ((STOCK, "total"), (UNZEROED, "total_unzeroed")):
        for (call, mechanism), count in of_boot(raw, label).items():
            name = f"{call}.{mechanism}"
            metrics[f"{name}.{parameter}.instructions"] = repeated_counts.metric(
                count.instructions, "instructions"
            )
            if label == STOCK:
                metrics[f"{name}.crossings.count"] = repeated_counts.metric(
                    count.crossings, "count"
                )
    return Findings(metrics)


Times = Mapping[Key, Mapping[int, float]]
"""Command and mechanism -> round -> clocks."""


def times(rows: Sequence[Row]) -> Times:
    found: dict[Key, dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "measured" and row.get("unit") == "tsc":
            of = found.setdefault((row["call"], row["mechanism"]), {})
            of[row["repeat"]] = row["value"]
    return found


def analyse_timed(raw: Raw) -> Findings:
    found = times(raw.rows)
    if not found:
        return Findings()
    clock = Clock.of(raw.rows)
    metrics: dict[str, Metric] = {}
    for (call, mechanism), values in found.items():
        metrics[f"{call}.{mechanism}.total.ns"] = clock.ns(list(values.values()))
    for key, base in pairs(found):
        if one := paired(found[key], found[base]):
            name = "ratio" if base[0] == key[0] else f"ratio-to-{base[0]}"
            metrics[f"{key[0]}.{key[1]}.total.{name}"] = replace(ratio_metric(one), unit=name)
    return Findings(metrics)


def pairs(found: Times) -> list[tuple[Key, Key]]:
    """Batches beside plain calls of the same program, and beside the program that it copies."""
    every: list[tuple[Key, Key]] = []
    for call, original in ORIGINAL.items():
        every += [((call, "batch"), (call, "plain")), ((call, "batch"), (original, "plain"))]
    return [(one, base) for one, base in every if one in found and base in found]


NAMES = {
    "true": "true (does nothing)",
    "walk": "walk",
    "du": "du",
    "walk-s": "walk -s",
    "du-s": "du -s",
    "walk-find": "walk --find",
    "find": "find",
}


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    if raw.timed:
        return timed_figures(raw)
    stock, unzeroed = of_boot(raw, STOCK), of_boot(raw, UNZEROED)
    if not stock:  # the results are older than this part
        return ()
    facts: Row = next((row for row in raw.rows if "tree" in row), {})
    rows = []
    for key in stock:
        call, mechanism = key
        original = ORIGINAL.get(call)
        versus = (original, "plain") if original else None
        rows.append(
            (
                NAMES.get(call, call),
                "batches" if mechanism == "batch" else "plain calls",
                f"{stock[key].crossings[0]:,}",
                f"{min(stock[key].instructions) / 1e6:.1f} M",
                f"{min(unzeroed[key].instructions) / 1e6:.1f} M",
                fewer(stock, key, versus),
                less(stock, key, versus),
                less(unzeroed, key, versus),
            )
        )
    programs = ", ".join(facts.get("programs", {}).values())
    return (
        Table(
            id="walk",
            title=f"A real program: a tree of {facts.get('entries', 0):,} entries",
            columns=(
                "program",
                "calls by",
                "crossings",
                "instructions",
                "unzeroed",
                "crossings, times fewer than du or find",
                "instructions of du or find's",
                "unzeroed",
            ),
            rows=tuple(rows),
            caption=f"From exec to exit, user space and kernel, nothing subtracted; {programs}; "
            "output compared byte for byte. A stock kernel zeroes fresh memory (init_on_alloc): "
            "each call that takes a path clears 4 KiB, which the emulator counts as up to 4096 "
            "instructions of one `rep stosb`. Unzeroed: the same with init_on_alloc=0. du writes "
            "each line by a call of its own; -s compares without that.",
            kind="counted",
        ),
    )


def fewer(counts: Mapping[Key, Counts], key: Key, versus: Key | None) -> str:
    if versus is None:
        return ""
    return f"{counts[versus].crossings[0] / counts[key].crossings[0]:.1f}"


def less(counts: Mapping[Key, Counts], key: Key, versus: Key | None) -> str:
    if versus is None:
        return ""
    return f"{min(counts[key].instructions) / min(counts[versus].instructions):.0%}"


def timed_figures(raw: Raw) -> tuple[Table, ...]:
    found = times(raw.rows)
    if not found:
        return ()
    clock = Clock.of(raw.rows)
    facts: Row = next((row for row in raw.rows if "tree" in row), {})
    ratios: dict[tuple[str, str], list[fit.Summary | None]] = {key: [] for key in found}
    for key, base in pairs(found):
        ratios[key].append(paired(found[key], found[base]))
    rows = tuple(
        (
            NAMES.get(call, call),
            "batches" if mechanism == "batch" else "plain calls",
            f"{clock.ns(list(values.values())).value / 1e6:.2f}",
            *(
                fit.percent(one) if one else ""
                for one in (*ratios[call, mechanism], None, None)[:2]
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
