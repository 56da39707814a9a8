# SPDX-License-Identifier: GPL-2.0-only
"""Experiment memory-hierarchy: labels, areas, clocks and verdicts, on real counts of a quick run.

Expected figures are computed here from the saved tables by other means. The runner is
test_grid.py's, the guest's side the lab's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from trapless.console import TraplessError
from trapless.measure import experiments
from trapless.model.plan import Plan
from trapless.reporting import claims
from trapless.reporting.figures import Map, Table

NAME = "memory-hierarchy"
HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "experiments" / NAME
PROGRAM = HERE.parents[1] / "build" / "eval" / NAME / NAME
SMALL = "pentium-4-1.8+l2=stream"


def part(name):
    return experiments.load_module(experiments.eval_dir() / NAME / f"{name}.py")


cells, clocks, areas = part("cells"), part("clocks"), part("areas")
verdicts, pairs, sweep = part("verdicts"), part("pairs"), part("sweep")


@pytest.fixture(scope="module")
def maps():
    return cells.load(experiments.load_raw(DATA), "maps")


def table(name="maps"):
    return pq.read_table(DATA / f"{name}.parquet").to_pydict()


def pick(found, order, user_kb, kernel_kb):
    """The place of one region in a saved table."""
    keys = zip(found["order"], found["user_kb"], found["kernel_kb"], strict=True)
    return list(keys).index((order, user_kb, kernel_kb))


# ---- What is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [4 << 60, 2 << 56, 15 << 60 | 1])
def test_a_label_that_no_region_has_is_refused(label):
    with pytest.raises(ValueError, match="no region is called"):
        cells.region(label)


def test_counts_stand_where_their_footprints_are(maps):
    found = table()
    for order, user_kb, kernel_kb in (("batched", 256, 16), ("conventional", 0, 240)):
        place = pick(found, order, user_kb, kernel_kb)
        at = maps.kernel_kb.index(kernel_kb), maps.user_kb.index(user_kb)
        for column in ("user.reads", f"kernel.l2@{SMALL}.read_misses", "crossings.int"):
            assert maps.count(order, column)[at] == found[column][place]
        assert (maps.user[at], maps.kernel[at]) == (user_kb, kernel_kb)


def test_every_read_of_both_sides_is_in_the_counts(maps):
    for order in maps.orders:
        for mode, kb in (("user", maps.user), ("kernel", maps.kernel)):
            reads = maps.count(order, f"{mode}.reads") - 512 * kb * 1024 / 128
            assert (reads >= 0).all()
            assert (reads <= 512 * 400).all()  # the rest is what a call reads


def test_conventional_calls_trap_each_and_batches_once_in_32(maps):
    assert (maps.count("conventional", "crossings.int") == 512).all()
    assert (maps.count("batched", "crossings.int") == 16).all()


def test_tables_with_pairs_missing_are_refused():
    found = table()
    short = {name: values[:-1] for name, values in found.items()}
    with pytest.raises(ValueError, match="577 regions of 578"):
        cells.of_table(short, {}, DATA / "maps.parquet")
    doubled = {name: [*values[:-1], values[0]] for name, values in found.items()}
    with pytest.raises(ValueError, match="are missing"):
        cells.of_table(doubled, {}, DATA / "maps.parquet")


def test_a_count_that_cannot_be_fails_its_check(maps):
    assert {row["made"] > 1e8 for row in sweep.check(maps, "maps")} == {True}
    for column, value, words in (
        ("kernel.reads", 0.0, "batched: too few reads in kernel"),
        ("crossings.cr3", 1.0, "batched: 289 changes of address space"),
    ):
        columns = {order: dict(of) for order, of in maps.columns.items()}
        columns["batched"][column] = np.full(maps.shape, value)
        broken = cells.Cells(maps.user_kb, maps.kernel_kb, maps.orders, "int", columns, maps.names)
        with pytest.raises(ValueError, match=words):
            sweep.check(broken, "maps")


# ---- What is made of it ------------------------------------------------------------------------


def test_areas_are_the_papers(maps):
    pairs_of = {(user, kernel) for user in range(0, 257, 16) for kernel in range(0, 257, 16)}
    for mask, wanted in (
        (areas.range_x(maps), {p for p in pairs_of if sum(p) <= 64}),
        (areas.range_y(maps), {p for p in pairs_of if 288 <= sum(p) <= 448}),
        (areas.apart(maps, 224), {p for p in pairs_of if sum(p) > 256 and max(p) <= 224}),
        (areas.upper(maps), {p for p in pairs_of if 192 <= p[1] <= 224}),
    ):
        found = {(u, k) for u, k in zip(maps.user[mask], maps.kernel[mask], strict=True)}
        assert found == wanted


def test_clocks_are_counts_times_costs(maps):
    place, found = pick(table(), "batched", 128, 208), table()
    l1d, l2, dtlb = (maps.names[SMALL][role] for role in ("l1d", "l2", "dtlb"))
    values = dict(zip(("instruction", "l2_hit", "memory", "walk", "int", "fast"),
                      (1, 10, 100, 1_000, 10_000, 7e9), strict=True))  # fmt: skip

    def count(*names):
        return sum(found[f"{mode}.{name}"][place] for mode in ("user", "kernel") for name in names)

    kinds = ("read", "write", "fetch")
    wanted = (
        count("instructions")
        + 10 * count(f"{l1d}.read_misses")
        + 100 * count(*(f"{l2}.{kind}_misses" for kind in kinds))
        + 1_000 * count(*(f"{dtlb}.{kind}_misses" for kind in kinds))
        + 10_000 * 16
    )
    at = maps.kernel_kb.index(208), maps.user_kb.index(128)
    assert clocks.modelled(maps, "batched", SMALL, values)[at] == wanted


def test_every_cost_has_a_source_and_a_range():
    for processor in ("pentium-4-1.8", "pentium-4-1.8a"):
        for cost in clocks.costs_of(processor).values():
            assert 0 < cost.low < cost.high and len(cost.source) > 20


@pytest.mark.parametrize("broken", ["{", '{"costs": []}', '{"costs": [{"event": "int"}]}'])
def test_a_table_of_costs_that_is_none_names_the_file(tmp_path, broken):
    path = tmp_path / "costs.json"
    path.write_text(broken)
    with pytest.raises(TraplessError, match=r"costs\.json"):
        clocks.costs_of("pentium-4-1.8", path)


def test_small_denominators_have_no_ratio():
    ratios = cells.ratio(np.array([1.0, 600.0, 3.0]), np.array([511.0, 1200.0, 0.0]), 512)
    assert ratios[1] == 0.5 and np.isnan(ratios[[0, 2]]).all()
    told = areas.summary(ratios, np.array([True, True, True]))
    assert (told.cells, told.of, told.median, told.below_half) == (1, 3, 0.5, 0)


def test_the_result_is_well_formed_and_decides_every_claim():
    result = experiments.analyse(NAME, DATA)
    result.check()
    ours = {claim.id for claim in claims.published().values() if claim.experiment == NAME}
    found = {claim.id: claim.holds for claim in result.claims}
    assert found.keys() == ours and len(ours) == 7
    assert found["wsc-dtlb"] and found["wsc-l2"] and found["wsc-y"]


def test_claims_fall_with_the_counts_that_they_stand_on(maps):
    """Misses of batches as many as those of conventional calls: nothing was gained."""
    built = cells.load(experiments.load_raw(DATA), "built-otherwise")
    equal = []
    for found in (maps, built):
        columns = dict.fromkeys(found.orders, found.columns["conventional"])
        equal.append(
            cells.Cells(found.user_kb, found.kernel_kb, found.orders, "int", columns, found.names)
        )
    held = {claim.id: claim.holds for claim in verdicts.claims_of(*equal)}
    # where nothing was gained, misses are not fewer: that alone is as published
    assert {name for name, holds in held.items() if holds} == {"wsc-dtlb-small"}


def test_all_maps_and_tables_come_from_saved_data():
    found = experiments.figures(NAME, DATA)
    drawn = [one for one in found if isinstance(one, Map)]
    assert len(drawn) == 8 and all(one.rows for one in found if isinstance(one, Table))
    clock = next(one for one in drawn if one.id == "fig5-clocks-p4-256kb")
    metrics = experiments.analyse(NAME, DATA).metrics
    assert clock.cells[0][0] == metrics["clocks.batched.p4-256kb_at-0kb.ratio"].value
    assert clock.kind == "modelled" and {len(row) for row in clock.cells} == {17}


# ---- What is run -------------------------------------------------------------------------------


def test_the_full_grid_is_the_papers():
    fine = pairs.sweeps(False)[0]
    assert (fine.axis.points, fine.axis.text, fine.trap) == (65, "0:256:4", "int")
    assert fine.orders == ("conventional", "batched")
    quick = pairs.sweeps(True)[0]
    assert quick.axis.points == 17 and quick.variants == fine.variants
    for each in pairs.sweeps(False):
        Plan.of(list(each.variants))  # all of them fit into one run


def test_a_missing_package_is_named(tmp_path):
    script = tmp_path / "made-up" / "needs.py"
    script.parent.mkdir()
    script.write_text("import a_package_that_nobody_has\n")
    for _ in range(2):  # the second time, too
        with pytest.raises(TraplessError, match="pip install a_package_that_nobody_has"):
            experiments.load_module(script)


def test_missing_tables_are_named(tmp_path):
    folder = tmp_path / NAME
    shutil.copytree(DATA, folder)
    (folder / "orders.parquet").unlink()
    with pytest.raises(TraplessError, match=r"orders\.parquet is missing"):
        experiments.analyse(NAME, folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stride", "0"), "0 is not a power of two"),
        (("--stride", "96"), "96 is not a power of two"),
        (("--stride", "8192"), "1 to 4096 bytes"),
        (("--user", "0:256:0"), "step of 1 or more"),
        (("--user", "8:4:1"), "FIRST:LAST:STEP"),
        (("--kernel", "0:16384:1024"), "16384 KB is more than the 8192 KB"),
        (("--batch", "0"), "0 is too few"),
        (("--batch", "5000"), "0 to 4096"),
        (("--iterations", "0"), "0 is too few"),
        (("--rows", "101"), "not one 0 or 1 for each of 65"),
        (("--trap", "call"), "neither fast nor int"),
        (("--orders", "workers", "--trap", "int"), "workers has no trap"),
        ((), "insert hierarchy.ko first"),
    ],
)
def test_the_program_refuses_what_it_cannot_do(words, said):
    assert PROGRAM.exists(), "make all builds it"
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert said in json.loads(done.stdout)["failure"]
