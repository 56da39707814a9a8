# SPDX-License-Identifier: GPL-2.0-only
"""The part of peek-overhead about probes and reads, on rows whose figures are known."""

from __future__ import annotations

import copy
import re
import tarfile
from pathlib import Path

import pytest

from eval.peek_overhead import part_loss as loss
from eval.peek_overhead import probe_counts as counted
from eval.peek_overhead import reading, toolchain, workloads
from trapless.base import elf
from trapless.base.console import TraplessError
from trapless.experiments.experiment import Raw
from trapless.stock import program_archive

NONE = 1_000_000_000
PARTS = {"qsort": 0.0001, "make": 0.001, "httpd": 0.004}
STEPS = {"calls": 1000, "faults": 1000, "switches": 1000}
ROUNDS = 7
SETTLED = {"slots": 1000, "lost": 2, "ready": True}


def counted_rows():
    rows = [{"steps": STEPS, "requests": 100}]
    for repeat in range(ROUNDS):
        for load in (*workloads.LOADS, *STEPS):
            part_of = PARTS.get(load, 0.01)
            for factor, setting in enumerate(("none", *counted.SETTINGS)):
                # In the first round, much else was due: by far more than probes cost.
                value = NONE + (30_000_000 if not repeat else 0)
                value += round(NONE * part_of * factor / 2)
                row = {"load": load, "setting": setting, "repeat": repeat, "value": value}
                row |= {"unit": "instructions", "idle": 0}
                rows.append(row | ({"hits": 50_000} if setting == "counts" else {}))
    return rows


def measured_rows(slower=0.001):
    rows, phase = [], 0
    for repeat in range(ROUNDS):
        for load in workloads.LOADS:
            for setting in ("none", "both", "reads"):
                phase += 2
                value = round(NONE * (1 + (slower if setting == "reads" else 0)))
                row = {"load": load, "setting": setting, "repeat": repeat, "value": value}
                rows.append(row | {"unit": "ns", "phase": phase})
                if setting == "reads":
                    rows.append({"phase": phase} | SETTLED)
    return rows


COUNTED, MEASURED = counted_rows(), measured_rows()


def judged(rows):
    (claim,) = loss.analyse(Raw(copy.deepcopy(rows), {})).claims
    assert claim.id == "peek-loss"
    return claim


def test_probes_cost_what_they_add_whatever_else_was_due_in_some_run():
    metrics = loss.analyse(Raw(COUNTED + MEASURED, {})).metrics
    assert metrics["make.both.added.ratio"].value == pytest.approx(0.001, rel=0.05)
    assert metrics["make.both.added.ratio"].spread == pytest.approx(0.03)
    assert metrics["make.both.added.ratio"].kind == "counted"
    assert metrics["calls.modes.added.instructions"].value == NONE * 0.005 / 1000


def test_figures_at_or_below_the_papers_hold():
    claim = judged(COUNTED + MEASURED)
    assert claim.holds is True
    assert "make 0.10%" in claim.ours


def test_dear_probes_do_not_hold_and_are_named():
    rows = copy.deepcopy(COUNTED)
    for row in rows:
        if (row.get("load"), row.get("setting")) == ("httpd", "both"):
            row["value"] += NONE // 100
    claim = judged(rows + MEASURED)
    assert claim.holds is False
    assert claim.note == "Above the paper's: httpd."


def test_reads_that_surely_cost_more_do_not_hold():
    claim = judged(COUNTED + measured_rows(slower=0.03))
    assert claim.holds is False
    assert "httpd, make, qsort" in claim.note


def test_a_few_rounds_decide_nothing_against_the_paper():
    few = [row for row in measured_rows(slower=0.03) if row.get("repeat", 0) < 4]
    phases = {row["phase"] for row in few if "load" in row}
    claim = judged(COUNTED + [row for row in few if row["phase"] in phases])
    assert claim.holds is None
    assert "in 4 rounds" in claim.note


def test_a_busy_machine_leaves_the_claim_open_and_says_how_busy():
    rows = copy.deepcopy(MEASURED)
    for row in rows:
        if row.get("setting") == "reads":
            row["value"] = round(row["value"] * (0.85 + 0.05 * row["repeat"]))
    claim = judged(COUNTED + rows)
    assert claim.holds is None
    assert re.search(r"\d\d\.\d points wide", claim.note)


