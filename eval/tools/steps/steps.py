# SPDX-License-Identifier: GPL-2.0-only
"""Follows pieces of work in a VM step by step, and says where the instructions of a call go.

eval/tools/steps makes the pieces; this file follows them from outside, names the function that each
instruction belongs to, and sums them up. An interrupt cannot come in between. Counts by
the time-stamp counter (--icount) and these are independent of each other.
"""

from __future__ import annotations

import bisect
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from trapless.base.console import Progress, TraplessError
from trapless.experiments.collection import Row
from trapless.experiments.experiment import tool
from trapless.vm import lab
from trapless.vm.debugger import Debugger

GUEST_PROGRAM = "/bin/steps"
MAGIC = 0x737465707321
BEGIN, END = "steps_begin", "steps_end"
STEPS_MAX = 20_000
LIMIT_S = 3600.0
"""For a VM that hangs. Each step is a question and an answer, which a busy machine makes slow."""
OWN_MODULE = "trapless"
PROGRAM = "program"
KERNEL_ENTRY = "entry_SYSCALL_64"


@dataclass(frozen=True)
class Symbols:
    """Functions of the guest's kernel, its modules and one program, by address."""

    addresses: tuple[int, ...]
    names: tuple[tuple[str, str], ...]  # function, and what it is part of

    @staticmethod
    def of(entries: Iterable[tuple[int, str, str]]) -> Symbols:
        ordered = sorted(set(entries))
        return Symbols(
            tuple(address for address, _, _ in ordered),
            tuple((name, part) for _, name, part in ordered),
        )

    def name(self, address: int) -> tuple[str, str]:
        place = bisect.bisect_right(self.addresses, address) - 1
        if place < 0:
            raise TraplessError(f"no function is known at {address:#x}")
        return self.names[place]


@dataclass
class Trace:
    """The executed instructions: piece of work -> addresses in order."""

    pieces: dict[str, list[int]] = field(default_factory=dict)
    failure: TraplessError | None = None  # how following ended


def follow(kernel: str, progress: Progress) -> list[Row]:
    """Rows {"steps": piece, "function": name, "of": kernel|trapless|program, "count": n}."""
    program = tool("steps/steps")
    marks = {name: address for address, name in program_symbols(program) if name in (BEGIN, END)}
    try:
        result, trace = _followed(kernel, program, marks, progress)
    except lab.LabError as error:
        if not error.repeatable:
            raise
        reason = str(error).splitlines()[0]
        progress.note(f"the VM that is followed did not start: {reason}; starting it once more")
        result, trace = _followed(kernel, program, marks, progress)
    if result.status:
        raise TraplessError(f"{GUEST_PROGRAM} failed: {result.stdout[-300:]!r}")
    pieces = pieces_of(result.stdout.decode().splitlines())
    lost = [piece for piece in pieces if piece not in trace.pieces]
    if lost or not pieces:
        which = ", ".join(lost) or "the first"
        raise TraplessError(f"following calls failed at {which}: {trace.failure}")
    entries = [(address, name, PROGRAM) for address, name in program_symbols(program)]
    symbols = Symbols.of([*entries, *kernel_symbols(result.stdout.decode().splitlines())])
    counted = rows(trace.pieces, symbols)
    check(counted)
    return counted


def _followed(
    kernel: str, program: Path, marks: Mapping[str, int], progress: Progress
) -> tuple[lab.LabResult, Trace]:
    """One VM, followed to its end by a debugger of its own."""
    trace, debugger = Trace(), Debugger()
    config = lab.LabConfig(
        kernel=kernel,
        cpus=1,
        files=((program, GUEST_PROGRAM),),
        module_parameters="supervisor=1",
        append="nokaslr norandmaps",
        debugger=debugger.guest_end,
        timeout_s=LIMIT_S,
    )
    watcher = threading.Thread(target=watch, args=(debugger, marks, trace), daemon=True)
    watcher.start()
    try:
        command = ["/bin/sh", "-c", f"{GUEST_PROGRAM} && cat /proc/kallsyms"]
        return lab.run(config, command, progress=progress), trace
    finally:
        debugger.hang_up()
        watcher.join(LIMIT_S)
        debugger.close()


def watch(debugger: Debugger, marks: Mapping[str, int], trace: Trace) -> None:
    """Follow every piece until the program has ended; runs beside the lab's own loop."""
    try:
        debugger.attach(LIMIT_S)
        while True:
            debugger.run_to(marks[BEGIN], LIMIT_S)
            registers = debugger.registers()
            if registers["rsi"] != MAGIC:  # another program, at the same address
                continue
            piece = debugger.text(registers["rdi"])
            trace.pieces[piece] = list(debugger.steps_to(marks[END], STEPS_MAX))
    except TraplessError as error:  # the program's end, too: follow() knows whether all was seen
        trace.failure = error


def pieces_of(lines: Iterable[str]) -> list[str]:
    """The pieces that the program says it made."""
    return [json.loads(line)["piece"] for line in lines if line.startswith('{"piece"')]


def program_symbols(program: Path) -> list[tuple[int, str]]:
    """Functions of an ELF file."""
    with program.open("rb") as file:
        tables = [s for s in ELFFile(file).iter_sections() if isinstance(s, SymbolTableSection)]
        return [
            (symbol["st_value"], symbol.name)
            for table in tables
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
        ]


def kernel_symbols(lines: Sequence[str]) -> list[tuple[int, str, str]]:
    """Functions in /proc/kallsyms; other lines are passed over."""
    symbols = []
    for line in lines:
        words = line.split()
        if len(words) in (3, 4) and words[1] in "tTwW" and len(words[0]) == 16:
            part = words[3].strip("[]") if len(words) == 4 else "kernel"
            symbols.append((int(words[0], 16), words[2], part))
    return symbols


def rows(pieces: Mapping[str, Sequence[int]], symbols: Symbols) -> list[Row]:
    """Instructions by function, of the marks' own functions none, in the order of execution."""
    counted: list[Row] = []
    for piece, addresses in pieces.items():
        named = (symbols.name(address) for address in addresses)
        counts = Counter(name for name in named if name[0] not in (BEGIN, END))
        counted += [
            {"steps": piece, "function": function, "of": part, "count": count}
            for (function, part), count in counts.items()
        ]
    return counted


def check(counted: Sequence[Row]) -> None:
    """Checks that each piece took the way that its name says."""
    for piece in dict.fromkeys(row["steps"] for row in counted):
        by_kernel = any(row["function"] == KERNEL_ENTRY for row in counted if row["steps"] == piece)
        if by_kernel == piece.endswith(".supervisor"):
            way = "through" if by_kernel else "not through"
            raise TraplessError(f"{piece} went {way} the kernel's own entry")


def total(counted: Iterable[Row], piece: str, part: str | None = None) -> int:
    """Instructions of a piece: all, or those in one part of the system."""
    return sum(
        row["count"]
        for row in counted
        if row.get("steps") == piece and (part is None or row["of"] == part)
    )
