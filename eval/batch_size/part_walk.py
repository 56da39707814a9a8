# SPDX-License-Identifier: GPL-2.0-only
"""Counts a real program: examples/walk on a real tree, beside du, find and itself without the
module.

This file owns the tree, the commands, the comparison of their output, and the figures made of the
counts. Counting is eval/tools/crossings/crossings.py's business.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from eval.tools.crossings import crossings
from eval.tools.crossings.crossings import Command, Counts, Key
from eval.tools.trees import trees
from eval.tools.trees.trees import ARCHIVE, STOCK, TREE, UNZEROED, UNZEROED_APPEND
from trapless.base import programs
from trapless.base.console import TraplessError
from trapless.experiments import repetition
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Part, Raw, tool
from trapless.report.figures import Figure, Table
from trapless.vm.lab import LabConfig

REPEATS, QUICK_REPEATS = 5, 2
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
"""What each way of walking must print the same as."""


def collect(run: Collection) -> None:
    """Count every command on the headers of the kernel, twice: as the kernel is, and with its
    zeroing of fresh memory switched off by a boot parameter."""
    archive = run.directory / "tree.tar"
    try:
        entries = trees.pack(trees.headers(run), archive)
        files = (
            (tool("crossings/crossings"), crossings.GUEST_PROGRAM),
            (programs.find("examples/walk"), "/bin/walk"),
            *(
                (trees.host_program(name), f"/bin/{name}-of-host")
                for name in ("true", "du", "find")
            ),
            (archive, ARCHIVE),
        )
        config = LabConfig(
            kernel=run.kernel,
            cpus=1,
            icount=True,
            files=files,
            env=(("LC_ALL", "C"),),
            timeout_s=TIMEOUT_S,
        )
        script = guest_script(QUICK_REPEATS if run.quick else REPEATS)
        argv = ["/bin/sh", "-c", script]
        check(run.boot(STOCK, config, argv))
        unzeroed = LabConfig(**{**vars(config), "append": UNZEROED_APPEND})
        check(run.boot(UNZEROED, unzeroed, argv))
    finally:
        archive.unlink(missing_ok=True)
    versions = {name: trees.version_of(name) for name in ("du", "find")}
    run.write([{"tree": "the kernel's headers", "entries": entries, "programs": versions}])


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


def comparisons() -> list[str]:
    """Lines that compare what the programs have printed with what they are to print the same as."""
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
    """The counts agree with each other, or nothing here is to trust."""
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
    metrics = {}
    for label, parameter in ((STOCK, "total"), (UNZEROED, "total_unzeroed")):
        for (call, mechanism), count in of_boot(raw, label).items():
            name = f"{call}.{mechanism}"
            metrics[f"{name}.{parameter}.instructions"] = repetition.metric(
                count.instructions, "instructions"
            )
            if label == STOCK:
                metrics[f"{name}.crossings.count"] = repetition.metric(count.crossings, "count")
    return Findings(metrics)


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
    stock, unzeroed = of_boot(raw, STOCK), of_boot(raw, UNZEROED)
    if not stock:  # results saved before this part was
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


PART = Part(name="walk", collect=collect, analyse=analyse, figures=figures)
