# SPDX-License-Identifier: GPL-2.0-only
"""Experiment memory-hierarchy: labels, areas, clocks and verdicts, on the published counts.

Expected figures are computed here from the saved tables by other means. The runner is
test_fleet.py's, the guest's side the lab's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from eval.memory_hierarchy import areas, cells, footprint_grid, listings, published, variants
from eval.memory_hierarchy import part_pairs as pairs
from trapless.base.console import TraplessError
from trapless.experiments import experiment
from trapless.model import clocks
from trapless.model.model_plan import Plan
from trapless.report import plot, readme
from trapless.report.figures import Map, Table
from trapless.results import claims

NAME = "memory-hierarchy"
HERE = Path(__file__).resolve().parent
DATA = HERE.parents[2] / "docs/results/6.1" / NAME
PROGRAM = HERE.parents[2] / "build" / "eval" / "memory_hierarchy" / NAME
SMALL = "pentium-4-1.8+l2=stream"


AXIS = range(0, 257, 4)
CELLS = len(AXIS) ** 2
GRIDS = ("maps", "today", "cold", "pages-elsewhere", "orders", "large-pages", "built-otherwise")


@pytest.fixture(autouse=True)
def pairs_alone(monkeypatch):
    """The other parts have tests of their own, and rows of their own."""
    spec = replace(experiment.get(NAME), parts=(experiment.part("memory_hierarchy", "pairs"),))
    monkeypatch.setattr(experiment, "get", lambda name: spec)


@pytest.fixture(scope="module")
def maps():
    return cells.load(experiment.load_raw(DATA), "maps")


@pytest.fixture(scope="module")
def grids():
    return pairs.read(experiment.load_raw(DATA))


def changed(found, changes):
    """The same counts with columns of orders replaced: (order, column) -> a function of them."""
    columns = {order: dict(of) for order, of in found.columns.items()}
    for (order, column), change in changes.items():
        columns[order][column] = change(columns[order][column])
    return replace(found, columns=columns)


def claim(grids, name):
    return next(one for one in published.claims_of(grids) if one.id == name)


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
    with pytest.raises(ValueError, match=f"{2 * CELLS - 1} regions of {2 * CELLS}"):
        cells.of_table(short, {}, DATA / "maps.parquet")
    doubled = {name: [*values[:-1], values[0]] for name, values in found.items()}
    with pytest.raises(ValueError, match="are missing"):
        cells.of_table(doubled, {}, DATA / "maps.parquet")


def test_a_count_that_cannot_be_fails_its_check(maps):
    assert {row["made"] > 1e8 for row in footprint_grid.check(maps, "maps")} == {True}
    for column, value, words in (
        ("kernel.reads", 0.0, "batched: too few reads in kernel"),
        ("crossings.cr3", 1.0, f"batched: {CELLS} changes of address space"),
    ):
        broken = changed(maps, {("batched", column): lambda of, value=value: 0 * of + value})
        with pytest.raises(ValueError, match=words):
            footprint_grid.check(broken, "maps")


# ---- What is made of it ------------------------------------------------------------------------


def test_areas_are_the_papers(maps):
    pairs_of = {(user, kernel) for user in AXIS for kernel in AXIS}
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
    assert maps.clocks("batched", SMALL, values)[at] == wanted


def test_a_processor_of_today_has_a_third_cache_and_a_second_tlb():
    found = cells.load(experiment.load_raw(DATA), "today")
    name = "core-i7-9700k"
    variant, place, saved = variants.main(name).id, None, table("today")
    place = pick(saved, "batched", 256, 384)

    def count(role, kinds=("read", "write", "fetch")):
        column = found.names[variant][role]
        return sum(
            saved[f"{mode}.{column}.{kind}_misses"][place]
            for mode in ("user", "kernel")
            for kind in kinds
        )

    instructions = sum(saved[f"{mode}.instructions"][place] for mode in ("user", "kernel"))
    wanted = (
        instructions * 0.35
        + count("l1d", ("read",)) * 12
        + count("l2") * (43 - 12)  # 42 to 44 clocks in all
        + count("l3") * (260 - 43)  # 220 to 300 in all
        + (count("dtlb") + count("dtlb_large")) * 8
        + count("stlb") * 40
        + saved["crossings.sysret"][place] * 100
    )
    at = found.kernel_kb.index(384), found.user_kb.index(256)
    values = clocks.middle(clocks.costs_of(name))
    assert found.clocks("batched", variant, values)[at] == pytest.approx(wanted)
    assert found.iterations == 128 and found.each(np.array([256.0]))[0] == 2


def test_a_trap_that_nobody_has_timed_is_not_free():
    found = changed(
        cells.load(experiment.load_raw(DATA), "today"),
        {("batched", "crossings.int"): lambda of: of + 1},
    )
    values = clocks.middle(clocks.costs_of("core-i7-9700k"))
    with pytest.raises(ValueError, match="nobody says what int costs"):
        found.clocks("batched", variants.main("core-i7-9700k").id, values)


@pytest.mark.parametrize("processor", ["pentium-4-1.8", "pentium-4-1.8a", *variants.CURRENT])
def test_every_cost_has_a_source_and_a_range(processor):
    for cost in clocks.costs_of(processor).values():
        assert 0 < cost.low <= cost.high and len(cost.source) > 20 and "{" not in cost.text


def test_small_denominators_have_no_ratio():
    ratios = cells.ratio(np.array([1.0, 600.0, 3.0]), np.array([511.0, 1200.0, 0.0]), 512)
    assert ratios[1] == 0.5 and np.isnan(ratios[[0, 2]]).all()
    told = areas.summary(ratios, np.array([True, True, True]))
    assert (told.cells, told.of, told.median, told.below_half) == (1, 3, 0.5, 0)


def test_the_result_is_well_formed_and_decides_every_claim():
    result = experiment.analyse(NAME, DATA)
    result.check()
    ours = {claim.id for claim in claims.published().values() if claim.experiment == NAME}
    found = {claim.id: claim.holds for claim in result.claims}
    assert found.keys() == ours and len(ours) == 7
    assert {name for name, holds in found.items() if holds} == {"wsc-y", "wsc-l2", "wsc-l2-small"}


def test_claims_fall_with_the_counts_that_they_stand_on(grids):
    """Batches that count what conventional calls count: nothing was gained, and nothing holds."""
    equal = published.Grids(
        *(
            replace(found, columns=dict.fromkeys(found.orders, found.columns["conventional"]))
            for found in vars(grids).values()
        )
    )
    assert not [one.id for one in published.claims_of(equal) if one.holds]


def test_claims_that_do_not_hold_would_with_the_papers_counts(grids):
    """A dearer request, and misses of the large L2 in the paper's band alone."""
    dear = {("batched", "kernel.instructions"): lambda of: of + 512 * 180}
    assert not claim(grids, "wsc-x").holds
    assert claim(replace(grids, maps=changed(grids.maps, dear)), "wsc-x").holds
    assert not claim(grids, "wsc-l2-512").holds
    name = grids.maps.names[variants.main("pentium-4-1.8a").id]["l2"]
    as_published = {
        (order, f"{mode}.{name}.{kind}_misses"): lambda of, misses=misses: np.where(
            areas.upper(grids.maps), misses, 0.0
        )
        for order, misses in (("conventional", 2048.0), ("batched", 512.0))
        for mode in ("user", "kernel")
        for kind in ("read", "write", "fetch")
    }
    found = claim(replace(grids, maps=changed(grids.maps, as_published)), "wsc-l2-512")
    assert found.holds and found.ours.startswith("100% of the cells")


