# SPDX-License-Identifier: GPL-2.0-only
"""Lists the threads of a machine as `ps` does: state, since when, CPU, where it waits, its command.

Owns the reading of command lines, which are in the memory of each process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.health.kernel_structures import Structures
from trapless.peek.kernel.health.thread_states import Clocks, Thread, Threads
from trapless.peek.kernel.memory import PAGE_BYTES
from trapless.peek.kernel.target import Target


@dataclass(frozen=True)
class Process:
    """One thread. `seconds` is the time since it ran last; `place` is the function it waits in."""

    pid: int
    group: int
    state: str
    seconds: float
    cpu: int
    comm: GuestText
    place: str
    command: GuestText


def processes(target: Target, *, every_thread: bool) -> list[Process]:
    """The first thread of each process, or every thread, in the order of their numbers."""
    with limits.within(limits.Budget(limits.DIAGNOSIS)):
        structures = Structures(target)
        clocks, threads = Clocks(structures), Threads(structures, target.unwinder)
        found = []
        for thread in threads.all.values():
            if every_thread or thread.pid == thread.entry.group:
                found.append(_process(structures, clocks, threads, thread))
        return sorted(found, key=lambda one: one.pid)


def _process(structures: Structures, clocks: Clocks, threads: Threads, thread: Thread) -> Process:
    functions = threads.functions(thread) if thread.letter not in ("R", "Z") else ()
    seconds = 0.0 if thread.values["on_cpu"] else clocks.slept_s(thread)
    command = GuestText(b"")
    try:
        command = _command(structures, thread)
    except limits.LimitError:
        raise
    except PeekError:  # it is not in memory, or ends
        pass
    return Process(
        thread.pid,
        thread.entry.group,
        thread.letter,
        seconds,
        thread.cpu,
        GuestText(thread.entry.comm),
        functions[0] if functions else "",
        command,
    )


def _command(structures: Structures, thread: Thread) -> GuestText:
    """The command line of a process, which has its arguments one behind the other."""
    target, mm = structures.target, thread.values["mm"]
    if not mm:
        return GuestText(b"")
    start, end = (structures.number(mm, "mm_struct", name) for name in ("arg_start", "arg_end"))
    length = min(end - start, limits.TEXT_CHARS_MAX)
    root = target.physical(structures.number(mm, "mm_struct", "pgd"))
    tables = replace(target.page_tables, root=root)
    data = b""
    while len(data) < length:
        piece = min(length - len(data), PAGE_BYTES - (start + len(data)) % PAGE_BYTES)
        data += target.memory.read(tables.physical(start + len(data))[0], piece)
    return GuestText(data.rstrip(b"\0").replace(b"\0", b" "))
