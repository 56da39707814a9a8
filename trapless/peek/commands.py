# SPDX-License-Identifier: GPL-2.0-only
"""Declares the subcommands of `trapless peek`. As in cli.py, each imports what does its work."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trapless.base.console import ConsoleProgress, TraplessError
from trapless.base.missing import remedy

if TYPE_CHECKING:
    from trapless.peek.kernel.target import Target
    from trapless.peek.machines import Machine
    from trapless.peek.sampling.code_names import Names

CHOICE, IMAGE = f"{__name__}.choice", f"{__name__}.image"  # of click's context, for machine()
CANNOT_STOP = {"--gdb", "--local", "--ssh"}
PATH = click.Path(path_type=Path, readable=False)  # peek itself says what helps
INTERVAL_US, OWN_INTERVAL_US = 100.0, 1000.0
"""From one sample to the next: of a VM, and of a machine that gives its own time for it."""


class Pid(click.IntRange):
    """A process ID."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Its number; a usage error says what a word that is none may have meant."""
        if isinstance(value, str) and not value.strip().lstrip("-").isdigit():
            self.fail(f"{value!r} is no process ID; --vm takes a machine's name", param, ctx)
        return super().convert(value, param, ctx)


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(value: str) -> int:
    """A number of bytes, like 4096, 512M or 2G.

    >>> size("0x1000"), size("512M"), size("2GiB")
    (4096, 536870912, 2147483648)
    """
    text = value.strip().upper().removesuffix("B").removesuffix("I")
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "")
    try:
        return int(number, 0) * UNITS[unit]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a size like 4096, 512M or 2G") from None


