# SPDX-License-Identifier: GPL-2.0-only
"""Runs real programs under `trapless stat`: a prediction in one boot, both modes by turns in
another.

This file owns what is run and kept; program_subjects.py owns the programs, and trapless/stat counts
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from eval.memory_hierarchy import program_subjects, savings, spec
from eval.tools.loads import loads
from trapless.experiments import stat_runs
from trapless.experiments.collection import Collection, guest_folder
from trapless.experiments.experiment import Findings, Raw
from trapless.experiments.stat_runs import Run
from trapless.report.figures import Figure, Map, Table
from trapless.stat import guest
from trapless.stat.guest import Job
from trapless.stock import program_archive, real_programs
from trapless.stock.real_programs import Programs
from trapless.vm.lab import LabConfig

ARCHIVE = "/programs.tar"
ASK = "/bin/ask"
MEMORY = "1G"
TIMEOUT_S = 2 * 3600.0
WARM = 1
"""Runs in each mode, by turns, that say what is saved."""
PUT_OFF = "rcutree.use_softirq=0"
"""A thread of the kernel does the work that it puts off (freeing closed files and sockets), so that
this does not fall into whichever program is interrupted next."""

ENTER = f"""\
cd /; tar -x -f {ARCHIVE}; rm {ARCHIVE}; ip link set lo up
mkdir -p {program_subjects.SITE}; mv /{program_subjects.SERVED} {program_subjects.SITE}
"""


def pack(root: Path, subject: program_subjects.Subject, folder: Path) -> Path:
    """The program with its libraries and the files that it works on."""
    folders = (
        str(path.relative_to(root))
        for tree in subject.trees
        for path in (root / tree, *sorted((root / tree).rglob("*")))
        if path.is_dir()
    )
    return program_archive.pack(root, folder / f"{subject.name}.tar", subject.programs, folders)


def runs(
    kernel: str,
    root: Programs,
    folder: Path,
    chosen: Sequence[program_subjects.Subject],
    pairs: int = spec.PROGRAM_PAIRS.full,
) -> Iterator[Run]:
    """Run each program in two boots; the guests' files are written into `folder`.

    The first boot's run is in user mode, and all predictions are made from it. In the second it
    runs in both modes by turns, for its instructions alone: nothing but the mode differs there.
    """
    served = folder / program_subjects.SERVED
    served.write_bytes(loads.served_file())
    for subject in chosen:
        files = (
            (pack(root.root, subject, folder), ARCHIVE),
            (served, f"/{program_subjects.SERVED}"),
            (loads.program("ask"), ASK),
        )
        config = LabConfig(
            kernel=kernel, memory=MEMORY, files=files, append=PUT_OFF, timeout_s=TIMEOUT_S
        )
        job = Job(
            subject.argv,
            prepare=f"set -e; {ENTER}{subject.prepare}",
            load=subject.load,
            ready=subject.ready,
            warm=WARM,
        )
        by_turns = replace(job, calibrate=False, turns=guest.by_turns(pairs))
        yield Run(f"{subject.name}-user", config, job, tuple(savings.PROCESSORS), subject.after)
        yield Run(f"{subject.name}-turns", config, by_turns, (), subject.after)


def collect(run: Collection) -> None:
    root = real_programs.unpacked(run.progress)
    chosen = program_subjects.subjects(
        program_subjects.QUICK if run.quick else program_subjects.FULL
    )
    pairs = run.chosen(spec.PROGRAM_PAIRS)
    with guest_folder(run.directory) as folder:
        stat_runs.collect(run, tuple(runs(run.kernel, root, folder, chosen, pairs)))
    run.write(
        [
            {"subject": one.name, "what": one.what, "version": root.versions[one.package]}
            for one in chosen
        ]
    )


def analyse(raw: Raw) -> Findings:
    return Findings(savings.metrics_of(savings.programs_of(raw.rows)))


def figures(raw: Raw) -> tuple[Figure | Map | Table, ...]:
    counted = savings.programs_of(raw.rows)
    return (
        savings.predictions(counted),
        savings.compared(counted),
        savings.pollution(counted),
        savings.visits(counted),
        savings.terms(counted),
    )
