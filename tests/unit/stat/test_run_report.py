# SPDX-License-Identifier: GPL-2.0-only
"""`trapless stat`: from saved counts of a run to what is predicted and shown, and the messages
where nothing can be counted."""

from __future__ import annotations

import json
import lzma
import re
import stat as modes
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from trapless.base import built_programs
from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.cli import cli
from trapless.stat import costs, guest, host, labels, run_counts, run_report, stat_text
from trapless.stat.guest import Job
from trapless.stat.run_counts import RunCounts

DATA = Path(__file__).parents[2] / "data" / "stat" / "find.json.xz"
"""`trapless stat --lab --compare supervisor --json` of find on a copy of /etc."""


@pytest.fixture(scope="module")
def saved():
    return json.loads(lzma.decompress(DATA.read_bytes()))


@pytest.fixture
def found(saved):
    return RunCounts.of_json(saved["counted"])


@pytest.fixture
def real(saved):
    return RunCounts.of_json(saved["counted_by_turns"])


# ---- Predicting --------------------------------------------------------------------------------


def test_each_loop_is_explained_exactly_by_what_it_did(found):
    terms = {term.name: term.saved for term in costs.supervisor_terms(found)}
    for name, loop, _ in costs.STEPS:
        if loop in costs.NEWER:
            continue
        ran = found.loops[loop]
        did = costs.features(ran["trap"].features)
        if loop in costs.UNSEEN:
            feature, number = costs.UNSEEN[loop]
            did[feature] = number
        saved = ran["trap"].instructions - ran["supervisor"].instructions
        later = [one for one, _, _ in costs.STEPS]
        known = later[: later.index(name) + 1]
        assert sum(did[one] * terms.get(one, 0.0) for one in known) == pytest.approx(saved)


def test_a_call_by_trap_costs_about_200_instructions_more(found):
    terms = {term.name: term.saved for term in costs.supervisor_terms(found)}
    assert 150 < terms.pop("calls") < 250
    for name in ("demoting", "demoted", "in_kernel", "signals", "worked", "slept_out"):
        assert -400 < terms[name] < -20


def test_the_prediction_is_within_20_percent_of_what_was_counted(found, real):
    made = run_report.Report(found, real)
    assert made.really_saved > 2 * costs.uncertainty(found)
    assert abs(made.prediction_error) < 0.2
    low, high = made.prediction_error_range
    assert low <= made.prediction_error <= high


def saving(real, each):
    """`real` where pairs saved so much."""
    user, supervisor = (real.repeats[mode][0] for mode in run_counts.MODES)
    repeats = {
        "trap": tuple(replace(user, instructions=1_000_000 + saved) for saved in each),
        "supervisor": tuple(replace(supervisor, instructions=1_000_000) for _ in each),
    }
    return replace(real, repeats=repeats)


def test_one_pair_that_something_fell_into_does_not_decide_what_was_saved(found, real):
    made = run_report.Report(found, saving(real, [200_000, 210_000, -500_000]))
    assert made.really_saved == 200_000
    assert made.wrong_by == 355_000
    assert "200 ± 355 k" in "\n".join(stat_text.lines(made, ["find"]))


def test_where_nothing_was_saved_no_error_is_given(found, real):
    made = run_report.Report(found, saving(real, [-5_000, -4_000, 3_000]))
    assert made.prediction_error is None and made.prediction_error_range is None
    shown = "\n".join(stat_text.lines(made, ["find"]))
    assert "not predictable: its own runs differ by 8,000 instructions" in shown
    assert re.search(r"predicted saving +not predictable$", shown, re.M)


def test_what_a_prediction_may_be_wrong_by_comes_from_the_pairs(found, real):
    """No pair that was run lies outside of it, and other programs' runs do not count."""
    each = [1_000_000, 1_090_000, 1_040_000]
    made = run_report.Report(found, saving(real, each))
    assert made.is_predictable and made.predicted.wrong_by == 50_000
    alone = run_report.Report(found)
    assert alone.predicted.wrong_by == costs.uncertainty(found) == alone.own_runs_apart


