# SPDX-License-Identifier: GPL-2.0-only
"""Runs a program in the lab, where the model counts it.

This file owns the guest's configuration and the command line of trapless-stat-guest (stat/guest/),
which runs the program there. run_counts.py owns what the rows mean.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trapless.base import built_programs
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import repo_root
from trapless.model import plugin_choice
from trapless.stat import run_counts
from trapless.stat.labels import NOT_COUNTED
from trapless.stat.run_counts import RunCounts
from trapless.stock import kbuild, kernels
from trapless.vm import lab, qemu
from trapless.vm.lab import LabConfig

PROGRAM = "/trapless/stat/guest"
MODULE = "/trapless/stat/trapless_stat.ko"
SOURCES, MODULE_NAME = "stat", "trapless_stat.ko"
BUILT = "stat/trapless-stat-guest"
READY_LIMIT_S = 60
"""Seconds of the guest's own time."""


@dataclass(frozen=True)
class Job:
    """What is counted: a command from its exec to its end, or a server while `load` runs.

    `prepare`, `load` and `ready` are commands of the guest's shell, and limits are in the guest's
    own time, 0: none; `warm` says how often the
    command, or the load, runs before, uncounted. Without `calibrate` nothing can be predicted from
    the run. With `calls` they are told apart (RunCounts.calls_made). With `turns` the command runs
    once for each letter, u in user mode and s in supervisor mode. Each run is counted by itself
    (RunCounts.repeats): the runs differ in their mode alone.
    """

    argv: tuple[str, ...]
    prepare: str = ""
    prepare_limit_s: int = 0
    load: str = ""
    ready: str = ""
    ready_limit_s: int = READY_LIMIT_S
    warm: int = 0
    turns: str = ""
    calibrate: bool = True
    calls: bool = False


def by_turns(pairs: int) -> str:
    """Turns for so many runs in each mode. The mode that comes first changes, so that a drift
    favours neither; the last run is in supervisor mode.

    >>> by_turns(1), by_turns(4)
    ('us', 'suussuus')
    """
    return "".join("us" if left % 2 else "su" for left in range(pairs, 0, -1))


def argv(job: Job) -> list[str]:
    """The command that the lab runs.

    >>> argv(Job(("ls", "-R"), warm=1))[1:]
    ['--module', '/trapless/stat/trapless_stat.ko', '--warm', '1', '--', 'ls', '-R']
    """
    if bool(job.load) != bool(job.ready):
        raise TraplessError("a load and a way to know when the program is ready go together")
    words = [PROGRAM, "--module", MODULE]
    for option in ("prepare", "load", "ready", "turns"):
        if getattr(job, option):
            words += [f"--{option}", getattr(job, option)]
    if job.prepare and job.prepare_limit_s:
        words += ["--prepare-limit", str(job.prepare_limit_s)]
    if job.load:
        words += ["--ready-limit", str(job.ready_limit_s)]
    if job.warm:
        words += ["--warm", str(job.warm)]
    if not job.calibrate:
        words.append("--uncalibrated")
    if job.calls:
        words.append("--calls")
    return [*words, "--", *job.argv]


def program() -> Path:
    """The guest's program; a TraplessError says how it is built."""
    return built_programs.find(BUILT)


def config(base: LabConfig, progress: Progress) -> LabConfig:
    """`base` for a guest that counts, without the model's plugin."""
    kernel = kernels.resolve(base.kernel, progress)
    module = kbuild.module_for(kernel, progress, repo_root() / SOURCES, MODULE_NAME)
    return replace(
        base,
        cpus=1,
        icount=True,
        module_parameters=f"supervisor=1 {base.module_parameters}".strip(),
        append=f"{plugin_choice.KERNEL_WORDS} {base.append}".strip(),
        files=(*base.files, (program(), PROGRAM), (module, MODULE)),
    )


def run(
    base: LabConfig,
    job: Job,
    processors: Sequence[str],
    progress: Progress,
    *,
    stream: bool = False,
    sink: Callable[[bytes], None] | None = None,
) -> RunCounts:
    """Count one run. With `stream` the command has this process's input, output and error; else
    `sink` takes its output.

    A TraplessError says why a run was not counted. It is no error if the command's status is not 0;
    by NOT_COUNTED the guest's program says that it failed, by 126 and 127 that the command cannot
    be run.
    """
    with tempfile.TemporaryDirectory(prefix="trapless-stat-") as name:
        plan, rows = Path(name, "config"), Path(name, "rows")
        run_counts.plan_of(tuple(processors)).write(plan, qemu.parse_size(base.memory))
        prepared = replace(config(base, progress), plugins=(plugin_choice.argument(plan, rows),))
        result = lab.run(prepared, argv(job), stream=stream, sink=sink, progress=progress)
        try:
            counts = run_counts.read(rows, result.release, tuple(processors), told_apart=job.calls)
            return replace(counts, warm=job.warm, served=bool(job.load))
        except TraplessError as error:
            output = result.stderr.decode(errors="replace").strip()
            reason = output.removeprefix("trapless stat: ") or (
                str(error) if result.status < NOT_COUNTED else "nothing was counted"
            )
            raise TraplessError(reason, status=result.status or 1) from error
