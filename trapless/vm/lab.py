# SPDX-License-Identifier: GPL-2.0-only
"""Runs one command in a lab VM: `run()` is what `trapless lab` and every experiment call.

This file owns what a run means: what counts as success (the guest's own mark with the command's
status, never silence), limits of time and memory, the one retry, and the errors. guest_tree.py
makes the guest's files, qemu.py runs QEMU, channel.py is the shared memory, and lab_session.py
moves the bytes.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress, Silent, TraplessError
from trapless.stock.kernel import Kernel
from trapless.stock.kernels import SUPPORTED, parameters
from trapless.supervisor import control
from trapless.supervisor.control import Calls
from trapless.vm import guest_tree, lab_session, qemu, unpacked_image
from trapless.vm.channel import CHANNEL_BYTES, Channel, Phase
from trapless.vm.initramfs import Tree
from trapless.vm.lab_session import Bell, Ending, Session, Sinks
from trapless.vm.qmp import Listener
from trapless.vm.splats import splats

__all__ = ["Guest", "LabConfig", "LabError", "LabResult", "prepare", "run", "splats"]

NOT_REPEATABLE = (
    "with --host-root counts do not repeat: this machine's files come by a server whose timing no "
    "instruction counts, and the guest waits for each answer; leave --host-root out to count, or "
    "copy the files first, for nearly equal counts: sh -c 'cp -r TREE /tmp/t; PROGRAM /tmp/t'"
)
"""The message for a user who asks for both: --icount is used because its counts repeat."""

DEFAULT_KERNEL = SUPPORTED[0].name
LOG_LINES_MAX = 40
"""Most lines of the guest's kernel log in an error message."""

BOOT_ATTEMPTS = 2
"""A guest that never came to the command by the emulator's fault is started once more."""

PATCH_ATTEMPTS = 4
"""The same where the emulator missed a patch: on a busy host the newest kernel dies of that in one
boot of fifty."""

INITRAMFS_SHARE = 0.4
"""Most of the guest's memory that the initramfs may take: for a moment it is there twice."""


