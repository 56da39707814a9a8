# SPDX-License-Identifier: GPL-2.0-only
"""The interface of the `trapless` command: its subcommands, options, help and exit statuses.

A command imports the module that does its work when it is called, so that `trapless --help` is
quick and a command needs only the packages that it uses. A TraplessError becomes one message.
Ctrl-C ends with status 130 after all clean-up has run.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from trapless import __version__, abi
from trapless.abi import Mode
from trapless.base import interrupts, statuses
from trapless.base.architecture import AMD64, ARCHITECTURES
from trapless.base.console import ConsoleProgress, TraplessError, printable
from trapless.base.interrupts import Terminated
from trapless.base.streams import ReaderLeftError, standard_streams
from trapless.estimate.commands import estimate
from trapless.experiments.commands import evaluate, report
from trapless.image.commands import image
from trapless.peek.check.commands import check
from trapless.peek.commands import peek
from trapless.peek.diagnosis import commands as diagnosis
from trapless.peek.serve.serve_command import serve
from trapless.stat.commands import stat
from trapless.supervisor.commands import ps, switch, switch_flags

# Messages about a value that is none say so: "'x' is not a valid whole number".
click.IntRange.name, click.FloatRange.name = "whole number", "number"

EXAMPLES = """\b
Examples:
  trapless doctor                          what can run here, and why not
  trapless lab -- uname -r                 a command on a stock kernel, in a VM
  trapless lab --host-root -- python3 x.py any program; its changes are gone with the VM
  trapless run --lab --mode supervisor ls  a program without the trap, in a VM
  trapless stat --lab -- ls -R /usr/share  what crossings cost a program
  trapless peek why                        why a VM hangs, seen from outside
  trapless estimate                        what a trap costs here, and batches would save
  trapless evaluate --quick                experiments, in minutes, then one report
  trapless report results                  the report again, from saved files

\b
Exit status: 0 done; 1 failed (the message says what to do); 2 wrong usage;
130 interrupted. `trapless lab`, `run` and `stat` exit with the status of their command.
"""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXAMPLES,
)
@click.version_option(__version__, message="trapless %(version)s")
def cli() -> None:
    """System calls without the trap, on the Linux kernel you already run."""


@cli.command()
@click.option("--calls", is_flag=True, help="List which system calls may be wrapped, and why not.")
@click.option("--online", is_flag=True, help="Also ask whether the mirror of kernels answers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.argument("names", nargs=-1, metavar="[peek|CALL|CLASS]...")
def doctor(calls: bool, online: bool, as_json: bool, names: tuple[str, ...]) -> None:
    """Say what this machine and kernel can run.

    For each 'no' it gives the reason and the remedy. It changes nothing. With `peek` it says only
    what `trapless peek` can look into, and what that lacks. With --calls, CALL is a name, a pattern
    or a number, and CLASS is any, null-mask, self-value, batch-only, refused, or compound for
    requests that are no system calls.

    \b
    trapless doctor peek
    trapless doctor --calls 'epoll_*' execve
    trapless doctor --calls refused | less
    """
    from trapless.doctor import diagnosis as part

    if names and not calls and names != (part.PEEK,):
        raise click.UsageError("names of calls go with --calls")
    sys.exit(part.run(calls=calls, names=names, as_json=as_json, online=online))


@cli.command(
    short_help="Run a command on a stock kernel, in a VM.",
    context_settings={"allow_interspersed_args": False},  # what follows COMMAND is COMMAND's
)
@click.option(
    "--kernel",
    metavar="NAME|PATH",
    help="A supported kernel by name (`trapless doctor` lists them), or the path of one.",
)
@click.option(
    "--arch",
    type=click.Choice(list(ARCHITECTURES)),
    default=AMD64.name,
    show_default=True,
    help="The processor to emulate; COMMAND is a static program for it, or one of busybox's.",
)
@click.option(
    "--cpus",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Virtual CPUs.  [default: 2; with --icount always 1]",
)
@click.option(
    "--memory", metavar="SIZE", default="1G", show_default=True, help="Memory, as in 512M, 2G."
)
@click.option(
    "--icount",
    is_flag=True,
    help="Let the clock count instructions; one CPU. Counts repeat, but not with --host-root.",
)
@click.option(
    "--host-root", is_flag=True, help="Run on this machine's files; what it writes is gone with it."
)
@click.option("--debug", is_flag=True, help="Use a KASAN and lockdep kernel, built once (minutes).")
@click.option("--no-module", is_flag=True, help="Do not load the Trapless module.")
@click.option(
    "--module-parameters",
    metavar="TEXT",
    default="",
    help='Parameters of the module, as in "supervisor=1".',
)
@click.option(
    "--append",
    metavar="TEXT",
    default="",
    help='More words for the kernel\'s command line, as in "pti=on".',
)
@click.option("--name", metavar="NAME", default="", help="Name the VM, for trapless peek --vm.")
@click.option(
    "--shared-memory",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Put the VM's memory into this new file, for trapless peek. The file stays.",
)
@click.option(
    "--monitor",
    type=click.Path(path_type=Path),
    metavar="SOCKET",
    help="Offer QEMU's monitor (QMP) on this new socket, to its owner. It is removed at the end.",
)
@click.option(
    "--link",
    type=(click.Path(path_type=Path), click.Path(path_type=Path)),
    metavar="SOCKET SOCKET",
    help="Give the VM a network card, from its own new socket to that of another VM's --link.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    metavar="SECONDS",
    default=300,
    show_default=True,
    help="End the VM, with an error, when COMMAND has run this long.",
)
@click.option("--keep", is_flag=True, help="Keep the run's files and say where they are.")
@click.option("-v", "--verbose", count=True, help="Show the kernel's log; twice: QEMU's command.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def lab(
    kernel: str | None,
    arch: str,
    cpus: int | None,
    memory: str,
    icount: bool,
    host_root: bool,
    debug: bool,
    no_module: bool,
    module_parameters: str,
    append: str,
    name: str,
    shared_memory: Path | None,
    monitor: Path | None,
    link: tuple[Path, Path] | None,
    timeout: float,
    keep: bool,
    verbose: int,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND in a lab VM on a stock kernel with the module loaded.

    The kernel is fetched from Debian's mirrors into a cache the first time. Standard output,
    standard error and exit status are COMMAND's. Put `--` before COMMAND.

    \b
    trapless lab -- cat /proc/modules
    trapless lab --icount -- /bin/true
    trapless lab --append pti=on -- cat /proc/cmdline
    """
    from trapless.vm import lab as part

    with ConsoleProgress() as progress:
        if icount and host_root:
            progress.note(part.NOT_REPEATABLE)
        config = part.LabConfig(
            kernel=default_kernel(arch) if kernel is None else kernel,
            arch=ARCHITECTURES[arch],
            cpus=cpus,
            memory=memory,
            icount=icount,
            host_root=host_root,
            debug=debug,
            timeout_s=timeout,
            module=not no_module,
            module_parameters=module_parameters,
            append=append,
            name=name,
            shared_memory=shared_memory,
            monitor=monitor,
            link=link,
            keep=keep,
            verbose=verbose,
        )
        result = part.run(config, command, stream=True, progress=progress)
    sys.exit(result.status)


