# SPDX-License-Identifier: GPL-2.0-only
"""Finds the machines that can be observed, and opens the one that was chosen.

Owns the ways in: a file that has a machine's memory, the process that runs the machine, by its pid
or by the machine's name, a debugger's stub, a machine's own kernel, of this machine or by ssh, and
a machine's network card, by RDMA.
mappings.py knows where in a process the memory is, and the kernel/ folder reads what is in it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from trapless.base.console import TraplessError
from trapless.peek import errors, mappings, qemu_arguments, rights
from trapless.peek.emulator import (
    PROC,
    PROGRAM_BYTES_MAX,
    Emulator,
    arguments,
    emulator_of,
    emulator_with,
    is_mapped,
    kind_of,
    path_here,
    runs_monitor,
)
from trapless.peek.errors import WAIT, BootingError, ImageError, PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memories.agent_memory import AgentMemory, by_ssh
from trapless.peek.kernel.memories.images import open_memory, open_ram
from trapless.peek.kernel.memories.kcore import own_memory
from trapless.peek.kernel.memories.process_memory import text_of
from trapless.peek.kernel.memories.rdma_memory import RdmaMemory, by_rdma
from trapless.peek.kernel.memories.remote_memory import RemoteMemory
from trapless.peek.kernel.memories.stub_memory import StubMemory
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.target import Target
from trapless.peek.sandbox.client import SandboxedTarget
from trapless.vm.stub import OPEN_LIMIT_S, Stub

ARGUMENTS_BYTES_MAX = 128 << 10
"""The most that is read of a command line: anybody can start a process with one of megabytes, and
each look reads it."""
LISTED_MAX = 1000
RDMA_PORT = 18515
"""TLR_PORT of include/uapi/linux/trapless_rdma.h."""
OTHER_QEMU = re.compile(r"qemu-system-.*")
PF_EXITING, PF_KTHREAD = 0x4, 0x200000
"""Flags of a process in its file `stat`: it is ending, or it is a kernel thread."""


RAW = (
    "no machine of this user has it mapped, and its first bytes are of no known format, so it was "
    "read as a raw image of memory"
)


class ChoiceError(PeekError):
    """Several machines match, or none can appear: waiting does not help."""


class Machine(Protocol):
    """A machine to look into."""

    def open(self, *, sandbox: bool = True) -> Target:
        """The kernel that runs in it; PeekError says why none can be read.

        Without the sandbox, this process itself reads the guest's tables, which drgn needs.
        """

    def emulator(self) -> Emulator | None:
        """The process that runs it; None where it is not known, or where none does."""


def _opened(layouts: Sequence[FileMemory], *, sandbox: bool, runs: bool = True) -> Target:
    """The kernel in a memory. Where a machine runs in it, an error may say that waiting helps."""
    try:
        if sandbox:  # which keeps pages by itself
            return SandboxedTarget.of(layouts)
        with contextlib.ExitStack() as stack:
            for memory in layouts:
                if isinstance(memory, RemoteMemory):
                    stack.enter_context(memory.keeping_pages())
            return Target.of(layouts)
    except BootingError as error:
        lines = [str(error)]
        if runs:
            lines.append(WAIT)
        elif not layouts[0].is_saved:
            lines.append(RAW)
        kind = ImageError if layouts[0].is_saved else PeekError
        raise kind("\n  ".join(lines)) from error


@dataclass(frozen=True)
class Image:
    """A machine whose memory is a file: shared by its monitor, or saved. `hole` is in bytes."""

    path: Path
    hole: int | None = None

    def __str__(self) -> str:
        return str(self.path)

    def open(self, *, sandbox: bool = True) -> Target:
        runs = is_mapped(self.path)
        opening = open_ram if runs else open_memory
        return _opened(opening(self.path, self.hole), sandbox=sandbox, runs=runs)

    def emulator(self) -> Emulator | None:
        return emulator_of(self.path)


@dataclass(frozen=True)
class Process:
    """A machine that a process runs, whose memory is read from the process."""

    folder: Path  # like /proc/123
    kind: str  # the name of its monitor, "qemu" or one of mappings.LAYOUTS
    argv: tuple[str, ...]
    cwd: str = ""  # its folder, for what its command line names; empty where it may not be read

    @property
    def pid(self) -> int:
        return int(self.folder.name)

    @property
    def name(self) -> str:
        """The machine's name; empty where its monitor was given none."""
        if self.kind == "qemu":
            return qemu_arguments.name(self.argv)
        pairs = itertools.pairwise(self.argv)
        return next((value for option, value in pairs if option in ("--id", "--name")), "")

    @property
    def shared(self) -> Path | None:
        """The file by which it shares all of its memory; None if it shares none, or not with this
        user."""
        with contextlib.suppress(OSError, PeekError):
            path = qemu_arguments.ram_file(self.argv) if self.kind == "qemu" else None
            here = path_here(self.folder, path, self.cwd) if path is not None else None
            if here is not None and stat.S_ISREG(here.stat().st_mode):
                return here if os.access(here, os.R_OK) else None
        return None

    @property
    def is_own(self) -> bool:
        """Whether this user runs it."""
        with contextlib.suppress(OSError):  # ended meanwhile
            return self.folder.stat().st_uid == os.geteuid()
        return False

    @property
    def is_readable(self) -> bool:
        """Whether this user may look into it: to look into others' takes root."""
        return os.geteuid() == 0 or self.is_own or self.shared is not None

    def __str__(self) -> str:
        return f"process {self.pid}{f' ({visible(self.name)})' if self.name else ''}"

    def open(self, *, sandbox: bool = True) -> Target:
        first: PeekError | None = None
        try:
            for layouts in self.memories():
                try:
                    return _opened(layouts, sandbox=sandbox)
                except PeekError as error:
                    first = first or error
        except PeekError as error:
            raise PeekError(f"{self}, {self.kind}: {error}") from error
        raise first or PeekError(f"{self}, {self.kind}: nothing in it is large enough to be RAM")

    def memories(self) -> Iterator[list[FileMemory]]:
        """Its memory, for each way in which mappings may be RAM, once for each layout."""
        found = mappings.read(self.folder)
        if self.kind == "qemu":
            backends = [
                replace(one, path=os.path.normpath(os.path.join(self.cwd, one.path)))
                if one.path
                else one
                for one in qemu_arguments.ram(self.argv)
            ]
            holes = qemu_arguments.holes(self.argv, sum(one.size for one in backends))
            is_arm64 = "aarch64" in os.path.basename(self.argv[0])
            ways = mappings.qemu_ways(found, backends, holes, is_arm64=is_arm64)
        else:
            ways = mappings.all_other_ways(self.folder, mappings.LAYOUTS[self.kind])
        held = mappings.held_files(self.folder)
        for way in ways:
            yield mappings.memories(self.folder, found, str(self), way, held)

    def emulator(self) -> Emulator | None:
        return emulator_with(self.pid, self.folder.parent, folder=self.cwd)


