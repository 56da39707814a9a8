# SPDX-License-Identifier: GPL-2.0-only
"""Batches in free order, the third part of memory-hierarchy: its grids, and what their counts say.

On tables made here, of which all is known. The library's order itself is held by
tests/unit/lib, the guest's side by the lab.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval.memory_hierarchy import part_reorder as reorder
from eval.memory_hierarchy import reorder_tables as told
from eval.memory_hierarchy import variants
from trapless.experiments import experiment
from trapless.model.model_plan import Plan
from trapless.report.figures import Map

NAME = "memory-hierarchy"
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "build" / "eval" / "memory_hierarchy" / f"{NAME}-reorder"


PLAN = Plan.of([variants.main(name) for name in variants.SHORT])
LOADS = {load.name: load for load in reorder.loads(quick=True)}


def names():
    found = {}
    for (variant, role), structure in PLAN.names.items():
        found.setdefault(variant, {})[role] = structure
    return found


def row_of(one, calls):
    """A region's counts: with order 3 misses of each structure a call less, of the 10 there are."""
    counts = {f"{mode}.instructions": 1000.0 * calls for mode in told.MODES}
    if one.unordered:
        counts["user.instructions"] += (100 if one.arrival == "random" else 20) * calls
    counts |= {"kernel.reads": 8.0 * one.kernel_kb * calls, "crossings.sysret": calls / one.n}
    misses = 10 - 3 * one.unordered * (one.kernel_kb > 0 or one.load == "mix")
    for structure in set(PLAN.names.values()):
        for mode in told.MODES:
            for kind in told.ALL:
                counts[f"{mode}.{structure}.{kind}_misses"] = float(
                    misses * calls if mode == "kernel" and kind == "read" else 0
                )
    return {**vars(one), **counts}


def regions_of(load):
    """All that a load's grid holds."""
    orders = [told.Region("mix", "random", False, 0, 0, 0)]
    found = []
    for n in load.sizes:
        if load.objects:
            orders = [
                told.Region("objects", "random", False, n, places, kb)
                for places in load.objects.points
                for kb in load.kernel.points
            ]
        else:
            orders = [told.Region("mix", arrival, False, n, 0, 0) for arrival in told.ARRIVALS]
        found += [replace(one, unordered=free) for one in orders for free in (False, True)]
    return found


