# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek top`, `record` and `report` on a guest that is busy, then idle, then gone.

The guest does one thing after the other and says so; the observer gets nothing but its memory.
"""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.lab.command import COMMAND, LIMIT_S
from trapless.peek.recording import Recording
from trapless.vm import lab

pytestmark = pytest.mark.timeout(2 * LIMIT_S)

GUEST = """
echo busy; timeout 40 sh -c 'while :; do :; done'
echo idle; sleep 40
"""
SECONDS = "4"
SHARE_MIN = 0.8
"""Of a CPU that does one thing only: the guest's own ticks and kernel threads have the rest."""


def run(*arguments: str | Path) -> str:
    done = subprocess.run(
        [COMMAND, "peek", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def guest(tmp_path, kernel):
    """(RAM file, what the guest says line by line); it ends by itself."""
    ram, lines = tmp_path / "ram", queue.Queue()

    def hear(piece: bytes) -> None:
        for line in piece.decode().split():
            lines.put(line)

    config = lab.LabConfig(kernel=kernel, cpus=1, memory="256M", module=False, shared_memory=ram)
    thread = threading.Thread(
        target=lab.run, args=(config, ["sh", "-c", GUEST]), kwargs={"sink": hear}
    )
    thread.start()
    yield ram, lines
    thread.join()


def shares(text: str) -> dict[str, float]:
    """The table of shares of CPU 0."""
    heads = ("user or kernel", "top half", "bottom half", "idle")
    (row,) = re.findall(r"^ 0 +(.*%.*)$", text, re.M)
    values = [float(value) / 100 for value in re.findall(r"([\d.]+)%", row)]
    shown = [head for head in heads if re.search(rf"^ CPU .*\b{head}\b", text, re.M)]
    return dict(zip(shown, values, strict=True))


def test_shares_of_a_busy_and_of_an_idle_kernel(kernel, guest, tmp_path):
    ram, lines = guest
    assert lines.get(timeout=LIMIT_S) == "busy"
    said = run("record", "--ram", ram, "--seconds", SECONDS, tmp_path / "busy")
    assert "the time is over" in said
    live = run("top", "--ram", ram, "--updates", "2")
    assert live.count("Where each CPU was") == 2
    assert shares(live.split("Processes")[0])["user or kernel"] >= SHARE_MIN
    assert lines.get(timeout=LIMIT_S) == "idle"
    run("record", "--ram", ram, "--seconds", SECONDS, tmp_path / "idle")
    rest = run("record", "--ram", ram, tmp_path / "rest")
    assert "the VM has ended" in rest

    busy, idle = run("report", tmp_path / "busy"), run("report", tmp_path / "idle")
    assert shares(busy)["user or kernel"] >= SHARE_MIN
    assert re.search(r"^ \d+ +sh +[89]\d\.\d%", busy, re.M), busy
    assert shares(idle)["idle"] >= SHARE_MIN
    recording = Recording.open(tmp_path / "rest")
    assert recording.problems == () and recording.end is not None
    assert recording.end["rows"] == sum(table.num_rows for table in recording.tables())
    assert "_text" in {name for _, name in recording.symbols()}
    assert "Where each CPU was" in run("report", tmp_path / "rest")
