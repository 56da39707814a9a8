# SPDX-License-Identifier: GPL-2.0-only
"""`trapless stat --lab`: a program whose calls are known is counted as that, whatever runs beside.

A boot each for a command with children and a daemon, for a server under load (the one that is
calibrated), for both by turns in user and supervisor mode, for a command that a signal ends, and
for what cannot be counted.
"""

from __future__ import annotations

import pytest

from trapless.base.console import Silent, TraplessError
from trapless.base.paths import repo_root
from trapless.stat import guest
from trapless.stat.guest import Job
from trapless.stat.labels import LOOPS
from trapless.stat.run_counts import RunCounts
from trapless.vm import lab

# The lab's own limits of time apply.
pytestmark = [
    pytest.mark.lab,
    pytest.mark.outer_kernels,
    pytest.mark.tool,
    pytest.mark.timeout(0),
]

BUILT = repo_root() / "build" / "tests" / "lab" / "stat_calls"
PROGRAM = "/stat-calls"
PROCESSORS = ("pentium-4-1.8",)
CALLS, CHILDREN, PAGES = 1000, 3, 64
FEW = 100
"""Calls and page faults of a static program beside its own: start, forks, exits."""
SAVED_MIN = 150
"""Instructions that a call saves in supervisor mode, at least."""


def count(kernel: str, job: Job, processors: tuple[str, ...] = PROCESSORS) -> RunCounts:
    config = lab.LabConfig(kernel=kernel, files=((BUILT, PROGRAM),), quick_start=True)
    return guest.run(config, job, processors, Silent())


def test_a_command_and_all_that_it_starts_are_counted_and_nobody_else(kernel: str) -> None:
    """Beside it a process of another group makes calls without end; a daemon stays behind."""
    command = (PROGRAM, "children", str(CHILDREN), str(CALLS))
    beside = f"{PROGRAM} forever >/dev/null 2>&1 &"
    found = count(kernel, Job(command, prepare=beside, calibrate=False))
    crossings, known = found.row.crossings(), (CHILDREN + 1) * CALLS
    assert found.status == 0
    assert found.left_running
    assert known < crossings["syscall"] < known + FEW
    assert found.events["forks"] == CHILDREN + 2
    assert found.events["execs"] == 1
    assert found.events["exits"] == CHILDREN + 2  # but for the daemon
    faults = CHILDREN * PAGES
    assert faults < found.events["page_faults"] < faults + (CHILDREN + 3) * FEW
    assert found.rows["others"].crossings()["syscall"] > FEW
    assert found.turns > CHILDREN
    assert RunCounts.of_json(found.as_json()) == found


def test_a_server_is_counted_while_its_load_runs(kernel: str) -> None:
    load = f"{PROGRAM} ask {CALLS}"
    job = Job((PROGRAM, "serve"), load=load, ready="test -p /tmp/from-server", warm=1)
    found = count(kernel, job)
    assert found.status == 0
    assert 2 * CALLS <= found.row.crossings()["syscall"] <= 2 * CALLS + 2
    assert CALLS <= found.events["slept_out"] + found.events["preempted"] <= 2 * CALLS
    assert found.events["exits"] == found.events["execs"] == found.events["forks"] == 0
    # What was calibrated beside it: each loop in both modes, batches by trap only. Calls are not
    # told apart.
    assert set(found.loops) == set(LOOPS) - {"traced", "scans"}
    calls = found.loops["calls"]
    assert calls["trap"].features["syscall"] == calls["supervisor"].features["syscall"] == 65
    assert calls["supervisor"].instructions < calls["trap"].instructions - 64 * 100
    assert "supervisor" not in found.loops["batches"]
    # A timer interrupt may make a call leave the processor once more.
    once, twice = (found.loops[loop]["trap"].features for loop in ("sleeps", "sleeps_twice"))
    assert once["left_again"] <= 2 and 64 <= twice["left_again"] <= 66
    assert 128 <= twice["slept_out"] <= 130


def test_a_command_by_turns_differs_by_what_supervisor_mode_saves() -> None:
    job = Job((PROGRAM, "children", "0", str(CALLS)), turns="uss", calibrate=False)
    found = count(lab.DEFAULT_KERNEL, job, processors=())
    user, supervisor = found.repeats["trap"], found.repeats["supervisor"]
    assert (len(user), len(supervisor)) == (1, 2)
    for run in (*user, *supervisor):
        assert CALLS < run.features["syscall"] < CALLS + FEW
        assert run.features["execs"] == 1 and run.features["forks"] == 2
    for run in supervisor:
        assert user[0].instructions - run.instructions > CALLS * SAVED_MIN
    assert found.calls is not None and 2 * CALLS < found.calls.total < 2 * (CALLS + FEW)
    assert found.instructions == 0 and not found.loops  # the program's own phase never was
    assert RunCounts.of_json(found.as_json()) == found


def test_a_server_changes_its_mode_between_turns() -> None:
    """It lives on: what its loads ask in user mode does not come to the module."""
    job = Job(
        (PROGRAM, "serve"),
        load=f"{PROGRAM} ask {CALLS}",
        ready="test -p /tmp/from-server",
        turns="suusu",
        calibrate=False,
    )
    found = count(lab.DEFAULT_KERNEL, job, processors=())
    assert [len(found.repeats[mode]) for mode in ("trap", "supervisor")] == [3, 2]
    for run in (*found.repeats["trap"], *found.repeats["supervisor"]):
        assert 2 * CALLS - 2 <= run.features["syscall"] <= 2 * CALLS + 2
    # A thread changes at the end of a call, so one call of each change may be the other mode's.
    assert found.calls is not None and abs(found.calls.total - 2 * 2 * CALLS) <= 4


def test_a_command_that_a_signal_ends_was_counted() -> None:
    found = count(lab.DEFAULT_KERNEL, Job(("/bin/sh", "-c", "kill -9 $$"), calibrate=False))
    assert found.status == 128 + 9
    assert found.events["signals"] == 1


def test_a_server_whose_processes_come_and_go_is_switched(kernel: str) -> None:
    """At nearly every switch one of its processes is about to exit."""
    server = ("/bin/sh", "-c", "while :; do /bin/true & wait; done")
    turns = guest.by_turns(8)
    job = Job(server, load="sleep 0.01", ready="true", turns=turns, calibrate=False)
    found = count(kernel, job, ())
    assert found.status == 0
    assert {mode: len(runs) for mode, runs in found.repeats.items()} == {"trap": 8, "supervisor": 8}
    assert min(run.features["exits"] for runs in found.repeats.values() for run in runs) > 0


@pytest.mark.parametrize(
    ("job", "status", "message"),
    [
        (Job(("/no/such",)), 127, "cannot execute '/no/such' in the guest: No such file"),
        (
            Job((PROGRAM, "forever"), load="true", ready="false", ready_limit_s=1),
            125,
            f"{PROGRAM} was not ready after 1 s: `false` did not succeed",
        ),
        (
            Job((PROGRAM, "forever"), prepare="sleep 60", prepare_limit_s=1),
            125,
            "the command of --prepare did not end within 1 s of the guest's time: `sleep 60`",
        ),
    ],
    ids=["absent", "never-ready", "never-prepared"],
)
def test_what_was_not_counted_says_why(job: Job, status: int, message: str) -> None:
    with pytest.raises(TraplessError) as error:
        count(lab.DEFAULT_KERNEL, job)
    assert message in str(error.value) and error.value.status == status
