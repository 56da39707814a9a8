# SPDX-License-Identifier: GPL-2.0-only
"""Experiments side by side: who may share the machine, and what becomes of their processes."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from trapless.base.console import Progress, Silent
from trapless.experiments import side_by_side
from trapless.experiments.side_by_side import Command


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def free(directory: Path, kind: int) -> bool:
    """Whether another process would get this kind of turn now."""
    folder = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(folder, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(folder)


def test_who_counts_shares_and_who_measures_is_alone(tmp_path: Path) -> None:
    with side_by_side.turn(tmp_path, alone=False):
        assert free(tmp_path, fcntl.LOCK_SH)
        assert not free(tmp_path, fcntl.LOCK_EX)
    with side_by_side.turn(tmp_path, alone=True):
        assert not free(tmp_path, fcntl.LOCK_SH)
    assert free(tmp_path, fcntl.LOCK_EX)


def test_who_counts_waits_for_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.Event()

    def count() -> None:
        with side_by_side.turn(tmp_path, alone=False):
            entered.set()

    with side_by_side._places(1, tmp_path) as places:
        monkeypatch.setenv(side_by_side.PLACES, ":".join(places.paths))
        with side_by_side.turn(tmp_path, alone=True):
            assert not places.one_is_free()
        assert places.one_is_free()
        with side_by_side.turn(tmp_path, alone=False):
            assert not places.one_is_free()
            other = threading.Thread(target=count)
            other.start()
            assert not entered.wait(3 * side_by_side.LOOK_S)
        other.join()
        assert entered.is_set()
    with side_by_side.turn(tmp_path, alone=False):  # those that had the places are gone
        assert not free(tmp_path, fcntl.LOCK_EX)


@pytest.mark.slow
def test_another_begins_when_a_place_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    class Waiting(side_by_side._Process):
        """Ends when all have begun: it never takes a place."""

        def __init__(self, command: Command, places: Sequence[str], progress: Progress) -> None:
            super().__init__(command, places, progress)
            begun.append(command.name)

        def ended(self) -> bool:
            return len(begun) == len("abc") and super().ended()

    monkeypatch.setattr(side_by_side, "_Process", Waiting)
    monkeypatch.setattr(side_by_side, "BEGIN_S", 0.0)
    commands = [Command(name, ["--version"]) for name in "abc"]
    assert not side_by_side.run("three", commands, 1, tmp_path, Silent())
    assert begun == list("abc")


@pytest.mark.slow
def test_lines_carry_names_and_failures_their_reasons(tmp_path: Path) -> None:
    notes = Notes()
    commands = [Command("fine", ["--version"]), Command("wrong", ["evaluate", "none-such"])]
    failed = side_by_side.run("two", commands, 2, tmp_path, notes)
    assert failed.keys() == {"wrong"}
    assert failed["wrong"].status == 2
    assert "no experiment 'none-such'" in failed["wrong"].words
    assert any(line.startswith("fine: trapless") for line in notes.said)
    assert any(line.startswith("wrong: ") for line in notes.said)


def test_interrupted_it_ends_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    class Interrupting(side_by_side._Process):
        def __init__(self, command: Command, places: Sequence[str], progress: Progress) -> None:
            super().__init__(command, places, progress)
            begun.append(self)

        def ended(self) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(side_by_side, "_Process", Interrupting)
    commands = [Command(name, ["doctor"]) for name in "abcd"]
    with pytest.raises(KeyboardInterrupt):
        side_by_side.run("four", commands, 2, tmp_path, Silent())
    ended = [process._process.returncode is not None for process in begun]
    assert ended == [True, True]
