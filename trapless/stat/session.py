# SPDX-License-Identifier: GPL-2.0-only
"""One `trapless stat --lab`: makes a job of the options, and a report of the runs.

This file owns which runs are made, their input and output, and the checks that need no VM.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trapless.base import built_programs, elf
from trapless.base.console import Progress, TraplessError
from trapless.base.streams import write_bytes
from trapless.model import processors
from trapless.stat import guest
from trapless.stat.guest import Job
from trapless.stat.run_counts import RunCounts
from trapless.stat.run_report import Report
from trapless.vm import guest_tree, qemu
from trapless.vm.lab import LabConfig


def run(command: Sequence[str], options: Mapping[str, Any], progress: Progress) -> Report:
    """Count `command` in the lab, once, or with `compare` in both modes, by turns."""
    names = tuple(dict.fromkeys(options["processors"]))
    for name in names:
        processors.load(name)
    program = guest_tree.find_program(command[0])
    if program is None:
        raise TraplessError(
            f"there is no program '{command[0]}' on this machine"
            f"{built_programs.remedy(command[0])}",
            status=127,
        )
    _check_parts()
    compare = options["compare"] is not None
    if options["calls"]:
        names = ()  # caches take most of the time, and show nothing about single calls
    job = Job(
        tuple(command),
        prepare="\n".join([bring(program), options["prepare"] or ""]).strip(),
        prepare_limit_s=options["prepare_limit"] or 0,
        load=options["load"] or "",
        ready=options["ready"] or "",
        ready_limit_s=options["ready_limit"],
        warm=options["warm"],
        calls=options["calls"],
    )
    given = {name: options[name] for name in ("kernel", "memory", "append") if options[name]}
    config = LabConfig(**given, host_root=True, quick_start=True, timeout_s=options["timeout"])
    if not compare:
        return Report(guest.run(config, job, names, progress, stream=True))
    return _compared(config, job, names, options["repeat"], progress)


OF_ALL = (
    "/etc/ld.so.cache",
    "/usr/lib/locale/locale-archive",
    "/usr/lib/locale/C.utf8/*",
    "/usr/lib/locale/C.utf8/*/*",
    "/usr/share/locale/locale.alias",
    "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
)
"""Files that the C library opens in most programs, as patterns of the shell."""


def bring(program: Path) -> str:
    """A line of the guest's shell that copies a program, its libraries and the files of every
    program into the guest's memory. When the guest opens a file of this machine, the time of the
    answer differs from run to run."""
    files = [program]
    with program.open("rb") as file:
        if file.read(len(elf.ELF_MAGIC)) == elf.ELF_MAGIC:
            files += elf.dependencies(program)
    # The files that the shell itself runs from stay where they are.
    names = f"{shlex.join(map(str, files))} {' '.join(OF_ALL)}"
    return f'for file in {names}; do [ -f "$file" ] && true >>"$file"; done 2>/dev/null; true'


def _check_parts() -> None:
    """TraplessError that names all parts that are missing here, not only the first."""
    lacks = []
    for part in (qemu.binary, guest.program):
        try:
            part()
        except TraplessError as error:
            lacks.append(str(error))
    if lacks:
        raise TraplessError("\n  ".join(lacks))


def _compared(
    config: LabConfig, job: Job, names: tuple[str, ...], pairs: int, progress: Progress
) -> Report:
    """Count all runs. Their input is empty, so that they do the same; the first one's output is
    shown."""
    first = guest.run(config, job, names, progress, sink=write_bytes)
    if first.refusals:
        return Report(first)
    # With --warm 0 a run may depend on the runs before it: each turn then has a boot of its own.
    boots = [guest.by_turns(pairs)] if job.warm else [*guest.by_turns(1)] * pairs
    real: RunCounts | None = None
    for turns in boots:
        again = replace(job, turns=turns, calibrate=False)
        counts = guest.run(config, again, (), progress, sink=_forget)
        if counts.status != first.status:
            raise TraplessError(
                f"the command ended with status {counts.status} when it ran again, and not with "
                f"{first.status}: there is nothing to compare"
            )
        real = counts if real is None else real.joined(counts)
    return Report(first, real)


def _forget(_piece: bytes) -> None:
    """Take output that the first run has shown already."""
