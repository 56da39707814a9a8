# SPDX-License-Identifier: GPL-2.0-only
"""Runs a guest with an observer beside it: for experiments that look at a machine from outside.

Owns the guest's memory as a file, the observer's thread and its end, and finding a page that a
process in the guest wants to be found: it writes the page's physical address into an announcement,
a page that begins with a magic number and its own physical address, so that no copy is taken for
it. Nothing is written from outside. What is measured belongs to the experiments.
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

from trapless.measure.collect import Collection
from trapless.peek.errors import PeekError
from trapless.peek.memory import PAGE_BYTES, FileMemory, open_memory
from trapless.peek.vcpus import emulator_of
from trapless.vm.lab import LabConfig

ANNOUNCEMENT = struct.Struct("<QQQQQ")
"""Twin of struct announcement in eval/common/announce.h."""
OVER = (1 << 64) - 1
"""The setting after the last phase."""
MAGIC = 0x74726170 << 32 | (0x74726170 ^ 0xFFFFFFFF)
NEEDLE = struct.pack("<Q", MAGIC)
LOOK_S = 0.25
FIND_LIMIT_S = 300.0
"""From the guest's start to the announcement, seconds."""


@dataclass
class Observed:
    """A guest whose page has been found."""

    ram: Path
    memory: FileMemory
    announcement: int
    page: int
    over: threading.Event  # set when the guest has ended

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
            raise PeekError("the guest was faster than its observer: this machine is too busy")


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

    def watch(ram: Path) -> None:
        try:
            _await_size(ram, over)
            with open_memory(ram)[0] as memory:
                observe(Observed(ram, memory, *_await_page(memory, over), over))
        except BaseException as error:
            failures.append(error)

    with tempfile.TemporaryDirectory(prefix="trapless-peek-", dir=shared_folder()) as folder:
        ram = Path(folder) / "ram"
        thread = threading.Thread(target=watch, args=(ram,), name="observer")
        thread.start()
        try:
            run.boot(label, replace(config, shared_memory=ram), argv)
        finally:
            over.set()
            thread.join()
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
