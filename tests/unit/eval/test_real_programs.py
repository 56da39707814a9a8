# SPDX-License-Identifier: GPL-2.0-only
"""Real programs in experiment memory-hierarchy: what the guest is told, and what is made of counts.

On the counts of a whole run, saved. Owns the tests of trapless/experiments/stat_runs.py and of the
part "programs", as far as they need no VM.
"""

from __future__ import annotations

import copy
import json
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from eval.memory_hierarchy import part_programs as programs
from eval.memory_hierarchy import program_subjects, savings, spec
from trapless.base.console import Silent
from trapless.experiments import collection, raw_files, stat_runs
from trapless.experiments.experiment import Raw
from trapless.stat import guest
from trapless.stat.guest import Job
from trapless.stat.run_counts import MODES
from trapless.stock.real_programs import Programs
from trapless.vm.lab import LabConfig

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "data" / "programs-counted.jsonl"
NAMES = ("redis", "nginx", "sqlite", "find", "gcc")


@pytest.fixture(scope="module")
def rows():
    return raw_files.read_rows(DATA)


@pytest.fixture(scope="module")
def found(rows):
    return {program.name: program for program in savings.programs_of(rows)}


def run_of(after, label="one"):
    config = LabConfig(memory="1G")
    return stat_runs.Run(label, config, Job(("ls",)), ("core-i7-9700k",), after)


def said(run, guest_program):
    """What the lab's command prints on this machine, where `guest_program` stands for the guest's
    (the rest of its words are arguments)."""
    shell, option, text = run.argv
    command = text.replace(guest.PROGRAM, guest_program)
    assert command != text
    return subprocess.run([shell, option, command], capture_output=True, text=True, check=False)


# ---- What the guest is told --------------------------------------------------------------------


def test_a_run_that_is_proved_says_so_in_rows():
    done = said(run_of("echo 3 of 3; echo two lines"), "true")
    proof, last = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, proof, last) == (
        0,
        {"proof": "3 of 3 two lines"},
        {"complete": True},
    )


@pytest.mark.parametrize(
    ("after", "program"), [("echo fine", "false"), ("false", "true"), ("true", "true")]
)
def test_a_run_that_fails_or_proves_nothing_is_not_complete(after, program):
    done = said(run_of(after), program)
    assert done.returncode != 0
    assert "complete" not in done.stdout


@pytest.mark.parametrize("status", [0, 3])
def test_turns_are_taken_only_while_the_load_runs(tmp_path, status):
    switch = tmp_path / "features"
    text = program_subjects.taking_turns(f"cp {switch} {tmp_path}/during; (exit {status})")
    command = text.replace(program_subjects.FEATURES, str(switch))
    assert subprocess.run(["sh", "-c", command], check=False).returncode == status
    assert (tmp_path / "during").read_text() == "NO_WAKEUP_PREEMPTION\n"
    assert switch.read_text() == "WAKEUP_PREEMPTION\n"


@pytest.mark.parametrize("sizes", [program_subjects.QUICK, program_subjects.FULL])
def test_each_program_is_predicted_in_one_boot_and_run_by_turns_in_another(
    tmp_path, monkeypatch, sizes
):
    chosen = program_subjects.subjects(sizes)
    assert tuple(one.name for one in chosen) == NAMES
    assert all(one.after and bool(one.load) == bool(one.ready) for one in chosen)
    monkeypatch.setattr(programs, "pack", lambda root, subject, folder: folder / subject.name)
    root = Programs(tmp_path, {})
    runs = tuple(programs.runs("6.1", root, tmp_path, chosen))
    assert len({run.label for run in runs}) == 2 * len(NAMES)
    for user, turns in zip(runs[::2], runs[1::2], strict=True):
        assert user.config == turns.config and user.after == turns.after
        assert user.job == replace(turns.job, turns="", calibrate=True)
        assert user.processors and not turns.processors
        assert [turns.job.turns.count(mode) for mode in "us"] == [spec.PROGRAM_PAIRS.full] * 2


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(stat_runs.Run, "key", property(lambda run: f"key of {run.label}"))
    kept = collection.Collection(
        "memory-hierarchy", tmp_path, True, "6.1", Silent(), part="programs"
    )
    head = {"boot": "programs-one", "part": "programs", "key": "key of one", "release": "6.1"}
    kept.adopt(head, [{"run": "one"}])
    again = collection.Collection(
        "memory-hierarchy", tmp_path, True, "6.1", Silent(), part="programs"
    )
    stat_runs.collect(again, [run_of("true")])
    assert again.resumed == ["programs-one"]


