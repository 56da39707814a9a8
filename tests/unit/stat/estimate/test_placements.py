# SPDX-License-Identifier: GPL-2.0-only
"""The program that measures, run for real, and its rows: no assertion is about time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from trapless.base import built_programs
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import repo_root
from trapless.cli import cli
from trapless.estimate import commands, estimated_machine, placements, sums

CPU = max(os.sched_getaffinity(0))
BRIEF = ["--cpu", str(CPU), "--seconds", "0", "--rounds", "4"]


@pytest.fixture(scope="module")
def program():
    target = f"build/{placements.BUILT}"
    subprocess.run(["make", "-s", target], cwd=repo_root(), check=True)
    return built_programs.find(placements.BUILT)


@pytest.mark.parametrize("loop", estimated_machine.LOOPS)
def test_every_build_of_the_loop_runs_and_times_each_subject(program, tmp_path, loop):
    """The program itself checks each result: a loop that does not do the work ends it."""
    files, folder = tmp_path / "files", tmp_path / "folder"
    files.mkdir()
    folder.mkdir()
    options = ["--loop", loop, "--folder", str(folder), "--directory", str(files)]
    reading = placements.one(program, [*options, *BRIEF])
    assert reading.rounds == 4
    parts = [f"listing.{part}.n256" for part in ("names", "statx", "refused", "fstat")]
    floors = ["function", "vdso", "popfq", "chain"]
    assert {*sums.basis(loop), *parts, *floors} <= set(reading.median)
    assert all(value > 0 for value in reading.least.values())
    assert all(reading.least[name] <= reading.median[name] for name in reading.median)
    assert ("uring.nop.n32" in reading.median) != ("uring" in reading.absent)
    assert not list(folder.iterdir())
    assert len(list(files.iterdir())) == sums.DIRECTORY_N


def test_each_process_lies_elsewhere(program, tmp_path):
    """By what the kernel maps: the program's own code, twice."""
    seen = set()
    for _ in range(2):
        with placements._copy(program) as (path, descriptors):
            process = subprocess.Popen(
                [path, "--loop", "direct_plain", "--seconds", "600", "--folder", str(tmp_path)],
                pass_fds=descriptors,
                stdout=subprocess.DEVNULL,
            )
        try:
            deadline = time.monotonic() + 60
            mine: list[str] = []
            while not mine and time.monotonic() < deadline:
                with open(f"/proc/{process.pid}/maps") as maps:
                    mine = [line.split()[0] for line in maps if program.name in line]
            seen.add(mine[0])
        finally:
            process.kill()
            process.wait()
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--loop", "curly"], "no loop is called 'curly'"),
        (["--loop", "direct_plain", "--folder", "/nowhere"], "/nowhere"),
        (["--loop", "direct_plain", "--seconds", "soon"], "--seconds: soon"),
        (["--loop", "direct_plain", "--cpu", "1023"], "--cpu"),
        ([], "usage"),
    ],
)
def test_wrong_options_are_named(program, options, said):
    with pytest.raises(TraplessError, match=said):
        placements.one(program, options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "no JSON",
        '{"rounds": 4, "clocks_per_ns": 0}\n{"subject": "a", "least": 1, "median": 1}',
        '{"rounds": 4, "clocks_per_ns": 2.5}',
        '{"rounds": 4, "clocks_per_ns": 2.5}\n{"subject": "a", "least": 1}',
    ],
)
def test_rows_that_are_none_are_refused(text):
    with pytest.raises(TraplessError, match="printed"):
        placements.parse(text)


@pytest.mark.slow
def test_the_command_prints_or_says_why_not(program, monkeypatch, tmp_path):
    """A machine that is busy may refuse; then the message names the halves and the remedy."""
    monkeypatch.setattr(commands, "SECONDS", 0.0)
    file = tmp_path / "here.json"
    done = CliRunner().invoke(cli, ["estimate", "--json", str(file), "--folder", str(tmp_path)])
    if done.exception is None:
        assert "An estimate, and no measurement of the module" in done.output
        assert file.exists()
    else:
        assert isinstance(done.exception, TraplessError)
        assert "halves of the run differ" in str(done.exception)
        assert not file.exists()


def test_a_cpu_that_is_not_ours_is_wrong_usage():
    done = CliRunner().invoke(cli, ["estimate", "--cpu", "100000"])
    assert done.exit_code == 2
    assert "CPU 100000 is none that we may use" in done.output


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_and_leaves_nothing(program, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "trapless", "estimate", "--folder", str(tmp_path)],
        cwd=repo_root(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()  # the step is shown after a second: it measures
    os.killpg(process.pid, signal.SIGINT)
    _, rest = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "measuring" in line
    assert rest.splitlines()[-1] == "trapless: interrupted"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_readings_come_from_as_many_processes_as_were_asked_for(program, tmp_path):
    readings = placements.run(3, 0.0, "retpoline_safe", CPU, tmp_path, Silent())
    assert len(readings) == 3
