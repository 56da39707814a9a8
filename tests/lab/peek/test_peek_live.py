# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek top`, `record` and `report` on a guest that is busy in known ways, then gone.

The guest does one thing after the other, turns the module's probes on and off, and says so; the
observer gets nothing but its memory. One recording has all of it: when the guest said what is on
this machine's clock, as its rows are.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.lab.command import COMMAND, LIMIT_S, wait_until
from tests.lab.peek import watched_guest
from trapless.peek.sampling.recording import FIRST, Recording
from trapless.peek.sampling.sample_summary import Summary
from trapless.peek.sampling.tier0 import Part
from trapless.peek.sampling.tier1 import Entry
from trapless.vm import lab

pytestmark = [pytest.mark.outer_kernels, pytest.mark.tool, pytest.mark.timeout(2 * LIMIT_S)]

GUEST = """
probes=/sys/module/trapless/parameters/probes
echo busy; (while :; do :; done) & busy=$!; read seen; kill $busy
echo 7 >$probes
echo user; timeout 5 sh -c 'while :; do :; done'
echo kernel; timeout 5 dd if=/dev/zero of=/dev/null bs=16M
echo 0 >$probes; rmmod trapless
echo idle; sleep 5
echo end
"""
PHASES = ("busy", "user", "kernel", "idle", "end")
EDGE_NS = 500_000_000
"""Of each phase, that does not count: starting programs, and the way of what the guest says."""
BUSY_S = 3
"""For so long the busy guest is recorded, once it is."""
SHARE_MIN = 0.6
"""Of a CPU that does one thing only: the guest's own ticks and kernel threads have the rest, and
more of it where the guest gets less of a processor."""


def peek(*arguments: str | Path) -> str:
    done = watched_guest.peek(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@dataclass
class Live:
    """A guest as it ran, and what was seen of it."""

    marks: dict[str, int] = field(default_factory=dict)  # when each phase began
    top: str = ""
    said: str = ""  # by `record`
    recording: Recording | None = None

    def hear(self, piece: bytes) -> None:
        for line in piece.decode(errors="replace").split():
            if line in PHASES:
                self.marks[line] = time.monotonic_ns()

    def phase(self, name: str) -> Summary:
        """What the rows of a phase add up to."""
        assert self.recording is not None
        start = self.marks[name] + EDGE_NS
        end = self.marks[PHASES[PHASES.index(name) + 1]] - EDGE_NS
        summary = Summary(
            [str(group) for group in self.recording.meta["groups"]],
            len(self.recording.meta["threads"]),
        )
        for table in self.recording.tables():
            first = int(table.schema.metadata[FIRST.encode()])
            times = first + self.recording.times_ns(table)
            summary.add(table.filter((times >= start) & (times < end)))
        return summary


@pytest.fixture(scope="module")
def lives() -> dict[str, Live]:
    return {}


@pytest.fixture
def live(kernel, lives, tmp_path_factory) -> Iterator[Live]:
    """The guest of one kernel; the first test of it waits until all is over.

    Of a guest that came to no good end nothing is kept: the next test starts another.
    """
    if kernel not in lives:
        live = Live()
        folder = tmp_path_factory.mktemp("live")
        ram = folder / "ram"
        config = lab.LabConfig(kernel=kernel, cpus=1, memory="256M", shared_memory=ram)
        theirs, ours = os.pipe()
        machine = threading.Thread(
            target=lab.run,
            args=(config, ["sh", "-c", GUEST]),
            kwargs={"stdin": theirs, "sink": live.hear},
        )
        machine.start()
        wait_until(lambda: "busy" in live.marks or not machine.is_alive())
        assert live.marks
        argv = [COMMAND, "peek", "record", "--ram", ram, folder / "all"]
        with subprocess.Popen(argv, stdout=-1, stderr=subprocess.STDOUT, text=True) as recorder:
            try:
                live.top = peek("top", "--ram", ram, "--updates", "2")
                wait_until((folder / "all" / "meta.json").exists)
                time.sleep(BUSY_S)
            finally:
                os.close(ours)  # the guest reads no line, but an end, and goes on
            machine.join()
            os.close(theirs)
            live.said = recorder.communicate(timeout=LIMIT_S)[0]
        assert recorder.returncode == 0, live.said
        live.recording = Recording.open(folder / "all")
        lives[kernel] = live
    yield lives[kernel]


def test_a_recording_ends_with_the_vm_and_is_whole(live):
    found = live.recording
    assert "the VM has ended" in live.said
    assert found.problems == () and found.end is not None
    assert found.end["rows"] == sum(table.num_rows for table in found.tables())
    assert "_text" in {name for _, name in found.symbols()}


def test_without_probes_user_mode_and_kernel_are_one_share(live):
    assert "tier 0" in live.said and "tier 0" in live.top
    assert live.phase("busy").share(Part.PROCESS) >= SHARE_MIN
    assert live.top.count("Where each CPU was") == 2
    heads, row = re.search(r"^ CPU (.*)$.*?^ 0 (.*)$", live.top, re.M | re.S).groups()
    assert "user" in heads and float(re.findall(r"[\d.]+(?=%)", row)[0]) >= 0


def test_with_probes_user_mode_is_told(live):
    found = live.phase("user")
    assert found.share(Part.USER) >= SHARE_MIN
    assert found.share(Part.PROCESS) == 0
    assert found.processes.most_common(1)[0][0][1].says("sh")


def test_with_probes_the_kernel_is_told_and_what_it_was_entered_for(live):
    found = live.phase("kernel")
    assert found.share(Part.KERNEL) >= SHARE_MIN
    (cpu,) = found.cpus.values()
    assert cpu.entries[Entry.SYSTEM_CALL] >= SHARE_MIN * cpu.entries.sum()


def test_probes_that_go_leave_what_a_stock_kernel_shows(live):
    found = live.phase("idle")
    assert found.share(Part.IDLE) >= SHARE_MIN
    assert found.judged == 0
    for text in ("user and kernel, interrupts, counts", "unloaded"):
        assert text in live.said


def test_a_report_has_all_of_it(live, tmp_path):
    page = tmp_path / "page.html"
    text = peek("report", "--html", page, live.recording.folder)
    assert "tier 1 in part" in text and re.search(r"^ \(top halves\) ", text, re.M)
    assert re.search(r"^ \d+ +sh +\d\d\.\d%", text, re.M), text
    assert page.read_text().count("<svg") == 5