# ---- What is made of it ------------------------------------------------------------------------


def test_predictions_are_near_what_was_counted(found):
    assert tuple(found) == NAMES
    errors = {name: one.error(one.saved.median) for name, one in found.items()}
    assert {name: error for name, error in errors.items() if abs(error) > savings.NEAR} == {}


def test_a_saving_is_the_median_of_pairs_and_its_metric_tells_their_spread(rows, found):
    counts = {row["run"]: row["counted"] for row in rows if "counted" in row}
    metrics = savings.metrics_of(tuple(found.values()))
    for name in found:
        ran = counts[f"{name}-turns"]["repeats"]
        user, supervisor = ([one["instructions"] for one in ran[mode]] for mode in MODES)
        each = sorted(one - other for one, other in zip(user, supervisor, strict=True))
        saved = metrics[f"{name}.supervisor.saved.instructions"]
        assert saved.value == pytest.approx(statistics.median(each)) and saved.n == len(each)
        assert saved.spread == each[-1] - each[0] > 0
        low, middle, high = (
            metrics[f"{name}.supervisor.error{end}.ratio"].value for end in ("-low", "", "-high")
        )
        assert low <= middle <= high
        predicted = metrics[f"{name}.supervisor.predicted.instructions"].value
        assert middle == pytest.approx(predicted / saved.value - 1, abs=1e-3)


def test_metrics_and_tables_have_every_program(rows, found):
    findings = programs.analyse(Raw(rows, {}))
    for name, metric in findings.metrics.items():
        metric.check(name)
    for name in NAMES:
        for processor in savings.PROCESSORS.values():
            assert 0 < findings.metrics[f"{name}.crossings.direct_{processor}.share"].value < 1
    drawn = {one.id: one for one in programs.figures(Raw(rows, {}))}
    assert [row[0] for row in drawn["programs-savings"].rows] == list(NAMES)
    assert drawn["programs-predicted"].names == NAMES
    assert len(drawn["programs-crossings"].rows) == 2 * len(NAMES)


def changed(rows, run, change):
    made = copy.deepcopy(rows)
    change(next(row for row in made if row.get("run") == run))
    return made


def repeats(row):
    return row["counted"]["repeats"]


def make_fewer_calls(row):
    features = repeats(row)["supervisor"][1]["features"]
    features["syscall"] = features["syscall"] * 9 // 10


@pytest.mark.parametrize(
    ("run", "change", "words"),
    [
        ("redis-user", lambda row: row.update(proof="less"), "redis did other work"),
        ("gcc-turns", lambda row: row["counted"].update(status=1), "status 0, then 1"),
        ("find-turns", lambda row: row["counted"].update(calls=None), "find made no call"),
        ("nginx-user", lambda row: row.pop("counted"), "nginx was not counted in both"),
        ("sqlite-turns", lambda row: repeats(row)["trap"].pop(), "not run as often in both"),
        ("sqlite-turns", make_fewer_calls, r"sqlite made [\d,]+ calls, then [\d,]+ to [\d,]+"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(rows, run, change, words):
    with pytest.raises(ValueError, match=words):
        savings.programs_of(changed(rows, run, change))


def test_rows_without_a_program_are_refused():
    with pytest.raises(ValueError, match="no program"):
        savings.programs_of([])
