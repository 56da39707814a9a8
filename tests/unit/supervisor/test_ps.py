# SPDX-License-Identifier: GPL-2.0-only
"""`trapless ps`: a table for people, columns for pipes, JSON for programs."""

from __future__ import annotations

import errno
import io
import json

import pytest

from trapless import abi
from trapless.abi import Demotion, Mode, Refusal
from trapless.supervisor import ps
from trapless.supervisor.control import Calls, Process


def process(pid=12, **changed):
    fields = {
        "pid": pid,
        "command": "redis-server",
        "mode": Mode.SUPERVISOR,
        "flags": abi.SWITCH_CHILDREN | abi.SWITCH_RESIDENT,
        "threads": 5,
        "supervisor": 4,
        "resident": 1,
        "calls": Calls(12345, 100, 50, 5),
        "switches": 3,
        "demotions": dict.fromkeys(Demotion, 0) | {Demotion.INTERRUPT: 40, Demotion.EXIT: 2},
    }
    return Process(**{**fields, **changed})


ENDED = process(0, command="(ended)", mode=Mode.USER, flags=0, threads=0, supervisor=0)
NOTHING_ENDED = process(0, calls=Calls(0, 0, 0, 0))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(processes, refusals=0, stream=None, **options):
    stream = stream if stream is not None else io.StringIO()
    ps.show(processes, refusals, stream, **options)
    return stream.getvalue()


def test_a_pipe_gets_one_line_for_each_under_the_titles():
    titles, first, last = shown([process(), ENDED]).splitlines()
    values = dict(zip(titles.split(), first.split(), strict=True))
    assert values == {
        "PID": "12",
        "MODE": "supervisor",
        "THREADS": "5",
        "SUPERVISOR": "4",
        "OPTIONS": "children,resident",
        "SWITCHES": "3",
        "CALLS": "12500",
        "SHARE": "0.9956",
        "DIRECT": "12345",
        "WORKED": "100",
        "LEFT": "50",
        "KERNEL": "5",
        **dict.fromkeys((cause.name for cause in Demotion), "0"),
        "INTERRUPT": "40",
        "EXIT": "2",
        "COMMAND": "redis-server",
    }
    assert last.split()[:2] == ["-", "-"] and last.endswith(ps.ENDED)


def test_titles_stand_above_their_values():
    titles, line = shown([process()]).splitlines()
    for title in ("PID", "CALLS", "SHARE", "EXIT"):
        end = titles.index(title) + len(title)
        assert line[end - 1].isdigit() and line[end] == " "


def test_a_command_with_blanks_is_the_end_of_its_line():
    (_, line) = shown([process(command="a b  c")]).splitlines()
    assert line.endswith(" a b  c")


def test_before_the_first_call_there_is_no_share():
    (titles, line) = shown([process(calls=Calls(0, 0, 0, 0))]).splitlines()
    assert dict(zip(titles.split(), line.split(), strict=True))["SHARE"] == "-"


def test_json_has_every_number():
    data = json.loads(shown([process(), ENDED], 1 << Refusal.PTI, as_json=True))
    assert data["refusals"] == ["pti"]
    (one,) = data["processes"]
    assert one["calls"] == {
        "direct": 12345,
        "worked": 100,
        "left": 50,
        "kernel": 5,
        "total": 12500,
    }
    assert (one["pid"], one["mode"], one["memory_locked"]) == (12, "supervisor", True)
    assert one["options"] == ["children", "resident"]
    assert set(one["demotions"]) == {cause.name.lower() for cause in Demotion}
    assert one["demotions"]["interrupt"] == 40
    assert data["ended"]["calls"]["total"] == 12500


def test_what_never_made_a_call_is_not_among_the_ended():
    assert json.loads(shown([NOTHING_ENDED], as_json=True))["ended"] is None
    assert len(shown([NOTHING_ENDED]).splitlines()) == 1


def test_a_terminal_gets_a_table_without_zeros(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = shown([process(flags=abi.SWITCH_FLAGS), ENDED], stream=Terminal())
    for words in (
        "12 redis-server",
        "4 of 5 threads",
        "99.6%",
        "12,345 direct",
        "40 interrupt",
        "2 exit",
    ):
        assert words in text
    assert "page fault" not in text and ps.ENDED in text


def test_memory_that_could_not_be_locked_is_said_so(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    text = shown([process(resident=-errno.ENOMEM)], stream=Terminal())
    assert "not locked: Cannot" in " ".join(text.split())


@pytest.mark.parametrize(
    ("refusals", "words"),
    [(0, "trapless switch --supervisor PID"), (1 << Refusal.PTI, "page-table isolation is on")],
)
def test_an_empty_table_says_what_is_next(refusals, words):
    assert words in shown([NOTHING_ENDED], refusals, stream=Terminal())
