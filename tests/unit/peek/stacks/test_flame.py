# SPDX-License-Identifier: GPL-2.0-only
"""Sums of stacks in a recording, as flame graphs and as tables; hostile names among them."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.unit.peek.test_summary import busy_and_idle, head
from trapless.cli import cli
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.kernel_stacks import CpuStack, ThreadStack
from trapless.peek.kernel.unwinding.frames import Ending, Stack
from trapless.peek.kernel.user.user_stacks import NO_USER_STACK, UserStack
from trapless.peek.sampling.code_names import NAMES_FILE
from trapless.peek.sampling.recording import Recorder, Recording
from trapless.peek.stacks import flame, profile
from trapless.peek.stacks.profile import Profile

SLEEP = Stack(Ending.USER, (0xFFFFFFFF81000010, 0xFFFFFFFF81000020, 0xFFFFFFFF81000030))
WORK = Stack(Ending.LOST, (0xFFFFFFFF81000040,))
NAMES = ("schedule+0x10", "do_poll+0x1", "sys_poll+0x2 [toy]", "work+0x4")
HOSTILE = b"a;b\n\x1b[2J 7"
USER = UserStack((GuestText(b"wait [libc.so.6]"), GuestText(b"main [program]")), whole=True)
CUT = UserStack((GuestText(HOSTILE),))
MS = 1_000_000


def thread(
    pid: int, comm: bytes, stack: Stack | None, state: int = 1, user: UserStack = NO_USER_STACK
) -> ThreadStack:
    return ThreadStack(pid, pid, GuestText(comm), state, stack, user)


def sums() -> Profile:
    """Two samples: one of 10 ms with a CPU's registers, and one of 30 ms without."""
    found = Profile()
    threads = [thread(6, b"server", SLEEP), thread(7, HOSTILE, SLEEP, 2), thread(8, b"busy", None)]
    cpus = [
        CpuStack(0, 8, 8, GuestText(b"busy"), WORK),
        CpuStack(1, 9, 9, GuestText(b"user"), Stack(Ending.USER, ())),
    ]
    found.add(threads, cpus, 10 * MS)
    found.add([*threads, thread(3, b"kworker", SLEEP, 0x402)], [], 30 * MS)
    return found


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    what = head()
    with Recorder(tmp_path / "r", what, {"release": "6.1\x1b[2J", "context_user": 2}) as recorder:
        recorder.add(busy_and_idle(what))
        sums().keep(recorder)
        addresses = [*SLEEP.addresses, *WORK.addresses]
        table = pa.table({"address": pa.array(addresses, pa.uint64()), "name": pa.array(NAMES)})
        recorder.keep(NAMES_FILE, table)
        recorder.close(None)
    return Recording.open(tmp_path / "r")


def by_text(found: Profile) -> dict[tuple[object, ...], int]:
    """The sums with names as they are shown: a recording keeps them so."""
    return {
        (key.pid, key.group, str(key.comm), key.state, key.cpu, key.stack, user_text(key)): time_ns
        for key, time_ns in found.times.items()
    }


def user_text(key: profile.Key) -> tuple[object, ...]:
    return tuple(map(str, key.user.names)), key.user.whole, key.user.earlier


def with_user_stacks() -> Profile:
    """One sample of 10 ms: a thread that waits, and two on CPUs, one of them with registers."""
    found = Profile()
    registers = CpuStack(0, 6, 6, GuestText(b"busy"), Stack(Ending.USER, ()), CUT)
    in_kernel = CpuStack(1, 8, 8, GuestText(b"other"), WORK, USER)
    found.add([thread(5, b"server", SLEEP, user=USER)], [registers, in_kernel], 10 * MS)
    running = thread(9, b"turn", None, user=replace(USER, earlier=True))
    found.add([running], [], 10 * MS)
    return found


def stored(found: Profile, folder: Path) -> Recording:
    what = head()
    with Recorder(folder, what, {"release": "6.1", "context_user": 2}) as recorder:
        recorder.add(busy_and_idle(what))
        found.keep(recorder)
        recorder.close(None)
    return Recording.open(folder)


def test_frames_of_user_mode_are_below_those_of_the_kernel(tmp_path):
    recording = stored(with_user_stacks(), tmp_path / "r")
    loaded = profile.load(recording)
    assert loaded is not None and by_text(loaded) == by_text(with_user_stacks())
    flame.write(recording, tmp_path / "x")
    user, kernel = "main [program];wait [libc.so.6]", "0xffffffff81000030;0xffffffff81000020"
    assert sorted((tmp_path / "x").read_text().splitlines()) == [
        r"CPUs;busy;(callers not found);a:b\n\x1b[2J 7 10000",
        f"CPUs;other;{user};0xffffffff81000040 10000",
        f"threads that wait;server;(sleeping);{user};{kernel};0xffffffff81000010 10000",
        f"threads that wait;turn;{flame.RUNNING};{flame.LAST_ENTRY};{user} 10000",
    ]
    assert ("busy", "50.0%", r"a;b\n\x1b[2J 7") in flame.tables(recording)[0].rows


def test_names_of_user_mode_that_are_too_many_become_one(monkeypatch):
    monkeypatch.setattr(limits, "NAMES_MAX", 2)
    found = Profile()
    users = [UserStack((GuestText(b"%d" % number),)) for number in range(5)]
    found.add([thread(1, b"x", SLEEP, user=one) for one in users], [], MS)
    names = [str(key.user.names[0]) for key in found.times]
    assert names == ["0", "1", str(profile.OTHER_NAME)] and sum(found.times.values()) == 5 * MS


