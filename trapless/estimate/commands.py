# SPDX-License-Identifier: GPL-2.0-only
"""`trapless estimate`: its options and help, and where the report goes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trapless.base.architecture import AMD64
from trapless.base.console import ConsoleProgress, TraplessError

PLACEMENTS, PLACEMENTS_MAX = 16, 64
"""Processes, each with a place of its own in memory: one in 16 reads a quarter more."""
SECONDS = 3.5
"""How long one process measures."""


@click.command(short_help="Say what a trap costs here, and what batches would save.")
@click.option(
    "--placements",
    type=click.IntRange(PLACEMENTS, PLACEMENTS_MAX),
    metavar="N",
    default=PLACEMENTS,
    show_default=True,
    help="Processes to measure in, each placed differently in memory; more take longer.",
)
@click.option(
    "--cpu",
    type=click.IntRange(0),
    metavar="N",
    help="Measure on this CPU.  [default: the last one that we may use]",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Make files to read below this folder, and remove them.  [default: the temporary one]",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Also write all figures with their intervals; -: standard output, and no table.",
)
def estimate(placements: int, cpu: int | None, folder: Path | None, json_file: Path | None) -> None:
    """Measure on this machine what a trap costs, and say what batches of system calls would save.

    It takes a minute, no root and no module, and any Linux on x86-64. It measures plain calls and
    traps of the running kernel, and the module's own loop over a batch, built into a program and
    protected as the running kernel protects itself (retpolines, return thunks). The sum is an
    estimate for this processor. It is no measurement of the module: only the module has that.

    Each value is the median over processes that lie differently in memory, with a 95% interval.
    Where the two halves of the run differ by more than 5%, there is no report: let the machine be
    idle and try again. `trapless stat` shows what the crossings of a program cost by this trap.

    \b
    trapless estimate
    trapless estimate --json here.json
    """
    import json
    import tempfile

    from trapless.base.files import replace_file
    from trapless.estimate import estimate_text, estimated_machine, sums
    from trapless.estimate import placements as part
    from trapless.results import estimate_file

    if (machine := os.uname().machine) != AMD64.machine:
        raise TraplessError(
            f"estimate times the module's loop as it is compiled for x86-64, not {machine}; "
            "`trapless evaluate batch-size --arch arm64` counts what a batch costs there"
        )
    chosen = _cpu(cpu)
    before = estimated_machine.describe(chosen)
    with ConsoleProgress() as progress:
        readings = part.run(
            placements,
            SECONDS,
            before.loop,
            chosen,
            folder if folder is not None else Path(tempfile.gettempdir()),
            progress,
        )
    made = sums.make(readings, before.loop)
    data = estimate_text.as_json(made, before)
    estimate_file.save(data)
    figures = json.dumps(data, indent=1) + "\n"
    if str(json_file) == "-":
        sys.stdout.write(figures)
        return
    click.echo("\n".join(estimate_text.lines(made, before)))
    if json_file is not None:
        replace_file(json_file, figures)


def _cpu(wanted: int | None) -> int:
    allowed = sorted(os.sched_getaffinity(0))
    if wanted is None:
        return allowed[-1]
    if wanted not in allowed:
        listed = ", ".join(map(str, allowed))
        raise click.BadParameter(
            f"CPU {wanted} is none that we may use: {listed}", param_hint="--cpu"
        )
    return wanted
