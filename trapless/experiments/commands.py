# SPDX-License-Identifier: GPL-2.0-only
"""`trapless evaluate` and `trapless report`: their options, help, and exit statuses."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trapless.base.architecture import AMD64, ARCHITECTURES
from trapless.base.console import ConsoleProgress

if TYPE_CHECKING:
    from trapless.report.document import Report

OUT = Path("results")
LIST_INDENT, LIST_WIDTH = 32, 100
"""Columns of `--list`: where the questions begin, and where they end."""


@click.command(short_help="Run experiments; write results and one report.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Fewer repeats and sizes.")
@click.option(
    "--kernel",
    metavar="NAME",
    help="A supported kernel by name (`trapless doctor` lists them), or the path of one; "
    "default: the oldest.",
)
@click.option(
    "--arch",
    "arch_name",
    type=click.Choice(list(ARCHITECTURES)),
    help="The processor of the VMs; arm64 has batch-size alone.  [default: amd64]",
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where DIR/NAME/result.json, raw data and the report go.  [default: results; with --here "
    "results/MACHINE]",
)
@click.option("--here", is_flag=True, help="On this machine's own kernel, without a VM: see above.")
@click.option("--yes", is_flag=True, help="With --here: go on without a question.")
@click.option(
    "--module",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --here: trapless.ko for the running kernel.  [default: it is built]",
)
@click.option("--least", is_flag=True, help="With --here: fewer still, for tests in an emulator.")
@click.option("--no-supervisor", is_flag=True, help="With --here: never offer supervisor mode.")
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Spread VMs over the workers of this scheduler of Dask, as tcp://HOST:8786.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    metavar="N",
    help="N experiments at once, and from 2 on one more, since what measures time waits until it "
    "is alone.  [default: CPUs, at most 2]",
)
@click.option("--no-report", is_flag=True, help="Save the results, and write no report.")
@click.option(
    "--list",
    "list_only",
    is_flag=True,
    help="List the experiments: minutes on two idle cores, what each asks, and the claims that it "
    "tests.",
)
def evaluate(
    names: tuple[str, ...],
    quick: bool,
    kernel: str | None,
    arch_name: str | None,
    out: Path | None,
    here: bool,
    yes: bool,
    module: Path | None,
    least: bool,
    no_supervisor: bool,
    scheduler: str | None,
    jobs: int | None,
    no_report: bool,
    list_only: bool,
) -> None:
    """Run experiments in the lab; write results and one report.

    Without NAME it runs all of them; with --quick those that take minutes. The exit status is 0 if
    every run completed and every self-check passed, also where a claim does not hold.

    An experiment of many VMs uses all cores of this machine. With --scheduler it uses those of all
    machines on which, in a checkout of the same state, workers were started by

    \b
    PYTHONPATH=. .venv/bin/dask worker tcp://HOST:8786 --nworkers CORES --nthreads 1

    With --here there is no VM: as root it loads the module into this machine's own kernel, times
    the experiments that need no emulator with the processor's clock and counters, and unloads it.
    It first says what it will do, and asks. Only do that on a machine that you set aside for it.

    \b
    sudo bin/trapless evaluate --here --quick
    bin/trapless report results/MACHINE --pack FILE.tar.xz
    """
    if list_only:
        _list(here)
        return
    of_vms = {"kernel": kernel, "arch": arch_name, "scheduler": scheduler, "jobs": jobs}
    of_here = {"module": module, "no-supervisor": no_supervisor, "yes": yes, "least": least}
    _refuse(of_vms if here else of_here, here)
    with ConsoleProgress() as progress:
        if here:
            from trapless.experiments.here import own_run as own

            wishes = own.Wishes(
                names, quick or least, out, module, not no_supervisor, yes, not no_report, least
            )
            outcome, folder = own.run(wishes, progress)
        else:
            from trapless.experiments import evaluate as part

            folder = OUT if out is None else out
            outcome = part.run(
                names,
                quick=quick,
                out=folder,
                kernel=kernel,
                arch=ARCHITECTURES[arch_name or AMD64.name],
                progress=progress,
                scheduler=scheduler,
                jobs=jobs or min(len(os.sched_getaffinity(0)), 2),
                reported=not no_report,
            )
    if outcome.report is not None:
        _show(outcome.report, folder)
    sys.exit(outcome.status)


@click.command(short_help="Make the report again from saved files.")
@click.argument("directory", type=click.Path(path_type=Path), metavar="[DIR]", required=False)
@click.option(
    "--readme",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also rewrite the generated part of this README, what documents beside it cite, and "
    "DIR/README.md, a page of these results.",
)
@click.option(
    "--compare",
    "others",
    type=click.Path(path_type=Path),
    metavar="DIR",
    multiple=True,
    help="Also write DIR/kernels.md: what differs in these results, of another kernel; with "
    "--readme also their page. Kernels of another processor are compared among themselves.",
)
@click.option(
    "--pack",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the results in DIR to one archive, FILE.tar.xz or FILE.tar.zst, and no report.",
)
@click.option(
    "--verify",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Check such an archive: its raw data give the same results again, and nothing is missing.",
)
def report(
    directory: Path | None,
    readme: Path | None,
    others: tuple[Path, ...],
    pack: Path | None,
    verify: Path | None,
) -> None:
    """Write report.html and report.txt again from the files saved in DIR.

    It prints what both begin with: what a user gains, what peek saw, and the claims of the papers.
    The rows of which the figures of an experiment are made are in DIR/NAME/raw.jsonl, and how they
    become a figure is in eval/NAME/README.md.
    It measures nothing and starts no VM.

    \b
    trapless report results
    trapless report results/MACHINE --pack machine.tar.xz
    trapless report --verify machine.tar.xz
    """
    if verify is not None:
        if directory or pack or readme or others:
            raise click.UsageError("--verify FILE goes alone: it takes no DIR and writes nothing")
        from trapless.experiments import verify as checks

        with ConsoleProgress() as progress:
            verified = checks.verify(verify, progress)
        click.echo(verified.text())
        return
    if directory is None:
        raise click.UsageError("Missing argument 'DIR': the folder of the results.")
    if pack is not None:
        if readme or others:
            raise click.UsageError("--pack makes no report: leave out --readme and --compare")
        from trapless.experiments import archive

        with ConsoleProgress() as progress:
            count = archive.pack(directory, pack, progress)
        size = pack.stat().st_size
        click.echo(
            f"{pack}: {count} results, {size:,} bytes; check: trapless report --verify {pack}"
        )
        return
    from trapless.experiments import report_files as part
    from trapless.report import citations, kernel_comparison, saved_page
    from trapless.report import readme as readme_part

    with ConsoleProgress() as progress:
        content = part.write(directory, progress)
        reports = [content, *(part.read(other, progress) for other in others)]
        compared = kernel_comparison.write(reports) if others else []
        if readme is not None:
            for one in reports:
                saved_page.write(one, readme.parent)
            readme_part.rewrite(readme, content, reports[1:])
            citations.rewrite(readme.parent, reports)
    _show(content, directory)
    for line in compared:
        click.echo(line)


def _show(content: Report, directory: Path) -> None:
    """The first screen of a report, and where all of it is."""
    from trapless.report import text_report

    text_report.show(content)
    page = f"{directory / 'report.html'}; as text: " if (directory / "report.html").exists() else ""
    click.echo(f"\nThe report: {page}{directory / 'report.txt'}")


def _list(here: bool) -> None:
    from trapless.experiments import experiment
    from trapless.results.claims import published

    indent = " " * LIST_INDENT
    click.echo(f"{'EXPERIMENT':<16}{'QUICK':>7}{'FULL':>7}  ASKS")
    for name in experiment.names():
        spec = experiment.get_here(name) if here else experiment.get(name)
        if spec is not None:
            quick, full = (f"{max(1, round(minutes))} min" for minutes in spec.minutes)
            begin = f"{name:<16}{quick:>7}{full:>7}  "
            ids = [one.id for one in published().values() if one.experiment == name]
            about = spec.question + (f" Claims: {', '.join(ids)}." if ids else "")
            click.echo(
                textwrap.fill(
                    begin + about, LIST_WIDTH, subsequent_indent=indent, break_on_hyphens=False
                )
            )


def _refuse(given: Mapping[str, object], here: bool) -> None:
    """Refuse options of the other kind of run."""
    own = "is about this machine's own kernel: add --here"
    why = "is about VMs, and --here runs in none" if here else own
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name} {why}")
