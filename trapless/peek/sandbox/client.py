# SPDX-License-Identifier: GPL-2.0-only
"""Opens a target whose tables and lists are read in a sandbox, and asks for what is in them.

Owns the start and the end of that process, the time that each answer may take, and the target that
the commands see. Here, single words are read from the guest's memory, at places that the sandbox
has named, and nothing is decoded. The limits are in ../limits.py, for all of peek.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from trapless.base import jail
from trapless.base.tools import has_ended, kill, wait
from trapless.peek import limits
from trapless.peek.errors import BootingError, PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel.btf import Place
from trapless.peek.kernel.guest_processor import KEYS, PageTables, processor_of
from trapless.peek.kernel.health.hang_causes import Cause, Look, Processor, Verdict
from trapless.peek.kernel.health.printk_ring import Log, Record
from trapless.peek.kernel.health.processes import Process
from trapless.peek.kernel.image import KernelImage
from trapless.peek.kernel.kernel_stacks import CpuStack, ThreadStack, Unwinder
from trapless.peek.kernel.loaded_modules import Modules
from trapless.peek.kernel.memories.images import open_memory
from trapless.peek.kernel.memories.pieces import SilentError
from trapless.peek.kernel.memories.remote_memory import RemoteMemory
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.symbol_cache import FileStore, Store
from trapless.peek.kernel.target import Target, closed_on_error
from trapless.peek.kernel.tasks import Task
from trapless.peek.kernel.unwinding.frames import CpuRegisters, Ending, Stack
from trapless.peek.kernel.user.user_stacks import UserStack
from trapless.peek.kernel.vmcoreinfo import Vmcoreinfo
from trapless.peek.sandbox import messages
from trapless.peek.sandbox.messages import FormError
from trapless.vm.stub import OPEN_LIMIT_S, STOPPED_LIMIT_S

NO_FILE = -1
"""Stands for a descriptor where the process has to ask for the memory."""
HOLE_BYTES_MIN, PARTS_MAX = 1 << 20, 1 << 17
"""Smaller holes between parts of memory that may hold data are searched, too, and those that would
make more parts."""


def open_target(path: Path, hole: int | None = None) -> Target:
    """The kernel in a RAM file, a raw image or an ELF core, read in a sandbox. As Target.open()."""
    return SandboxedTarget.of(open_memory(path, hole))


class Resolver:
    """The process in the sandbox. Several threads may ask. It ends by close(), or by its limits.

    One that rests has no process; the next question starts it again.
    """

    def __init__(self, layouts: Sequence[FileMemory], store: Store | None = None) -> None:
        self._store = store or FileStore()
        self._lock = threading.Lock()  # one question at a time
        self._name = layouts[0].name
        self._layouts = tuple(layouts)
        self._asked = layouts[0] if isinstance(layouts[0], RemoteMemory) else None
        self._resting = False
        self._missing: set[str] = set()  # build-ids whose symbols were asked for, and not kept
        self._start()
        try:
            with self._alone(OPEN_LIMIT_S):
                self.opened = self._open()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _alone(self, stopped_s: float = STOPPED_LIMIT_S) -> Iterator[None]:
        # Memory that the process asks for is read here, at one moment. The stub's lock is the outer
        # one everywhere: a thread that has stopped the machine asks while it holds that lock.
        with nullcontext() if self._asked is None else self._asked.moment(stopped_s), self._lock:
            yield

    def _start(self) -> None:
        files = {place[3] for memory in self._layouts for place in _places(memory)} - {NO_FILE}
        self._process = jail.start("trapless.peek.sandbox.sandboxed_resolver", descriptors=files)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._input.fileno(), False)  # it may never read what it has asked for

    def _open(self) -> Any:
        filled = _filled(self._layouts[0])
        question = {
            "name": self._name,
            "layouts": [list(_places(memory)) for memory in self._layouts],
            "filled": filled,
        }
        searched = sum(length for _, length in filled)
        seconds = limits.OPEN_S + searched / limits.SEARCH_BYTES_S
        return self._answer("open", question, seconds)

    def rest(self) -> None:
        """End the process until the next question: it takes a hundred times the memory of the
        rest."""
        with self._lock:
            self.close()
            self._resting = True

    def ask(self, name: str, *values: object) -> Any:
        """The answer to a question, in its form; PeekError says why there is none."""
        with self._alone():
            if self._resting:
                self._start()
                self._resting = False
                if self._open() != self.opened:
                    self.close()
                    raise PeekError(f"{self._name}: another kernel runs in it by now")
            return self._answer(name, {"ask": [name, *values]}, limits.ANSWER_S)

    def runs(self) -> bool:
        """Whether the process is there."""
        return not has_ended(self._process)

    def close(self) -> None:
        """End the process."""
        self._resting = False
        kill(self._process)
        for pipe in (self._input, self._output):
            try:
                pipe.close()
            except OSError:  # what was not written yet
                continue

    def _answer(self, name: str, question: object, seconds: float) -> Any:
        if has_ended(self._process):
            raise PeekError(self._ending(seconds))
        try:
            end_s = time.monotonic() + seconds * limits.BUSY_FACTOR
            jail.allow(self._process.pid, seconds)
            messages.send(self._input.fileno(), question, end_s)
            return messages.ANSWERS[name](self._said(end_s))
        except SilentError:
            raise PeekError(self._ending(seconds)) from None
        except FormError as error:
            kill(self._process)
            raise PeekError(
                f"{self._name}: the process that reads the guest answers what it must not "
                f"({error}); it was ended: the guest attacks its observer"
            ) from None

    def _said(self, end_s: float) -> object:
        """The answer of the process, once its own questions are answered."""
        output, asks, reads, away_left_s = self._output.fileno(), 0, 0, OPEN_LIMIT_S
        while asks <= limits.STORE_ASKS_MAX and reads < limits.READS_MAX:
            said = messages.receive(output, end_s)
            if not isinstance(said, dict):
                raise FormError("no object")
            asks, reads = asks + ("read" not in said), reads + 1
            if "read" in said:
                began_s = time.monotonic()
                memory = self._memory(messages.PLACE(said["read"]))
                # The time that memory takes to come here is not the process's.
                away_s = min(time.monotonic() - began_s, away_left_s)
                end_s, away_left_s = end_s + away_s, away_left_s - away_s
                messages.send(self._input.fileno(), memory, end_s)
            elif "answer" in said:
                return said["answer"]
            elif "error" in said:
                kind = BootingError if said.get("boots") is True else PeekError
                raise kind(_message(said["error"]), status=2 if said.get("status") == 2 else 1)
            elif isinstance(said.get("load"), str):
                self._load(said["load"], end_s)
            elif isinstance(said.get("save"), str):
                self._save(said["save"], *(messages.receive(output, end_s) for _ in range(2)))
            else:
                raise FormError("neither an answer nor an error")
        raise FormError("more questions than answers")

    def _load(self, build_id: str, end_s: float) -> None:
        kept = self._store.load(build_id)
        if kept is None:
            self._missing.add(build_id)
        for part in kept or (b"", b""):
            messages.send(self._input.fileno(), part, end_s)

    def _save(self, build_id: str, digest: object, text: object) -> None:
        """Keep symbols that were not there. A guest that has taken over the process would give the
        next guest with the same kernel names of its own, so nothing that is kept is replaced."""
        if not isinstance(digest, bytes) or not isinstance(text, bytes):
            raise FormError("no bytes")
        if build_id in self._missing:
            self._missing.remove(build_id)
            self._store.save(build_id, digest, text)

    def _memory(self, place: tuple[int, int]) -> object:
        """Memory for the process, which has no file of it, or the error."""
        if self._asked is None:
            raise FormError("a question for memory")
        try:
            return self._asked.read(*place)
        except PeekError as error:
            return {"error": str(error)}

    def _ending(self, seconds: float) -> str:
        """Why the process has ended, which it is made to do here where it has not."""
        try:
            status = wait(self._process, limits.GRACE_S if self._process.stdout else 0)
        except subprocess.TimeoutExpired:
            status = kill(self._process)
        if status == -signal.SIGSYS:
            why = "did what a reader must not do, and the kernel ended it: the guest attacks"
        elif status in (-signal.SIGXCPU, -signal.SIGKILL):
            why = f"took more than {seconds:g} s: the guest is damaged, or made up to take long"
        else:
            why = f"has ended with status {status}"
        return f"{self._name}: the process that reads the guest {why}"


def _message(value: object) -> str:
    lines = str(value).splitlines()[: limits.MESSAGE_LINES_MAX]
    return "\n".join(map(visible, lines)) if isinstance(value, str) else "an error without a text"


def _places(memory: FileMemory) -> Iterator[tuple[int, int, int, int]]:
    """Physical address, length, offset, and the descriptor, of each region."""
    for region in memory.regions():
        descriptor = NO_FILE if isinstance(memory, RemoteMemory) else memory.descriptor(region)
        yield region.start, region.length, region.offset, descriptor


def _filled(memory: FileMemory) -> list[tuple[int, int]]:
    """The parts of memory that may hold data, with the small holes between them."""
    if isinstance(memory, RemoteMemory):
        return list(memory.populated())
    parts: list[tuple[int, int]] = []
    ends = {region.start for region in memory.regions()}
    hole = max(HOLE_BYTES_MIN, memory.size // PARTS_MAX)
    for start, length in memory.populated():
        if parts and start not in ends and start - sum(parts[-1]) < hole:
            start, length = parts[-1][0], start + length - parts[-1][0]
            parts.pop()
        parts.append((start, length))
    return parts


class _Symbols:
    """The symbols of a kernel, by questions. What our own code asks for is kept."""

    def __init__(self, resolver: Resolver, count: int, shift: int) -> None:
        self._resolver, self._count, self.shift = resolver, count, shift
        self._addresses: dict[str, int] = {}
        self._has: dict[str, bool] = {}

    def __len__(self) -> int:
        return self._count

    def has(self, name: str) -> bool:
        if name not in self._has:
            self._has[name] = bool(self._resolver.ask("has", name))
        return self._has[name]

    def address(self, name: str) -> int:
        if name not in self._addresses:
            self._addresses[name] = self._resolver.ask("address", name)
        return self._addresses[name]

    def at(self, address: int) -> tuple[GuestText, int] | None:
        found: tuple[GuestText, int] | None = self._resolver.ask("at", address)
        return found

    def size_at(self, address: int) -> int:
        return int(self._resolver.ask("size_at", address))

    def kind_at(self, address: int) -> str:
        return str(self._resolver.ask("kind_at", address))

    def rows(self) -> Iterator[tuple[int, GuestText]]:
        yield from self._resolver.ask("symbols")


class _Types:
    """The types of a kernel, by questions. What our own code asks for is kept."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._places: dict[tuple[str, str], Place | str] = {}
        self._enumerators: dict[str, tuple[int, int] | None] = {}

    def place(self, record: str, path: str) -> Place:
        known = self._places.get((record, path))
        if known is None:
            try:
                known = Place(*self._resolver.ask("place", record, path))
            except PeekError as error:
                if self._resolver.runs():  # it answered: there is no such member
                    self._places[record, path] = str(error)
                raise
            self._places[record, path] = known
        if isinstance(known, str):
            raise PeekError(known)
        return known

    def sizes(self, record: str) -> set[int]:
        return set(self._resolver.ask("sizes", record))

    def enumerator(self, name: str) -> tuple[int, int] | None:
        if name not in self._enumerators:
            self._enumerators[name] = self._resolver.ask("enumerator", name)
        return self._enumerators[name]


