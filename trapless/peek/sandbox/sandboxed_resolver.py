# SPDX-License-Identifier: GPL-2.0-only
"""The process in the sandbox: opens the kernel in a guest's memory, and answers about it.

It gets open files for the memory and two pipes, gives up all else (base/jail.py), and then reads
what the guest has written. Owns the questions. client.py starts it and asks; messages.py has the
forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from trapless.base import jail
from trapless.base.console import TraplessError
from trapless.peek import limits
from trapless.peek.errors import BootingError, PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel.guest_processor import KEYS
from trapless.peek.kernel.health import printk_ring, processes, single_look
from trapless.peek.kernel.image import locate
from trapless.peek.kernel.memories.remote_memory import Place, RemoteMemory
from trapless.peek.kernel.memory import FileMemory, Memory, RawFile, Region
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.unwinding.frames import CpuRegisters, Stack
from trapless.peek.kernel.user.user_stacks import NO_USER_STACK, UserStack
from trapless.peek.sandbox import isf
from trapless.peek.sandbox.messages import receive, send

INPUT, OUTPUT = 0, 1
NOT_UTF8 = b"\xff\x1b"


class GivenMemory(FileMemory):
    """Memory in files that are open already, and whose layout was given: the parent has looked for
    their holes, which this process may not."""

    def __init__(self, name: str, places: Sequence[Sequence[int]], filled: Any) -> None:
        descriptors = sorted({place[3] for place in places})
        regions = [
            Region(start, length, offset, descriptors.index(descriptor))
            for start, length, offset, descriptor in places
        ]
        super().__init__(name, [RawFile(one) for one in descriptors], regions)
        self._filled = tuple(map(tuple, filled))

    def populated(self) -> Iterator[tuple[int, int]]:
        yield from self._filled


class AskedMemory(RemoteMemory):
    """Memory that only the parent can read. Its pages are kept while one question is answered."""

    def __init__(self, name: str, places: Sequence[Sequence[int]], filled: Any) -> None:
        super().__init__(name, [Region(*place[:3]) for place in places])
        self._filled = tuple(map(tuple, filled))

    def populated(self) -> Iterator[tuple[int, int]]:
        yield from self._filled

    def transfer(self, places: Sequence[Place]) -> list[bytes]:
        return [self._asked(*place) for place in places]

    def _asked(self, address: int, length: int) -> bytes:
        send(OUTPUT, {"read": [address, length]})
        answer = receive(INPUT)
        if not isinstance(answer, bytes):
            raise PeekError(str(answer["error"]) if isinstance(answer, dict) else "no memory")
        return answer


class ParentStore:
    """Keeps decoded symbols by asking the parent, who can open files."""

    def load(self, build_id: str) -> tuple[bytes, bytes] | None:
        send(OUTPUT, {"load": build_id})
        digest, text = receive(INPUT), receive(INPUT)
        if not isinstance(digest, bytes) or not isinstance(text, bytes) or not digest:
            return None
        return digest, text

    def save(self, build_id: str, digest: bytes, text: bytes) -> None:
        if len(text) <= limits.ANSWER_BYTES_MAX:
            send(OUTPUT, {"save": build_id})
            send(OUTPUT, digest)
            send(OUTPUT, text)


def main() -> None:
    """Serve until the parent closes its pipe. The parent ends this process where it takes long."""
    visible("\x1b")  # Python loads a codec for it, which it could not do later
    NOT_UTF8.decode("utf-8", "backslashreplace")
    try:
        jail.enter(limits.RESOLVER_MEMORY_BYTES)
    except TraplessError as error:
        text = f"{error}; `trapless peek shell` reads a guest without a sandbox"
        send(OUTPUT, {"error": text, "status": 1})
        return
    try:
        question = receive(INPUT)
        assert isinstance(question, dict)
        target: Target | None = None
        while True:
            try:
                if target is None:
                    target, answer = _open(**question)
                else:
                    name, *values = question["ask"]
                    with _pages_kept([target.memory]):
                        answer = QUESTIONS[name](target, *values)
                send(OUTPUT, {"answer": answer})
            except PeekError as error:
                boots = isinstance(error, BootingError)
                send(OUTPUT, {"error": str(error), "status": error.status, "boots": boots})
            except MemoryError:
                size = limits.RESOLVER_MEMORY_BYTES >> 20
                text = f"reading the guest took more than {size} MiB: it is damaged, or attacks"
                send(OUTPUT, {"error": text, "status": 1})
            except Exception as error:
                text = f"what the guest has cannot be read: {type(error).__name__}: {error}"
                send(OUTPUT, {"error": text, "status": 1})
            question = receive(INPUT)
            assert isinstance(question, dict)
    except PeekError:  # the parent has ended
        return


def _open(name: str, layouts: Sequence[Any], filled: Any) -> tuple[Target, object]:
    kinds = [GivenMemory if regions[0][3] >= 0 else AskedMemory for regions in layouts]
    memories = [kind(name, regions, filled) for kind, regions in zip(kinds, layouts, strict=True)]
    with _pages_kept(memories):
        target = Target(locate(memories, ParentStore()))
    place = next(at for at, memory in enumerate(memories) if memory is target.memory)
    return target, [
        place,
        target.info.address,
        str(target.release),
        target.info.kernel_offset,
        [[KEYS.index(key), value] for key, value in target.info.integers(KEYS).items()],
        target.page_tables.root,
        len(target.symbols),
        list(bytes.fromhex(target.build_id)),
    ]


@contextmanager
def _pages_kept(memories: Sequence[Memory]) -> Iterator[None]:
    """A block that answers one question: afterwards, the machine has gone on."""
    with ExitStack() as stack:
        for memory in memories:
            if isinstance(memory, AskedMemory):
                stack.enter_context(memory.keeping_pages())
        yield


def _at(target: Target, address: int) -> object:
    found = target.symbols.at(address)
    return None if found is None else [str(found[0]), found[1]]


def _place(target: Target, record: str, path: str) -> object:
    place = target.types.place(record, path)
    return [place.offset, place.type, place.size, place.bit, place.bits]


def _threads(target: Target) -> object:
    return [
        [one.pid, one.group, str(one.comm), one.parent, one.is_kernel]
        for one in target.threads().values()
    ]


class _Users:
    """The different stacks of user mode in an answer, and the names in them, by their numbers."""

    def __init__(self) -> None:
        self._stacks: dict[UserStack, int] = {}
        self._names: dict[GuestText, int] = {}

    def number(self, stack: UserStack) -> int:
        known = self._stacks.get(stack)
        if known is None:
            new = sum(name not in self._names for name in stack.names)
            names = len(self._names) + new
            if names > limits.USER_NAMES_MAX or len(self._stacks) >= limits.STACKS_MAX:
                stack = NO_USER_STACK
            for name in stack.names:
                self._names.setdefault(name, len(self._names))
            known = self._stacks.setdefault(stack, len(self._stacks))
        return known

    def tables(self) -> list[object]:
        stacks = [
            [one.whole, one.earlier, [self._names[name] for name in one.names]]
            for one in self._stacks
        ]
        return [list(map(str, self._names)), stacks]


def _thread_stacks(target: Target) -> object:
    """The different stacks, and the threads with their stacks' numbers; -1 on a CPU."""
    numbers: dict[Stack | None, int] = {None: -1}
    users = _Users()
    threads = [
        [
            *(one.pid, one.group, str(one.comm), one.state),
            numbers.setdefault(one.stack, len(numbers) - 1),
            users.number(one.user),
        ]
        for one in target.thread_stacks()
    ]
    stacks = [[int(one.ending), list(one.addresses)] for one in numbers if one is not None]
    return [*users.tables(), stacks, threads]