def test_every_cell_is_counted_under_each_replacement(grids):
    """The numbers that the claim tells, from the saved table by a loop over its lines."""
    found = table()
    told = claim(grids, "wsc-dtlb").ours
    for policy, words in variants.POLICIES.items():
        name = grids.maps.names[variants.tlb(variants.SMALL, policy).id]["dtlb"]
        misses = {
            (order, user, kernel): sum(
                found[f"{mode}.{name}.{kind}_misses"][place]
                for mode in ("user", "kernel")
                for kind in ("read", "write", "fetch")
            )
            for place, (order, user, kernel) in enumerate(
                zip(found["order"], found["user_kb"], found["kernel_kb"], strict=True)
            )
        }
        asked = [
            (user, kernel)
            for order, user, kernel in misses
            if order == "batched" and user + kernel > 256 and max(user, kernel) <= 224
        ]
        below = [
            pair for pair in asked
            if misses["batched", *pair] < 0.5 * misses["conventional", *pair]
        ]  # fmt: skip
        assert f"{len(below)} of {len(asked)} cells with {words}" in told
        rest = {pair for pair in asked if pair not in below}
        listed = [line for line in listings.table_of_exceptions(grids).rows if line[0] == words]
        assert sum(int(line[3]) for line in listed) == len(rest)
        up_to = published.every_cell_up_to_kb(grids.maps, policy)
        assert all(max(pair) > up_to for pair in rest)
        assert not rest or min(max(pair) for pair in rest) == up_to + AXIS.step


def test_a_published_request_makes_the_published_ratio(maps):
    """Fig. 11 in place of ours: 0.30 of a call by INT, and what the program does beside it."""
    found, place = table(), pick(table(), "conventional", 0, 0)
    user, kernel = (found[f"{mode}.instructions"][place] for mode in ("user", "kernel"))
    whole, beside = (user + kernel) * 1.25 + 512 * 700, user * 1.25
    wanted = (0.3 * (whole - beside) + beside) / whole
    assert published.request(maps, "pentium-4-1.8").ratio_as_published == pytest.approx(
        wanted,
        rel=1e-4,  # but for a miss or two
    )
    assert claims.judge("wsc-x", "", {"ratio": wanted}).holds


