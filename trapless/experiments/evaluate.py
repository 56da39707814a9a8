# SPDX-License-Identifier: GPL-2.0-only
"""The `evaluate` command: builds the workloads, then collects, analyses and reports.

It owns the order, and that one experiment's failure does not take the others with it. Each step
stands by itself and works on saved files: experiments.py and report.py have them.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base.console import Progress, TraplessError
from trapless.base.paths import repo_root
from trapless.experiments import experiment, report
from trapless.report.document import Report
from trapless.results import result_file
from trapless.stock import kernels

BUILD_JOBS = 2


@dataclass(frozen=True)
class Outcome:
    """What came of it: which experiments failed, and the report on all that is saved."""

    failed: tuple[str, ...]
    report: Report | None

    @property
    def status(self) -> int:
        """Exit status: claims are data, failed runs and self-checks are not."""
        return 1 if self.failed else 0


def run(
    wanted: Sequence[str],
    *,
    quick: bool,
    out: Path,
    kernel: str,
    progress: Progress,
    scheduler: str | None = None,
) -> Outcome:
    """Run the named experiments, or all; a failure is noted and the next one begins.

    What cannot work for any of them is found out before earlier results are touched. `scheduler`:
    whose workers run the VMs of those that have many.
    """
    specs = [experiment.get(name) for name in (wanted or experiment.names())]
    if scheduler is not None and not any(spec.spread for spec in specs):
        many = ", ".join(name for name in experiment.names() if experiment.get(name).spread)
        raise TraplessError(
            f"none of these experiments can be spread over machines; with --scheduler run {many}",
            status=2,
        )
    make_writable(out)
    kernels.resolve(kernel, progress)
    build_programs(progress)
    failed = []
    for spec in specs:
        directory = out / spec.name
        try:
            experiment.collect(
                spec,
                directory,
                quick=quick,
                kernel=kernel,
                progress=progress,
                scheduler=scheduler if spec.spread else None,
            )
            result_file.save(experiment.analyse(spec.name, directory), directory)
        except TraplessError as error:
            progress.note(f"{spec.name} failed: {error}")
            failed.append(spec.name)
        except OSError as error:  # a full disk, a folder that somebody took away
            progress.note(f"{spec.name} failed: {error.filename or directory}: {error.strerror}")
            failed.append(spec.name)
    if len(failed) == len(specs):
        return Outcome(tuple(failed), None)
    return Outcome(tuple(failed), report.write(out, progress))


def make_writable(out: Path) -> None:
    """Make the folder of the results, and be sure that we may write there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise TraplessError(
            f"{out}: results cannot be written there: {error.strerror}; name a folder by --out"
        ) from error


def build_programs(progress: Progress) -> None:
    """Bring the workloads up to date; an installation has them built already."""
    if not (repo_root() / "Makefile").exists():
        return
    if shutil.which("make") is None:
        raise TraplessError("make is missing; run scripts/setup")
    progress.step("building the workloads")
    command = ["make", "-C", str(repo_root()), "-s", f"-j{BUILD_JOBS}", "workloads"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    progress.done()
    if done.returncode:
        raise TraplessError(f"building the workloads failed:\n{done.stderr.strip()}")