@pytest.fixture
def raw(tmp_path):
    """The quick run as it would be saved."""
    heads = []
    for load in LOADS.values():
        rows = [row_of(one, load.calls) for one in regions_of(load)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{load.name}.parquet")
        heads.append({"reorder": load.name, "calls": load.calls, "names": names()})
    return experiment.Raw(heads, {}, tmp_path)


@pytest.mark.parametrize("label", [2 << 60, 2 << 56, 2 << 52])
def test_a_label_of_no_region_is_refused(label):
    with pytest.raises(ValueError, match="no region is called"):
        told.region(label)


@pytest.mark.parametrize("quick", [True, False])
def test_each_region_of_a_grid_has_a_row(quick):
    for load in reorder.loads(quick):
        wanted = regions_of(load)
        assert len(wanted) == load.rows * load.regions == len(list(load.efforts()))
        rows = [load.row_of(one.n << 40 | one.objects << 32 | one.kernel_kb) for one in wanted]
        assert {rows.count(row) for row in range(load.rows)} == {load.regions}


def test_clocks_are_counts_times_costs(raw):
    found = told.load(raw, "reorder-n32")
    one = told.Region("objects", "random", True, 32, 8, 64)
    costs = {
        "instruction": 1, "l2_hit": 10, "memory": 100, "walk": 50, "fast": 320,
        "l3_hit": 30, "stlb_hit": 8, "code": 10,
    }  # fmt: skip
    pentium = 2100 + 7 * (10 + 100 + 50) + 320 / 32
    assert found.clocks(one, "pentium-4-1.8", costs) == pytest.approx(pentium)
    given = 2000 + 10 * (10 + 100 + 50) + 320 / 32
    assert found.ratio(one, "pentium-4-1.8", costs) == pytest.approx(pentium / given)
    # Both data TLBs, of small pages and of large ones, lead to the second.
    core = 2100 + 7 * (10 + 30 + 100 + 8 + 8 + 50) + 320 / 32
    assert found.clocks(one, "core-i7-9700k", costs) == pytest.approx(core)


def test_code_that_misses_the_first_cache_counts(raw):
    found = told.load(raw, "reorder-n32")
    one = told.Region("objects", "random", True, 32, 8, 64)
    variant = variants.main("pentium-4-1.8").id
    before = found.clocks(one, "pentium-4-1.8", told.middle("pentium-4-1.8"))
    found.counts[one][f"kernel.{names()[variant]['l1i']}.fetch_misses"] += 2 * found.calls
    after = found.clocks(one, "pentium-4-1.8", told.middle("pentium-4-1.8"))
    assert after - before == pytest.approx(2 * told.middle("pentium-4-1.8")["l2_hit"])


def test_misses_that_nobody_waits_for_leave_the_sorting_to_pay(raw):
    table = {one.id: one for one in reorder.figures(raw)}["reorder-assumptions"]
    ratios = {words: [float(cell) for cell in cells] for words, *cells in table.rows}
    for column in range(len(variants.SHORT)):
        all_felt = ratios["all at the middle"][column]
        hidden = ratios["data from the L2 is waited for by nobody"][column]
        assert all_felt < hidden
        assert ratios["an instruction: low end"][column] < all_felt
        assert all_felt < ratios["an instruction: high end"][column]


def test_metrics_say_where_it_pays_and_what_it_costs(raw):
    metrics = reorder.analyse(raw).metrics
    for name, metric in metrics.items():
        metric.check(name)
    assert metrics["sorting.reordered.random_n32.instructions"].value == 100
    assert metrics["sorting.reordered.sorted_n32.instructions"].value == 20
    # Four of five widths save misses worth more than a hundred instructions.
    for short in variants.SHORT.values():
        assert metrics[f"clocks.reordered.{short}_n32-paying.percent"].value == 80
        assert metrics[f"clocks.reordered.{short}_n32-lowest.ratio"].value < 1
        assert metrics[f"clocks.reordered.{short}_n32-highest.ratio"].value > 1
        assert metrics[f"clocks.reordered.{short}_mix-n32.ratio"].value < 1


def test_maps_show_each_place_and_width(raw):
    drawn = reorder.figures(raw)
    assert len({one.id for one in drawn}) == len(drawn)
    maps = [one for one in drawn if isinstance(one, Map)]
    assert len(maps) == len(variants.SHORT)
    for one in maps:
        assert one.x == (4, 8, 12, 16) and one.y == (0, 32, 64, 96, 128)
        assert all(cell > 1 for cell in one.cells[0]) and one.cells[1][0] < 1


def damage(raw, load, change):
    rows = [row_of(one, load.calls) for one in regions_of(load)]
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows), raw.directory / f"{load.name}.parquet")
    return told.load(raw, load.name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.pop(), "39 regions of 40"),
        (lambda rows: rows[-1].update({"kernel.reads": 5.0}), "too few reads"),
        (lambda rows: rows[3].update({"crossings.sysret": 1.0}), "fewer crossings"),
    ],
)
def test_counts_that_cannot_be_are_refused(raw, change, words):
    load = LOADS["reorder-n32"]
    reorder.check(told.load(raw, load.name), load)
    with pytest.raises(ValueError, match=words):
        reorder.check(damage(raw, load, change), load)


def test_a_grid_that_was_not_run_is_refused(raw):
    (raw.directory / "reorder-calls.parquet").unlink()
    with pytest.raises(ValueError, match="is missing"):
        reorder.analyse(raw)
    with pytest.raises(ValueError, match="is not described"):
        reorder.analyse(replace(raw, rows=raw.rows[:1]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--batch", "0"), "numbers of 1 to 512"),
        (("--batch", "8,9"), "but for --mix"),
        (("--mix", "--batch", "8,513"), "is not a number of"),
        (("--objects", "0:4:1"), "none are no load"),
        (("--objects", "4:2:1"), "FIRST:LAST:STEP"),
        (("--objects", "1:65:1"), "up to 64"),
        (("--kernel", "0:8:0"), "FIRST:LAST:STEP"),
        (("--calls", "0"), "too few"),
    ],
)
def test_the_program_refuses_nonsense(options, words):
    done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert words in done.stdout + done.stderr
