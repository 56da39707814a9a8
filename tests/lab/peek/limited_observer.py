# SPDX-License-Identifier: GPL-2.0-only
"""Looks at a target in all ways there are, under limits, as the test of hostile memories needs it.

Owns what is looked at and the limits of time and memory. mutations.py makes the memories, and
tests/fuzz/observer looks at many more of them than the tests do.
"""

from __future__ import annotations

import io
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.unwinding.frames import CpuRegisters
from trapless.peek.kernel.unwinding.x86_frames import SAVED
from trapless.peek.sampling import probes, sites
from trapless.peek.trace.event_decoder import Decoder
from trapless.peek.trace.perfetto import PerfettoWriter
from trapless.peek.trace.rings import Merger, Rings
from trapless.peek.trace.text_trace import JsonWriter, TextWriter

LIMIT_S = 10
LINE_CHARS_MAX = 8 * limits.TEXT_CHARS_MAX


def look(target: Target) -> str:
    """All that an observer shows of a target."""
    lines: list[object] = [target.release, target.banner, target.build_id]
    lines += [target.symbols.at(target.symbol("schedule") + 5), target.cpus_online]
    image = range(target.symbol("_text"), target.symbol("_text") + 0x400, 0x40)
    module = range(0xFFFF_FFFF_C000_0000, 0xFFFF_FFFF_C000_1000, 0x80)
    lines += [target.name_of(address) for address in (*image, *module)]
    lines += [name for _, name in target.symbols.rows()]
    lines += [(one.pid, one.comm) for one in target.threads().values()]
    lines.append(said(lambda: stacks(target)))
    lines.append(target.types.enumerator("TOY_RUNS"))
    probed = probes.find(target, again=True)
    if probed is not None:
        book = sites.SiteBook()
        for read in (lambda: book.look(target, probed), lambda: lines.append(traced(target))):
            lines.append(said(read))
        lines += book.sites().names
    target.check_same()
    return "\n".join(map(str, lines))


def stacks(target: Target) -> str:
    """The stacks of all threads, and of CPUs that stand still in schedule() and in user mode."""
    start = target.symbol("schedule")
    sp = target.symbol("init_stack") + 0x300
    values = {**dict.fromkeys(SAVED, sp), "ip": start + 4}
    registers = [CpuRegisters(cpu, user, values) for cpu, user in ((0, False), (1, True))]
    found = [(one.pid, one.comm, one.stack, one.user) for one in target.thread_stacks()]
    found += [(one.pid, one.comm, one.stack, one.user) for one in target.cpu_stacks(registers)]
    lines = []
    for pid, comm, stack, user in found:
        if stack is not None:
            addresses = " ".join(f"{at:x}" for at in stack.addresses[:40])
            lines.append(f"{pid} {comm} {stack.ending.name} {addresses}")
        lines += [f"{pid} {comm} {user.whole} {user.earlier}", *map(str, user.names)]
    return "\n".join(lines)


def traced(target: Target) -> str:
    """The events of a target in every format."""
    rings, merger = Rings.open(target), Merger()
    rings.begin(backlog=True)
    decoder = Decoder(rings.places, target)
    decoder.names.look()
    text, binary = io.StringIO(), io.BytesIO()
    writers = (
        TextWriter(text, decoder.names),
        JsonWriter(text, decoder.names),
        PerfettoWriter(binary, decoder.names, target.release, target.banner),
    )
    merger.add(rings.poll(), 0.0)
    for event in decoder.decode(merger.rest()):
        for writer in writers:
            writer.write(event)
    for writer in writers:
        writer.close()
    return text.getvalue()


def said(work: Callable[[], Any]) -> str:
    """What the work gives, or the error that a person would see."""
    try:
        return str(work())
    except PeekError as error:
        return f"error: {error}"


@contextmanager
def limited() -> Iterator[None]:
    """At most 500 MB more than now, and ten seconds of processor time."""

    def late(*_: object) -> None:
        raise TimeoutError

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + limits.RESOLVER_MEMORY_BYTES
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGVTALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def opened(opening: Callable[[Path], Target], path: Path) -> str:
    """All that is shown of the memory in a file, or the error."""

    def work() -> str:
        with opening(path) as target:
            return look(target)

    return said(work)


def faults(shown: str) -> list[str]:
    """The lines that no terminal and no page should get."""
    lines = shown.split("\n")
    return [line for line in lines if not line.isprintable() or len(line) > LINE_CHARS_MAX]