def test_own_runs_that_differ_by_more_than_the_saving_make_it_unpredictable(found, real):
    """Even where every pair saves the same: both of its runs do other work."""
    pairs = saving(real, [200_000, 200_000])
    moved = {
        mode: tuple(
            replace(run, instructions=run.instructions + place * 300_000)
            for place, run in enumerate(runs)
        )
        for mode, runs in pairs.repeats.items()
    }
    made = run_report.Report(found, replace(pairs, repeats=moved))
    assert made.saved_each == (200_000, 200_000) and made.own_runs_apart == 300_000
    shown = "\n".join(stat_text.lines(made, ["find"]))
    assert "not predictable" in shown and "% off" not in shown


def test_the_documented_terms_are_those_of_the_saved_run(found):
    documented = re.findall(
        r"^\| (.+) \| (-?[\d,]+) \|$", (repo_root() / "docs" / "stat.md").read_text(), re.M
    )
    terms = costs.supervisor_terms(found)
    assert documented == [(term.text, stat_text.whole(term.saved)) for term in terms]


def test_what_a_program_does_moves_its_prediction(found):
    before = costs.supervisor_saving(found).instructions
    sleepy = replace(found, events={**found.events, "slept_out": found.events["slept_out"] + 1000})
    assert costs.supervisor_saving(sleepy).instructions < before - 100_000
    terms = {term.name: term.saved for term in costs.supervisor_terms(found)}
    place = found.columns.index("crossings.syscall")
    program = list(found.program)
    program[place] += 1000
    busy = replace(found, program=tuple(program))
    assert costs.supervisor_saving(busy).instructions == pytest.approx(
        before + 1000 * terms["calls"]
    )


def test_a_loop_that_did_nothing_of_its_own_adds_nothing(found):
    idle = found.loops["preemptions"]["trap"]
    still = replace(idle, features={**idle.features, "preempted": 0})
    loops = {**found.loops, "preemptions": {**found.loops["preemptions"], "trap": still}}
    terms = costs.supervisor_terms(replace(found, loops=loops))
    assert next(term for term in terms if term.name == "preempted").saved == 0


def test_of_a_single_pair_sleeping_in_one_run_alone_widens_what_it_may_be_wrong_by(found, real):
    pair = saving(real, [200_000])

    def slept(more):
        (user,), (supervisor,) = (pair.repeats[mode] for mode in run_counts.MODES)
        features = {**user.features, "slept_out": supervisor.features["slept_out"] + more}
        repeats = {**pair.repeats, "trap": (replace(user, features=features),)}
        return run_report.Report(found, replace(pair, repeats=repeats)).wrong_by

    assert slept(0) == costs.uncertainty(found)
    assert slept(100) > slept(0) + 50_000


def test_boots_are_joined_repeat_by_repeat(found, real):
    one, other = saving(real, [1]), saving(real, [2])
    joined = one.joined(other)
    assert run_report.Report(found, joined).saved_each == (1, 2)
    assert joined.calls.total == 2 * real.calls.total


def test_without_supervisor_mode_only_batches_are_predicted(found):
    loops = {name: {"trap": ran["trap"]} for name, ran in found.loops.items()}
    made = run_report.Report(replace(found, loops=loops, refusals=1 << 3))
    assert [one.name for one in made.mechanisms] == ["batches of 32"]
    shown = "\n".join(stat_text.lines(made, ["find"]))
    assert "supervisor mode is not offered: " in shown and "page-table isolation" in shown


# ---- What is shown -----------------------------------------------------------------------------


def test_a_report_is_a_function_of_what_was_counted(saved, found, real):
    assert RunCounts.of_json(found.as_json()) == found
    again = json.loads(json.dumps(run_report.Report(found, real).as_json()))
    assert again == saved


def test_parts_of_clocks_are_parts(found):
    for processor in found.processors:
        clocks = run_report.Report(found).clocks(processor)
        assert 0 < clocks.direct.low < clocks.direct.high < clocks.total.low
        assert clocks.pollution.middle < clocks.total.middle


def test_the_report_fits_a_screen_and_its_columns_stand_under_each_other(found, real):
    shown = list(stat_text.lines(run_report.Report(found, real), ["find", "/etc"]))
    assert max(map(len, shown)) <= stat_text.WIDTH
    start = next(n for n, line in enumerate(shown) if line.startswith("crossings, counted"))
    end = start + shown[start:].index("")
    numbers = [line.split("  ")[-1] for line in shown[start + 1 : end]]
    assert {len(line) for line in shown[start:end]} == {len(shown[start])}
    assert all(number.strip().replace(".", "").replace(",", "").isdigit() for number in numbers)


