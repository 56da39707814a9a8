# SPDX-License-Identifier: GPL-2.0-only
"""Runs a guest with an observer beside it, for experiments that read a machine from outside.

This file owns the guest's memory as a file, the observer's thread, and the search for a page that a
process in the guest announces. The process writes the page's physical address into an announcement:
a page that begins with a magic number and its own physical address, so that no copy is mistaken for
it. The observer writes nothing into the memory. A guest that waits for its observer reads a line of
its standard input. The experiments own what is measured.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection
from trapless.peek.emulator import emulator_of
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.images import open_memory
from trapless.peek.kernel.memory import PAGE_BYTES, FileMemory
from trapless.vm.lab import LabConfig

ANNOUNCEMENT = struct.Struct("<QQQQQ")
"""The layout of struct announcement in eval/tools/common/announce.h."""
OVER = (1 << 64) - 1
"""The number of the setting that follows the last phase."""
MAGIC = 0x74726170 << 32 | (0x74726170 ^ 0xFFFFFFFF)
NEEDLE = struct.pack("<Q", MAGIC)
LOOK_S = 0.25
FIND_LIMIT_S = 1800.0
"""Longest time from the guest's start to the announcement, seconds."""


@dataclass
class Observed:
    """A guest whose page has been found."""

    ram: Path
    memory: FileMemory
    announcement: int
    page: int
    over: threading.Event  # set when the guest has ended
    input: int = -1  # the descriptor that leads to its standard input

    def go_on(self) -> None:
        """Continue a guest that waits in announce_await(), or whose phase has no end of its own."""
        with contextlib.suppress(BrokenPipeError):  # it has ended; others report that
            os.write(self.input, b"\n")

    def state(self) -> tuple[int, int]:
        """The phase of the guest as its memory says it, and the setting of that phase."""
        before = -1
        while True:  # the guest writes the setting first, then the phase
            read = self.memory.read(self.announcement, ANNOUNCEMENT.size)
            _, _, _, phase, setting = ANNOUNCEMENT.unpack(read)
            if phase == before:
                return int(phase), int(setting)
            before = phase

    def phase(self) -> int:
        """The phase alone; after the last phase, one more than that."""
        return self.state()[0]

    def is_over(self) -> bool:
        """Whether the last phase has ended."""
        return self.state()[1] == OVER

    def await_phase(self, phase: int) -> None:
        """Wait until a phase begins; PeekError where it cannot begin any more."""
        while (current := self.phase()) < phase:
            if self.over.wait(LOOK_S):
                raise PeekError("the guest ended before its next phase")
        if current > phase:
            raise PeekError(f"the guest is in phase {current}: it did not wait for its observer")


def find(memory: FileMemory) -> tuple[int, int] | None:
    """(address of the announcement, address of the page), where the guest has made them."""
    for start, length in memory.populated():
        data = memory.read(start, length)
        place = data.find(NEEDLE)
        while 0 <= place <= length - ANNOUNCEMENT.size:
            _, physical, page, _, _ = ANNOUNCEMENT.unpack_from(data, place)
            if physical == start + place and page % PAGE_BYTES == 0:
                return physical, page
            place = data.find(NEEDLE, place + 1)
    return None


def run_beside(
    run: Collection,
    label: str,
    config: LabConfig,
    argv: Sequence[str],
    observe: Callable[[Observed], None],
) -> None:
    """Boot `argv` as Collection.boot does; `observe` runs in a thread after the page was found.

    A boot that an earlier attempt saved is made again, because its observer's data is lost.
    """
    run.forget(label)
    over = threading.Event()
    failures: list[BaseException] = []

    guests, ours = os.pipe()

    def watch(ram: Path) -> None:
        try:
            _await_size(ram, over)
            with open_memory(ram)[0] as memory:
                observe(Observed(ram, memory, *_await_page(memory, over), over, ours))
        except BaseException as error:
            failures.append(error)
        finally:
            os.close(ours)  # a guest that still waits ends

    with tempfile.TemporaryDirectory(prefix="trapless-peek-", dir=shared_folder()) as folder:
        ram = Path(folder) / "ram"
        thread = threading.Thread(target=watch, args=(ram,), name="observer")
        thread.start()
        try:
            run.boot(label, replace(config, shared_memory=ram), argv, stdin=guests)
        except TraplessError as error:
            over.set()
            thread.join()
            failures.append(error)  # second, because an error of the observer also ends the guest
        finally:
            over.set()
            thread.join()
            os.close(guests)
    if failures:
        raise failures[0]


def _await_size(ram: Path, over: threading.Event) -> None:
    while not ram.exists() or ram.stat().st_size == 0:
        if over.wait(LOOK_S):
            raise PeekError("the guest ended before it began")


def _await_page(memory: FileMemory, over: threading.Event) -> tuple[int, int]:
    limit = time.monotonic() + FIND_LIMIT_S
    while (places := find(memory)) is None:
        if over.wait(LOOK_S) or time.monotonic() > limit:
            raise PeekError("the guest's page was not found in its memory")
    return places


def pin_emulator(ram: Path, cpu: int) -> None:
    """Keep all threads of the guest's emulator on one processor, off the observer's."""
    emulator = emulator_of(ram)
    if emulator is None:
        raise PeekError("the process that emulates the guest was not found")
    for task in Path(f"/proc/{emulator.pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a helper of the emulator's, gone again
            os.sched_setaffinity(int(task.name), {cpu})


def shared_folder() -> str | None:
    """The folder for memory that is shared without a disk; None for the usual one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