@cli.command(
    short_help="Run a command in user or supervisor mode.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--mode",
    type=click.Choice(["user", "supervisor"]),
    default="user",
    show_default=True,
    help="Where COMMAND and its system calls run.",
)
@click.option(
    "--lab", "in_lab", is_flag=True, help="Run in a VM, on this machine's files, read-only."
)
@click.option("--children", is_flag=True, help="Processes that it forks start in supervisor mode.")
@click.option(
    "--exec/--no-exec",
    "over_exec",
    default=True,
    help="Stay in supervisor mode when it executes another program.  [default: exec]",
)
@click.option("--resident", is_flag=True, help="Lock its memory, as mlockall(2) does.")
@click.option("--any-user", is_flag=True, help="Though its user is not root: read the manual.")
@click.option("--allow-hlt", is_flag=True, help="Though hlt ends it: read the manual.")
@click.option("--kernel", metavar="NAME|PATH", help="With --lab: as in trapless lab.")
@click.option("--cpus", type=click.IntRange(1, 64), metavar="N", help="With --lab: virtual CPUs.")
@click.option("--memory", metavar="SIZE", help="With --lab: as in 512M, 2G.")
@click.option("--append", metavar="TEXT", help="With --lab: words for the kernel's command line.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="With --lab: end the VM, with an error, when COMMAND has run this long.",
)
@click.option("-v", "--verbose", count=True, help="With --lab: show the kernel's log.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    mode: str,
    in_lab: bool,
    children: bool,
    over_exec: bool,
    resident: bool,
    any_user: bool,
    allow_hlt: bool,
    command: tuple[str, ...],
    **of_lab: Any,
) -> None:
    """Run COMMAND, unmodified, in user or supervisor mode.

    In supervisor mode its system calls return without a mode transition, and nothing protects the
    machine from it. On this machine that needs root, and the module loaded with supervisor=1. A VM
    (--lab) needs neither; a last line on standard error then says which share of the calls ended in
    supervisor mode.

    The exit status is COMMAND's; 125 if it was not run, 126 if it cannot be executed, 127 if it
    does not exist.

    \b
    trapless run --lab --mode supervisor -- ls -l /usr/bin
    trapless run --lab --mode supervisor --children -- sh -c 'ls | wc'
    """
    from trapless import run as part

    flags = switch_flags(children, over_exec, resident, any_user, allow_hlt)
    if mode == "user" and flags & ~abi.SWITCH_EXEC:
        options = "--children, --resident, --any-user, --allow-hlt"
        raise click.UsageError(f"only with --mode supervisor: {options}")
    given = {name: value for name, value in of_lab.items() if value}
    if given and not in_lab:
        raise click.UsageError(f"--{min(given).removesuffix('_s')} needs a VM: add --lab")
    if not in_lab:
        part.here(command, Mode[mode.upper()], flags)
    from trapless.vm.lab import LabConfig

    supervisor = flags if mode == "supervisor" else None
    config = LabConfig(**given, host_root=True, supervisor=supervisor)
    with ConsoleProgress() as progress:
        status = part.in_lab(command, config, progress)
    sys.exit(status)