def test_a_run_of_nothing_is_shown_without_a_crash(found, real):
    nothing = replace(
        found,
        program=(0,) * len(found.columns),
        events=dict.fromkeys(labels.EVENTS, 0),
        turns=0,
    )
    shown = "\n".join(stat_text.lines(run_report.Report(nothing, saving(real, [0, 0])), ["true"]))
    assert "0 instructions" in shown


def test_short_of_rows_is_said(tmp_path):
    path = tmp_path / "rows"
    path.write_text('{"format": "trapless-model", "version": 1, "columns": []}\n')
    with pytest.raises(TraplessError, match="not counted to its end"):
        run_counts.read(path, "x", ("core-i7-9700k",))


def test_runs_that_made_other_numbers_of_calls_did_different_work(found, real):
    alike = run_report.Report(found, real)
    assert alike.did_the_same
    assert "DIFFERENT WORK" not in "\n".join(stat_text.lines(alike, ["find"]))
    more = [
        replace(run, features={**run.features, "syscall": run.features["syscall"] * 104 // 100})
        for run in real.repeats["supervisor"]
    ]
    other = replace(real, repeats={**real.repeats, "supervisor": tuple(more)})
    different = run_report.Report(found, other)
    assert not different.did_the_same
    assert different.calls_apart == pytest.approx(0.04, abs=0.005)
    shown = "\n".join(stat_text.lines(different, ["find"]))
    assert "DIFFERENT WORK" in shown and " off" not in shown


def test_a_call_that_gives_way_in_its_middle_is_charged_as_one_that_slept(found):
    before = costs.supervisor_saving(found)
    gave_way = replace(found, events={**found.events, "preempted_within": 100})
    after = costs.supervisor_saving(gave_way)
    terms = {term.name: term.saved for term in costs.supervisor_terms(found)}
    assert after.instructions - before.instructions == pytest.approx(100 * terms["slept_out"])
    assert after.parts["preempted"] == before.parts["preempted"]


def test_runs_whose_threads_took_other_turns_did_different_work(found, real):
    run = real.repeats["trap"][0]
    calls = run.features["syscall"]
    turned = replace(run, features={**run.features, "preempted": calls // 50})
    assert run_report.did_the_same(run, run) and not run_report.did_the_same(run, turned)


def test_work_on_the_way_out_of_a_call_is_charged_once_however_often_it_left(found):
    loop = found.loops["sleeps_within"]
    twice = {
        mode: replace(
            one,
            instructions=one.instructions + labels.OPERATIONS * (50 if mode == "trap" else 90),
            features={**one.features, "left_again": labels.OPERATIONS},
        )
        for mode, one in loop.items()
    }
    run = replace(found, loops={**found.loops, "sleeps_twice": twice})
    terms = {term.name: term.saved for term in costs.supervisor_terms(run)}
    assert terms["left_again"] == pytest.approx(50 - 90)
    often = replace(run, events={**run.events, "left_again": 10})
    saved = [costs.supervisor_saving(one).instructions for one in (run, often)]
    assert saved[1] - saved[0] == pytest.approx(10 * terms["left_again"])
    assert "left_again" not in {term.name for term in costs.supervisor_terms(found)}


def test_the_load_of_a_server_is_said_to_share_its_processor(found):
    served = "\n".join(stat_text.lines(run_report.Report(replace(found, served=True)), ["srv"]))
    alone = "\n".join(stat_text.lines(run_report.Report(found), ["find"]))
    assert "shared the guest's one processor" in served
    assert "shared the guest's one processor" not in alone


def test_the_savings_name_the_option_that_knows_about_walks(found):
    shown = "\n".join(stat_text.lines(run_report.Report(found), ["find"]))
    assert re.search("at most by batches of 32.*\n.*--calls says what walks", shown)


def test_a_saving_below_0_is_explained(found):
    shown = " ".join(" ".join(stat_text.lines(run_report.Report(found), ["find"])).split())
    assert "below 0 where one side finds what the other has loaded: batches then add" in shown


# ---- Options and errors ------------------------------------------------------------------------


def test_a_job_becomes_words():
    words = guest.argv(Job(("srv",), load="go", ready="test -e x", turns="us", prepare="p"))
    assert words[-2:] == ["--", "srv"] and words[words.index("--turns") + 1] == "us"
    assert words[words.index("--load") + 1] == "go"
    assert words[words.index("--ready-limit") + 1] == "60" and "--prepare-limit" not in words
    limited = guest.argv(Job(("x",), prepare="p", prepare_limit_s=9))
    assert limited[limited.index("--prepare-limit") + 1] == "9"
    with pytest.raises(TraplessError, match="go together"):
        guest.argv(Job(("srv",), load="go"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--warm", "2", "--", "ls"], "--warm is about a VM: add --lab"),
        (["--processor", "x", "--", "ls"], "--processor is about a VM: add --lab"),
        (["--lab", "--load", "x", "--", "ls"], "--load and --ready go together"),
        (["--prepare-limit", "2", "--", "ls"], "--prepare-limit is about a VM: add --lab"),
        (["--lab", "--prepare-limit", "2", "--", "ls"], "about --prepare: add that"),
        (["--lab", "--ready-limit", "2", "--", "ls"], "about --ready: add that"),
        (["--lab", "--repeat", "2", "--", "ls"], "--repeat is about --compare: add that"),
        (["--lab", "--software", "--", "ls"], "--software is about this machine"),
        (["--lab", "--warm", "-1", "--", "ls"], "not in the range"),
    ],
)
def test_wrong_usage_is_named(words, message):
    result = CliRunner().invoke(cli, ["stat", *words])
    assert result.exit_code == 2 and message in result.output


def test_all_missing_parts_are_named_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr("trapless.base.built_programs.build_dir", lambda: tmp_path)
    monkeypatch.setattr("trapless.base.built_programs.repo_root", lambda: tmp_path)
    monkeypatch.setenv("TRAPLESS_QEMU", "no-such-emulator")
    result = CliRunner().invoke(cli, ["stat", "--lab", "--", "ls"])
    emulator, program = str(result.exception).splitlines()
    assert "names no-such-emulator" in emulator
    assert "trapless-stat-guest is not there" in program and "workloads` builds all" in program


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--lab", "--", "no-such-program"], 127, "no program 'no-such-program'"),
        (["--lab", "--processor", "8086", "--", "ls"], 2, "no processor '8086'; there are: "),
    ],
)
def test_what_cannot_be_run_is_said_before_a_vm_starts(words, status, message):
    result = CliRunner().invoke(cli, ["stat", *words])
    assert isinstance(result.exception, TraplessError)
    assert result.exception.status == status and message in str(result.exception)


def fake_counter(folder, script):
    program = folder / host.BUILT
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | modes.S_IXUSR)


def test_without_counters_the_lab_is_named(tmp_path, monkeypatch):
    fake_counter(tmp_path, "echo 'trapless-count: the kernel offers none; more' >&2; exit 125")
    monkeypatch.setattr(built_programs, "build_dir", lambda: tmp_path)
    with pytest.raises(TraplessError, match=r"^the kernel offers none; .*stat --lab -- ") as error:
        host.run(["ls"])
    assert error.value.status == 125


def test_counts_of_this_machine_are_a_table_by_mode(tmp_path, monkeypatch):
    columns = '["user.instructions", "user.clocks", "kernel.instructions", "kernel.clocks"]'
    header = f'{{"format": "trapless-counters", "version": 1, "columns": {columns}}}'
    row = '{"region": 0, "number": 0, "counted": 1.0, "counts": [1000, 2000, 30, 40]}'
    fake_counter(tmp_path, f"printf '%s\\n' '{header}' '{row}' > $1; exit 3")
    monkeypatch.setattr(built_programs, "build_dir", lambda: tmp_path)
    found = host.run(["ls"])
    assert found.status == 3
    lines = list(stat_text.counters(["ls"], found.events))
    assert lines[2:] == [
        "counted on this machine   user  kernel",
        "instructions             1,000      30",
        "clocks                   2,000      40",
        "",
        "2.0% of its clocks were the kernel's",
    ]


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(None, "No such file or directory (mount -t tracefs"), (0o000, "only root may read"),
     (0o400, "the kernel refuses to count")],
)  # fmt: skip
def test_system_calls_that_are_not_counted_have_a_reason(tmp_path, monkeypatch, mode, reason):
    counts = host.HostCounts(0, {"user.page_faults": 97, "kernel.page_faults": 4})
    monkeypatch.setattr(host, "run", lambda command, *, software: counts)
    monkeypatch.setattr(host, "TRACEPOINT", tmp_path / "id")
    if mode is not None:
        host.TRACEPOINT.write_text("348")
    if mode == 0:
        monkeypatch.setattr(Path, "read_bytes", refused)
    said = CliRunner().invoke(cli, ["stat", "--software", "--", "ls"]).output
    assert "system calls: not counted, because " in said
    assert reason in " ".join(said.split())
    counted = host.HostCounts(0, {**counts.events, "kernel.syscalls": 4})
    monkeypatch.setattr(host, "run", lambda command, *, software: counted)
    assert "because" not in CliRunner().invoke(cli, ["stat", "--", "ls"]).output


