# SPDX-License-Identifier: GPL-2.0-only
"""Which lines of the module and the library the tests reach: `make coverage`.

Owns the run (the lab's programs and the library's unit tests, all on builds that count), the saved
counts below build/coverage, and the report that is made from them. coverage_notes.py owns the
formats. What is not reached is listed with the reason that reasons.txt gives for it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.coverage import coverage_notes
from tests.lab.runner import suite
from tests.lab.runner.verdict import judge
from tests.make import make
from trapless.base.console import ConsoleProgress, Progress, TraplessError
from trapless.stock import kbuild, kernels
from trapless.vm import lab

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REASONS = HERE / "reasons.txt"
BUILD = ROOT / "build/coverage"
COUNTED = ROOT / "build/tests/coverage/counted"
COUNTERS_MODULE = "trapless_counters.ko"
REPORT = "report.txt"
GCOV = "gcov-12"
GCOV_FOLDER = "/gcov"
"""Where programs in the guest leave their counts; counted.c prints the files there."""

UNIT_S = 120
"""A unit test that takes longer hangs."""

TARGET = 95.0
"""Percent of the module's lines that tests should reach, of those that can be reached."""


@dataclass
class Source:
    """What was reached of one file."""

    lines: Counter[int] = field(default_factory=Counter)  # how often; 0 is an entry, too
    branches: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def missed(self) -> list[int]:
        return sorted(line for line, count in self.lines.items() if not count)


@dataclass(frozen=True)
class Reason:
    """Why a line is not reached: all lines of a file that have this text."""

    file: str
    text: str
    reason: str


# ---- Collecting ---------------------------------------------------------------------------------


def build(progress: Progress) -> Path:
    """Build the library and its tests with counters; returns the lab's program of that build."""
    progress.step("building what counts")
    for data in BUILD.rglob("*.gcda"):
        data.unlink()
    make(COUNTED)
    folder = BUILD.relative_to(ROOT)
    counted = (f"BUILD={folder}", "LIB_COVERAGE=--coverage", "STATIC=-static --coverage")
    make(*counted, "unit-programs", f"{folder}/tests/lab/labtests")
    progress.done()
    return BUILD / "tests/lab/labtests"


def run_units(progress: Progress) -> None:
    """The library's own tests, which leave their counts beside the objects."""
    progress.step("running the unit tests of the library")
    for program in sorted((BUILD / "tests/unit").iterdir()):
        if not program.is_file() or program.suffix or not os.access(program, os.X_OK):
            continue
        try:
            subprocess.run([str(program)], capture_output=True, timeout=UNIT_S, check=False)
        except subprocess.TimeoutExpired:
            progress.note(f"{program.name} hung, so its lines may be missing")
    progress.done()


def run_lab(kernel: str, names: Sequence[str], labtests: Path, progress: Progress) -> None:
    """The lab's programs; their counts go to BUILD/kmod and BUILD/guest."""
    resolved = kernels.resolve(kernel, progress)
    module = kbuild.module_for(resolved, progress, counted=True)
    reader = kbuild.module_for(resolved, progress, HERE, COUNTERS_MODULE)
    parts = len((BUILD / "lib").parts) - 1
    around = suite.Around(
        (str(COUNTED), suite.MODULE_PARAMETERS, "/labtests"),
        ((module, "/trapless.ko"), (reader, f"/{COUNTERS_MODULE}"), (labtests, "/labtests")),
        (("GCOV_PREFIX", GCOV_FOLDER), ("GCOV_PREFIX_STRIP", str(parts))),
    )
    lab_suite = suite.Suite(kernel, around, list(names))
    lab_suite.run(progress)
    if not lab_suite.errors:
        raise TraplessError(f"no VM came to its end: {lab_suite.error}")
    for name in names:
        verdict = judge(lab_suite.outcome(name))
        if verdict.kind == "fail":
            progress.note(f"{name} failed, so its lines may be missing: {verdict.text[:200]}")
    save(module, lab_suite.errors)


