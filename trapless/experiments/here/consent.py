# SPDX-License-Identifier: GPL-2.0-only
"""What `evaluate --here` says before it begins, and the question whether to go on. It owns the
words; nothing is changed here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from trapless.base.console import TraplessError
from trapless.experiments.experiment import Spec
from trapless.supervisor import refusals

SWITCHING = ("mode-switch", "ls", "servers")
"""Experiments that load the module with supervisor=1."""
STOCK = "brd, ext4 and null_blk"


def text(
    specs: Sequence[Spec],
    absent: Mapping[str, str],
    *,
    module: Path,
    supervisor: bool,
    out: Path,
    quick: bool,
) -> str:
    """All of it, in lines for a terminal."""
    minutes = max(1, round(sum(spec.minutes[0 if quick else 1] for spec in specs)))
    names = ", ".join(spec.name for spec in specs)
    lines = [
        f"This measures on this machine's own kernel (Linux {os.uname().release}), without a VM:",
        *_wrapped(f"{names}: about {minutes} min on a real processor."),
        *(f"  left out: {name}: {why}" for name, why in absent.items()),
        "It loads into this kernel, as root, and unloads at the end, also after Ctrl-C:",
        f"  {module}, once for each experiment;",
        f"  {STOCK}, where the kernel has them as modules and they are not loaded,",
        "  and modules of two experiments, hierarchy and array.",
        "  A fault of the module can crash the machine. Save what you have open, and run no other",
        "  work here meanwhile: it would be in the figures, too.",
    ]
    if supervisor and any(spec.name in SWITCHING for spec in specs):
        titles = sorted({row.title for row in refusals.table().values() if row.of_machine})
        lines += [
            f"Supervisor mode ({', '.join(s.name for s in specs if s.name in SWITCHING)}; "
            "--no-supervisor leaves it out):",
            "  programs of the experiments then run with the kernel's privileges, and nothing",
            "  protects the machine from them; where one runs, SMEP and SMAP are off. The module",
            "  refuses it, and only batches are measured, for each of these that the machine has:",
            *_wrapped(", ".join(titles)),
        ]
    else:
        lines.append("Supervisor mode is not switched on.")
    lines += [
        f"It writes results into {out}, and files of its own into memory (tmpfs); nothing else.",
    ]
    return "\n".join(lines)


def _wrapped(words: str) -> list[str]:
    import textwrap

    return textwrap.wrap(words, 96, initial_indent="  ", subsequent_indent="  ")


def ask(words: str, *, agreed: bool) -> None:
    """Show the words and go on only where the user agrees, by --yes or at a terminal."""
    click.echo(words, err=True)
    if agreed:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise TraplessError(
            "nobody can be asked (standard input is no terminal); --yes goes on without a question",
            status=2,
        )
    if not click.confirm("Go on?", default=False, err=True):
        raise TraplessError("nothing was loaded, nothing was written")
