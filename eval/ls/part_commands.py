# SPDX-License-Identifier: GPL-2.0-only
"""Runs each command in both modes, and makes Fig. 9 and its claims of the counts; on a machine's
own kernel, of the times.

This file owns the folders, the commands and the comparison of their output. eval/tools/crossings
counts and times; modelled clocks are trapless/model/trap_clocks.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eval.ls import spec
from eval.tools.crossings import crossings
from eval.tools.crossings.crossings import Command
from eval.tools.trees import trees
from eval.tools.trees.trees import ARCHIVE, STOCK, TREE, UNZEROED, UNZEROED_APPEND
from trapless.base.console import TraplessError
from trapless.experiments import fit, repeated_counts
from trapless.experiments.collection import Collection, LeftOutError, Row
from trapless.experiments.experiment import Findings, Raw, tool
from trapless.experiments.timed_rows import Clock, ratio_metric
from trapless.model import processors, trap_clocks
from trapless.model.trap_clocks import Counts
from trapless.report.figures import Figure, Table, bars
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.vm.lab import LabConfig

TIMEOUT_S = 2 * 3600.0
FOLDERS = {"ls5": 5, "ls408": 408}
"""As in Fig. 9 of the paper; the second is its /usr/bin."""
PROGRAMS = {"coreutils": ("/bin/ls-of-host",), "busybox": ("/bin/busybox", "ls")}
WORK = {
    "ls5": ("/ls5",),
    "ls408": ("/ls408",),
    "ls-lr": ("-lR", TREE),
}
MODES = ("trap", "supervisor")
COUNT_SLACK = 16
"""Calls before exec, when the child is in supervisor mode and no breakpoint is set yet."""


def commands() -> Iterator[Command]:
    for work, arguments in WORK.items():
        for program, argv in PROGRAMS.items():
            call = f"{work}-{program}"
            yield Command(call, "", (*argv, *arguments), f"/out/{call}")


NOT_OFFERED = "supervisor mode was not offered here; a row of the raw data says why"


def collect(run: Collection) -> None:
    config = LabConfig(
        kernel=run.kernel,
        env=(("LC_ALL", "C"),),
        files=((tool("crossings/crossings"), crossings.GUEST_PROGRAM),),
        module_parameters="supervisor=1",
        timeout_s=TIMEOUT_S,
    )
    if run.timed:
        collect_timed(run, config)
    else:
        collect_counted(run, config)


def collect_counted(run: Collection, config: LabConfig) -> None:
    """Counted on the kernel as it is and without its zeroing; measured on two CPUs."""
    archive = run.directory / "tree.tar"
    repeats = {kind: run.chosen(extent) for kind, extent in spec.REPEATS.items()}
    try:
        entries = trees.pack(trees.headers(run) / "linux", archive)
        config = replace(config, files=(*config.files, brought(), (archive, ARCHIVE)))
        counted = replace(config, cpus=1, icount=True)
        script = guest_script("counted", repeats["counted"])
        check(run.boot(STOCK, counted, script))
        check(run.boot(UNZEROED, replace(counted, append=UNZEROED_APPEND), script))
        measured = guest_script("measured", repeats["measured"])
        run.boot("measured", replace(config, cpus=2), measured)
    finally:
        archive.unlink(missing_ok=True)
    run.write([about("headers of the kernel", entries)])


def collect_timed(run: Collection, config: LabConfig) -> None:
    """Every command in both modes by turns, all of them once a round."""
    if not trees.is_installed("ls"):
        raise LeftOutError("this machine has no ls to be brought along")
    folders = run.chosen(spec.FOLDERS)
    config = replace(config, files=(*config.files, brought()))
    script = timed_script(folders, run.chosen(spec.REPEATS["measured"]))
    run.boot("measured", config, ["/bin/sh", "-c", "\n".join(script)])
    run.write([about("made", trees.entries(folders))])


def brought() -> tuple[Path, str]:
    """The ls of this machine, for the guest."""
    return trees.host_program("ls"), "/bin/ls-of-host"


def about(tree: str, entries: int) -> Row:
    return {"tree": tree, "entries": entries, "programs": [trees.version_of("ls")]}


def guest_script(kind: str, repeats: int) -> list[str]:
    """Make the folders, run every command in both modes, compare what they printed."""
    lines = list(trees.PREPARE)
    lines += folder_lines()
    every = list(commands())
    for number, command in enumerate(every):
        lines.append(crossings.shell_line(command, repeats, modes=MODES, kind=kind))
        lines += [
            comparison(command),
            f'echo "{{\\"progress\\": {number + 1}, \\"total\\": {len(every)}}}"',
        ]
    lines.append("echo '{\"complete\": true}'")
    return ["/bin/sh", "-c", "\n".join(lines)]


def folder_lines() -> Iterator[str]:
    for folder, files in FOLDERS.items():
        yield f"mkdir /{folder}; for i in $(seq {files}); do : > /{folder}/file-$i; done"


def timed_script(folders: int, rounds: int) -> Iterator[str]:
    yield from trees.made(folders)
    yield from folder_lines()
    for number in range(rounds):
        for command in commands():
            yield crossings.timed_line(command, number, MODES)
        yield f'echo "{{\\"progress\\": {number + 1}, \\"total\\": {rounds}}}"'
    yield from (comparison(command) for command in commands())
    yield "echo '{\"complete\": true}'"


def comparison(command: Command) -> str:
    """A line that compares the output of a command in both modes."""
    output = command.output
    row = f'{{\\"check\\": \\"{command.call} prints the same\\", \\"lines\\": $lines}}'
    return (
        f"if [ -e {output}.supervisor ]; then "
        f"cmp {output}.trap {output}.supervisor || fail {command.call}: other output; "
        f'lines=$(wc -l < {output}.trap); echo "{row}"; fi'
    )


def check(rows: Sequence[Row]) -> None:
    """Checks that the counts of the kernel's dispatcher and those of the module agree."""
    counts = crossings.counts(rows)
    for call, mechanism in crossings.differing(counts):
        raise TraplessError(f"{call} by {mechanism} crossed {counts[call, mechanism].crossings}")
    for row in rows:
        if "stayed" not in row or row["mechanism"] != "supervisor":
            continue
        call = row["call"]
        by_trap, inside = (counts[call, mode].crossings[0] for mode in MODES)
        if not 0 <= row["stayed"] + inside - by_trap <= COUNT_SLACK:
            raise TraplessError(
                f"{call}: {by_trap} crossings by trap, but in supervisor mode {inside} and the "
                f"{row['stayed']} calls that the module counts"
            )