def test_the_grids_time_leaves_out_what_lies_between_parts_of_a_run():
    boots = {
        "maps-vm0": {"began_s": 100.0, "wall_s": 30.0},
        "maps-vm1": {"began_s": 110.0, "wall_s": 40.0},  # beside it
        "maps-vm2": {"began_s": 5000.0, "wall_s": 7.5},  # after an interruption
        "orders-vm0": {"began_s": 0.0, "wall_s": 999.0},
        "maps-vm3": {},
    }
    assert (
        footprint_grid.metrics_of_time({"boots": boots}, "maps")["grid.wall.maps.seconds"].value
        == 57.5
    )
    assert not footprint_grid.metrics_of_time({"boots": {"maps-vm0": {}}}, "maps")


@pytest.mark.slow
def test_all_maps_and_tables_come_from_saved_data():
    found = experiment.figures(NAME, DATA)
    drawn = [one for one in found if isinstance(one, Map)]
    assert len(drawn) == 10 and all(one.rows for one in found if isinstance(one, Table))
    assert len({one.id for one in found}) == len(found)
    clock = next(one for one in drawn if one.id == "fig5-clocks-p4-256kb")
    metrics = experiment.analyse(NAME, DATA).metrics
    assert clock.cells[0][0] == metrics["clocks.batched.p4-256kb_at-0kb.ratio"].value
    assert clock.kind == "modelled" and {len(row) for row in clock.cells} == {len(AXIS)}
    for x, y, word in clock.names:  # the paper's ranges, where it has them
        assert (x + y <= 64) if word == "X" else (288 <= x + y <= 448)
    for line in clock.outlines:
        assert len({x + y for x, y in line}) == 1 and sum(line[0]) in (64, 288, 448)


@pytest.mark.slow
def test_the_experiments_page_shows_the_map_of_clocks_that_was_saved():
    page = HERE.parents[2] / "eval" / "memory_hierarchy" / "README.md"
    name = re.search(rf"\((\S*docs/results/[^/]+)/{readme.MAP_NAME}\)", page.read_text())
    assert name, f"{page} shows the map"
    saved = page.parent / name[1]
    found = experiment.figures(NAME, saved / NAME)
    wanted = next(one for one in found if one.id == readme.MAP_ID)
    assert plot.shows((saved / readme.MAP_NAME).read_text(), wanted)


# ---- What is run -------------------------------------------------------------------------------


def test_the_full_grid_is_the_papers():
    fine = pairs.sweeps(False)[0]
    assert (fine.axis.points, fine.axis.text, fine.trap) == (65, "0:256:4", "int")
    assert fine.orders == ("conventional", "batched")
    assert {one.policy.get("dtlb", "plru") for one in fine.variants} == {*variants.POLICIES}
    quick = pairs.sweeps(True)[0]
    assert quick.axis.points == 17 and quick.variants == fine.variants
    assert [each.name for each in pairs.sweeps(True)] == list(GRIDS)
    for each in pairs.sweeps(False):
        Plan.of(list(each.variants))  # all of them fit into one run


@pytest.mark.slow
def test_missing_tables_are_named(tmp_path):
    folder = tmp_path / NAME
    shutil.copytree(DATA, folder)
    for name in GRIDS:
        path = folder / f"{name}.parquet"
        path.rename(tmp_path / path.name)
        with pytest.raises(TraplessError, match=rf"{name}\.parquet is missing"):
            experiment.analyse(NAME, folder)
        (tmp_path / path.name).rename(path)


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
        (("--warm", "-1"), "--warm"),
        (("--rows", "101"), "not one 0 or 1 for each of 65"),
        (("--trap", "call"), "neither fast nor int"),
        (("--orders", "workers", "--trap", "int"), "workers has no trap"),
        ((), "insert hierarchy.ko first"),
    ],
)
def test_the_program_refuses_what_it_cannot_do(words, said):
    assert PROGRAM.exists(), "make all builds it"
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert said in json.loads(done.stdout)["failure"]


PAST = """
#include <stdbool.h>
#include <stdint.h>
#include <x86intrin.h>
bool round_spin(uint64_t instant);
int main(void)
{
	for (uint64_t ago = 0; ago < 1000000000; ago = ago * 2 + 1)
		if (round_spin(__rdtsc() - ago))
			return 1;
	return 0;
}
"""


def test_an_instant_that_is_past_is_not_waited_for(tmp_path):
    words = ["gcc", "-O1", "-o", tmp_path / "past", "-x", "c", "-", "-x", "assembler-with-cpp"]
    spin = Path(pairs.__file__).parent / "workload/round_spin.S"
    subprocess.run([*words, spin], input=PAST, text=True, check=True)
    subprocess.run([tmp_path / "past"], check=True, timeout=60)