def target_options(
    command: Callable[..., Any],
    images: str = ", or a saved image: raw, ELF core, kdump, LiME, AVML, migration stream, packed "
    "or not",
) -> Callable[..., Any]:
    """Add the options that choose the machine, the same for every command; machine() reads them."""

    def kept(context: click.Context, option: click.Parameter, value: Any) -> None:
        context.meta.setdefault(CHOICE, {})[str(option.name)] = value

    hidden: dict[str, Any] = {"expose_value": False, "callback": kept}
    flag: dict[str, Any] = {"is_flag": True, "default": None}
    options = (
        click.option(
            "--ram",
            type=PATH,
            metavar="FILE",
            help=f"Look into a VM's RAM file{images}.",
            **hidden,
        ),
        click.option(
            "--pid",
            type=Pid(1),
            metavar="PID",
            help="Look into the VM that this process runs.  [default: the only VM]",
            **hidden,
        ),
        click.option("--vm", metavar="NAME", help="Look into the VM with this name.", **hidden),
        click.option(
            "--gdb",
            metavar="HOST:PORT",
            help="Look into the machine behind a debugger's stub, such as QEMU's -gdb "
            "tcp:HOST:PORT; each read stops it.",
            **hidden,
        ),
        click.option("--local", help="Look into this machine, as root.", **hidden, **flag),
        click.option(
            "--ssh",
            metavar="HOST",
            help="Look into the machine that `ssh HOST` reaches, as root there, like root@web; "
            "nothing is installed.",
            **hidden,
        ),
        click.option(
            "--rdma",
            metavar="HOST[:PORT]",
            help="Look by RDMA into the machine with that address, on which trapless_rdma.ko is.",
            **hidden,
        ),
        click.option("--key", type=PATH, metavar="FILE", help="With --rdma: its key.", **hidden),
        click.option(
            "--hole",
            type=size,
            metavar="SIZE",
            help="With --ram: the address at which RAM below 4 GiB ends, if peek does not find it.",
            **hidden,
        ),
        click.option(
            "--wait",
            type=click.FloatRange(0),
            metavar="SECONDS",
            help="Wait for a VM whose kernel has booted; fail if there is none after this long.",
            **hidden,
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def live_target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options to a command that reads no saved images."""
    return target_options(command, images="")


def target_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the file of a machine's memory as a plain argument, which stands for --ram."""

    def kept(context: click.Context, _: click.Parameter, value: Path | None) -> None:
        context.meta[IMAGE] = value

    hidden: dict[str, Any] = {"expose_value": False, "callback": kept}
    return click.argument("image", required=False, type=PATH, metavar="[FILE]", **hidden)(command)


def sampling_options(longest_us: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of the sampler; `longest_us` is the longest interval in µs."""

    def chosen(context: click.Context, _option: click.Parameter, value: float | None) -> float:
        own = any(context.meta.get(CHOICE, {}).get(name) for name in ("local", "ssh"))
        return value if value is not None else OWN_INTERVAL_US if own else INTERVAL_US

    interval = click.option(
        "--interval-us",
        type=click.FloatRange(1, longest_us),
        callback=chosen,
        metavar="N",
        help="Microseconds from one sample to the next.  "
        f"[default: {INTERVAL_US:g}, and {OWN_INTERVAL_US:g} with --local and --ssh]",
    )
    cpu = click.option(
        "--cpu",
        type=click.IntRange(0),
        metavar="N",
        help="Processor of this host that the sampler is pinned to.  [default: the last]",
    )
    return lambda command: interval(cpu(command))


def machine(*, samples: bool = False, stops: bool = False) -> Machine:
    """The machine that the options name, or the only one here, for a command that has it sampled,
    or stopped by the monitor of --monitor."""
    from trapless.peek import machines, waiting

    meta = click.get_current_context().meta
    options = dict(meta[CHOICE])
    if meta.get(IMAGE) is not None:
        if options["ram"] is not None:
            raise click.UsageError(f"--ram and {meta[IMAGE]} each name a file; give one of them")
        options["ram"] = meta[IMAGE]
    wait_s = options.pop("wait")
    ways = ("ram", "pid", "vm", "gdb", "local", "ssh", "rdma")
    given = [f"--{name}" for name in ways if options[name] is not None]
    given[:1] = ["FILE"] if meta.get(IMAGE) is not None else given[:1]
    for way in ("vm", "ssh", "rdma"):
        if options[way] == "":
            raise click.UsageError(f"--{way} names no machine: it is empty")
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} each name a machine; give one of them")
    if stops and {*given} & CANNOT_STOP:
        raise click.UsageError(
            f"{given[0]} and --monitor exclude each other: the monitor stops a VM of this host"
        )
    if options["key"] is not None and given != ["--rdma"]:
        raise click.UsageError("--key is for the machine of --rdma")
    if options["hole"] is not None and given not in ([], ["--ram"], ["FILE"]):
        raise click.UsageError("--hole is for the file of --ram: a process shows where its RAM is")
    if samples and not {*given} & {"--gdb", "--ssh"}:
        from trapless.peek.sampling import sampler

        sampler.program()  # says what is missing before anything is waited for
    notes: list[str] = []
    choose = partial(machines.choose, **options, note=notes.append)
    chosen = choose() if wait_s is None else waiting.wait_for(choose, wait_s)
    for note in notes[-1:]:
        click.echo(f"trapless: {note}", err=True)
    inner = chosen.machine if isinstance(chosen, waiting.Awaited) else chosen
    privileged = isinstance(inner, machines.Process | machines.Own)
    return machines.Privileged(chosen) if privileged else chosen


def pattern_for_all() -> str | None:
    """The pattern of --vm, for a command with --all; another option that names a machine is an
    error."""
    meta = click.get_current_context().meta
    options = {**meta[CHOICE], "file": meta.get(IMAGE)}
    pattern: str | None = options.pop("vm")
    given = [name for name, value in options.items() if value is not None]
    if given:
        option = "FILE" if given[0] == "file" else f"--{given[0]}"
        raise click.UsageError(f"--all and {option} exclude each other; --vm PATTERN chooses VMs")
    return pattern


@click.group()
def peek() -> None:
    """Look into a running kernel from outside.

    The kernel is read out of its machine's memory. Nothing is loaded into the kernel, it does
    not help, and its memory is never written. With --local and --ssh it shows its memory itself.

    \b
    trapless peek why                   why the only VM here hangs
    trapless peek why web.dump          the same of a dump that somebody has sent
    trapless peek top --vm web          what the kernel of a VM does
    trapless peek top --ssh root@web    the same of another machine
    trapless peek serve                 all VMs of this host, for Prometheus and browsers
    """


@peek.command()
@target_argument
@target_options
@click.option("-c", "--code", metavar="TEXT", help="Run this code instead of a session.")
def shell(code: str | None) -> None:
    """Open a drgn session on a running kernel.

    Symbols, types and stack traces are found in the kernel's memory; no debug symbols are
    needed.

    \b
    trapless lab --shared-memory /dev/shm/ram -- sleep 60 &
    trapless peek shell -c 'print([task.comm for task in for_each_task()])'
    """
    need("drgn", "the shell is one of its sessions")
    from trapless.peek.interop import shell as part

    sys.exit(part.run(machine(), code))


@peek.command()
@live_target_options
@sampling_options(longest_us=3_600_000_000)
@click.option(
    "--seconds",
    type=click.FloatRange(0.001, 10_000_000),
    metavar="N",
    help="How long to record.  [default: until Ctrl-C, or the VM's end]",
)
@click.option(
    "--stacks",
    type=click.FloatRange(0.1, 1000),
    metavar="N",
    help="Sample the stacks of all threads as well, N times a second: where threads wait.",
)
@click.option(
    "--monitor",
    type=PATH,
    metavar="SOCKET",
    help="With --stacks: stop the VM for each sample, to see what its CPUs do (as for check).",
)
@click.argument("folder", type=PATH)
def record(
    interval_us: float,
    seconds: float | None,
    cpu: int | None,
    stacks: float | None,
    monitor: Path | None,
    folder: Path,
) -> None:
    """Record what a running kernel does into FOLDER.

    Each sample has, for each CPU of the VM, the handler that it is in, the task that it runs and
    the length of its run queue; with the module's probes on in the VM also whether it is in user
    mode, and who has switched interrupts off. FOLDER gets Parquet files, each whole as soon as it
    is there, so a killed recording loses 20 seconds at most. When the VM reboots, the recording
    goes on in FOLDER/boot-2.

    With --stacks, the stacks of all threads that are not on a CPU are read from memory. The
    registers of a CPU that runs are not in memory, so what it executes takes --monitor, by which
    the VM is stopped for a fraction of a millisecond at each sample, or --gdb.

    \b
    trapless peek record --seconds 10 --stacks 20 /tmp/recording
    trapless peek report /tmp/recording
    trapless peek report --stacks /tmp/stacks.speedscope.json /tmp/recording
    """
    need("pyarrow", "recordings are Parquet")
    if monitor is not None and stacks is None:
        raise click.UsageError("--monitor is for the stacks of --stacks N")
    from trapless.peek.sampling import record as part
    from trapless.peek.stacks.stack_watch import StackWatch
    from trapless.peek.stacks.stops import opened

    chosen = machine(samples=True, stops=monitor is not None)
    emulator = chosen.emulator() if monitor is not None else None
    with opened(monitor, emulator):
        pass  # a wrong socket is said before anything is recorded

    def watch(target: Target, names: Names) -> StackWatch:
        return StackWatch(target, names, stacks or 0, monitor, emulator)

    with ConsoleProgress() as progress:
        ends = part.record(
            chosen,
            folder,
            interval_ns=round(interval_us * 1000),
            duration_ns=round((seconds or 0) * 1e9),
            cpu=cpu,
            progress=progress,
            companion=None if stacks is None else watch,
        )
    boots = f" of {ends.boots} boots" if ends.boots > 1 else ""
    ending = part.ENDINGS[ends.ending]
    click.echo(f"{ends.rows} samples{boots}, {ends.lost} lost ({ending}): {folder}")


@peek.command()
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page with the tables and with figures over time.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the same as a JSON object.")
@click.option(
    "--stacks",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the stacks for a flame graph: speedscope's format if FILE ends in .json, else "
    "folded lines.",
)
@click.argument("folder", type=PATH)
def report(folder: Path, html: Path | None, as_json: bool, stacks: Path | None) -> None:
    """Show a recording in tables.

    The tables have the shares of each CPU's time (user mode and the kernel, top halves, bottom
    halves, idle), its run queue, the processes, and how well it was sampled; with probes also who
    switched interrupts off. Without probes, user mode and the kernel may be one share. Each boot of
    a machine that was restarted has its own tables.

    Of a recording with --stacks, they also have where threads waited. --stacks FILE writes a flame
    graph for https://www.speedscope.app, or with a name like stacks.folded for flamegraph.pl and
    its like.
    """
    need("pyarrow", "recordings are Parquet")
    from trapless.peek.sampling import json_form, recording_figures, recording_tables
    from trapless.peek.sampling.recording import Recording, damage_as_errors
    from trapless.peek.stacks import flame
    from trapless.report import text_report

    for path in (html, stacks):
        if path is not None and not os.path.isdir(path.parent):
            raise TraplessError(f"{path} cannot be written: there is no folder {path.parent}")
    with damage_as_errors(folder):
        recording = Recording.open(folder)
        written = None if stacks is None else flame.write(recording, stacks)
        more = flame.tables(recording) if html is not None or not as_json else []
        shown = None if html is None else recording_figures.write(recording, html, more)
        if as_json:
            click.echo(json_form.report(recording, flame.in_json))
            return
        text_report.show_tables(shown or [*recording_tables.of_all_boots(recording), *more])
        if html is not None:
            click.echo(f"figures: {html}")
        if written is not None:
            click.echo(f"{written}: {stacks}")


@peek.command()
@target_argument
@live_target_options
@sampling_options(longest_us=1_000_000)
@click.option(
    "--updates", type=click.IntRange(1), metavar="N", help="Stop after this many seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object for each second.")
def top(interval_us: float, cpu: int | None, updates: int | None, as_json: bool) -> None:
    """Show live what a running kernel does.

    The view has, for each second, where each CPU of the VM was, its run queue, who ran most, and
    how well it was sampled; with the module's probes on in the VM also user mode, and who
    switched interrupts off. It follows the VM over reboots. Ctrl-C ends it.
    """
    need("pyarrow", "samples are added up with it")
    from trapless.peek.sampling import top as part

    with ConsoleProgress() as progress:
        part.top(
            machine(samples=True),
            interval_ns=round(interval_us * 1000),
            cpu=cpu,
            updates=updates,
            as_json=as_json,
            progress=progress,
        )


@peek.command()
@target_argument
@target_options
@click.option(
    "--seconds",
    type=click.FloatRange(0, 10_000_000),
    metavar="N",
    help="How long to trace.  [default: until Ctrl-C, or the VM's end]",
)
@click.option("--backlog", is_flag=True, help="Begin with the events that the rings already have.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "jsonl", "perfetto"]),
    help="[default: perfetto with -o, else text]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the trace goes.  [default: standard output]",
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Make the trace of a recording, with all its boots, instead of a running kernel.",
)
def trace(
    seconds: float | None,
    backlog: bool,
    format_: str | None,
    output: Path | None,
    recording: Path | None,
) -> None:
    """Trace events in a running kernel.

    The module in the VM records what happens at places that its parameter `events` names:
    scheduling, system calls, interrupts, faults, signals, or any instruction, each with the time
    and chosen values. This command reads and decodes them, and writes them for Perfetto's viewer,
    as text or as JSON lines. The last events of a VM that has died are still in its memory.

    With --recording, samples become a trace, for which no module is needed.

    \b
    echo sched_switch,vfs_read:count=dx >/sys/module/trapless/parameters/events   # in the VM
    echo 8 >/sys/module/trapless/parameters/probes                                # in the VM
    trapless peek trace --seconds 5 -o /tmp/trace.pftrace
    """
    chosen = format_ or ("perfetto" if output is not None else "text")
    if chosen == "perfetto":
        need("perfetto", "it writes the trace")
    if recording is not None:
        meta = click.get_current_context().meta
        given = any(meta[CHOICE].values()) or meta.get(IMAGE) or seconds or backlog
        _export(recording, output, chosen, given=bool(given))
        return
    if chosen == "perfetto" and output is None:
        raise click.UsageError("a Perfetto trace goes into a file: -o FILE")
    from trapless.peek.trace import trace as part

    with ConsoleProgress() as progress:
        outcome = part.trace(
            machine(), output, format_=chosen, seconds=seconds, backlog=backlog, progress=progress
        )
    click.echo(f"{outcome}{f': {output}' if output is not None else ''}", err=True)


def _export(recording: Path, output: Path | None, chosen: str, *, given: bool) -> None:
    if given or output is None or chosen != "perfetto":
        raise click.UsageError("a recording becomes a Perfetto trace: --recording FOLDER -o FILE")
    need("pyarrow", "recordings are Parquet")
    from trapless.peek.sampling.recording import damage_as_errors
    from trapless.peek.trace import samples

    with damage_as_errors(recording):
        click.echo(f"{samples.export(recording, output)}: {output}", err=True)


def need(module: str, reason: str, package: str = "") -> None:
    """TraplessError unless the module is there; `package` is pip's name where it differs."""
    if importlib.util.find_spec(module) is None:
        name = package or module
        raise TraplessError(f"{name} is not installed, and {reason}; {remedy(name)}")