def of_boot(raw: Raw, label: str) -> dict[crossings.Key, crossings.Counts]:
    return crossings.counts(row for row in raw.rows if row.get("boot") == f"commands-{label}")


def shares(raw: Raw) -> dict[str, tuple[int, int]]:
    """call -> calls that stayed in supervisor mode, and those that left it."""
    return {
        row["call"]: (row["stayed"], row["left"])
        for row in raw.rows
        if row.get("mechanism") == "supervisor"
        and "stayed" in row
        and (raw.timed or row["boot"] == f"commands-{STOCK}")
    }


def clock_ratios(raw: Raw) -> dict[str, fit.Summary]:
    """call -> time in supervisor mode to time by trap, runs of the same round."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for row in raw.rows:
        if row.get("kind") == "measured" and "value" in row:
            times.setdefault((row["call"], row["mechanism"]), {})[row["repeat"]] = row["value"]
    ratios = {}
    for (call, mechanism), values in times.items():
        pairs = fit.paired_ratios(values, times.get((call, "trap"), {}))
        if mechanism == "supervisor" and pairs:
            ratios[call] = fit.summary(pairs)
    return ratios


def least(counts: Mapping[crossings.Key, crossings.Counts], call: str, mode: str) -> int:
    return min(counts[call, mode].instructions)


def work_of(raw: Raw, label: str) -> dict[str, Counts]:
    """call -> instructions in both modes, and the calls that made no transition."""
    counts, stayed = of_boot(raw, label), shares(raw)
    return {
        call: Counts(
            least(counts, call, "trap"), least(counts, call, "supervisor"), stayed[call][0]
        )
        for call, mode in counts
        if mode == "supervisor" and call in stayed
    }


def split(call: str) -> tuple[str, str]:
    """'ls-lr-busybox' is work ls-lr, program busybox."""
    work, _, program = call.rpartition("-")
    return work, program


def analyse(raw: Raw) -> Findings:
    if raw.timed:
        return analyse_timed(raw)
    metrics: dict[str, Metric] = {}
    for label, unit in ((STOCK, "instructions"), (UNZEROED, "unzeroed-instructions")):
        for (call, mode), counts in of_boot(raw, label).items():
            work, program = split(call)
            name = f"{work}.{mode}.{program}.{unit}"
            metrics[name] = repeated_counts.metric(counts.instructions, unit)
            if label == STOCK:
                metrics[f"{work}.{mode}.{program}.crossings"] = Metric(
                    counts.crossings[0], "crossings", "counted", len(counts.crossings)
                )
        suffix = unit.replace("instructions", "instruction-ratio")
        for call, done in work_of(raw, label).items():
            work, program = split(call)
            metrics[f"{work}.supervisor.{program}.{suffix}"] = Metric(
                round(done.supervisor / done.trap, 4), suffix, "counted"
            )
    for call, (stayed, left) in shares(raw).items():
        work, program = split(call)
        metrics[f"{work}.supervisor.{program}.share"] = Metric(
            round(stayed / (stayed + left), 4), "share", "counted"
        )
    for call, one in clock_ratios(raw).items():
        work, program = split(call)
        metrics[f"{work}.supervisor.{program}.ratio"] = ratio_metric(one)
    return Findings(metrics | modelled_metrics(raw), tuple(claims_of(raw)))


PAPER = "pentium-4"


def modelled(raw: Raw, call: str) -> dict[float, float]:
    """Clocks an instruction -> time in supervisor mode, trap = 1, on the paper's processor."""
    processor = processors.with_traps()[PAPER]
    work = work_of(raw, UNZEROED)[call]
    return {
        cpi: trap_clocks.estimate(processor.cases[0], cpi, work, {}).ratio.high
        for cpi in processor.cpi
    }


