# SPDX-License-Identifier: GPL-2.0-only
"""Finding an announced page in a guest's memory; no VM is started here."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

from trapless.measure import beside
from trapless.peek.errors import PeekError
from trapless.peek.memory import open_memory

PAGE = 4096
PAGES = 64


def memory_with(path: Path, *announcements: tuple[int, int, int, int]) -> Path:
    """A sparse file with (where it lies, its physical address, page, phase)."""
    with path.open("wb") as file:
        for place, physical, page, phase in announcements:
            file.seek(place)
            file.write(struct.pack("<QQQQQ", beside.MAGIC, physical, page, phase, 0))
        file.truncate(PAGES * PAGE)
    return path


def test_an_announcement_is_found_and_its_copies_are_not(tmp_path):
    copies = [(3 * PAGE, 9 * PAGE), (5 * PAGE + 8, 5 * PAGE), (11 * PAGE, 7 * PAGE)]
    whole = (9 * PAGE, 9 * PAGE, 20 * PAGE, 1)
    ram = memory_with(tmp_path / "ram", *((a, b, 20 * PAGE, 1) for a, b in copies), whole)
    with open_memory(ram)[0] as memory:
        assert beside.find(memory) == (9 * PAGE, 20 * PAGE)


def test_nothing_is_found_where_nothing_is(tmp_path):
    odd = (9 * PAGE, 9 * PAGE, 20 * PAGE + 1, 1)
    cut = (PAGES * PAGE - 16, PAGES * PAGE - 16, 0, 1)
    for announcements in ((), (odd,), (cut,)):
        with open_memory(memory_with(tmp_path / "ram", *announcements))[0] as memory:
            memory.read(0, PAGE)
            assert beside.find(memory) is None


@pytest.mark.parametrize(
    ("phase", "wanted", "error"),
    [(1, 1, ""), (2, 1, "did not wait for its observer"), (0, 1, "ended before its next phase")],
)
def test_phases_are_waited_for(tmp_path, phase, wanted, error):
    ram = memory_with(tmp_path / "ram", (PAGE, PAGE, 2 * PAGE, phase))
    over = threading.Event()
    over.set()
    with open_memory(ram)[0] as memory:
        guest = beside.Observed(ram, memory, PAGE, 2 * PAGE, over)
        if error:
            with pytest.raises(PeekError, match=error):
                guest.await_phase(wanted)
        else:
            guest.await_phase(wanted)