def save(module: Path, errors: Sequence[bytes]) -> None:
    """Leave what the VMs printed as files that gcov reads."""
    counters: Counter[int] = Counter()
    for number, said in enumerate(errors):
        folder = BUILD / f"guest{number}"
        folder.mkdir(parents=True, exist_ok=True)
        for line in said.decode(errors="replace").splitlines():
            words = line.split(" ")
            if words[0] == "counter" and len(words) == 3:
                counters[int(words[1])] += int(words[2])
            elif words[0] == "file" and len(words) == 3:
                (folder / words[1]).write_bytes(bytes.fromhex(words[2]))
        for note in (BUILD / "lib").glob("*.gcno"):
            if (folder / note.with_suffix(".gcda").name).exists():
                (folder / note.name).write_bytes(note.read_bytes())
    if not counters:
        raise TraplessError("the guest printed no counters")
    coverage_notes.write_data(module, counters, BUILD / "kmod")


# ---- Analysing ----------------------------------------------------------------------------------


def gcov(folder: Path) -> Iterator[dict[str, object]]:
    """What gcov says about each source of the notes in a folder."""
    for note in sorted(folder.glob("*.gcno")):
        command = [GCOV, "--json-format", "--stdout", "--branch-probabilities", note.name]
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=True)
        for text in done.stdout.splitlines():
            yield from json.loads(text)["files"]


def source_name(path: str, part: str) -> str | None:
    """The name of a file below kmod/ or lib/ of this checkout, wherever it was compiled.

    >>> source_name("/tmp/trapless.x/kmod/ring/../ring/queue.c", "kmod")
    'kmod/ring/queue.c'
    >>> source_name("/usr/include/stdio.h", "lib") is None
    True
    """
    match = re.search(rf"(?:^|/)({part}/.*)$", os.path.normpath(path))
    return match[1] if match and (ROOT / match[1]).exists() else None


def analyse(folders: Iterable[Path], part: str) -> dict[str, Source]:
    """All files of one part, with the counts of all folders added up."""
    sources: dict[str, Source] = {}
    for folder in folders:
        for entry in gcov(folder):
            name = source_name(str(entry["file"]), part)
            if name is None:
                continue
            source = sources.setdefault(name, Source())
            lines = entry["lines"]
            assert isinstance(lines, list)
            for line in lines:
                number = int(line["line_number"])
                source.lines[number] += int(line["count"])
                for place, branch in enumerate(line["branches"]):
                    key = (number, place)
                    source.branches[key] = source.branches.get(key, 0) + int(branch["count"])
    return dict(sorted(sources.items()))


def read_reasons(path: Path = REASONS) -> list[Reason]:
    """The reasons of a file: `FILE: REASON`, then the lines it is about, indented."""
    found: list[Reason] = []
    file, reason = "", ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in " \t":
            if not file:
                raise TraplessError(f"{path}:{number}: a line of code before any reason")
            found.append(Reason(file, line.strip(), reason))
        else:
            file, _, reason = (word.strip() for word in line.partition(": "))
            if not reason:
                raise TraplessError(f"{path}:{number}: expected FILE: REASON, not '{line}'")
    return found


def code(name: str) -> list[str]:
    return (ROOT / name).read_text().splitlines()


def excused(name: str, missed: Iterable[int], reasons: Sequence[Reason]) -> dict[int, str]:
    """The missed lines that have a reason, each with it."""
    mine = {one.text: one.reason for one in reasons if one.file == name}
    lines = code(name)
    return {line: mine[text] for line in missed if (text := lines[line - 1].strip()) in mine}


def stale(sources: Mapping[str, Source], reasons: Sequence[Reason]) -> list[Reason]:
    """Reasons for lines all of which were reached."""
    return [
        one
        for one in reasons
        if one.file in sources
        and not any(code(one.file)[n - 1].strip() == one.text for n in sources[one.file].missed)
    ]