def modelled_metrics(raw: Raw) -> dict[str, Metric]:
    processor = processors.with_traps()[PAPER]
    metrics = {}
    for call in work_of(raw, UNZEROED):
        work, program = split(call)
        for cpi, ratio in modelled(raw, call).items():
            what = trap_clocks.parameter(processor, processor.cases[0], cpi)
            metrics[f"{work}.supervisor.{program}_{what}.clock-ratio"] = Metric(
                round(ratio, 4), "clock-ratio", "modelled"
            )
    return metrics


PUBLISHED = ("ls5", "ls408")
"""The work of which the paper gives a time."""


def published(work: str) -> float:
    """Its time in supervisor mode, trap = 1, as published."""
    return claims.limit(f"dms-{work}")


def claims_of(raw: Raw) -> Iterator[Claim]:
    done, clock = work_of(raw, UNZEROED), clock_ratios(raw)
    for work in PUBLISHED:
        call = f"{work}-busybox"
        if call not in done:
            yield claims.not_run(f"dms-{work}", NOT_OFFERED)
            continue
        ratios = modelled(raw, call)
        one, other = done[call], done[f"{work}-coreutils"]
        bound = trap_clocks.largest_cpi(
            processors.with_traps()[PAPER].cases[0], one, published(work)
        )
        timed = f"{fit.percent(clock[call])} of the emulator's time, " if call in clock else ""
        ours = (
            f"busybox: {one.supervisor / one.trap:.1%} of the instructions (unzeroed), {timed}"
            f"{min(ratios.values()):.0%} to {max(ratios.values()):.0%} of the clocks modelled for "
            f"the Pentium 4; coreutils: {other.supervisor / other.trap:.1%} of the instructions "
            "(unzeroed)"
        )
        note = (
            f"busybox is linked statically, as the paper's ls, and makes {one.calls:,.0f} calls "
            f"that save a trap, in {one.supervisor:,.0f} instructions (unzeroed) from exec to "
            "exit: starting a program is most of it. By the model the claim would hold up to "
            f"{bound:.2f} clocks an instruction. The paper does not say what it timed."
        )
        span = (min(ratios.values()), max(ratios.values()))
        yield claims.judge(f"dms-{work}", ours, {"ratio": span}, note)


