# SPDX-License-Identifier: GPL-2.0-only
"""The commands `trapless switch` and `trapless ps`: options and help.

control.py and ps.py do the work, and are imported when a command is called.
"""

from __future__ import annotations

import sys

import click

from trapless import abi
from trapless.abi import Mode


@click.command(short_help="Switch running processes to supervisor mode, or back.")
@click.option("--supervisor", "mode", flag_value="supervisor", help="Switch to supervisor mode.")
@click.option("--user", "mode", flag_value="user", help="Switch back to user mode.")
@click.option("--children", is_flag=True, help="Processes that it forks start in supervisor mode.")
@click.option("--exec", "over_exec", is_flag=True, help="Stay in supervisor mode over execve().")
@click.option("--resident", is_flag=True, help="Lock its memory, as mlockall(2) does.")
@click.option("--any-user", is_flag=True, help="Though its user is not root: read the manual.")
@click.option("--allow-hlt", is_flag=True, help="Though hlt ends it: read the manual.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait so long until all threads have changed, but for those that sleep in a call.",
)
@click.argument("pids", nargs=-1, required=True, type=click.IntRange(1), metavar="PID...")
def switch(
    mode: str | None,
    children: bool,
    over_exec: bool,
    resident: bool,
    any_user: bool,
    allow_hlt: bool,
    wait_s: float | None,
    pids: tuple[int, ...],
) -> None:
    """Switch running processes to supervisor mode, or back to user mode.

    Each thread of PID changes at the end of a system call of its own, at most one call late; one
    that sleeps in a call changes when that call returns. The programs need not be stopped, rebuilt
    or prepared. It needs root, and the module loaded with supervisor=1. The exit status is 1 if a
    process was not switched; the others are switched. With --wait it is 1, too, if a thread ran all
    the time and finished no call; threads that sleep are named, and are no failure.

    \b
    trapless switch --supervisor --wait 5 $(pidof redis-server) && trapless ps
    trapless switch --user $(pidof redis-server)
    """
    from trapless.supervisor import control as part

    flags = switch_flags(children, over_exec, resident, any_user, allow_hlt)
    if mode is None:
        raise click.UsageError("say which: --supervisor or --user")
    if mode == "user" and flags:
        options = "--children, --exec, --resident, --any-user, --allow-hlt"
        raise click.UsageError(f"only with --supervisor: {options}")
    for line in part.switch_each(pids, Mode[mode.upper()], flags, wait_s=wait_s):
        click.echo(line, err=True)


@click.command(short_help="List switched processes and the way their calls went.")
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
def ps(as_json: bool) -> None:
    """List the processes that were switched: mode, threads, calls by path, demotions by cause.

    \b
    CALLS   since the process was first switched, by path:
      direct   made by the module, returned in supervisor mode at once
      worked   the same after exit work of the kernel (signals, scheduling)
      left     made by the module, returned in user mode
      kernel   handed to the kernel's own entry (fork, exec, traced, ...)
    SHARE   direct and worked, of all
    DEMOTED by what a thread left supervisor mode until the end of its next call
    """
    from trapless.supervisor import ps as part

    sys.exit(part.run(as_json=as_json))


def switch_flags(*chosen: bool) -> int:
    """Options of a switch, in the order of their bits, as the interface has them."""
    bits = (abi.SWITCH_CHILDREN, abi.SWITCH_EXEC, abi.SWITCH_RESIDENT, abi.SWITCH_ANY_USER)
    return sum(bit for bit, on in zip((*bits, abi.SWITCH_ALLOW_HLT), chosen, strict=True) if on)
