# SPDX-License-Identifier: GPL-2.0-only
"""Finding an announced page in a guest's memory; no VM is started here."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import pytest

from tests.headers import output_of
from trapless.base.console import TraplessError
from trapless.experiments import observer
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.images import open_memory
from trapless.vm.lab import LabConfig

PAGE = 4096
PAGES = 64


def memory_with(path: Path, *announcements: tuple[int, int, int, int]) -> Path:
    """A sparse file with (where it lies, its physical address, page, phase)."""
    with path.open("wb") as file:
        for place, physical, page, phase in announcements:
            file.seek(place)
            file.write(struct.pack("<QQQQQ", observer.MAGIC, physical, page, phase, 0))
        file.truncate(PAGES * PAGE)
    return path


def test_an_announcement_is_found_and_its_copies_are_not(tmp_path):
    copies = [(3 * PAGE, 9 * PAGE), (5 * PAGE + 8, 5 * PAGE), (11 * PAGE, 7 * PAGE)]
    whole = (9 * PAGE, 9 * PAGE, 20 * PAGE, 1)
    ram = memory_with(tmp_path / "ram", *((a, b, 20 * PAGE, 1) for a, b in copies), whole)
    with open_memory(ram)[0] as memory:
        assert observer.find(memory) == (9 * PAGE, 20 * PAGE)


ANNOUNCER = r"""
#include <unistd.h>
#include "announce.h"
#include "measure.h"
void measure_fail(const char *format, ...) { _exit(1); }
int main(void)
{
    uint64_t settings[] = { 7, ANNOUNCE_OVER };
    struct announcement page = { 0 };

    announce_begin(&page, ANNOUNCE_PAGE, 2 * ANNOUNCE_PAGE);
    for (int i = 0; i < 2; i++) {
        announce_next(&page, settings[i]);
        if (write(1, &page, sizeof(page)) != sizeof(page))
            return 1;
    }
    return 0;
}
"""


def test_what_a_process_announces_is_what_its_observer_reads(tmp_path):
    common = "eval/tools/common"
    said = output_of(ANNOUNCER, f"-I{common}", f"{common}/announce.c")
    size, ram = observer.ANNOUNCEMENT.size, tmp_path / "ram"
    assert len(said) == 2 * size
    for state, page in (((1, 7), said[:size]), ((2, observer.OVER), said[size:])):
        ram.write_bytes(bytes(PAGE) + page.ljust(PAGE, b"\0"))
        with open_memory(ram)[0] as memory:
            assert observer.find(memory) == (PAGE, 2 * PAGE)
            assert observer.Observed(ram, memory, PAGE, 0, threading.Event()).state() == state


def test_nothing_is_found_where_nothing_is(tmp_path):
    odd = (9 * PAGE, 9 * PAGE, 20 * PAGE + 1, 1)
    cut = (PAGES * PAGE - 16, PAGES * PAGE - 16, 0, 1)
    for announcements in ((), (odd,), (cut,)):
        with open_memory(memory_with(tmp_path / "ram", *announcements))[0] as memory:
            memory.read(0, PAGE)
            assert observer.find(memory) is None


@pytest.mark.parametrize(
    ("phase", "wanted", "error"),
    [(1, 1, ""), (2, 1, "did not wait for its observer"), (0, 1, "ended before its next phase")],
)
def test_phases_are_waited_for(tmp_path, phase, wanted, error):
    ram = memory_with(tmp_path / "ram", (PAGE, PAGE, 2 * PAGE, phase))
    over = threading.Event()
    over.set()
    with open_memory(ram)[0] as memory:
        guest = observer.Observed(ram, memory, PAGE, 2 * PAGE, over)
        if error:
            with pytest.raises(PeekError, match=error):
                guest.await_phase(wanted)
        else:
            guest.await_phase(wanted)


class Boots:
    """A collection whose guest announces itself and then waits for its observer."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def forget(self, label):
        self.done.append(f"forgot {label}")

    def boot(self, label, config, argv, stdin):
        memory_with(config.shared_memory, (PAGE, PAGE, 2 * PAGE, 1))
        said = os.read(stdin, 1)
        self.done.append(f"booted {label}, heard {said!r}")
        if not said:
            raise TraplessError("the observer has gone")


def test_a_guest_waits_for_its_observer_and_is_never_taken_from_an_earlier_try():
    run = Boots()
    observer.run_beside(run, "observed", LabConfig(), ["x"], lambda guest: guest.go_on())
    assert run.done == ["forgot observed", r"booted observed, heard b'\n'"]


def test_a_guest_does_not_outlive_its_observer_whose_reason_is_told():
    def observe(guest):
        raise PeekError("no probes here")

    run = Boots()
    with pytest.raises(PeekError, match="no probes here"):
        observer.run_beside(run, "observed", LabConfig(), ["x"], observe)
    assert run.done[1:] == ["booted observed, heard b''"]


def test_who_is_told_to_go_on_may_have_ended(tmp_path):
    theirs, ours = os.pipe()
    os.close(theirs)
    ram = memory_with(tmp_path / "ram")
    with open_memory(ram)[0] as memory:
        observer.Observed(ram, memory, 0, 0, threading.Event(), ours).go_on()
    os.close(ours)