@pytest.mark.parametrize(
    "change", [{"ready": False}, {"lost": 900}], ids=["came late", "lost too much"]
)
def test_runs_that_were_hardly_read_do_not_count(change):
    rows = copy.deepcopy(MEASURED)
    next(row for row in rows if "slots" in row).update(change)
    for row in rows:
        if (row.get("load"), row.get("setting"), row.get("repeat")) == ("qsort", "reads", 0):
            row["value"] *= 3
    found = reading.slowdowns(rows)
    assert len(found["qsort", "reads"]) == ROUNDS - 1
    assert max(found["qsort", "reads"]) < 0.01


def test_where_all_lost_too_much_the_best_three_count():
    rows = copy.deepcopy(MEASURED)
    for row in rows:
        if "slots" in row:
            row["lost"] = 900
    assert len(reading.slowdowns(rows)["httpd", "reads"]) == 3


def test_a_sampler_that_always_came_late_is_missed():
    rows = copy.deepcopy(MEASURED)
    for row in rows:
        if "slots" in row:
            row["ready"] = False
    with pytest.raises(ValueError, match="only 0 runs of qsort, reads"):
        reading.slowdowns(rows)


def test_probes_that_nothing_hits_are_no_probes():
    rows = copy.deepcopy(COUNTED)
    for row in rows:
        if row.get("load") == "make" and "hits" in row:
            row["hits"] = 0
    with pytest.raises(ValueError, match="make: no probe was hit"):
        counted.costs(rows)


def test_a_load_that_did_not_run_is_missed():
    rows = [row for row in COUNTED if row.get("load") != "httpd"]
    with pytest.raises(ValueError, match="no counted runs of httpd"):
        loss.analyse(Raw(rows + MEASURED, {}))


def test_tables_have_all_loads_beside_the_papers_figures():
    tables = {table.id: table for table in loss.figures(Raw(COUNTED + MEASURED, {}))}
    assert set(tables) == {"peek-probes", "peek-probes-each", "peek-slow-down"}
    rows = {row[0]: row for row in tables["peek-probes"].rows}
    assert tuple(rows) == workloads.LOADS
    assert rows["httpd"][-1] == "0.5%"
    assert tables["peek-slow-down"].rows[2][4] == "1.8%"


def test_the_script_prepares_serves_runs_and_ends():
    sizes = workloads.Sizes(1 << 20, ("lctype.o",), 7, {"calls": 10})
    lines = workloads.script(sizes, ["--kind", "counted"])
    (run,) = (line for line in lines if line.startswith("/tmp/peek-overhead"))
    assert "--requests 7" in run
    assert "exec /tmp/sort 1048576" in run
    assert "exec /tmp/peek-calls calls 10" in run
    assert lines.index(run) > lines.index(workloads.LOOPBACK_UP)
    assert lines[-1] == "echo '{\"complete\": true}'"


def test_the_toolchain_has_programs_libraries_and_headers_and_no_link(tmp_path):
    """A root as small as can be: cc1 is this machine's own shell, links go the ways they may."""
    root, folder = tmp_path / "root", tmp_path / "folder"
    folder.mkdir()
    shell = Path("/bin/sh").resolve().read_bytes()
    for name in (*toolchain.PROGRAMS, program_archive.LOADER, "lib/x86_64-linux-gnu/libc.so.6"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shell if name in toolchain.PROGRAMS else library())
    for header in toolchain.HEADERS:
        (root / header / "sub").mkdir(parents=True)
        (root / header / "one.h").write_text(header)
    sh = root / "bin" / "sh"
    sh.rename(root / "bin" / "dash")
    sh.symlink_to("/bin/dash")
    with tarfile.open(toolchain.pack(root, folder)) as tar:
        names = tar.getnames()
        assert all(member.isfile() for member in tar)
        assert tar.extractfile("bin/sh").read() == shell
    assert len(set(names)) == len(names)
    assert "lib/x86_64-linux-gnu/libc.so.6" in names
    assert {f"{header}/one.h" for header in toolchain.HEADERS} <= set(names)


def library():
    """This machine's own C library."""
    (found,) = (path for path in elf.dependencies(Path("/bin/sh")) if path.name == "libc.so.6")
    return found.read_bytes()


def test_a_library_that_is_not_there_is_named(tmp_path):
    for name in toolchain.PROGRAMS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(Path("/bin/sh").resolve().read_bytes())
    with pytest.raises(TraplessError, match=r"needs libc\.so\.6"):
        toolchain.pack(tmp_path, tmp_path)