@dataclass(frozen=True)
class LabConfig:
    """What kind of VM a command runs in."""

    kernel: str = DEFAULT_KERNEL
    arch: Architecture = AMD64
    cpus: int | None = None  # None: 2, and 1 under icount
    memory: str = "1G"
    icount: bool = False
    quick_start: bool = False  # also of a guest that is counted: see prepare()
    host_root: bool = False
    debug: bool = False
    timeout_s: float = 300.0  # for the command; booting has a limit of its own
    output_limit_s: float = math.inf  # the longest time in which the command writes nothing
    module: bool = True
    module_parameters: str = ""  # of trapless.ko, as in "supervisor=1"
    thread_single: bool = False
    files: tuple[tuple[Path, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    modules: tuple[tuple[str, str], ...] = ()  # stock modules to load first, with parameters
    keep: bool = False
    verbose: int = 0
    supervisor: int | None = None  # run the command in supervisor mode, with these abi.SWITCH_*
    append: str = ""  # more words for the kernel's command line
    board: str = ""  # another of QEMU's machines than the architecture's, like q35
    nodes: int = 1  # of NUMA; with more than one, the memory is not shared
    name: str = ""  # by which observers find it
    shared_memory: Path | None = None  # new file for the guest's RAM, for observers; it stays
    debugger: int | None = None  # Debugger.guest_end of one who follows the guest
    monitor: Path | None = None  # new socket for the emulator's monitor (qmp.Monitor); it goes
    plugins: tuple[str, ...] = ()  # of QEMU's emulator, each "FILE,NAME=VALUE,..."
    forward: tuple[int, int] | None = None  # a TCP port of this machine to one of the guest's
    link: tuple[Path, Path] | None = None  # new sockets: its own, and that of a guest to reach


@dataclass(frozen=True)
class LabResult:
    """How a command ended. With `stream` or a sink, its output went there and is not in here."""

    status: int
    stdout: bytes
    stderr: bytes
    kernel_log: str
    release: str
    boot_s: float
    qemu_argv: tuple[str, ...]
    accelerator: str = "tcg"
    provenance: tuple[tuple[str, str], ...] = ()
    calls: Calls | None = None  # of all that ran in supervisor mode, where that was asked for


class LabError(TraplessError):
    """The error for a command that did not come to its end, with the guest's kernel log so far.

    `repeatable`: by the emulator's fault it was not even begun. `timed_out`: it ran into its limit.
    """

    def __init__(
        self, message: str, kernel_log: str, *, repeatable: bool = False, timed_out: bool = False
    ) -> None:
        super().__init__(message)
        self.kernel_log, self.repeatable, self.timed_out = kernel_log, repeatable, timed_out


@dataclass(frozen=True)
class Guest:
    """Everything that a VM boots from. A run with it needs nothing else of the machine but QEMU."""

    kernel: Kernel
    files: Tree
    image: Path | None = None  # of the kernel, quicker to start than its own


def prepare(config: LabConfig, argv: Sequence[str], progress: Progress) -> Guest:
    """The guest that runs `argv`. What the cache lacks for it is fetched and built."""
    _check(config, argv)
    memory_bytes = qemu.parse_size(config.memory)
    kernel = _kernel(config, progress)
    tree = guest_tree.build(_plan(config, argv, kernel, progress), progress)
    if tree.size() > memory_bytes * INITRAMFS_SHARE:
        raise TraplessError(
            f"the guest's files take {tree.size() >> 20} MB, too much for a guest with "
            f"{config.memory} of memory; give it more (--memory) or use --host-root"
        )
    if config.arch != AMD64:  # its image is not packed, or is quick to unpack
        return Guest(kernel, tree)
    # Counts rest on all that a guest has done since its first instruction: where those of one day
    # are compared with those of another, it starts as it has always started.
    if (config.icount or config.plugins) and not config.quick_start:
        return Guest(kernel, tree)
    return Guest(kernel, tree, unpacked_image.image_for(kernel, progress))


def run(
    config: LabConfig,
    argv: Sequence[str],
    *,
    stdin: bytes | int | None = None,
    stream: bool = False,
    sink: Callable[[bytes], None] | None = None,
    progress: Progress | None = None,
    guest: Guest | None = None,
) -> LabResult:
    """Run `argv` in a fresh VM and return how it ended.

    `stream`: the command uses this process's standard input, output and error. Otherwise it reads
    `stdin` (None: it is empty; a number: the descriptor of a stream) and its output is returned.
    With `sink`, pieces of standard output go there as they come. `guest` is what prepare() made of
    the same `config` and `argv`, maybe on another machine. A LabError says why the command did not
    come to its end.
    """
    watcher = progress if progress is not None else Silent()
    cpus = _check(config, argv)
    memory_bytes = qemu.parse_size(config.memory)
    if guest is None:
        qemu.binary(config.arch)  # before a kernel is fetched for nothing
        import_module("elftools")  # the same; __main__.py names the package that is missing
        guest = prepare(config, argv, watcher)
    if config.shared_memory is not None:
        _make_memory(config.shared_memory, memory_bytes)
    with ExitStack() as stack:
        files = _RunFiles(stack, config.keep, guest.files)
        sinks = Sinks.inherited() if stream else Sinks.collecting(stdin, sink)
        for attempt in itertools.count(1):
            # QEMU removes the monitor's file when it ends: each VM has a socket of its own.
            path = config.monitor
            with closing(Listener(path)) if path is not None else nullcontext() as listener:
                attempt_run = _Attempt(config, guest, files, memory_bytes, cpus, listener)
                ending = attempt_run.go(sinks, watcher)
            # A debugger is in the middle of a conversation, which it cannot continue with another
            # VM.
            if config.debugger is not None or attempt >= attempt_run.attempts(ending):
                break
            init_ran = ending.phase is not Phase.FIRMWARE
            goal = "come to the command" if init_ran else "reach its init"
            watcher.note(f"the VM did not {goal}: {ending.reason}; starting it once more")
        watcher.done()
        return attempt_run.result(ending, sinks, watcher)


def emulator_missed_a_patch(log: str) -> bool:
    """Whether the guest's kernel died by a breakpoint that had been removed.

    Loading a module patches the kernel's text by way of breakpoints. QEMU 7.2, emulating several
    processors at once, can execute a stale one, and the kernel knows of none at that place.

    >>> emulator_missed_a_patch("[    2.1] Oops: int3: 0000 [#1] SMP NOPTI")
    True
    """
    return re.search(r"\bint3: 0000 \[#1\]", log) is not None


def _check(config: LabConfig, argv: Sequence[str]) -> int:
    if not argv or not argv[0]:
        raise TraplessError("no command given", status=2)
    if not 0 < config.timeout_s < math.inf:  # which also refuses nan
        raise TraplessError(
            f"a time limit is a number of seconds, not {config.timeout_s}", status=2
        )
    cpus = config.cpus if config.cpus is not None else (1 if config.icount else 2)
    if config.icount and cpus > 1:
        raise TraplessError(
            f"--icount counts the instructions of one CPU; it cannot run {cpus} (use --cpus 1)",
            status=2,
        )
    if config.debug and config.kernel != DEFAULT_KERNEL:
        raise TraplessError(
            f"--debug runs a kernel of its own, not {config.kernel}: leave one of them out",
            status=2,
        )
    if config.module_parameters and not config.module:
        raise TraplessError(
            f"without the module there is nothing to give '{config.module_parameters}' to "
            "(--no-module and --module-parameters: leave one of them out)",
            status=2,
        )
    if config.supervisor is not None and not config.module:
        raise TraplessError("without the module there is no supervisor mode", status=2)
    _check_arch(config)
    if config.link is not None and config.link[0].exists():
        raise TraplessError(f"{config.link[0]} is there already: the VM's end is a new socket")
    if cpus < 1:
        raise TraplessError(f"a VM needs at least one CPU, not {cpus}", status=2)
    return cpus


def _check_arch(config: LabConfig) -> None:
    arch = config.arch
    if config.host_root and arch.is_foreign:
        raise TraplessError(
            f"--host-root runs this machine's programs, and {arch.name} cannot: leave it out",
            status=2,
        )
    if config.debug and arch != AMD64:
        raise TraplessError(f"--debug has no kernel for {arch.name}", status=2)
    if config.supervisor is not None and arch.supervisor:
        raise TraplessError(f"{arch.name} has no supervisor mode: {arch.supervisor}", status=2)


def _make_memory(path: Path, memory_bytes: int) -> None:
    """Make the file of the guest's RAM, for its owner only; an existing file is an error."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise TraplessError(
            f"{path} is there already: the guest's memory goes into a new file"
        ) from error
    except OSError as error:
        raise TraplessError(f"{path}: {error.strerror}") from error
    try:
        os.ftruncate(descriptor, memory_bytes)
    finally:
        os.close(descriptor)


def _kernel(config: LabConfig, progress: Progress) -> Kernel:
    from trapless.stock import kernels

    return kernels.resolve("debug" if config.debug else config.kernel, progress, config.arch)


def _plan(
    config: LabConfig, argv: Sequence[str], kernel: Kernel, progress: Progress
) -> guest_tree.GuestPlan:
    own_module = None
    if config.module:
        from trapless.stock import kbuild

        own_module = kbuild.module_for(kernel, progress)
        kbuild.check_parameters(own_module, shlex.split(config.module_parameters))
    cards = ((qemu.NETWORK_CARD, config.forward), (qemu.LINK_CARD, config.link))
    return guest_tree.GuestPlan(
        argv=tuple(argv),
        host_root=config.host_root,
        files=config.files,
        env=config.env,
        modules_dir=kernel.modules_dir,
        modules=(*config.modules, *((name, "") for name, asked in cards if asked is not None)),
        own_module=own_module,
        own_parameters=_parameters(config),
        supervisor=config.supervisor,
        arch=config.arch,
    )


def _parameters(config: LabConfig) -> str:
    """The parameters of the module. Those that the caller gives come last, and so take effect."""
    consent = "supervisor=1 " if config.supervisor is not None else ""
    return f"{consent}{config.module_parameters}".strip()


class _RunFiles:
    """The initramfs and the kernel's log of a run.

    Normally both are anonymous memory (memfd), so that no file can be left behind, however this
    process ends. With `keep` they are files in a folder that stays.
    """

    def __init__(self, stack: ExitStack, keep: bool, tree: Tree) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trapless-lab-")) if keep else None
        self._stack = stack
        self.initrd = self._create("initramfs.cpio")
        with os.fdopen(os.dup(self.initrd), "wb") as archive:
            tree.write(archive)
        self.log = self._create("kernel.log")

    def _create(self, name: str) -> int:
        if self.folder is None:
            descriptor = os.memfd_create(f"trapless-{name}", os.MFD_CLOEXEC)
        else:
            descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def name(self, descriptor: int) -> str:
        """A path under which QEMU can open the file."""
        if self.folder is not None:
            return os.readlink(f"/proc/self/fd/{descriptor}")
        return f"/dev/fd/{descriptor}"

    def kernel_log(self, start: int = 0) -> str:
        """What the guest's kernel has printed, from byte `start` on."""
        size = os.fstat(self.log).st_size
        return os.pread(self.log, size, start).decode(errors="replace").replace("\r\n", "\n")


class _Attempt:
    """One start of QEMU: makes the channel, runs a session, turns its ending into a result."""

    def __init__(
        self,
        config: LabConfig,
        guest: Guest,
        files: _RunFiles,
        memory_bytes: int,
        cpus: int,
        listener: Listener | None,
    ) -> None:
        self._config, self._kernel, self._files = config, guest.kernel, files
        self._image, self._quick = guest.image or guest.kernel.image, guest.image is not None
        self._memory_bytes, self._cpus, self._listener = memory_bytes, cpus, listener
        emulated = config.icount or config.plugins or config.arch.is_foreign
        self._accelerator = "tcg" if emulated else qemu.accelerator()
        # Counting or modelling slows a guest down without bound, a debugger stops it.
        may_be_silent = config.icount or config.plugins or config.debugger is not None
        self._silence_limit_s = math.inf if may_be_silent else lab_session.SILENCE_LIMIT_S
        self.argv: list[str] = []

    def go(self, sinks: Sinks, progress: Progress) -> Ending:
        """Start the VM, move bytes until it has ended, and make sure that it has."""
        with ExitStack() as stack:
            channel = Channel()
            stack.callback(channel.close)
            bell = Bell()
            stack.callback(bell.close)
            os.ftruncate(self._files.log, 0)
            machine = self._machine(channel, bell)
            self.argv = qemu.command(machine, self._accelerator)
            if self._config.verbose > 1:
                progress.note(shlex.join(self.argv))
            session = Session(
                channel,
                bell,
                sinks,
                self._files.log,
                self._config.timeout_s,
                self._silence_limit_s,
                self._config.output_limit_s,
            )
            session.prepare()
            inherited = [channel.file, bell.guest_end, self._files.initrd, self._files.log]
            if self._config.debugger is not None:
                inherited.append(self._config.debugger)
            if self._listener is not None:
                inherited.append(self._listener.fileno())
            if self._config.link is not None:
                stack.callback(self._config.link[0].unlink, missing_ok=True)
            process = qemu.Process(self.argv, inherited)
            stack.callback(process.close)
            bell.close_guest_end()
            progress.step(f"booting Linux {self._kernel.release} ({self._accelerator})")
            return session.pump(process, progress)

    def _machine(self, channel: Channel, bell: Bell) -> qemu.Machine:
        return qemu.Machine(
            kernel=self._image,
            initrd=self._files.name(self._files.initrd),
            kernel_log=self._files.name(self._files.log),
            channel=f"/dev/fd/{channel.file}",
            channel_bytes=CHANNEL_BYTES,
            doorbell_fd=bell.guest_end,
            cpus=self._cpus,
            memory_bytes=self._memory_bytes,
            icount=self._config.icount,
            quick_start=self._quick,
            thread_single=self._config.thread_single,
            share_root=self._config.host_root,
            append=f"{parameters(self._kernel)} {self._config.append}".strip(),
            arch=self._config.arch,
            board=self._config.board,
            nodes=self._config.nodes,
            name=self._config.name,
            shared_memory=self._config.shared_memory,
            debugger_fd=self._config.debugger,
            monitor_fd=self._listener.fileno() if self._listener is not None else None,
            plugins=self._config.plugins,
            forward=self._config.forward,
            link=self._config.link,
        )

    def result(self, ending: Ending, sinks: Sinks, progress: Progress) -> LabResult:
        """The result of a command that ended; for anything else, the error that says why."""
        log = self._files.kernel_log()
        if self._config.verbose:
            progress.note(log.rstrip())
        if self._files.folder is not None:
            (self._files.folder / "qemu.argv").write_text(shlex.join(self.argv) + "\n")
            progress.note(f"kept: {self._files.folder}")
        if ending.switch_error:
            raise control.explained(ending.switch_error, ending.refusal, "the command", "in the VM")
        if ending.reason:
            again = self.attempts(ending) > 1
            raise LabError(
                self._explain(ending, log), log, repeatable=again, timed_out=ending.timed_out
            )
        complaints = splats(log)
        if complaints and not self._config.verbose:
            first = complaints[0].splitlines()[0]
            progress.note(
                f"the guest's kernel complained ({len(complaints)}): {first} ... (see -v)"
            )
        return LabResult(
            status=ending.status,
            stdout=sinks.output,
            stderr=sinks.errors,
            kernel_log=log,
            release=self._kernel.release,
            boot_s=ending.boot_s,
            qemu_argv=tuple(self.argv),
            accelerator=self._accelerator,
            provenance=tuple(sorted(self._kernel.provenance.items())),
            calls=Calls(*ending.calls) if self._config.supervisor is not None else None,
        )

    def attempts(self, ending: Ending) -> int:
        """How many VMs such an end is worth: 1 if the command was begun or QEMU is not to blame."""
        if not ending.retriable:
            return 1
        together = self._accelerator == "tcg" and self._cpus > 1 and not self._config.thread_single
        early = ending.phase in (Phase.FIRMWARE, Phase.INIT)
        if early and together and emulator_missed_a_patch(self._files.kernel_log()):
            return PATCH_ATTEMPTS
        return BOOT_ATTEMPTS if ending.phase is Phase.FIRMWARE else 1

    def _explain(self, ending: Ending, log: str) -> str:
        lines = [ending.reason]
        if ending.complaint:
            lines.append(f"QEMU said: {ending.complaint}")
        title, excerpt = _excerpt(log, self._files.kernel_log(ending.log_before))
        if excerpt:
            lines.append(title)
            lines += [f"  {line}" for line in excerpt]
        elif not log and not ending.complaint:
            lines.append("the guest's kernel printed nothing")
        return "\n".join(lines)


def _excerpt(log: str, news: str) -> tuple[str, list[str]]:
    """The part of the kernel's log that explains a failed run: complaints, else the last lines."""
    complaints = "\n".join(splats(log)).splitlines()
    if complaints:
        return "the guest's kernel said:", complaints[:LOG_LINES_MAX]
    return "the end of the guest's kernel log:", news.splitlines()[-LOG_LINES_MAX:]
