# SPDX-License-Identifier: GPL-2.0-only
"""The `evaluate` command: builds the workloads, then collects, analyses and reports.

This file owns the order of the steps, and lets the other experiments run when one fails. The steps
work on saved files; experiment.py and report_files.py have them.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base import built_programs
from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress, TraplessError
from trapless.base.missing import OF_PAGES, remedy
from trapless.base.paths import cache_dir
from trapless.experiments import experiment, report_files, side_by_side
from trapless.experiments.collection import LeftOutError, Place
from trapless.experiments.experiment import Spec
from trapless.report.document import Report
from trapless.results import result_file
from trapless.stock import kernels, real_programs

CORES = 2
"""The number of cores for which specs give their minutes."""
FETCHED = "a kernel (85 MB) and programs to run (130 MB) from Debian's mirrors"
ATTEMPTS = 2
"""A busy machine rarely causes a second failure: that one has another reason."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run: which experiments failed, and the report on all that is saved, if it
    was wanted."""

    failed: tuple[str, ...]
    report: Report | None

    @property
    def status(self) -> int:
        """The exit status. Failed runs and self-checks count; claims are data and do not."""
        return 1 if self.failed else 0


def run(
    wanted: Sequence[str],
    *,
    quick: bool,
    out: Path,
    kernel: str | None,
    progress: Progress,
    scheduler: str | None = None,
    jobs: int = 1,
    reported: bool = True,
    arch: Architecture = AMD64,
) -> Outcome:
    """Run the named experiments, or those of default_names(). One that fails is tried once more,
    and goes on after the boots that it has saved. If it fails again, the report says why, and the
    next one begins.

    What would stop every experiment is checked before earlier results are removed. `scheduler` is
    the address of the scheduler whose workers run the VMs of experiments that have many. Up to
    `jobs` experiments run at a time, each in a process of its own; see side_by_side.py. Without
    `reported` it announces nothing and writes no report.
    """
    kernel = kernels.default(arch) if kernel is None else kernel
    names = wanted or default_names(quick=quick, arch=arch)
    specs = [experiment.get(name) for name in names]
    if scheduler is not None and not any(spec.spread for spec in specs):
        many = ", ".join(name for name in experiment.names() if experiment.get(name).spread)
        raise TraplessError(
            f"none of these experiments can be spread over machines; with --scheduler run {many}",
            status=2,
        )
    foreign = _foreign_programs(specs, arch)
    page = reported and can_draw(progress)
    if reported:
        progress.note(announcement(specs, quick, kernel))
    make_writable(out)
    kernels.resolve(kernel, progress, arch)
    if foreign and arch.is_foreign:
        libraries = real_programs.foreign_libraries(arch, progress)
        built_programs.cross_build(arch, foreign, libraries, progress)
    else:
        built_programs.build(progress)
    choices = _Choices(quick, kernel, out, progress, scheduler, arch=arch)
    failed = (
        _beside(specs, jobs, choices)
        if jobs > 1 and len(specs) > 1
        else _one_by_one(specs, choices)
    )
    written = report_files.write(out, progress, page=page) if reported else None
    return Outcome(tuple(failed), written)


def _foreign_programs(specs: Sequence[Spec], arch: Architecture) -> list[str]:
    """What these experiments run on another processor; one that does not run there is an error."""
    if arch == AMD64:
        return []
    programs = {spec.name: [path for part in spec.parts for path in part.foreign] for spec in specs}
    if left_out := ", ".join(name for name, paths in programs.items() if not paths):
        known = ", ".join(default_names(quick=False, arch=arch))
        raise TraplessError(f"on {arch.name} there is {known}; left out: {left_out}", status=2)
    return [path for paths in programs.values() for path in paths]


def can_draw(progress: Progress) -> bool:
    """Whether the report can be a page with figures; a note says what Python lacks for that."""
    absent = [name for name in OF_PAGES if importlib.util.find_spec(name) is None]
    if absent:
        progress.note(
            f"the report is text alone: Python lacks {', '.join(absent)} ({remedy(*absent)}); "
            "`trapless report DIR` makes the page later"
        )
    return not absent


def run_at(
    place: Place,
    specs: Sequence[Spec],
    *,
    quick: bool,
    out: Path,
    progress: Progress,
    page: bool = True,
    reported: bool = True,
) -> Outcome:
    """Run experiments one after another on a machine's own kernel; see here/run.py. Without `page`
    the report is text alone."""
    failed = _one_by_one(specs, _Choices(quick, os.uname().release, out, progress, None, place))
    written = report_files.write(out, progress, page=page) if reported else None
    return Outcome(tuple(failed), written)


@dataclass(frozen=True)
class _Choices:
    """The settings of a run, which hold for each of its experiments."""

    quick: bool
    kernel: str
    out: Path
    progress: Progress
    scheduler: str | None
    place: Place | None = None
    arch: Architecture = AMD64

    def words(self, spec: Spec) -> list[str]:
        """The words after `trapless` that run one experiment."""
        quick = ["--quick"] if self.quick else []
        if self.place:
            least = ["--least"] if self.place.least else []
            return ["evaluate", "--here", spec.name, *quick, *least, "--out", str(self.out)]
        arch = ["--arch", self.arch.name] if self.arch != AMD64 else []
        of_vms = ["--kernel", self.kernel, *arch]
        return ["evaluate", spec.name, *quick, *of_vms, "--out", str(self.out)]


def _one_by_one(specs: Sequence[Spec], choices: _Choices) -> list[str]:
    """Run them here; the names of those that failed."""
    failed = []
    out, progress = choices.out, choices.progress
    for spec in specs:
        directory = out / spec.name

        def attempt(spec: Spec = spec, directory: Path = directory) -> None:
            experiment.collect(
                spec,
                directory,
                quick=choices.quick,
                kernel=choices.kernel,
                progress=progress,
                scheduler=choices.scheduler if spec.spread else None,
                place=choices.place,
                arch=choices.arch,
            )
            with side_by_side.turn(out, alone=False):
                result_file.save(experiment.analyse(spec.name, directory), directory)

        command = shlex.join(["trapless", *choices.words(spec)])
        try:
            reason = _why_it_fails(attempt, spec.name, directory, progress)
        except KeyboardInterrupt:
            experiment.note_failure(directory, "", command)
            raise
        if reason:
            progress.note(f"{spec.name} failed again: {reason}\nto go on with it: {command}")
            experiment.note_failure(directory, reason, command)
            failed.append(spec.name)
    return failed


def _beside(specs: Sequence[Spec], jobs: int, choices: _Choices) -> list[str]:
    """Run them side by side, the longest first: nothing is left to run beside the last one. The
    names of those that failed; their processes save the reasons."""
    commands = []
    for spec in specs:
        spread = ["--scheduler", choices.scheduler] if choices.scheduler and spec.spread else []
        own = ["--jobs", "1", "--no-report", *spread]
        minutes = spec.minutes[0 if choices.quick else 1]
        words = [*choices.words(spec), *own]
        commands.append(side_by_side.Command(spec.name, words, minutes))
    commands.sort(key=lambda command: -command.minutes)
    title = f"{len(specs)} experiments, {jobs} at a time"
    failed = side_by_side.run(title, commands, jobs, choices.out, choices.progress)
    for spec in specs:
        directory = choices.out / spec.name
        if spec.name in failed and experiment.load_failure(directory) is None:
            failure = failed[spec.name]
            reason = f"its process ended with status {failure.status}: {failure.words}"
            command = shlex.join(["trapless", *choices.words(spec)])
            experiment.note_failure(directory, reason, command)
    return [spec.name for spec in specs if spec.name in failed]


def default_names(*, quick: bool, arch: Architecture = AMD64) -> tuple[str, ...]:
    """The experiments that run where none is named."""
    specs = [experiment.get(name) for name in experiment.names()]
    if arch != AMD64:
        specs = [spec for spec in specs if any(part.foreign for part in spec.parts)]
    return tuple(spec.name for spec in specs if not (quick and spec.quick_by_name))


def announcement(specs: Sequence[Spec], quick: bool, kernel: str) -> str:
    """One line: which experiments run, how long that takes, and what may be fetched for them."""
    minutes = max(1, round(sum(spec.minutes[0 if quick else 1] for spec in specs)))
    many = "one experiment" if len(specs) == 1 else f"{len(specs)} experiments"
    return (
        f"{many}{' (quick)' if quick else ''} in VMs of kernel {kernel}: about {minutes} min on "
        f"{CORES} idle cores (here {os.cpu_count()}); fetches {FETCHED} if {cache_dir()} lacks them"
    )


def _why_it_fails(
    attempt: Callable[[], None], name: str, directory: Path, progress: Progress
) -> str:
    """Try twice. The reason of the second failure; empty where one attempt succeeded."""
    reason = ""
    for number in range(ATTEMPTS):
        if number:
            progress.note(f"{name} failed: {reason}\ntrying it once more")
        try:
            attempt()
            return ""
        except LeftOutError as error:
            progress.note(f"{name} is left out: {error}")
            shutil.rmtree(directory, ignore_errors=True)
            return ""
        except TraplessError as error:
            reason = str(error)
        except OSError as error:  # a full disk, a folder that somebody took away
            reason = f"{error.filename or directory}: {error.strerror}"
        progress.done()
    return reason


def make_writable(out: Path) -> None:
    """Make the folder of the results, and check that this user may write there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise TraplessError(
            f"{out}: results cannot be written there: {error.strerror}; name a folder by --out"
        ) from error
