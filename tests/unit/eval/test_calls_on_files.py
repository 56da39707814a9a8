# SPDX-License-Identifier: GPL-2.0-only
"""Experiment files: its programs do their work on this machine, and what is made of saved rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eval.files import part_calls, part_native, part_python, spec
from trapless.base.console import Silent
from trapless.experiments.collection import Collection
from trapless.experiments.experiment import Raw, workload
from trapless.experiments.raw_files import read_rows

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "docs" / "results" / "6.1" / "files" / "raw.jsonl"
CONTRACT = {
    "stat.files.instructions",
    "stat.pool.instructions",
    "stat.uring.instructions",
    "read.files.instructions",
    "read.pool.instructions",
    "python.read.files.ratio_to_pool",
    "python.batch.read.ratio_to_os",
}
"""Metrics that readers elsewhere rely on."""
PARTS = {"calls": part_calls, "python": part_python, "native": part_native}


@pytest.fixture(scope="module")
def saved() -> dict[str, Raw]:
    rows = read_rows(DATA)
    return {name: Raw([row for row in rows if row["part"] == name], {}) for name in PARTS}


def test_the_metrics_of_the_contract_are_there_and_counted(saved):
    metrics = {}
    for name, part in PARTS.items():
        metrics |= part.analyse(saved[name]).metrics
    for name, metric in metrics.items():
        metric.check(name)
    assert metrics.keys() >= CONTRACT
    assert {metrics[name].kind for name in CONTRACT} == {"counted"}
    native = {metric.kind for name, metric in metrics.items() if name.startswith("native.")}
    assert native == {"measured"}


def test_a_crossing_serves_many_files_with_the_module_and_one_call_without(saved):
    crossings = part_calls.costs(saved["calls"].rows, "crossings")
    assert min(crossings["read", "files"]) < 0.2
    assert 4 < min(crossings["read", "files-plain"]) < min(crossings["read", "pool-calls"])
    assert min(crossings["stat", "plain"]) >= 1


def test_every_way_of_every_work_is_in_the_tables(saved):
    figure, table = part_calls.figures(saved["calls"])
    assert len(figure.series) == len(part_calls.WAYS)
    assert len(table.rows) == 2 * len(part_calls.WORK)
    gaps = [(row[0], row.count("–")) for row in table.rows if "–" in row]
    assert gaps == [("walk a tree", 1)] * 2  # by io_uring
    (table,) = part_python.figures(saved["python"])
    assert [row[0] for row in table.rows] == list(part_python.WAYS.values())


def test_what_a_machine_lacks_is_left_out_of_the_native_table_and_named(saved):
    rows = [row for row in saved["native"].rows if not row.get("call", "").startswith("node")]
    rows.append({"part": "native", "skipped": "Node", "reason": "it is absent"})
    (whole,) = part_native.figures(saved["native"])
    (less,) = part_native.figures(replace(saved["native"], rows=rows))
    assert {row[0] for row in whole.rows} - {row[0] for row in less.rows} == {"Node"}
    assert "Left out: Node (it is absent)" in less.caption


def test_without_the_library_for_python_its_part_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(part_python, "EXTENSION", tmp_path / "absent")
    run = Collection("files", tmp_path, quick=True, kernel="6.1", progress=Silent())
    run.part = "python"
    part_python.collect(run)
    run.finish()
    raw = Raw(read_rows(tmp_path / "raw.jsonl"), {})
    assert part_python.analyse(raw).metrics == {} and part_python.figures(raw) == ()


def rows_of(*command: str) -> list[dict[str, object]]:
    environment = dict(os.environ, PYTHONPATH=str(part_python.BINDING))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *rows, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == {"complete": True}
    return [row for row in rows if "value" in row]


def test_each_way_does_the_work_on_this_machine(tmp_path):
    program = str(workload("files"))
    options = ("--directory", str(tmp_path), "--files", "70", "--repeats", "1")
    rows = rows_of(program, *options, "--mechanisms", "plain,pool,pool-calls,files-plain")
    assert {(row["call"], row["mechanism"], row["ops"]) for row in rows} == {
        (work, way, 70 if work != "walk" else 1 + 3 + 70)
        for work in part_calls.WORK
        for way in ("plain", "pool", "pool-calls", "files-plain")
    }
    assert list(tmp_path.iterdir()) == []


def test_the_program_in_python_does_the_same_work_by_each_way(tmp_path):
    arguments = ("--directory", str(tmp_path), "--files", "64", "--repeats", "1")
    rows = rows_of(sys.executable, str(part_python.PROGRAM), *arguments)
    works = {(row["call"], row["mechanism"]) for row in rows}
    assert {"os", "pool", "files-plain", "many"} <= {way for _, way in works}
    assert {row["n"] for row in rows} == {spec.TASKS}


def test_a_guest_gets_all_that_the_program_imports():
    targets = {target for _, target in part_python.guest_files()}
    assert f"{part_python.GUEST_BINDING}/libtrapless/aio.py" in targets
    assert {Path(target).name for target in targets} >= {
        "python_tasks.py",
        "_ring.abi3.so",
        "selectors.py",
    }
