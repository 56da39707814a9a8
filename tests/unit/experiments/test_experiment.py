# SPDX-License-Identifier: GPL-2.0-only
"""Experiments read from real raw data: those of the published results (docs/results/6.1).

Expected figures are computed here from the rows by other means, so that analysing is held to
the data, not to itself.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import re
import shutil
import statistics
from functools import cache
from pathlib import Path

import pytest

from eval.batch_size import batch_figures, part_calls
from eval.parallel import part_slow_read as slow_read
from tests.notes import Notes
from trapless.base import built_programs
from trapless.base.architecture import ARM64
from trapless.base.console import ConsoleProgress, Silent, TraplessError
from trapless.experiments import evaluate, experiment, report_files
from trapless.experiments.collection import Collection
from trapless.experiments.raw_files import read_rows
from trapless.report.figures import Figure, Table
from trapless.results import claims, result_file
from trapless.results.result_file import Metric
from trapless.stock import kernels

DATA = Path(__file__).parents[3] / "docs/results/6.1"
MAKEFILE = Path(__file__).parents[3] / "Makefile"
ONE = Metric(1, "count", "counted")
NAMES = ("batch-size", "ls", "mode-switch", "parallel", "programs")


@cache
def all_rows_of(name):
    return read_rows(DATA / name / "raw.jsonl")


@cache
def published(name):
    return experiment.analyse(name, DATA / name)


def rows_of(name, **wanted):
    return [
        dict(row)  # some tests change it
        for row in all_rows_of(name)
        if all(row.get(key) == value for key, value in wanted.items())
    ]


@pytest.fixture
def rewritten(tmp_path):
    """Saved raw data of an experiment, less the rows that a function rejects."""

    def rewrite(name, keep):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(DATA / name / "meta.json.xz", folder)
        rows = [row for row in rows_of(name) if keep(row)]
        (folder / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return rewrite


def test_experiments_are_found_by_their_folders():
    assert set(NAMES) <= set(experiment.names())
    for name in experiment.names():
        spec = experiment.get(name)
        assert spec.name == name
        assert spec.question.endswith("?")
        assert spec.limits


def test_an_unknown_experiment_is_wrong_usage_and_names_the_known():
    with pytest.raises(TraplessError, match=", ".join(experiment.names())) as error:
        experiment.get("nothing-like-it")
    assert error.value.status == 2


@pytest.mark.parametrize(
    ("typed", "meant"), [("mode_switch", "mode-switch"), ("batchsize", "batch-size")]
)
def test_an_experiment_that_is_nearly_known_is_asked_for(typed, meant):
    with pytest.raises(TraplessError, match=rf"'{typed}'; did you mean {meant}\?") as error:
        experiment.get(typed)
    assert error.value.status == 2


@pytest.mark.parametrize("name", NAMES)
def test_saved_data_gives_a_well_formed_result_with_every_claim(name):
    result = published(name)
    result.check()
    ours = {claim.id for claim in claims.published().values() if claim.experiment == name}
    assert {claim.id for claim in result.claims} == ours


@pytest.mark.parametrize("name", NAMES)
def test_figures_come_from_saved_data_alone(name):
    drawings = experiment.figures(name, DATA / name)
    assert any(isinstance(one, Figure) for one in drawings)
    assert any(isinstance(one, Table) for one in drawings)
    for one in drawings:
        if isinstance(one, Figure):
            assert one.series, one.id
        else:
            assert one.rows, one.id


@pytest.mark.parametrize(("mechanism", "n"), [("plain", 1), ("batch", 32), ("io_uring-nop", 128)])
def test_counted_figures_are_instructions_of_the_region_by_calls(mechanism, n):
    rows = rows_of("batch-size", kind="counted", call="getppid", mechanism=mechanism, n=n)
    metric = published("batch-size").metrics[f"getppid.{mechanism}.n{n}.instructions"]
    assert metric.value == pytest.approx(rows[0]["value"] / rows[0]["ops"], abs=1e-3)
    assert metric.n == len(rows) >= 3


def test_counted_repeats_of_traps_and_batches_are_exact():
    metrics = published("batch-size").metrics
    exact = [
        name
        for name, metric in metrics.items()
        if metric.kind == "counted" and name.split(".")[0] in ("nosys", "getpid", "getppid")
    ]
    assert len(exact) > 60
    assert [name for name in exact if metrics[name].spread and ".io_uring" not in name] == []


def test_measured_ratios_pair_rounds():
    wanted = {"kind": "measured", "call": "read1", "n": 8}
    plain = {r["repeat"]: r for r in rows_of("batch-size", mechanism="plain", **wanted)}
    batch = {r["repeat"]: r for r in rows_of("batch-size", mechanism="batch", **wanted)}
    ratios = [
        (batch[k]["value"] / batch[k]["ops"]) / (plain[k]["value"] / plain[k]["ops"]) for k in plain
    ]
    metric = published("batch-size").metrics["read1.batch.n8.ratio"]
    assert metric.value == pytest.approx(statistics.median(ratios), abs=1e-4)
    assert (metric.kind, metric.n) == ("measured", len(plain))


def test_measured_break_even_is_doubted_where_rounds_disagree():
    calls = batch_figures
    plain = {1: [10.0] * 5, 2: [10.0] * 5}
    quiet = {1: [12.0] * 5, 2: [8.0, 8.0, 8.1, 8.2, 8.0]}
    noisy = {1: [12.0] * 5, 2: [8.0, 80.0, 8.1, 90.0, 8.0]}
    measured = {("stat", "plain"): plain, ("stat", "batch"): quiet}
    assert calls.measured_text(measured, "stat", "plain", "batch") == "2"
    assert calls.noise_note(measured) == ""
    measured["stat", "batch"] = noisy
    assert calls.measured_text(measured, "stat", "plain", "batch") == "2?"
    assert "In 1 of 2 measured ratios" in calls.noise_note(measured)


def test_equation_1_predicts_what_was_counted():
    metrics = published("batch-size").metrics

    def fitted(name):
        return metrics[f"getppid.batch.fit_{name}.instructions"].value

    for n in (2, 32, 128):
        a_batch = fitted("o2") + fitted("a") + n * (fitted("s") + fitted("work"))
        counted = n * metrics[f"getppid.batch.n{n}.instructions"].value
        assert a_batch == pytest.approx(counted, rel=0.02)


def test_break_even_is_where_counts_cross():
    metrics = published("batch-size").metrics
    first = int(metrics["getppid.batch.break_even.n"].value)
    sizes = sorted({row["n"] for row in rows_of("batch-size", call="getppid", mechanism="batch")})

    def wins(n):
        return (
            metrics[f"getppid.batch.n{n}.instructions"].value
            < metrics[f"getppid.plain.n{n}.instructions"].value
        )

    assert [n for n in sizes if wins(n)] == [n for n in sizes if n >= first]


def test_requesters_cross_once_a_notify():
    metrics = published("parallel").metrics
    assert metrics["gettid.psc.n16.crossings"].value == 8 + 1  # and one wait
    assert metrics["gettid.psc.n127.crossings"].value == 1 + 1
    assert metrics["gettid.plain.n16.crossings"].value == 127


def test_who_served_adds_up_to_what_was_asked():
    served = rows_of("parallel", workers=4, boot="requests-measured-1")
    total = sum(row["served"] for row in served if "served" in row)
    made = next(row["made"] for row in served if row.get("check") == "gettid.psc")
    assert total == made


def test_a_slow_read_stops_plain_readers_in_the_saved_data():
    metrics = published("parallel").metrics
    assert metrics["slow_read.plain.gap.ratio"].value > 0.95
    assert metrics["slow_read.psc.gap.ratio"].value < metrics["slow_read.plain.gap.ratio"].value


def test_full_speed_is_that_of_the_fastest_loop_without_reads():
    idle = [{"units": 50, "value": 100}, {"units": 100, "value": 100}]
    rows = [{"units": 90, "value": 100, "gap_ns": 1, "latency_ns": 4, "ops": 16}]
    assert slow_read.shares(rows, idle)["work"] == [pytest.approx(0.9)]


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("batch-size", lambda row: row.get("mechanism") == "batch"),
        ("batch-size", lambda row: row.get("kind") == "counted"),
        ("parallel", lambda row: row.get("mechanism") == "psc"),
        ("parallel", lambda row: row.get("call") == "slow_read"),
    ],
)
def test_incomplete_raw_data_is_refused_by_name(rewritten, name, lost):
    folder = rewritten(name, lambda row: not lost(row))
    with pytest.raises(TraplessError, match=f"incomplete or damaged.*evaluate {name}"):
        experiment.analyse(name, folder)


@pytest.mark.parametrize("value", ["many", None, [], {}])
@pytest.mark.parametrize(("name", "field"), [("batch-size", "value"), ("parallel", "ops")])
def test_a_row_that_holds_something_else_is_refused_by_name(rewritten, name, field, value):
    folder = rewritten(name, lambda row: row.update({field: value} if field in row else {}) or True)
    with pytest.raises(TraplessError, match=f"incomplete or damaged.*evaluate {name}"):
        experiment.analyse(name, folder)
    with pytest.raises(TraplessError, match=f"incomplete or damaged.*evaluate {name}"):
        experiment.figures(name, folder)


@pytest.mark.parametrize("machine", [None, 5, {"cpus": "2"}])
def test_a_machine_that_is_not_described_is_unknown(rewritten, machine):
    folder = rewritten("parallel", lambda row: True)
    meta = experiment.load_meta(folder) | {"machine": machine}
    (folder / "meta.json").write_text(json.dumps(meta))
    assert experiment.analyse("parallel", folder).machine == "unknown"


def test_a_kernel_without_32_bit_calls_leaves_the_int_claims_open(rewritten):
    folder = rewritten("batch-size", lambda row: "int" not in row.get("mechanism", ""))
    result = experiment.analyse("batch-size", folder)
    claims = {claim.id: claim for claim in result.claims}
    assert claims["wsc-int"].holds is None
    assert claims["wsc-fast-trap"].holds is None
    assert claims["wsc-sysenter"].holds is not None
    assert experiment.figures("batch-size", folder)


def test_counts_that_differ_between_two_boots_end_the_experiment():
    rows = rows_of("batch-size", kind="counted")[:5]
    assert part_calls.compare_boots(rows, rows)["made"] == 5
    other = [*rows[:-1], {**rows[-1], "value": rows[-1]["value"] + 1}]
    with pytest.raises(TraplessError, match="counted differently"):
        part_calls.compare_boots(rows, other)
    with pytest.raises(TraplessError, match="different numbers of rows"):
        part_calls.compare_boots(rows, rows[:-1])


@pytest.fixture
def offline(monkeypatch):
    """evaluate.run() without building, VMs and drawing: collecting copies the saved data."""
    written = []
    monkeypatch.setattr(built_programs, "build", lambda progress: None)
    monkeypatch.setattr(kernels, "resolve", lambda *_: None)
    monkeypatch.setattr(
        "trapless.experiments.report_files.write",
        lambda out, progress, page: written.append(out),
    )

    def collect(spec, directory, *, quick, kernel, progress, scheduler, place, arch):
        shutil.copytree(DATA / spec.name, directory, dirs_exist_ok=True)

    monkeypatch.setattr(experiment, "collect", collect)
    return written


def run(out, *names):
    outcome = evaluate.run(names, quick=True, out=out, kernel="any", progress=Silent())
    return outcome.status


def test_evaluate_saves_results_and_reports(offline, tmp_path):
    assert run(tmp_path, *NAMES) == 0
    for name in NAMES:
        assert result_file.load(tmp_path / name).experiment == name
    assert offline == [tmp_path]


@pytest.fixture
def failing(offline, monkeypatch):
    """Makes collecting batch-size fail so many times, each with its own reason."""

    def make(times):
        copy, reasons = experiment.collect, [f"check {number} failed" for number in range(times)]

        def collect(spec, directory, **words):
            if spec.name == "batch-size" and reasons:
                raise TraplessError(reasons.pop(0))
            copy(spec, directory, **words)

        monkeypatch.setattr(experiment, "collect", collect)

    return make


def test_an_experiment_that_fails_once_is_tried_again(offline, failing, tmp_path):
    failing(1)
    notes = Notes()
    outcome = evaluate.run(NAMES, quick=True, out=tmp_path, kernel="any", progress=notes)
    assert outcome.status == 0
    assert notes.said[1:] == ["batch-size failed: check 0 failed\ntrying it once more"]
    assert (tmp_path / "batch-size" / "result.json").exists()
    assert experiment.load_failure(tmp_path / "batch-size") is None


def test_one_that_fails_twice_fails_evaluate_but_not_the_others(offline, failing, tmp_path):
    failing(2)
    notes = Notes()
    out = tmp_path / "my results"
    outcome = evaluate.run(NAMES, quick=True, out=out, kernel="any", progress=notes)
    assert (outcome.status, outcome.failed) == (1, ("batch-size",))
    command = f"trapless evaluate batch-size --quick --kernel any --out '{out}'"
    assert notes.said[2] == (
        f"batch-size failed again: check 1 failed\nto go on with it: {command}"
    )
    assert experiment.load_failure(out / "batch-size") == ("check 1 failed", command)
    assert not (out / "batch-size" / "result.json").exists()
    assert (out / "parallel" / "result.json").exists()
    assert offline == [out]


def test_one_that_is_interrupted_names_the_command_that_continues(offline, tmp_path, monkeypatch):
    def collect(spec, directory, **words):
        (directory / "boots").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "collect", collect)
    shutil.copytree(DATA / "ls", tmp_path / "ls")
    with pytest.raises(KeyboardInterrupt):
        evaluate.run(NAMES[:1], quick=True, out=tmp_path, kernel="any", progress=Silent())
    (unfinished,) = report_files.read(tmp_path, Silent()).unfinished
    assert unfinished.state.startswith("was not finished")
    words = f"trapless evaluate {NAMES[0]} --quick --kernel any --out {tmp_path}"
    assert unfinished.go_on == words


def test_what_is_about_to_happen_is_said_first(offline, tmp_path, monkeypatch):
    def collect(spec, directory, **words):
        raise TraplessError("not here")

    monkeypatch.setattr(experiment, "collect", collect)
    notes = Notes()
    evaluate.run([], quick=True, out=tmp_path, kernel="any", progress=notes)
    first = notes.said[0]
    said = r"(\d+) experiments \(quick\) in VMs of kernel any: about (\d+) min on 2 idle"
    found = re.match(said, first)
    assert found and int(found[1]) == len(evaluate.default_names(quick=True))
    assert "fetches a kernel (85 MB) and programs" in first and "\n" not in first
    # The Makefile says it before anything is installed.
    span = re.search(r"ABOUT_EVALUATE = .*: (\d+) to (\d+) min", MAKEFILE.read_text())
    assert span and int(span[1]) <= int(found[2]) <= int(span[2])


def test_parts_of_full_runs_are_left_out_of_quick_ones(tmp_path, monkeypatch):
    parts = tuple(
        experiment.Part(
            name,
            lambda run: run.write([{"made": True}]),
            lambda raw: experiment.Findings({f"{raw.rows[0]['part']}.plain.count": ONE}),
            lambda raw: (),
            full_only=name == "long",
        )
        for name in ("short", "long")
    )
    spec = dataclasses.replace(experiment.get("parallel"), parts=parts)
    monkeypatch.setattr(experiment, "get", lambda name: spec)
    for quick in (True, False):
        experiment.collect(spec, tmp_path, quick=quick, kernel="6.1", progress=Silent())
        made = {"short.plain.count"} if quick else {"short.plain.count", "long.plain.count"}
        assert experiment.analyse("parallel", tmp_path).metrics.keys() == made


def test_parts_that_wait_to_be_alone_are_collected_last(tmp_path):
    for name, alone in (("mode-switch", [True, False, False]), ("batch-size", [True, False, True])):
        assert [part.alone for part in experiment.get(name).parts] == alone
    parts = tuple(
        experiment.Part(
            name,
            lambda run: run.write([{"made": True}]),
            lambda raw: experiment.Findings({}),
            lambda raw: (),
            alone=name == "timed",
        )
        for name in ("timed", "counted", "stepped")
    )
    spec = dataclasses.replace(experiment.get("parallel"), parts=parts)
    experiment.collect(spec, tmp_path, quick=True, kernel="6.1", progress=Silent())
    rows = experiment.load_raw(tmp_path).rows
    assert [row["part"] for row in rows] == ["counted", "stepped", "timed"]


def test_a_full_disk_is_a_failure_and_not_a_traceback(offline, tmp_path, monkeypatch, capsys):
    def collect(spec, directory, **words):
        raise OSError(errno.ENOSPC, "No space left on device", str(directory / "raw.jsonl"))

    monkeypatch.setattr(experiment, "collect", collect)
    with ConsoleProgress(tty=False) as progress:
        outcome = evaluate.run(["parallel"], quick=True, out=tmp_path, kernel="", progress=progress)
    assert outcome.failed == ("parallel",)
    assert f"{tmp_path}/parallel/raw.jsonl: No space left" in capsys.readouterr().err


def test_a_wrong_kernel_is_wrong_usage_and_touches_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(built_programs, "build", lambda progress: None)
    shutil.copytree(DATA / "parallel", tmp_path / "parallel")
    before = sorted(path.name for path in (tmp_path / "parallel").iterdir())
    with pytest.raises(TraplessError, match="unknown kernel 'none-such'") as error:
        evaluate.run(["parallel"], quick=True, out=tmp_path, kernel="none-such", progress=Silent())
    assert error.value.status == 2
    assert sorted(path.name for path in (tmp_path / "parallel").iterdir()) == before


def test_another_processor_has_its_programs_and_no_other_experiment(offline, tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(built_programs, "cross_build", lambda *given: built.append(given[:2]))
    monkeypatch.setattr("trapless.stock.real_programs.foreign_libraries", lambda *_: tmp_path)
    words = {"quick": True, "out": tmp_path / "r", "kernel": "6.12", "progress": Silent()}
    with pytest.raises(TraplessError, match=r"^on arm64 there is batch-size; left out: parallel$"):
        evaluate.run(["batch-size", "parallel"], arch=ARM64, **words)
    assert built == []
    for named in (["batch-size"], []):
        evaluate.run(named, arch=ARM64, **words)
        assert built.pop() == (ARM64, ["eval/batch_size/batch-size"])


def test_results_that_cannot_be_written_are_refused_first(offline, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TraplessError, match=r"file/results: .*Not a directory; name a folder"):
        run(tmp_path / "file" / "results", "parallel")
    assert offline == []


def test_the_report_is_made_where_everything_failed(offline, tmp_path, monkeypatch):
    def collect(spec, directory, **words):
        raise TraplessError("no such kernel")

    monkeypatch.setattr(experiment, "collect", collect)
    assert run(tmp_path, "parallel") == 1
    assert offline == [tmp_path]


def test_a_new_collection_begins_by_forgetting_old_results(tmp_path, monkeypatch):
    spec = experiment.get("parallel")
    (tmp_path / "result.json").write_text("old")
    (tmp_path / "raw.jsonl").write_text("old")
    experiment.note_failure(tmp_path, "old", "old")

    def refuse(self, *args):
        raise TraplessError("the VM did not start")

    monkeypatch.setattr(Collection, "boot", refuse)
    with pytest.raises(TraplessError, match="did not start"):
        experiment.collect(spec, tmp_path, quick=True, kernel="6.1", progress=Silent())
    assert not (tmp_path / "result.json").exists()
    assert not (tmp_path / "raw.jsonl").exists()
    assert experiment.load_failure(tmp_path) is None


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "made_up_spec.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):  # the second time, too
        with pytest.raises(TraplessError, match="a_package_that_nobody_has"):
            experiment.load_spec("made_up_spec", "made-up")
