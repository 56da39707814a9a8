# SPDX-License-Identifier: GPL-2.0-only
"""Grids: rows over VMs, kept as they come, whatever a VM or the runner dies of.

The guest is stood in for by a function that writes what the model's plugin would; the processes
beside the VMs are real.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import time

import pyarrow.parquet as pq
import pytest

from trapless.console import Silent, TraplessError
from trapless.measure import collect, grid
from trapless.model import plugin
from trapless.vm import lab, qemu

COLUMNS = ["user.reads", "kernel.reads"]
HEADER = {"format": "trapless-model", "version": 1, "columns": COLUMNS, "structures": []}
ROWS, REGIONS, VMS = 5, 3, 2


class Plan:
    """What is modelled, as far as a grid cares."""

    text = "cache l2 size=1"

    def write(self, path, memory_bytes):
        path.write_text(f"memory {memory_bytes}\n{self.text}\n")


def a_grid(name="g"):
    return grid.Grid(
        name=name, rows=ROWS, regions=REGIONS, vms=VMS, config=lab.LabConfig(),
        argv=("/bin/x", "--rows", grid.MASK), plan=Plan(), total=float(ROWS * REGIONS),
        row_of=lambda label: label // 10, effort=lambda label: 1.0,
        describe=lambda label: {"order": "batched", "user_kb": label // 10},
    )  # fmt: skip


def counts(label):
    return [label * 7, label * 11]


class Guest:
    """lab.run() without a VM: writes rows where the plugin would, and dies where it is told."""

    def __init__(self, ran, *, dies_at=None, wrong=False, hangs=False, good=True):
        self.ran, self.dies_at, self.wrong, self.hangs = ran, dies_at, wrong, hangs
        self.good = good

    def __call__(self, config, argv, *, sink):
        with open(self.ran, "a") as file:
            file.write(argv[2] + "\n")
        output = re.search("output=([^,]+)", config.plugins[-1])[1]
        with open(output, "w") as rows:
            rows.write(json.dumps(HEADER) + "\n")
            for row, wanted in enumerate(argv[2]):
                for region in range(REGIONS if wanted == "1" else 0):
                    label = 10 * row + region
                    if label == self.dies_at:
                        rows.write('{"region": 1, "cou')
                        raise TraplessError("the VM ended before the command finished")
                    made = [value + self.wrong for value in counts(label)]
                    line = {"region": label, "number": 0, "counts": made}
                    rows.write(json.dumps(line) + "\n")
                    rows.flush()
                    if self.hangs and label == self.hangs:
                        time.sleep(60)
            rows.write(json.dumps({"end": {"rows": 0}}) + "\n")
        sink(b'{"check": "sums", "made": 4}\n')
        if self.good:
            sink(b'{"complete": true}\n')
        return lab.LabResult(0, b"", b"", "", "0.0-stock", 1.0, ("qemu", "-plugin", "x"))


@pytest.fixture(autouse=True)
def without_qemu(monkeypatch, tmp_path):
    library = tmp_path / "model.so"
    library.write_bytes(b"plugin")
    monkeypatch.setattr(plugin, "file", lambda binary: library)
    monkeypatch.setattr(qemu, "binary", lambda: "qemu")
    monkeypatch.setattr(grid, "CONTEXT", multiprocessing.get_context("fork"))


def run(folder, monkeypatch, **guest):
    """One collection into a folder; the masks of the VMs that were started."""
    ran = folder.with_name(f"{folder.name}.ran")
    ran.unlink(missing_ok=True)
    monkeypatch.setattr(lab, "run", Guest(ran, **guest))
    folder.mkdir(exist_ok=True)
    collection = collect.Collection("made-up", folder, True, "6.1", Silent())
    collection.part = "pairs"
    try:
        grid.collect(collection, [a_grid()], jobs=2)
        collection.finish()
    finally:
        started = sorted(ran.read_text().split()) if ran.exists() else []
        folder.with_name(f"{folder.name}.masks").write_text("\n".join(started))
    return started


def masks(folder):
    return folder.with_name(f"{folder.name}.masks").read_text().split()


def test_all_rows_become_one_file_in_order(tmp_path, monkeypatch):
    assert run(tmp_path / "a", monkeypatch) == ["01010", "10101"]
    table = pq.read_table(tmp_path / "a" / "g.parquet").to_pydict()
    labels = [10 * row + region for row in range(ROWS) for region in range(REGIONS)]
    assert table["user_kb"] == [label // 10 for label in labels]
    assert [list(pair) for pair in zip(*(table[c] for c in COLUMNS), strict=True)] == [
        counts(label) for label in labels
    ]
    assert not (tmp_path / "a" / grid.ROWS_FOLDER).exists()
    raw = collect.read_rows(tmp_path / "a" / "raw.jsonl")
    assert [row["boot"] for row in raw] == ["g-vm0", "g-vm1"]


def test_a_guest_that_dies_in_a_row_loses_that_row_alone(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    with pytest.raises(TraplessError, match=r"g-vm0: the VM ended.*\n4 of 5 rows are finished"):
        run(folder, monkeypatch, dies_at=41)
    assert len(list((folder / grid.ROWS_FOLDER / "g").glob("row-*.parquet"))) == 4
    assert run(folder, monkeypatch) == ["10101"]  # the other VM's rows are there
    run(tmp_path / "b", monkeypatch)
    interrupted, whole = (tmp_path / name / "g.parquet" for name in "ab")
    assert interrupted.read_bytes() == whole.read_bytes()


def test_the_last_region_of_a_guest_that_failed_a_check_is_not_kept(tmp_path, monkeypatch):
    with pytest.raises(TraplessError, match=r"without its last line.*\n3 of 5 rows"):
        run(tmp_path / "a", monkeypatch, good=False)


def test_a_row_made_again_must_be_what_it_was(tmp_path, monkeypatch):
    with pytest.raises(TraplessError, match="4 of 5"):
        run(tmp_path / "a", monkeypatch, dies_at=41)
    with pytest.raises(TraplessError, match="row 0 of g was made again and differs"):
        run(tmp_path / "a", monkeypatch, wrong=True)


def test_rows_of_other_conditions_are_dropped(tmp_path, monkeypatch):
    with pytest.raises(TraplessError):
        run(tmp_path / "a", monkeypatch, dies_at=41)
    monkeypatch.setattr(Plan, "text", "cache l2 size=2")
    assert run(tmp_path / "a", monkeypatch, wrong=True) == ["01010", "10101"]


def test_a_damaged_row_is_made_again(tmp_path, monkeypatch):
    with pytest.raises(TraplessError):
        run(tmp_path / "a", monkeypatch, dies_at=41)
    broken = tmp_path / "a" / grid.ROWS_FOLDER / "g" / "row-00001.parquet"
    broken.write_bytes(broken.read_bytes()[:100])
    assert run(tmp_path / "a", monkeypatch) == ["01010", "10101"]
    assert pq.read_table(tmp_path / "a" / "g.parquet").num_rows == ROWS * REGIONS


def test_what_a_killed_runner_had_finished_is_there(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    runner = multiprocessing.get_context("fork").Process(
        target=run, args=(folder, monkeypatch), kwargs={"hangs": 40}
    )
    runner.start()
    rows = folder / grid.ROWS_FOLDER / "g"
    end = time.monotonic() + 30
    while len(list(rows.glob("row-*.parquet"))) < 4 and time.monotonic() < end:
        time.sleep(0.1)
    os.kill(runner.pid, signal.SIGKILL)
    runner.join()
    assert len(list(rows.glob("row-*.parquet"))) == 4
    assert run(folder, monkeypatch) == ["10101"]
