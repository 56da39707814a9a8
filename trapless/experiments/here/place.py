# SPDX-License-Identifier: GPL-2.0-only
"""This machine as a place where the commands of experiments run, with the module loaded for each.

A Here takes the same configuration as the lab (LabConfig) and gives the same result. This file owns
which modules are loaded while a command runs, that they are gone afterwards however it ended, and
how a command is started, watched and ended. root.py has its files.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trapless import module
from trapless.base import tools
from trapless.base.console import Progress, TraplessError
from trapless.experiments.collection import LeftOutError, Row
from trapless.experiments.here import root
from trapless.experiments.here.kernel_log import KernelLog
from trapless.vm import guest_modules, guest_tree
from trapless.vm.lab import LabConfig, LabResult

CONSENT = "supervisor=1"
ACCELERATOR = "none"
"""The word in results that stands in the place of KVM or TCG."""
WORKDIR = "/root"
UNLOAD_S = 10.0
"""How long a module may stay in use by a process that is ending."""
PIECE_BYTES = 1 << 16
ENTER = f"""\
( (read -r _ <&"$0"; kill -KILL -$$) >/dev/null 2>&1 & )
eval "exec $0<&-"
cd {WORKDIR} && exec "$@"
"""
"""The first steps of a command's process: it starts a watcher in its process group, which has no
parent that waits for it. The watcher kills the group when the pipe $0 is closed, which also happens
if we are killed by kill -9."""
MODULE_SUFFIX = ".ko"


@dataclass(frozen=True)
class Here:
    """The machine, the module that fits it, and whether supervisor mode may be offered."""

    module: Path
    supervisor: bool
    facts: Row = field(default_factory=dict)
    files: tuple[Path, ...] = ()  # that a saved run depends on, beside the configuration's
    least: bool = False

    def run(
        self,
        config: LabConfig,
        argv: Sequence[str],
        *,
        stdin: int | None,
        sink: Callable[[bytes], None],
        progress: Progress,
    ) -> LabResult:
        """Run `argv` to its end, as lab.run() does in a guest; its output goes to `sink`."""
        _check(config)
        release = os.uname().release
        plan = guest_tree.GuestPlan(tuple(argv), files=config.files, env=config.env)
        with KernelLog() as log:
            with ExitStack() as stack:
                for name, parameters in config.modules:
                    stack.enter_context(_stock_module(name, parameters))
                if config.module:
                    parameters = config.module_parameters
                    stack.enter_context(self._own_module(parameters.split(), progress))
                for _, target in config.files:
                    if target.endswith(MODULE_SUFFIX):
                        stack.enter_context(_brought_module(Path(target).stem))
                folder, program = stack.enter_context(root.made(plan))
                words = [program or argv[0], *argv[1:]]
                progress.done()
                status, errors = _pump(folder, words, plan, stdin, sink, config.timeout_s)
            complaints = log.read()  # also of the unloading
        return LabResult(status, b"", errors, complaints, release, 0.0, (), ACCELERATOR)

    @contextmanager
    def _own_module(self, parameters: Sequence[str], progress: Progress) -> Iterator[None]:
        wanted = [one for one in parameters if self.supervisor or one != CONSENT]
        loaded = False
        try:
            with tools.interrupts_deferred():  # a Ctrl-C meanwhile is raised at its end
                module.load(progress, wanted, self.module)
                loaded = True
            yield
        finally:
            if loaded:
                with tools.interrupts_deferred():
                    _when_unused(lambda: module.unload(progress))


def _check(config: LabConfig) -> None:
    """Raise an error for what this machine does not have, or only a VM can give."""
    cpus = config.cpus or 1
    if len(os.sched_getaffinity(0)) < cpus:
        raise LeftOutError(f"this takes {cpus} CPUs, and we may use fewer here")
    for name in ("icount", "host_root", "append", "plugins", "shared_memory", "debugger"):
        if getattr(config, name):
            raise ValueError(f"LabConfig.{name} needs a VM")


@contextmanager
def _stock_module(name: str, parameters: str) -> Iterator[None]:
    """Load one of the kernel's own modules, unless it is there; remove what was loaded."""
    if why := in_the_way(name, parameters):
        raise TraplessError(why)
    if is_present(name):
        yield
        return
    try:
        with tools.interrupts_deferred():
            _tool(["modprobe", name, *parameters.split()])
        yield
    finally:
        if is_present(name):
            with tools.interrupts_deferred():
                _when_unused(lambda: _tool(["modprobe", "-r", name]))


