# SPDX-License-Identifier: GPL-2.0-only
"""`trapless stat`: its options and help, and where the report goes.

session.py (in the lab) and host.py (on this machine) do the work; they are imported when they are
called.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from trapless.base.console import ConsoleProgress
from trapless.base.files import replace_file
from trapless.stat.labels import TURNS_MAX

PROCESSOR = "core-i7-9700k"
TIMEOUT_S, READY_LIMIT_S = 3600, 60
REPEAT, REPEAT_MAX = 3, TURNS_MAX // 2
"""Runs in each mode that are compared."""


@click.command(
    short_help="Say what crossings cost a program, and what would save it.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--lab", "in_lab", is_flag=True, help="In a VM with the model, on any machine.")
@click.option(
    "--software",
    is_flag=True,
    help="On this machine: only what the kernel counts; takes no counters of the processor's.",
)
@click.option(
    "--calls",
    is_flag=True,
    help="With --lab: a table of the system calls, and what would be taken away from each. It is "
    "a tracer: libtrapless makes plain calls meanwhile.",
)
@click.option(
    "-e",
    "filters",
    multiple=True,
    metavar="FILTER",
    help="With --calls: show these calls, as strace has it: trace=read,write, %file or '!futex'.",
)
@click.option("--kernel", metavar="NAME|PATH", help="With --lab: as in trapless lab.")
@click.option(
    "--processor",
    "processors",
    multiple=True,
    metavar="NAME",
    default=(PROCESSOR,),
    help=f"With --lab: whose caches are modelled; may be given again.  [default: {PROCESSOR}]",
)
@click.option(
    "--load",
    metavar="TEXT",
    help="With --lab: COMMAND is a server; count it while this shell command runs.",
)
@click.option(
    "--ready",
    metavar="TEXT",
    help="With --load: a shell command that succeeds when the server can take the load.",
)
@click.option(
    "--ready-limit",
    type=click.IntRange(1),
    metavar="SECONDS",
    default=READY_LIMIT_S,
    show_default=True,
    help="With --ready: give up after so long, in the VM's own time.",
)
@click.option(
    "--warm",
    type=click.IntRange(0, 100),
    metavar="N",
    default=1,
    show_default=True,
    help="With --lab: run COMMAND, or the load, N times before, uncounted: its files are in memory "
    "then. 0 for a COMMAND that does not do the same twice.",
)
@click.option(
    "--prepare", metavar="TEXT", help="With --lab: a shell command to run in the VM before all."
)
@click.option(
    "--prepare-limit",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="With --prepare: give up after so long, in the VM's own time.  [default: no limit]",
)
@click.option(
    "--compare",
    type=click.Choice(["supervisor"]),
    help="With --lab: run it again in both modes, by turns, and compare what supervisor mode saves "
    "with the prediction.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, REPEAT_MAX),
    metavar="N",
    default=REPEAT,
    show_default=True,
    help="With --compare: how often in each mode.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Also write all figures, and the counts they are made of; -: standard output.",
)
@click.option("--memory", metavar="SIZE", help="With --lab: as in trapless lab.")
@click.option("--append", metavar="TEXT", help="With --lab: words for the kernel's command line.")
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    metavar="SECONDS",
    default=TIMEOUT_S,
    help="With --lab: end the VM, with an error, when COMMAND has run this long.  "
    f"[default: {TIMEOUT_S}]",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def stat(
    in_lab: bool,
    software: bool,
    command: tuple[str, ...],
    json_file: Path | None,
    **lab_options: object,
) -> None:
    """Count COMMAND with all that it starts: its crossings between user mode and the kernel, what
    they cost it directly and by the caches, and how much each mechanism would take away.

    A batch of libtrapless counts as one system call; tl_batch_get_stats() says how many it made.

    Standard output is COMMAND's; the report goes to standard error. In the lab COMMAND runs on
    this machine's files, read-only; daemons that it leaves are ended. On this machine itself it
    takes a processor with performance counters, or --software.

    Exit status: COMMAND's, or the load's; 125 if nothing was counted, 126 if COMMAND cannot be
    executed, 127 if there is none.

    \b
    trapless stat --lab -- ls -R /usr/include
    trapless stat --lab --calls -e '!futex' -- git status
    trapless stat --lab --compare supervisor \\
        --prepare 'cp -rs /usr/include /tmp' -- find /tmp/include
    trapless stat --lab --load 'redis-benchmark -q -n 1000' --ready 'redis-cli ping' \\
        -- redis-server
    """
    if not in_lab:
        context = click.get_current_context()
        typed = click.core.ParameterSource.COMMANDLINE
        misplaced = sorted(
            name for name in lab_options if context.get_parameter_source(name) is typed
        )
        if misplaced:
            name = {"processors": "--processor", "filters": "-e"}.get(
                misplaced[0], f"--{misplaced[0].replace('_', '-')}"
            )
            raise click.UsageError(f"{name} is about a VM: add --lab")
        sys.exit(_here(command, json_file, software))
    if software:
        raise click.UsageError("--software is about this machine: leave out --lab")
    if bool(lab_options["load"]) != bool(lab_options["ready"]):
        raise click.UsageError("--load and --ready go together")
    _check_details(lab_options)
    _check_calls(lab_options)
    sys.exit(_in_lab(command, json_file, lab_options))


DETAILS = {"ready_limit": "ready", "prepare_limit": "prepare", "repeat": "compare"}
"""Options that say more about another one."""


def _check_details(options: Mapping[str, object]) -> None:
    context = click.get_current_context()
    for detail, name in DETAILS.items():
        typed = context.get_parameter_source(detail) is click.core.ParameterSource.COMMANDLINE
        if typed and not options[name]:
            raise click.UsageError(f"--{detail.replace('_', '-')} is about --{name}: add that")


def _check_calls(options: Mapping[str, object]) -> None:
    context = click.get_current_context()
    if not options["calls"]:
        if options["filters"]:
            raise click.UsageError("-e chooses among calls: add --calls")
        return
    if options["compare"]:
        raise click.UsageError("--calls and --compare: one at a time")
    if context.get_parameter_source("processors") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--calls models no caches: leave out --processor")


def _here(command: tuple[str, ...], json_file: Path | None, software: bool) -> int:
    from trapless.stat import host, stat_text

    counts = host.run(command, software=software)
    lines = ["", *stat_text.counters(command, counts.events)]
    if why := host.why_no_calls(counts):
        remark = f"system calls: not counted, because {why}; strace -fc counts them"
        lines += stat_text.sentence(remark)
    click.echo("\n".join(lines), err=True)
    _write(json_file, {"status": counts.status, "events": dict(counts.events)})
    return counts.status


def _in_lab(command: tuple[str, ...], json_file: Path | None, options: dict[str, object]) -> int:
    from trapless.stat import by_call, session, stat_text

    names = by_call.all_names()
    chosen = by_call.choose(_texts(options["filters"]), names)
    with ConsoleProgress() as progress:
        report = session.run(command, options, progress)
    if options["calls"]:
        hidden = frozenset(names) - chosen
        lines = stat_text.call_lines(report, command, hidden)
    else:
        lines = stat_text.lines(report, command)
    click.echo("\n".join(["", *lines]), err=True)
    _write(json_file, report.as_json())
    return report.counts.status


def _texts(values: object) -> tuple[str, ...]:
    return values if isinstance(values, tuple) else ()


def _write(path: Path | None, data: object) -> None:
    """Write all figures. This comes after the report, which must not be lost to a full disk."""
    if path is None:
        return
    text = json.dumps(data, indent=1) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        replace_file(path, text)
