# SPDX-License-Identifier: GPL-2.0-only
"""Progress: silent for quick steps, one line kept on a terminal, plain lines into a pipe.

It drives trapless/base/console.py with a clock that is moved by hand where waiting would be slow.
"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import time
from contextlib import suppress

import pytest

from trapless.base import console
from trapless.base.console import ConsoleProgress, TraplessError, duration
from trapless.base.paths import repo_root


@pytest.fixture
def quickly(monkeypatch):
    """Makes 'after one second' come after 50 ms, so that the tests need no patience."""
    monkeypatch.setattr(console, "SHOW_AFTER_S", 0.05)
    monkeypatch.setattr(console, "REDRAW_S", 0.01)
    monkeypatch.setattr(console, "SIGN_OF_LIFE_S", 0.05)


def shown(stream, text):
    """Wait for it; a hang ends by pytest's limit."""
    while text not in stream.getvalue():
        time.sleep(0.01)


def test_a_quick_step_prints_nothing():
    stream = io.StringIO()
    with ConsoleProgress(stream) as progress:
        progress.step("building")
        progress.step("packing")
    assert stream.getvalue() == ""


def test_a_slow_step_into_a_pipe_is_plain_lines(quickly):
    stream = io.StringIO()
    with ConsoleProgress(stream) as progress:
        progress.step("building the module")
        progress.advance(1, 2)
        shown(stream, "left")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "building the module ..."
    assert "50%" in lines[1] and "left" in lines[1]
    assert lines[-1].startswith("building the module: done in ")
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_a_step_that_was_interrupted_is_not_done(quickly):
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), ConsoleProgress(stream) as progress:
        progress.step("building the module")
        shown(stream, "...")
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines()[-1].startswith("building the module: stopped after ")


def test_a_step_that_tells_of_an_interrupt_does_not_say_that_the_last_was_done(quickly):
    stream = io.StringIO()
    with ConsoleProgress(stream) as progress:
        progress.step("building the module")
        shown(stream, "...")
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            progress.step("removing what was half made")
    said = [line for line in stream.getvalue().splitlines() if line.startswith("building")]
    assert said[-1].startswith("building the module: stopped after ")


def test_a_slow_step_on_a_terminal_leaves_no_trace(quickly):
    stream = io.StringIO()
    with ConsoleProgress(stream, tty=True) as progress:
        progress.step("booting")
        shown(stream, "booting")
    assert "booting" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_note_is_printed_at_once_and_stays():
    stream = io.StringIO()
    with ConsoleProgress(stream) as progress:
        progress.note("kept files in x")
        assert stream.getvalue() == "kept files in x\n"


def test_done_ends_a_step_before_others_print(quickly):
    stream = io.StringIO()
    with ConsoleProgress(stream, tty=True) as progress:
        progress.step("booting")
        shown(stream, "booting")
        progress.done()
        size = len(stream.getvalue())
        time.sleep(0.1)
        assert len(stream.getvalue()) == size


def test_a_reader_that_went_away_does_not_stop_the_work(quickly):
    stream = io.StringIO()
    with ConsoleProgress(stream) as progress:
        progress.step("booting")
        stream.close()
        time.sleep(0.1)
        progress.note("still here")


def test_an_impossible_total_shows_no_fraction():
    with ConsoleProgress(io.StringIO()) as progress:
        progress.step("counting")
        progress.advance(3, 0)
        assert progress._fraction is None
        progress.advance(9, 3)
        assert progress._fraction == 1.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.42, "0.4 s"), (12.4, "12 s"), (59.4, "59 s"), (185, "3 min 05 s")]
)
def test_durations_read_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_an_error_carries_its_exit_status():
    assert TraplessError("no such kernel").status == 1
    assert TraplessError("no such kernel", status=2).status == 2


def test_columns_are_those_that_are_asked_for_also_of_a_pipe(monkeypatch):
    pipe = io.StringIO()
    for text, columns in (("61", 61), ("", 100), ("x", 100), ("1", 100), ("99999", 100)):
        monkeypatch.setenv("COLUMNS", text)
        assert console.output_columns(pipe, 100) == columns


FACES = [("doctor",), ("doctor", "--calls", "refused"), ("report", "docs/results/6.12")]


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES, ids=" ".join)
def test_no_color_leaves_no_escapes_on_a_terminal(face):
    ours, theirs = pty.openpty()
    env = os.environ | {"NO_COLOR": "1", "TERM": "xterm", "PAGER": "cat"}
    command = [repo_root() / "bin/trapless", *face]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=repo_root(), env=env)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # so the end of a terminal is told
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    assert process.wait() == 0 and len(shown) > 500
    assert shown.count(b"\x1b") == 0