def test_sums_are_read_as_they_were_kept(recording):
    found = profile.load(recording)
    assert by_text(found) == by_text(sums()) and len(found.times) == 6
    assert (found.samples, found.time_ns, found.left_out) == (2, 40 * MS, 0)


def test_folded_stacks_have_a_line_for_each(recording, tmp_path):
    assert flame.write(recording, tmp_path / "x.folded") == "6 stacks, folded"
    lines = (tmp_path / "x.folded").read_text().splitlines()
    assert sorted(lines) == [
        "CPUs;busy;(callers not found);work 10000",
        "CPUs;user;(user mode) 10000",
        r"threads that wait;a:b\n\x1b[2J 7;(uninterruptible);sys_poll [toy];do_poll;schedule 40000",
        "threads that wait;busy;(on a CPU: its registers are not in memory) 30000",
        "threads that wait;kworker;(idle);sys_poll [toy];do_poll;schedule 30000",
        "threads that wait;server;(sleeping);sys_poll [toy];do_poll;schedule 40000",
    ]


def test_speedscope_has_a_profile_of_cpus_and_one_of_threads(recording, tmp_path):
    flame.write(recording, tmp_path / "x.json")
    made = json.loads((tmp_path / "x.json").read_text())
    frames = [one["name"] for one in made["shared"]["frames"]]
    assert made["$schema"] == flame.SCHEMA and made["name"] == r"6.1\x1b[2J"
    cpus, threads = made["profiles"]
    assert (cpus["name"], cpus["unit"], cpus["endValue"]) == ("CPUs", "seconds", 0.02)
    assert threads["endValue"] == pytest.approx(sum(threads["weights"])) == pytest.approx(0.14)
    assert len(set(frames)) == len(frames)
    first = [frames[frame] for frame in threads["samples"][0]]
    assert first[1:] in (
        ["(sleeping)", "sys_poll [toy]", "do_poll", "schedule"],
        ["(uninterruptible)", "sys_poll [toy]", "do_poll", "schedule"],
    )


def test_tables_say_where_threads_waited_without_the_scheduler(recording):
    cpus, threads = flame.tables(recording)
    assert set(cpus.rows) == {("busy", "50.0%", "work"), ("user", "50.0%", "(user mode)")}
    assert set(threads.rows) == {
        ("server", "sleeping", "1.00", "do_poll < sys_poll [toy]"),
        (r"a;b\n\x1b[2J 7", "uninterruptible", "1.00", "do_poll < sys_poll [toy]"),
    }
    assert "2 samples in 0.04 s" in threads.caption


@pytest.mark.slow
def test_page_and_json_have_what_the_tables_have(recording, tmp_path):
    page = tmp_path / "x.html"
    words = ["peek", "report", "--html", str(page), str(recording.folder)]
    text = CliRunner().invoke(cli, words).output
    for shown in (text, html.unescape(page.read_text())):
        assert "Where threads waited" in shown and "do_poll < sys_poll [toy]" in shown
    assert text.count("Where threads waited") == 1
    (boot,) = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)["boots"]
    assert {one["thread"]: one["share"] for one in boot["stacks"]["cpus"]} == {
        "busy": 0.5,
        "user": 0.5,
    }
    assert boot["stacks"]["waiting"][0]["place"] == "do_poll < sys_poll [toy]"
    assert (boot["stacks"]["samples"], boot["stacks"]["waiting"][0]["threads"]) == (2, 1.0)


def test_functions_that_are_too_many_have_one_text(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "NAMES_MAX", 1)
    flame.write(recording, tmp_path / "x")
    text = (tmp_path / "x").read_text()
    functions = set(re.findall(r"work\b|do_poll|schedule|sys_poll|one of too many", text))
    assert len(functions) == 3 and "one of too many" in functions


def test_recording_without_stacks_says_how_to_get_them(tmp_path):
    what = head()
    with Recorder(tmp_path / "r", what, {"context_user": 2}) as recorder:
        recorder.add(busy_and_idle(what))
        recorder.close(None)
    recording = Recording.open(tmp_path / "r")
    assert flame.tables(recording) == []
    with pytest.raises(PeekError, match=r"has no stacks: record them with .*--stacks 20"):
        flame.write(recording, tmp_path / "x")


def test_more_stacks_than_are_kept_are_counted(monkeypatch):
    monkeypatch.setattr(limits, "STACKS_KEPT_MAX", 2)
    found = Profile()
    found.add([thread(pid, b"x", SLEEP) for pid in range(5)], [], MS)
    assert len(found.times) == 2 and found.left_out == 3


def test_more_places_than_are_kept_are_counted(monkeypatch):
    monkeypatch.setattr(limits, "STACK_PLACES_MAX", 2 * len(SLEEP.addresses))
    found = Profile()
    found.add([thread(pid, b"x", SLEEP) for pid in range(5)], [], MS)
    assert len(found.times) == 2 and found.left_out == 3


@pytest.mark.parametrize(
    ("state", "text"),
    [(0, "runnable"), (1, "sleeping"), (2, "uninterruptible"), (0x402, "idle"), (4, "stopped")],
)
def test_states_have_names(state, text):
    (key,) = _keys(thread(1, b"x", SLEEP, state))
    assert key.state_text == text and re.fullmatch(r"\w+", text)


def _keys(one: ThreadStack) -> list[profile.Key]:
    found = Profile()
    found.add([one], [], MS)
    return list(found.times)