@dataclass(frozen=True)
class Remote:
    """A machine whose debugger's stub is asked for its memory, over TCP."""

    host: str
    port: int

    @classmethod
    def named(cls, text: str) -> Remote:
        """The machine at HOST:PORT, or at a port of this host.

        >>> Remote.named(":1234"), Remote.named("[::1]:9").host
        (Remote(host='localhost', port=1234), '::1')
        """
        host, _, port = text.rpartition(":")
        if not _is_port(port):
            raise ChoiceError(
                f"{text!r} is not HOST:PORT of a debugger's stub, as localhost:1234", status=2
            )
        return cls(host.strip("[]") or "localhost", int(port))

    def __str__(self) -> str:
        return f"the machine at {self.host}:{self.port}"

    def open(self, *, sandbox: bool = True) -> Target:
        try:
            stub = Stub(self.host, self.port)
        except TraplessError as error:
            raise PeekError(str(error), status=error.status) from error
        try:
            with stub.stopped(OPEN_LIMIT_S):  # what is read belongs to one moment
                return _opened([StubMemory(stub)], sandbox=sandbox)
        except BaseException:
            stub.close()
            raise

    def emulator(self) -> Emulator | None:
        return None


@dataclass(frozen=True)
class Own:
    """This machine itself, by its own kernel."""

    def __str__(self) -> str:
        return "this machine"

    def open(self, *, sandbox: bool = True) -> Target:
        return _opened([own_memory()], sandbox=sandbox)

    def emulator(self) -> Emulator | None:
        return None