class SandboxedTarget(Target):
    """A kernel whose tables and lists another process reads."""

    @classmethod
    def of(cls, layouts: Sequence[FileMemory]) -> Target:
        """The kernel in a memory, which is given once for each layout that it may have.

        The target closes the layouts, and they are closed where no kernel is found.
        """
        with closed_on_error(layouts):
            return cls(Resolver(layouts), layouts)

    def __init__(self, resolver: Resolver, layouts: Sequence[FileMemory]) -> None:
        try:
            self._begin(resolver, layouts)
        except BaseException:
            resolver.close()
            raise

    def _begin(self, resolver: Resolver, layouts: Sequence[FileMemory]) -> None:
        place, note, release, shift, numbers, root, count, build_id = resolver.opened
        if place >= len(layouts):
            raise PeekError(f"{layouts[0].name}: the process that reads the guest answers nonsense")
        memory = layouts[place]
        words = {KEYS[key]: str(value) for key, value in numbers}
        words |= {"KERNELOFFSET": f"{shift:x}", "OSRELEASE": str(release)}
        words |= {"BUILD-ID": bytes(build_id).hex()}
        values = {key.encode(): word.encode() for key, word in words.items()}
        info = Vmcoreinfo(b"", note, values)
        processor = processor_of(info)
        KernelImage.__init__(
            self,
            memory,
            info,
            processor,
            PageTables(memory.read, root, processor.paging),
            _Symbols(resolver, count, shift),
        )
        self.types = _Types(resolver)
        self._resolver = resolver
        self._owned = tuple(layouts)
        self._identity = self._fingerprint()

    def rest(self) -> None:
        """End the process until there is a question that was not answered before."""
        self._resolver.rest()

    def close(self) -> None:
        """End the process, and close the files; every later question is an error."""
        self._resolver.close()
        super().close()

    @cached_property
    def modules(self) -> Modules:
        raise PeekError("modules are read in the sandbox: ask name_of() or module_symbol()")

    def module_symbol(self, module: str, name: str, *, again: bool = False) -> int | None:
        address: int | None = self._resolver.ask("module_symbol", module, name, again)
        return address

    def name_of(self, address: int) -> GuestText:
        name: GuestText = self._resolver.ask("name_of", address)
        return name

    def threads(self) -> dict[int, Task]:
        return {row[0]: Task(*row) for row in self._resolver.ask("threads")}

    @cached_property
    def unwinder(self) -> Unwinder:
        raise PeekError("stacks are read in the sandbox: ask thread_stacks() or cpu_stacks()")

    def thread_stacks(self) -> list[ThreadStack]:
        names, user_stacks, stacks, threads = self._resolver.ask("thread_stacks")
        known, users = [_stack(*row) for row in stacks], _user_stacks(names, user_stacks)
        return [
            ThreadStack(pid, group, comm, state, None if at < 0 else known[at], users[user])
            for pid, group, comm, state, at, user in threads
            if at < len(known) and user < len(users)
        ]

    def cpu_stacks(self, registers: Sequence[CpuRegisters]) -> list[CpuStack]:
        given = [[one.cpu, one.user, one.values] for one in registers]
        names, user_stacks, cpus = self._resolver.ask("cpu_stacks", given)
        users = _user_stacks(names, user_stacks)
        return [
            CpuStack(cpu, pid, group, comm, _stack(ending, addresses), users[user])
            for cpu, pid, group, comm, ending, addresses, user in cpus
            if user < len(users)
        ]

    def isf(self, section: str, start: int) -> tuple[int, list[tuple[str, dict[str, Any]]]]:
        """A part of a symbol table for volatility3, as isf.py makes it."""
        following, entries = self._resolver.ask("isf", section, start)
        return following, [(str(name), entry) for name, entry in entries]

    def module_symbols(
        self,
    ) -> list[tuple[str, list[tuple[int, int]], list[tuple[int, GuestText]]]]:
        """The name, the (address, length) of each part, and the symbols of each module."""
        found = self._resolver.ask("module_symbols")
        return [(str(name), spans, symbols) for name, spans, symbols in found]

    def log(self, after: int = -1) -> Log:
        """The records of the kernel's log after the one with that sequence number."""
        left_out, rows = self._resolver.ask("log", after)
        records = [
            Record(sequence, time_ns, level, tuple(lines))
            for sequence, time_ns, level, lines in rows
        ]
        return Log(records, left_out)

    def processes(self, *, every_thread: bool) -> list[Process]:
        """The first thread of each process, or every thread, as processes.py reads them."""
        return [
            Process(pid, group, str(state), ms / 1000, cpu, comm, str(place), command)
            for pid, group, state, ms, cpu, comm, place, command in self._resolver.ask(
                "processes", every_thread
            )
        ]

    def look(self, longer_s: float) -> Look:
        """What hangs for longer than some seconds, by one look, as single_look.py judges."""
        answer = self._resolver.ask("look", round(longer_s * 1000))
        uptime_ms, jiffies, threads, processors, verdicts, notes = answer
        causes = {str(one): one for one in Cause}
        return Look(
            uptime_ms / 1000,
            jiffies,
            threads,
            tuple(
                Processor(number, online, idle, pid, str(comm), clock, runnable, ms / 1000, event)
                for number, online, idle, pid, comm, clock, runnable, ms, event in processors
            ),
            tuple(
                Verdict(
                    causes.get(str(cause), Cause.BLOCKED),
                    str(text),
                    ms / 1000,
                    str(subject),
                    tuple(map(str, evidence)),
                    tuple(cpus),
                )
                for cause, text, ms, subject, evidence, cpus in verdicts
            ),
            tuple(map(str, notes)),
        )


def _user_stacks(
    names: list[GuestText], rows: list[tuple[bool, bool, list[int]]]
) -> list[UserStack]:
    """The stacks of user mode in an answer; names that it does not have are left out."""
    return [
        UserStack(tuple(names[at] for at in numbers if at < len(names)), whole, earlier)
        for whole, earlier, numbers in rows
    ]


def _stack(ending: int, addresses: list[int]) -> Stack:
    return Stack(Ending(ending), tuple(addresses))
