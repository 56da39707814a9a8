# SPDX-License-Identifier: GPL-2.0-only
"""Declares `trapless peek why`, `ps`, `stacks`, `dmesg` and `export`, with options and help.

As in ../commands.py, each command imports the part that does the work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trapless.peek.commands import machine, pattern_for_all, target_argument, target_options
from trapless.peek.errors import PeekError

if TYPE_CHECKING:
    from trapless.peek.diagnosis.opener import Found, Opener
    from trapless.peek.diagnosis.two_looks import Diagnosis
    from trapless.peek.emulator import Emulator
    from trapless.peek.machines import Machine
    from trapless.peek.sandbox.client import SandboxedTarget

HANGS = 3
"""The exit status where something hangs."""
UNREAD = 4
"""The exit status of a look into all VMs in which nothing hangs, where some cannot be read."""
FOLLOW_S = 0.5


def _monitor(purpose: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--monitor",
        type=click.Path(path_type=Path, readable=False),
        metavar="SOCKET",
        help=f"Stop the VM by its monitor for a moment, to see {purpose} (as for check).",
    )


def _new_file(option: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        f"--{option}",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=f"Write {what} into a new file.",
    )


_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


@contextmanager
def _opened(
    *, follow: bool = False, monitor: Path | None = None
) -> Iterator[tuple[SandboxedTarget, Emulator | None, bool]]:
    """The machine that was chosen, its emulator, and whether it runs; an error where an option of a
    machine that runs is given for a dump."""
    from trapless.peek.kernel.memories.kcore import OwnMemory
    from trapless.peek.kernel.memories.remote_memory import RemoteMemory
    from trapless.peek.sandbox.client import SandboxedTarget

    chosen = machine(stops=monitor is not None)
    emulator = chosen.emulator()
    with _naming_its_end(chosen, emulator), chosen.open() as target:
        assert isinstance(target, SandboxedTarget)
        if (follow or monitor is not None) and getattr(target.memory, "is_saved", False):
            option = "--follow" if follow else "--monitor"
            raise click.UsageError(
                f"{option} is for a machine that runs, and {chosen} is a dump; leave it out"
            )
        lives = emulator is not None or isinstance(target.memory, RemoteMemory | OwnMemory)
        if follow and not lives:
            raise click.UsageError(
                "--follow is for a machine that runs, and none that this user may see has "
                f"{chosen} as its memory; leave it out, or look as root"
            )
        yield target, emulator, lives


@contextmanager
def _naming_its_end(chosen: Machine, emulator: Emulator | None) -> Iterator[None]:
    """A block whose errors are the end of the machine, where that ends meanwhile."""
    try:
        yield
    except PeekError as error:
        if emulator is None or not emulator.has_ended():
            raise
        raise PeekError(f"{chosen} has ended while it was looked at") from error


def _name_of(target: SandboxedTarget, emulator: Emulator | None) -> str:
    """How people call a machine: by its name and process, or else by where its memory is."""
    from trapless.peek.guest_text import visible
    from trapless.peek.machines import machine_of

    if emulator is None:
        return str(visible(target.memory.name))
    process = f"process {emulator.pid}"
    found = machine_of(Path(f"/proc/{emulator.pid}"))
    return f"{visible(found.name)} ({process})" if found is not None and found.name else process


@click.command()
@target_argument
@target_options
@click.option(
    "--longer-than",
    "longer_s",
    type=click.FloatRange(0.5, 86_400),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Leave out what has hung for less time.",
)
@_monitor("what its CPUs execute")
@click.option(
    "--all",
    "every_vm",
    is_flag=True,
    help="Look into all VMs of this host, one after the other; with --vm PATTERN into those with "
    "such names, as in 'web-*'.",
)
@_json
def why(longer_s: float, monitor: Path | None, every_vm: bool, as_json: bool) -> None:
    """Say why a machine hangs.

    Prints what hangs, the likeliest cause first, each with its evidence: a panic, an oops,
    deadlocks, locks with the thread that holds them, CPUs that take no interrupts or run one thread
    only, RCU readers, disks, network cards and servers that do not answer, frozen file systems,
    queues of work, memory that has run out, a machine that is stopped or has not booted. It looks
    twice at a machine that runs.

    The exit status is 0 if nothing hangs, 3 if something does, and 1 or 2 if that cannot be said.
    With --all it is 3 if something hangs in any VM, else 4 if one of them cannot be read, as while
    it boots or if it is another user's, or if none has a name as in --vm PATTERN. JSON is then one
    object a line for each VM.

    \b
    trapless peek why
    trapless peek why --all
    trapless peek why --vm web --monitor /run/web.monitor
    trapless peek why /var/crash/web.core
    """
    from trapless.peek.diagnosis import text, two_looks
    from trapless.peek.stacks.stops import opened

    if every_vm:
        if monitor is not None:
            raise click.UsageError("--all and --monitor exclude each other: a monitor is of one VM")
        sys.exit(_why_all(pattern_for_all(), longer_s, as_json=as_json))
    lacks: list[str] = []
    with (
        _opened(monitor=monitor) as (target, emulator, lives),
        opened(monitor, emulator, target.memory, lacks.append) as stops,
    ):
        found = two_looks.diagnose(target, emulator, longer_s, stops, lives=lives)
        name = _name_of(target, emulator)
    found = replace(found, machine=name, notes=(*lacks, *found.notes))
    if as_json:
        click.echo(json.dumps(text.diagnosis_in_json(found)))
    else:
        click.echo("\n".join(text.diagnosis(found, longer_s)))
    sys.exit(HANGS if found.hangs else 0)


def _why_all(pattern: str | None, longer_s: float, *, as_json: bool) -> int:
    """Write a section or a line of JSON for each VM; return the exit status."""
    from trapless.base.console import TraplessError
    from trapless.peek import rights
    from trapless.peek.diagnosis import text
    from trapless.peek.diagnosis.opener import Opener
    from trapless.peek.emulator import Emulator
    from trapless.peek.guest_text import visible

    hangs = unread = False
    with Opener() as opener:
        rights.drop()
        patterns = () if pattern is None else (pattern,)
        found = [one for one in opener.running(of_all_users=True) if one.fits(patterns)]
        if not found:
            wanted = "" if pattern is None else f" with a name like {visible(pattern)}"
            click.echo(f"trapless: no virtual machine{wanted} runs on this host", err=True)
            unread = pattern is not None
        labels: list[str] = []  # as those of `peek serve`
        for one in found:
            labels.append(one.free_title(labels))
            title = f"{one.name} (process {one.pid})" if one.name else f"process {one.pid}"
            try:
                seen = replace(_diagnosis_of(opener, one, longer_s), machine=title)
            except (TraplessError, OSError) as error:
                ended = Emulator(one.pid, ()).has_ended()
                unread = unread or not ended
                lines = ["it has ended" if ended else f"cannot be read: {error}"]
                lack = lines[0] if ended else str(error)
                answer: dict[str, Any] = {"machine": title, "error": lack}
            else:
                hangs = hangs or seen.hangs
                lines, answer = list(text.diagnosis(seen, longer_s)), text.diagnosis_in_json(seen)
            answer["vm"] = labels[-1]
            click.echo(json.dumps(answer) if as_json else "\n".join((f"{title}:", *lines, "")))
    return HANGS if hangs else UNREAD if unread else 0


def _diagnosis_of(opener: Opener, one: Found, longer_s: float) -> Diagnosis:
    """What hangs in a VM, read in the first way in which it shows a kernel."""
    from trapless.peek.diagnosis import two_looks
    from trapless.peek.sandbox.client import SandboxedTarget

    emulator, first = opener.emulator(one), PeekError("nothing in it is large enough to be RAM")
    ways = opener.ways(one)
    for number, layouts in enumerate(ways):
        try:
            target = SandboxedTarget.of(layouts)
        except PeekError as error:
            first = error if number == 0 else first
            continue
        with target:
            assert isinstance(target, SandboxedTarget)
            return two_looks.diagnose(target, emulator, longer_s)
    raise first


@click.command()
@target_argument
@target_options
@click.option("--threads", "every_thread", is_flag=True, help="List every thread of a process.")
@_json
def ps(every_thread: bool, as_json: bool) -> None:
    """List the processes of a machine: programs, then the kernel's own threads.

    STATE is R (it runs or wants to), S (it sleeps), D (it is blocked), I (an idle kernel thread), T
    (it is stopped) or Z (it has ended). FOR is the time since it ran last. Its CPU follows, the
    function of the kernel that it waits in, its name and its command line.

    \b
    trapless peek ps --vm web
    """
    from trapless.peek.diagnosis import text

    with _opened() as (target, _, _):
        found = target.processes(every_thread=every_thread)
    if as_json:
        click.echo(json.dumps(text.processes_in_json(found)))
    else:
        click.echo("\n".join(text.processes(found)))


@click.command()
@target_argument
@target_options
@_monitor("the stacks of its CPUs")
@_json
def stacks(monitor: Path | None, as_json: bool) -> None:
    """Show the stacks of all threads, equal ones together.

    The stacks of CPUs come first. They need the CPUs' registers, which a dump has in its notes.
    For a machine that runs, --monitor or --gdb gets them.

    \b
    trapless peek stacks --vm web --monitor /run/web.monitor
    """
    from trapless.peek.diagnosis import text, two_looks
    from trapless.peek.stacks.stops import lack_of_registers, opened

    def silent(lack: str) -> None:
        click.echo(f"trapless: {lack}", err=True)

    with (
        _opened(monitor=monitor) as (target, emulator, lives),
        opened(monitor, emulator, target.memory, silent) as stops,
    ):
        with two_looks.registers_of(target, stops) as registers:
            cpus = target.cpu_stacks(registers) if registers else []
        running = {one.pid for one in cpus}
        threads = [one for one in target.thread_stacks() if one.pid not in running]
        found = text.stacks(threads, cpus, target.name_of)
    if as_json:
        click.echo(json.dumps(found))
    else:
        lack = lack_of_registers(lives=lives, has_emulator=emulator is not None)
        click.echo("\n".join(text.stacks_for_people(found, lack)).rstrip())


@click.command()
@target_argument
@target_options
@_new_file("core", "an ELF core in the layout of /proc/vmcore")
@_new_file("isf", "a symbol table for volatility3")
@_new_file("symbols", "code, symbols and types for gdb, as an ELF file,")
def export(core: Path | None, isf: Path | None, symbols: Path | None) -> None:
    """Write files for other tools from the memory of a machine. None may be there yet.

    The core has what QEMU's dumps lack: the kernel's VMCOREINFO note and virtual addresses. So
    makedumpfile, drgn and crash take it; some of them need the kernel's debug symbols, too. It has
    the CPUs' registers if its source is an image that has them. A machine that runs changes its
    memory meanwhile: stop it first, for example by `virsh suspend`.

    The symbol table serves all memories of the same kernel, and is packed if its name ends in .xz.
    Put it into a folder called linux, and give volatility3 the folder around that. The file for gdb
    has the addresses of this run. Neither needs debug symbols.

    \b
    trapless peek export --core /var/tmp/web.core --vm web
    trapless peek export --core web.vmcore web.migration && makedumpfile -d 31 web.vmcore small
    mkdir -p tables/linux && trapless peek export --isf tables/linux/web.json.xz web.core
    vol -s tables -f web.core linux.pslist
    trapless peek export --symbols web.elf --core web.vmcore web.core && gdb web.elf web.vmcore
    """
    from trapless.peek.interop import core_writer, elf_symbols, symbol_table

    if core is isf is symbols is None:
        raise PeekError("name at least one file: --core, --isf or --symbols FILE", status=2)
    with _opened() as (target, _, _):
        if core is not None:
            size = core_writer.write(target, core)
            click.echo(f"{size >> 20} MiB of memory: {core}", err=True)
        if isf is not None:
            click.echo(f"{symbol_table.write(target, isf):,} symbols: {isf}", err=True)
        if symbols is not None:
            click.echo(f"{elf_symbols.write(target, symbols):,} symbols: {symbols}", err=True)


@click.command()
@target_argument
@target_options
@click.option(
    "--follow", "-f", is_flag=True, help="Continue with what the kernel logs from now on."
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object for each record.")
def dmesg(follow: bool, as_json: bool) -> None:
    """Show the log of a machine's kernel, also after a panic.

    Of a log with more than 8 MiB of text or 131,072 lines, the newest part is shown.

    \b
    trapless peek dmesg --vm web | tail
    trapless peek dmesg --follow
    """
    from trapless.peek.diagnosis import text

    with _opened(follow=follow) as (target, emulator, _), suppress(KeyboardInterrupt):
        last = -1
        while True:
            log = target.log(last)
            records = log.records
            if log.left_out:
                click.echo(text.left_out(log), err=True)
            last = max((one.sequence for one in records), default=last)
            lines = (
                (json.dumps(text.log_in_json(one)) for one in records)
                if as_json
                else text.log(records)
            )
            for line in lines:
                click.echo(line)
            if not follow:
                return
            if emulator is not None and emulator.has_ended():
                click.echo("trapless: the machine has ended", err=True)
                return
            time.sleep(FOLLOW_S)
            target.check_same()