@dataclass(frozen=True)
class Host:
    """Another machine, on which ssh starts an agent that root may run."""

    name: str

    def __str__(self) -> str:
        return visible(self.name)

    def open(self, *, sandbox: bool = True) -> Target:
        agent = by_ssh(self.name)
        try:
            return _opened([AgentMemory(agent)], sandbox=sandbox)
        except BaseException:
            agent.close()
            raise

    def emulator(self) -> Emulator | None:
        return None


@dataclass(frozen=True)
class Rdma:
    """Another machine, whose memory its RDMA device reads for trapless_rdma.ko."""

    host: str
    port: int
    key: Path

    @classmethod
    def named(cls, text: str, key: Path | None) -> Rdma:
        """The machine at HOST or HOST:PORT.

        >>> Rdma.named("web", Path("key")).port, Rdma.named("[fd00::2]:7", Path("key")).host
        (18515, 'fd00::2')
        """
        host, port = text, str(RDMA_PORT)
        if text.count(":") == 1 or "]:" in text:
            host, _, port = text.rpartition(":")
        host = host.strip("[]")
        if not host or "," in host or not _is_port(port):
            raise ChoiceError(f"{text!r} is not HOST or HOST:PORT, as web:{RDMA_PORT}", status=2)
        if key is None:
            raise ChoiceError(
                "--rdma takes --key FILE: the key that the target's trapless_rdma.ko has", status=2
            )
        return cls(host, int(port), key)

    def __str__(self) -> str:
        return visible(self.host)

    def open(self, *, sandbox: bool = True) -> Target:
        reader = by_rdma(self.host, self.port, self.key)
        try:
            return _opened([RdmaMemory(reader)], sandbox=sandbox)
        except BaseException:
            reader.close()
            raise

    def emulator(self) -> Emulator | None:
        return None


def _is_port(text: str) -> bool:
    return re.fullmatch("[0-9]{1,5}", text) is not None and 0 < int(text) < 1 << 16


@dataclass(frozen=True)
class Privileged:
    """A machine that takes rights to open, which are given up by this process once it is open."""

    machine: Machine

    def __str__(self) -> str:
        return str(self.machine)

    def open(self, *, sandbox: bool = True) -> Target:
        try:
            return self.machine.open(sandbox=sandbox)
        finally:
            rights.drop()

    def emulator(self) -> Emulator | None:
        return self.machine.emulator()


def monitors(proc: Path = PROC) -> Iterator[Path]:
    """The processes on this host whose command lines begin as a monitor's, by their pids."""
    processes = sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name))
    return filter(runs_monitor, processes)


def running(proc: Path = PROC) -> list[Process]:
    """The machines that run on this host, whoever started them, in the order of their pids."""
    machines = (machine_of(entry) for entry in monitors(proc))
    return list(itertools.islice((one for one in machines if one is not None), LISTED_MAX))


def machine_of(entry: Path) -> Process | None:
    """The machine that a process runs; None where it runs none that is known."""
    try:
        argv = arguments(entry, ARGUMENTS_BYTES_MAX)
    except OSError:  # ended meanwhile
        return None
    kind = kind_of(argv)
    if not kind:
        return None
    cwd = ""
    with contextlib.suppress(OSError):  # another user's
        cwd = os.readlink(entry / "cwd")
    return Process(entry, kind, tuple(argv), cwd)


