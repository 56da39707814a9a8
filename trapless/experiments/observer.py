# SPDX-License-Identifier: GPL-2.0-only
"""Runs a guest with an observer beside it: for experiments that look at a machine from outside.

Owns the guest's memory as a file, the observer's thread and its end, and finding a page that a
process in the guest wants to be found: it writes the page's physical address into an announcement,
a page that begins with a magic number and its own physical address, so that no copy is taken for
it. Nothing is written into memory from outside: where the guest waits for its observer, which may
be slow on a busy machine, it waits for a line of its standard input. What is measured belongs to
the experiments.
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
from trapless.peek.kernel.memory import PAGE_BYTES, FileMemory, open_memory
from trapless.vm.lab import LabConfig

ANNOUNCEMENT = struct.Struct("<QQQQQ")
"""Twin of struct announcement in eval/tools/common/announce.h."""
OVER = (1 << 64) - 1
"""The setting after the last phase."""
MAGIC = 0x74726170 << 32 | (0x74726170 ^ 0xFFFFFFFF)
NEEDLE = struct.pack("<Q", MAGIC)
LOOK_S = 0.25
FIND_LIMIT_S = 1800.0
"""From the guest's start to the announcement, seconds: for a guest that hangs."""


@dataclass
class Observed:
    """A guest whose page has been found."""

    ram: Path
    memory: FileMemory
    announcement: int
    page: int
    over: threading.Event  # set when the guest has ended
    input: int = -1  # the way to its standard input, a descriptor

    def go_on(self) -> None:
        """Tell a guest that waits in announce_await(), or whose phase has no end of its own."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, and that is told otherwise
            os.write(self.input, b"\n")

    def state(self) -> tuple[int, int]:
        """Which phase the guest is in, by its memory, and the setting of that phase."""
        before = -1
        while True:  # the guest writes the setting first, then the phase
            read = self.memory.read(self.announcement, ANNOUNCEMENT.size)
            _, _, _, phase, setting = ANNOUNCEMENT.unpack(read)
            if phase == before:
                return int(phase), int(setting)
            before = phase

    def phase(self) -> int:
        """The phase alone; one too high when all are over."""
        return self.state()[0]

    def is_over(self) -> bool:
        """Whether the last phase has ended."""
        return self.state()[1] == OVER

    def await_phase(self, phase: int) -> None:
        """Wait for a phase to begin; PeekError when it never will."""
        while (found := self.phase()) < phase:
            if self.over.wait(LOOK_S):
                raise PeekError("the guest ended before its next phase")
        if found > phase:
            raise PeekError(f"the guest is in phase {found}: it did not wait for its observer")


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
    """Boot `argv` as Collection.boot does; `observe` runs in a thread, once its page is found.

    A boot without its observer is worth nothing: one that an earlier try saved is made again.
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
            failures.append(error)  # after the observer's: that ends the guest, too
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
    """Where memory can be shared without a disk behind it; else the usual place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
