# SPDX-License-Identifier: GPL-2.0-only
"""Declares `trapless peek check`. As in ../commands.py, it imports the part that does the work."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from trapless.base.console import ConsoleProgress
from trapless.peek.commands import CHOICE, PATH, live_target_options, machine, need


@click.command()
@live_target_options
@click.option(
    "--monitor",
    type=PATH,
    metavar="SOCKET",
    help="The VM's monitor: of `trapless lab --monitor`, or QEMU's -qmp "
    "unix:SOCKET,server=on,wait=off.",
)
@click.option(
    "--stops",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="How often the VM is stopped.",
)
@click.option(
    "--witness",
    metavar="HOST",
    help="With --rdma: the same machine for ssh, as root there, like root@web.",
)
@click.option(
    "--reads",
    type=click.IntRange(1, 10_000_000),
    default=20_000,
    show_default=True,
    metavar="N",
    help="With --rdma: how many reads of each size are timed.",
)
@click.option(
    "-o", "--output", type=PATH, metavar="FILE", help="With --rdma: write all findings here."
)
def check(
    monitor: Path | None, stops: int, witness: str | None, reads: int, output: Path | None
) -> None:
    """Check what is read from memory against another witness.

    With --monitor, stops the VM at random moments, for milliseconds, and compares what the other
    commands would say with the emulator's registers and the stack unwound from them: user mode,
    handlers, idle, interrupts, the current task. The exit status is 0 if no share is wrong by more
    than a point outside of entry and exit code, 1 if one is, and 3 if there are too few samples to
    say so with a confidence of 95%.

    With --rdma and --witness, compares what RDMA reads of a machine with what its own kernel reads
    of its memory, which ssh brings here: code, addresses, clock, log, threads and stacks. Then it
    times reads, and counts the interrupts of the target meanwhile. The exit status is 0 if nothing
    differs, and 1 if something does. Please send us the file of -o.

    \b
    trapless lab --shared-memory /dev/shm/ram --monitor /tmp/monitor -- sleep 60 &
    trapless peek check --monitor /tmp/monitor
    trapless peek check --rdma 192.0.2.1 --key rdma.key --witness root@web -o rdma-check.json
    """
    rdma = click.get_current_context().meta[CHOICE]["rdma"] is not None
    if rdma and (witness is None or output is None or monitor is not None):
        raise click.UsageError("the machine of --rdma is checked by --witness HOST and -o FILE")
    if not rdma and (monitor is None or witness is not None or output is not None):
        raise click.UsageError(
            "a VM is checked by --monitor SOCKET, and a machine by --rdma HOST --witness HOST"
        )
    if witness is not None and output is not None:
        _far_memory(witness, reads, output)
    if monitor is not None:
        _registers(monitor, stops)


def _registers(monitor: Path, stops: int) -> None:
    need("drgn", "stacks are unwound by it")
    from trapless.peek.check import witness
    from trapless.report import text_report

    with ConsoleProgress() as progress:
        progress.step("stopping the VM at random moments")
        findings = witness.check(
            machine(stops=True),
            monitor,
            stops,
            advance=progress.advance,
        )
    text_report.show_tables(witness.tables(findings))
    click.echo(findings.verdict_text())
    sys.exit(findings.verdict())


def _far_memory(witness: str, reads: int, output: Path) -> None:
    from trapless.peek.check import far_memory

    if output.exists():
        raise click.UsageError(f"{output} is there already; name a new file")
    with ConsoleProgress() as progress:
        progress.step("comparing the memory by both ways")
        findings = far_memory.check(machine(), witness, reads)
    far_memory.write(findings, output)
    click.echo("\n".join((*far_memory.lines(findings), f"all findings are in {output}")))
    sys.exit(1 if findings["different"] else 0)