def choose(
    *,
    ram: Path | None = None,
    hole: int | None = None,
    pid: int | None = None,
    vm: str | None = None,
    gdb: str | None = None,
    local: bool | None = None,
    ssh: str | None = None,
    rdma: str | None = None,
    key: Path | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Machine:
    """The machine with that memory, pid, name or stub, this one, the one that ssh or RDMA reaches,
    or the only one; PeekError lists others. `note` is told of machines that are passed over."""
    if local:
        return Own()
    if ssh is not None:
        return Host(ssh)
    if rdma is not None:
        return Rdma.named(rdma, key)
    if gdb is not None:
        return Remote.named(gdb)
    if ram is not None:
        return Image(ram, hole)
    if pid is not None:
        return by_pid(pid)
    return by_name(vm) if vm is not None else the_one(hole, note)


def by_pid(pid: int, proc: Path = PROC) -> Process:
    """The machine that a process runs."""
    entry = proc / str(pid)
    machine = machine_of(entry)
    if machine is not None:
        return machine
    try:
        program = visible(os.path.basename(arguments(entry, PROGRAM_BYTES_MAX)[0]))
        program = program or _nameless(entry)
    except OSError:
        raise ChoiceError(f"there is no process {pid}") from None
    if OTHER_QEMU.fullmatch(program):
        raise PeekError(f"process {pid} is {program}: only x86-64 and arm64 can be read")
    known = ", ".join(("qemu-system-x86_64", "qemu-system-aarch64", *mappings.LAYOUTS))
    raise PeekError(
        f"process {pid} ({program}) runs no virtual machine of a known monitor ({known}); "
        f"{_listed(running(proc))}"
    )


def _nameless(entry: Path) -> str:
    """Says what a process without a command line is; ChoiceError if the process has ended."""
    words = text_of(entry, "stat").rpartition(")")[2].split()
    state, flags = words[0], int(words[6])
    if flags & PF_KTHREAD:
        return "a kernel thread"
    if flags & PF_EXITING or state in "ZX":
        raise ChoiceError(
            f"process {entry.name} is ending or has ended: it runs no machine any more"
        )
    return "a program without a name"


def by_name(name: str, proc: Path = PROC) -> Process:
    """The machine with that name."""
    machines = running(proc)
    named = [one for one in machines if one.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        pids = ", ".join(str(one.pid) for one in named)
        raise ChoiceError(
            f"{len(named)} machines are called {visible(name)}; choose one with --pid: {pids}"
        )
    hint = " (only `peek why --all` and `peek serve` take patterns)" if set("*?[") & {*name} else ""
    raise PeekError(
        f"no virtual machine on this host is called {visible(name)}{hint}; {_listed(machines)}"
    )


def the_one(hole: int | None = None, note: Callable[[str], None] = lambda _: None) -> Machine:
    """The only virtual machine that shares its memory, or else the only one that runs here."""
    machines = running()
    sharing = [one for one in machines if one.shared is not None]
    chosen = sharing or [one for one in machines if one.is_own]
    if len(chosen) == 1:
        (one,) = chosen
        if len(machines) > 1:
            why = "shares its RAM in a file that can be read" if sharing else "is this user's"
            note(
                f"this is {one}: of {len(machines)} virtual machines on this host it alone {why}; "
                "--pid or --vm looks into another"
            )
        return Image(one.shared, hole) if one.shared is not None else one
    if not any(one.is_readable for one in machines):
        raise PeekError(_listed(machines))
    raise ChoiceError(f"choose one with --pid, --vm or --ram; {_listed(machines)}")


def _listed(machines: Sequence[Process]) -> str:
    if not machines:
        return errors.NO_MACHINE.text()
    readable = [one for one in machines if one.is_readable]
    if not readable:
        return errors.NO_MACHINE_OF_USER.text()
    lines = "\n  ".join(f"{one}: {one.kind}" for one in readable)
    return f"{len(readable)} virtual machine{'s' * (len(readable) > 1)} can be observed:\n  {lines}"