@contextmanager
def _brought_module(name: str) -> Iterator[None]:
    """Remove a module that the command loads itself, however it ended."""
    if is_present(name):
        raise TraplessError(f"the module {name} is loaded already; remove it first: rmmod {name}")
    try:
        yield
    finally:
        with tools.interrupts_deferred():
            if is_present(name):
                _when_unused(lambda: _tool(["rmmod", name]))


def in_the_way(name: str, parameters: str) -> str:
    """Why a stock module cannot be used; empty where it can. A module that makes devices by our
    parameters must not be loaded already: somebody may use its devices."""
    if parameters and is_present(name):
        return f"the kernel has {name} already, and its devices may be in use"
    if is_present(name) or is_at_hand(name):
        return ""
    return f"this kernel has no module {name}"


def is_present(name: str) -> bool:
    return (module.ROOT / "sys/module" / name.replace("-", "_")).is_dir()


def is_at_hand(name: str) -> bool:
    """Whether the kernel has it as a file, or built in, by the lists that modprobe reads. Not every
    modprobe can be asked."""
    folder = module.ROOT / "lib/modules" / os.uname().release
    for index in ("modules.dep", "modules.builtin"):
        with contextlib.suppress(OSError):
            lines = (folder / index).read_text(errors="replace").splitlines()
            if name in (guest_modules.module_name(line.partition(":")[0]) for line in lines):
                return True
    return False


def _tool(argv: Sequence[str]) -> None:
    tools.require_tools({argv[0]: "kmod"}, "loading modules")
    done = subprocess.run(argv, capture_output=True, text=True, env=tools.tool_environment())
    if done.returncode:
        raise TraplessError(f"{' '.join(argv)}: {done.stderr.strip() or 'failed'}")


def _when_unused(remove: Callable[[], None]) -> None:
    """Remove a module as soon as the last process that used it is gone."""
    end = time.monotonic() + UNLOAD_S
    while True:
        try:
            return remove()
        except TraplessError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


def _pump(
    folder: Path,
    argv: Sequence[str],
    plan: guest_tree.GuestPlan,
    stdin: int | None,
    sink: Callable[[bytes], None],
    limit_s: float,
) -> tuple[int, bytes]:
    """Run a command in its root and hand on what it prints: its status, and its standard error. It
    is ended with all that it has started, however this ends."""
    in_root = (str(folder / "bin/busybox"), "chroot", str(folder), "/bin/sh", "-c", ENTER)
    process: subprocess.Popen[bytes] | None = None
    lifeline, ours = os.pipe()
    with (
        open(lifeline, "rb"),
        open(ours, "wb"),
        open(os.memfd_create("trapless-errors", os.MFD_CLOEXEC), "w+b") as errors,
    ):
        try:
            with tools.interrupts_deferred():
                process = subprocess.Popen(
                    [*in_root, str(lifeline), *argv],
                    stdin=subprocess.DEVNULL if stdin is None else stdin,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    pass_fds=(lifeline,),
                    env=guest_tree.environment(plan),
                    start_new_session=True,  # Ctrl-C is for us: we end it, and then unload
                )
            status = _hand_on(process, sink, limit_s)
        finally:
            if process is not None:
                with tools.interrupts_deferred():
                    _end(process)
        errors.seek(0)
        return status, errors.read()


def _hand_on(
    process: subprocess.Popen[bytes], sink: Callable[[bytes], None], limit_s: float
) -> int:
    assert process.stdout is not None
    output = process.stdout.fileno()
    end = time.monotonic() + limit_s
    while select.select([output], [], [], max(end - time.monotonic(), 0))[0]:
        piece = os.read(output, PIECE_BYTES)
        if not piece:
            return _status(process, max(end - time.monotonic(), 1))
        sink(piece)
    raise TraplessError(f"it did not end within {limit_s:.0f} s")


def _status(process: subprocess.Popen[bytes], limit_s: float) -> int:
    try:
        return tools.wait(process, limit_s)
    except subprocess.TimeoutExpired as error:
        raise TraplessError("it closed its output and did not end") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