# ---- Reporting ----------------------------------------------------------------------------------


def percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


def table(sources: Mapping[str, Source], reasons: Sequence[Reason]) -> list[str]:
    """A row for each file, and one for all."""
    words = ("lines", "reached", "excused", "%", "branches", "%")
    widths = (6, 8, 8, 6, 9, 6)
    head = f"{'file':34} " + " ".join(f"{w:>{n}}" for w, n in zip(words, widths, strict=True))
    rows, total = [head], [0, 0, 0, 0, 0]
    for name, source in sources.items():
        lines, missed = len(source.lines), len(source.missed)
        taken = sum(1 for count in source.branches.values() if count)
        numbers = [
            lines, lines - missed, len(excused(name, source.missed, reasons)),
            len(source.branches), taken,
        ]  # fmt: skip
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        rows.append(row(name, numbers))
    return [*rows, row("all", total)]


def row(name: str, numbers: Sequence[int]) -> str:
    lines, reached, excuses, branches, taken = numbers
    return (
        f"{name:34} {lines:6} {reached:8} {excuses:8} {percent(reached, lines - excuses):6.1f} "
        f"{branches:9} {percent(taken, branches):6.1f}"
    )


def unreached(sources: Mapping[str, Source], reasons: Sequence[Reason]) -> Iterator[str]:
    """Each line that was not reached, with its reason if there is one."""
    for name, source in sources.items():
        known = excused(name, source.missed, reasons)
        lines = code(name)
        for number in source.missed:
            why = known.get(number, "NO REASON GIVEN")
            yield f"{name}:{number}: {lines[number - 1].strip()}\n    {why}"


def write_report(progress: Progress) -> int:
    """The report, from the saved counts. Returns 1 where the module's share is below TARGET."""
    reasons = read_reasons()
    guests = sorted(BUILD.glob("guest*"))
    parts = {
        "kmod": analyse([BUILD / "kmod"], "kmod"),
        "lib": analyse([BUILD / "lib", *guests], "lib"),
    }
    text = [
        "Lines that the lab's programs and the library's unit tests reach, by gcov. The percentage "
        "of lines leaves excused",
        "ones out (tests/coverage/reasons.txt). Assembly and functions that are noinstr have no "
        "counters and are not in it.",
    ]
    for sources in parts.values():
        text += ["", *table(sources, reasons)]
    everything = parts["kmod"] | parts["lib"]
    text += ["", "Not reached:", *unreached(everything, reasons)]
    for one in stale(everything, reasons):
        text.append(f"The reason for '{one.text}' in {one.file} is stale: the line is reached.")
    (BUILD / REPORT).write_text("\n".join(text) + "\n")
    kmod = parts["kmod"]
    lines = sum(
        len(source.lines) - len(excused(name, source.missed, reasons))
        for name, source in kmod.items()
    )
    share = percent(lines - uncovered(kmod, reasons), lines)
    print("\n".join(text[: text.index("Not reached:")]))
    print(f"{share:.1f}% of the module's lines (target {TARGET:g}%); {BUILD / REPORT} has the rest")
    return 0 if share >= TARGET else 1


def uncovered(sources: Mapping[str, Source], reasons: Sequence[Reason]) -> int:
    """Lines that were not reached and have no reason."""
    return sum(
        len(source.missed) - len(excused(name, source.missed, reasons))
        for name, source in sources.items()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="coverage", description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", default=lab.DEFAULT_KERNEL, help="one that gcc 12 built")
    parser.add_argument("--report", action="store_true", help="from the counts of the last run")
    parser.add_argument("names", nargs="*", help="programs of the lab (default: all)")
    options = parser.parse_args(arguments)
    with ConsoleProgress() as progress:
        try:
            if not options.report:
                labtests = build(progress)
                run_units(progress)
                names = options.names or suite.programs()
                run_lab(options.kernel, names, labtests, progress)
            return write_report(progress)
        except TraplessError as error:
            print(error, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