def times(raw: Raw) -> dict[tuple[str, str], list[float]]:
    """Command and mode -> clocks, a round each."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in raw.rows:
        if row.get("kind") == "measured" and "value" in row:
            found.setdefault((row["call"], row["mechanism"]), []).append(row["value"])
    return found


def analyse_timed(raw: Raw) -> Findings:
    found = times(raw)
    clock, ratios = Clock.of(raw.rows), clock_ratios(raw)
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
    return Findings(metrics, tuple(claims_timed(ratios, clock)))


def claims_timed(ratios: Mapping[str, fit.Summary], clock: Clock) -> Iterator[Claim]:
    for work in PUBLISHED:
        one = ratios.get(f"{work}-busybox")
        if one is None:
            yield claims.not_run(f"dms-{work}", NOT_OFFERED)
            continue
        other = ratios[f"{work}-coreutils"]
        ours = f"{fit.percent(one)} of the time by trap (busybox); coreutils: {fit.percent(other)}"
        note = "Starting a program is most of so short a command, and no trap is saved there."
        yield clock.judge(f"dms-{work}", ours, {"ratio": one.median}, note, [one])


WORK_NAMES = {"ls5": "5 files", "ls408": "408 files", "ls-lr": "-lR, a tree"}


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    if raw.timed:
        return (timed_table(raw),)
    done = work_of(raw, STOCK)
    if not done:
        return (table(raw),)
    groups = {
        work: {
            program: done[f"{work}-{program}"].supervisor / done[f"{work}-{program}"].trap
            for program in PROGRAMS
        }
        | ({"published": published(work)} if work in PUBLISHED else {})
        for work in WORK
    }
    return (
        Figure(
            id="fig9",
            title="A whole ls in supervisor mode, trap = 1 (Fig. 9 of the paper)",
            x_label="",
            y_label="instructions / instructions by trap",
            series=bars(
                groups,
                {
                    "coreutils": "coreutils ls",
                    "busybox": "busybox ls",
                    "published": "paper, clocks",
                },
            ),
            names=tuple(WORK_NAMES.values()),
            caption="From exec to exit, user space and kernel. The paper's bars are clocks of a "
            "Pentium 4, where each trap avoided saves far more than its instructions.",
            kind="counted",
        ),
        modelled_figure(raw),
        table(raw),
    )


def modelled_figure(raw: Raw) -> Figure:
    processor = processors.with_traps()[PAPER]
    groups = {
        work: {f"{cpi:g}": ratio for cpi, ratio in modelled(raw, f"{work}-busybox").items()}
        | ({"published": published(work)} if work in PUBLISHED else {})
        for work in WORK
    }
    names = {"published": "paper: function type"} | {
        f"{cpi:g}": f"supervisor, {cpi:g} clocks an instruction" for cpi in processor.cpi
    }
    return Figure(
        id="fig9-modelled",
        title=f"Modelled for the {processor.name}: busybox ls, trap = 1",
        x_label="",
        y_label="clocks / clocks by trap",
        series=bars(groups, names),
        names=tuple(WORK_NAMES.values()),
        caption="An estimate: 800 clocks saved by each call that stays in supervisor mode, and "
        "counted instructions (zeroing of fresh memory off) times clocks an instruction.",
        kind="modelled",
    )


def table(raw: Raw) -> Table:
    stock, unzeroed = of_boot(raw, STOCK), of_boot(raw, UNZEROED)
    clock, share = clock_ratios(raw), shares(raw)
    facts: Row = next((row for row in raw.rows if "tree" in row), {})
    rows = []
    for call, mode in stock:
        if mode != "trap":
            continue
        work, program = split(call)
        inside = (call, "supervisor") in stock
        stayed, left = share.get(call, (0, 0))
        ratio = clock.get(call)
        rows.append(
            (
                f"{WORK_NAMES[work]}, {program}",
                f"{stock[call, 'trap'].crossings[0]:,}",
                f"{stayed / (stayed + left):.1%}" if stayed else "",
                f"{least(stock, call, 'trap') / 1e6:.2f} M",
                f"{least(stock, call, 'supervisor') / 1e6:.2f} M" if inside else "",
                percent(stock, call) if inside else "",
                percent(unzeroed, call) if inside else "",
                f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else "",
            )
        )
    programs = ", ".join(facts.get("programs", ()))
    return Table(
        id="ls",
        title="ls from exec to exit, in both modes",
        columns=(
            "ls",
            "calls",
            "in supervisor mode",
            "instructions, trap",
            "supervisor",
            "ratio",
            "unzeroed",
            "emulator's time",
        ),
        rows=tuple(rows),
        caption=f"{programs}; busybox is the guest's own. The tree has "
        f"{facts.get('entries', 0):,} entries. Calls: entries into the kernel's dispatcher by "
        "trap. In supervisor mode: the share of calls that returned there, as the module counts. "
        "Unzeroed: the ratio with init_on_alloc=0. Last: median and quartiles of alternating "
        "runs; each change of CR4 makes the emulator drop its translations, and so does each "
        "change between its two kinds of memory access. Output was the same, byte for byte.",
        kind="counted",
    )


def percent(counts: Mapping[crossings.Key, crossings.Counts], call: str) -> str:
    return f"{least(counts, call, 'supervisor') / least(counts, call, 'trap'):.1%}"


def timed_table(raw: Raw) -> Table:
    found = times(raw)
    clock, ratios, share = Clock.of(raw.rows), clock_ratios(raw), shares(raw)
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
    return Table(
        id="ls",
        title="ls from exec to exit, in both modes",
        columns=("ls", "trap, ms", "supervisor, ms", "ratio", "calls in it", "share"),
        rows=tuple(rows),
        caption=f"Medians of alternating rounds; {', '.join(facts.get('programs', ()))}; "
        f"busybox is the machine's own. The tree has {facts.get('entries', 0):,} entries in "
        "memory. Calls in it: those that returned in supervisor mode, as the module counts, "
        "and their share. Output was the same, byte for byte.",
        kind="measured",
    )