def refused(path):
    raise PermissionError(13, "Permission denied", str(path))


def test_a_file_that_cannot_be_written_costs_no_report(tmp_path, monkeypatch):
    counts = host.HostCounts(0, {"user.page_faults": 97, "kernel.page_faults": 4})
    monkeypatch.setattr(host, "run", lambda command, *, software: counts)
    done = CliRunner().invoke(cli, ["stat", "--json", str(tmp_path / "no" / "file"), "--", "ls"])
    assert "page faults" in done.output
    assert isinstance(done.exception, TraplessError) and "cannot be written" in str(done.exception)


def test_figures_take_the_place_of_older_ones_when_they_are_whole(tmp_path, monkeypatch):
    """A name that the old file has beside shows that nothing was written into that file."""
    counts = host.HostCounts(0, {"user.page_faults": 97, "kernel.page_faults": 4})
    monkeypatch.setattr(host, "run", lambda command, *, software: counts)
    file, old = tmp_path / "here.json", tmp_path / "old.json"
    file.write_text("old")
    old.hardlink_to(file)
    assert CliRunner().invoke(cli, ["stat", "--json", str(file), "--", "ls"]).exit_code == 0
    assert json.loads(file.read_text())["status"] == 0 and old.read_text() == "old"


def test_what_fails_here_has_no_status_of_the_commands(tmp_path):
    code = f"""
import pathlib, sys
from trapless import cli
from trapless.base import built_programs
built_programs.build_dir = built_programs.repo_root = lambda: pathlib.Path({str(tmp_path)!r})
sys.argv = ["trapless", "stat", "--", "ls"]
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repo_root(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert f"{host.BUILT} is not there" in done.stderr


def test_the_kernels_own_events_take_no_counters(tmp_path):
    made = tmp_path / "made"
    try:
        found = host.run(["sh", "-c", f"touch {made}; exit 4"], software=True)
    except TraplessError as error:
        assert error.status == 125  # no perf_event_open here
        pytest.skip(str(error))
    assert found.status == 4 and made.exists()
    assert found.events["user.page_faults"] + found.events["kernel.page_faults"] > 20
    assert not any("instructions" in column for column in found.events)


@pytest.mark.parametrize(("name", "status"), [("no-such-program", 127), ("text", 126), (".", 126)])
def test_a_command_that_cannot_be_run_here_has_the_status_of_a_shell(tmp_path, name, status):
    (tmp_path / "text").write_text("no program")
    path = name if status == 127 else str(tmp_path / name)
    try:
        assert host.run([path], software=True).status == status
    except TraplessError as error:
        pytest.skip(str(error))  # no perf_event_open here


def test_a_command_ends_with_the_one_that_counts_it(tmp_path):
    counter = [str(built_programs.find(host.BUILT)), "--software", str(tmp_path / "rows")]
    loop = "for i in $(seq 1000); do sleep 0.01; done; echo went on"
    shell = ["sh", "-c", f"trap 'echo ended; exit' TERM; echo begun; {loop}"]
    process = subprocess.Popen([*counter, *shell], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not process.stdout.readline():
        pytest.skip("no perf_event_open here")
    process.kill()
    assert process.stdout.read() == "ended\n"
    process.wait()