def _cpu_stacks(target: Target, registers: Sequence[Any]) -> object:
    users = _Users()
    cpus = [
        [
            *(one.cpu, one.pid, one.group, str(one.comm)),
            *(int(one.stack.ending), one.stack.addresses, users.number(one.user)),
        ]
        for one in target.cpu_stacks([CpuRegisters(*row) for row in registers])
    ]
    return [*users.tables(), cpus]


def _module_symbols(target: Target) -> object:
    return [
        [
            str(one.name),
            one.spans,
            [[at, str(name)] for at, name in zip(one.addresses, one.names, strict=True)],
        ]
        for one in target.modules
    ]


def _log(target: Target, after: int) -> object:
    log = printk_ring.read(target, after)
    records = [
        [one.sequence, one.time_ns, one.level, [line.with_tabs() for line in one.lines]]
        for one in log.records
    ]
    return [log.left_out, records]


def _processes(target: Target, every_thread: bool) -> object:
    return [
        [
            *(one.pid, one.group, one.state, _ms(one.seconds), one.cpu),
            *(str(one.comm), one.place, str(one.command)),
        ]
        for one in processes.processes(target, every_thread=every_thread)
    ]


def _look(target: Target, longer_ms: int) -> object:
    found = single_look.look(target, longer_ms / 1000)
    processors = [
        [
            *(one.number, one.is_online, one.is_idle, one.pid, one.comm),
            *(one.clock_ns, one.runnable, _ms(one.held_s), one.next_event),
        ]
        for one in found.processors
    ]
    verdicts = [
        [
            *(str(one.cause), one.text, _ms(one.seconds), one.subject),
            *(list(one.evidence[: limits.EVIDENCE_MAX]), list(one.cpus)),
        ]
        for one in found.verdicts
    ]
    numbers = [_ms(found.uptime_s), found.jiffies, found.threads]
    return [*numbers, processors, verdicts, list(found.notes[: limits.EVIDENCE_MAX])]


def _ms(seconds: float) -> int:
    return min(max(round(seconds * 1000), 0), (1 << 63) - 1)


QUESTIONS: dict[str, Callable[..., object]] = {
    "address": lambda target, name: target.symbols.address(name),
    "has": lambda target, name: target.symbols.has(name),
    "at": _at,
    "size_at": lambda target, address: target.symbols.size_at(address),
    "kind_at": lambda target, address: target.symbols.kind_at(address),
    "symbols": lambda target: [[at, str(name)] for at, name in target.symbols.rows()],
    "place": _place,
    "sizes": lambda target, record: sorted(target.types.sizes(record)),
    "enumerator": lambda target, name: target.types.enumerator(name),
    "name_of": lambda target, address: str(target.name_of(address)),
    "module_symbol": lambda target, module, name, again: target.module_symbol(
        module, name, again=again
    ),
    "threads": _threads,
    "thread_stacks": _thread_stacks,
    "cpu_stacks": _cpu_stacks,
    "isf": isf.part,
    "module_symbols": _module_symbols,
    "log": _log,
    "processes": _processes,
    "look": _look,
}