@cli.group(short_help="Build, load, unload the module on this machine.")
def module() -> None:
    """Build, load or unload the module for this machine's own kernel.

    Of the other commands only `evaluate --here` loads it here, after it has asked; the lab loads
    it in its VMs only.
    """


@module.command("build")
def module_build() -> None:
    """Build trapless.ko for the running kernel and print its path."""
    from trapless import module

    with ConsoleProgress() as progress:
        path = module.build(progress)
    click.echo(path)


@module.command("load", short_help="Load it into the running kernel (needs root).")
@click.argument("parameters", nargs=-1, metavar="[NAME=VALUE]...")
def module_load(parameters: tuple[str, ...]) -> None:
    """Load the module into the running kernel (needs root), with parameters of the module.

    With supervisor=1 it offers supervisor mode, which gives up protection; where that is refused,
    the reasons are named and the rest of the module works.
    """
    from trapless import module

    with ConsoleProgress() as progress:
        module.load(progress, parameters)


@module.command("unload", short_help="Remove it from the running kernel (needs root).")
def module_unload() -> None:
    """Remove the module from the running kernel (needs root; refused while in use)."""
    from trapless import module

    with ConsoleProgress() as progress:
        module.unload(progress)


def default_kernel(arch: str = AMD64.name) -> str:
    """The default kernel of an architecture."""
    from trapless.stock import kernels

    return kernels.default(ARCHITECTURES[arch])


cli.add_command(estimate)
cli.add_command(evaluate)
cli.add_command(image)
cli.add_command(peek)
peek.add_command(serve)
peek.add_command(check)
for command in (
    diagnosis.why,
    diagnosis.ps,
    diagnosis.stacks,
    diagnosis.dmesg,
    diagnosis.export,
):
    peek.add_command(command)
cli.add_command(report)
cli.add_command(stat)
cli.add_command(switch)
cli.add_command(ps)


def main() -> NoReturn:
    """Entry point: run the command; turn errors into one message and an exit status."""
    try:
        status, message = _run()
        interrupts.ignore()
    except KeyboardInterrupt as error:  # it came between the command's end and here
        interrupts.ignore()
        status, message = _interrupted(error)
    if status == -signal.SIGPIPE:  # nobody reads the output: end as others do
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)
    try:
        if message:
            click.echo(f"trapless: {printable(message)}", err=True)
        sys.stderr.flush()
    except OSError:  # nobody reads errors, or nothing takes them: Python ends without them, too
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(status)


def _run() -> tuple[int, str]:
    """Run the command; its exit status, and the message of a failure."""
    try:
        interrupts.take()
        with standard_streams():
            result = cli.main(prog_name="trapless", standalone_mode=False)
            return (result if isinstance(result, int) else 0), ""  # where click itself has ended it
    except SystemExit as error:
        if isinstance(error.code, str):
            return statuses.of_failure(), error.code
        return error.code or 0, ""
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        return _interrupted(error)
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code, ""
    except ReaderLeftError:
        return -signal.SIGPIPE, ""
    except TraplessError as error:
        return statuses.of_failure(error.status), str(error)
    except ModuleNotFoundError:
        raise  # __main__.py says what to install
    except Exception:
        import traceback

        traceback.print_exc()
        return statuses.of_failure(), "this is an error of Trapless itself; please report it"


def _interrupted(error: BaseException) -> tuple[int, str]:
    terminated = any(isinstance(one, Terminated) for one in (error, error.__cause__))
    number, word = (signal.SIGTERM, "terminated") if terminated else (signal.SIGINT, "interrupted")
    return statuses.SIGNALLED + number, word
