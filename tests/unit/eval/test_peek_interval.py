# SPDX-License-Identifier: GPL-2.0-only
"""Experiment peek-interval on saved raw data: what is made of it, what it refuses to believe."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import pytest

from eval.peek_interval import part_intervals as intervals
from eval.peek_interval import part_remote as remote
from eval.peek_interval import part_user as user
from trapless.base.console import TraplessError
from trapless.experiments import experiment
from trapless.experiments.experiment import Raw
from trapless.experiments.raw_files import read_rows
from trapless.report.figures import Figure, Table

DATA = Path(__file__).parents[3] / "docs/results/6.1" / "peek-interval"
ROWS = read_rows(DATA / "raw.jsonl")


def rows_of(name):
    return copy.deepcopy([row for row in ROWS if row["part"] == name])


def saved():
    return experiment.analyse("peek-interval", DATA)


def test_all_claims_of_the_figures_are_judged():
    found = {claim.id: claim for claim in saved().claims}
    assert set(found) == {"peek-interval-4", "peek-interval-2048", "peek-p99-8", "peek-user"}
    assert all(claim.holds is True for claim in found.values())


def test_figures_are_those_of_the_repeats():
    metrics = saved().metrics
    medians = sorted(
        dict(map(tuple, row["quantiles"]))[0.5]
        for row in rows_of("intervals")
        if (row.get("bytes"), row.get("phase"), row.get("even")) == (2048, "written", False)
    )
    metric = metrics["read2048.interval-written.median.ns"]
    assert metric.n == len(medians) == 9
    assert metric.value == medians[4]
    assert metric.spread == round(medians[-1] - medians[0], 2)
    assert metric.kind == "measured"


def test_intervals_are_what_the_product_promises():
    metrics = saved().metrics
    assert metrics["read4.interval.median.ns"].value <= 50
    assert metrics["read2048.interval.median.ns"].value <= 100
    assert metrics["read8.interval-written.p99-of-10000.ns"].value <= 1000


def test_a_read_alone_is_shorter_than_an_interval_by_the_clock():
    metrics = saved().metrics
    clock = metrics["clock.cost.median.ns"].value
    assert 0 < metrics["clock.resolution.median.ns"].value < clock
    for size in (4, 2048):
        alone = metrics[f"read{size}.alone.median.ns"].value
        assert 0 < alone < metrics[f"read{size}.interval.median.ns"].value
    # What the clock hid: a copy of 2 KB takes longer than one of 4 B.
    assert metrics["read4.alone.median.ns"].value * 2 < metrics["read2048.alone.median.ns"].value


def test_longer_intervals_than_the_papers_do_not_hold():
    rows = rows_of("intervals")
    for row in rows:
        if row.get("bytes") == 4:
            row["quantiles"] = [[part, value + 21_000] for part, value in row["quantiles"]]
    found = {claim.id: claim for claim in intervals.analyse(Raw(rows, {})).claims}
    assert found["peek-interval-4"].holds is False
    assert found["peek-interval-2048"].holds is True


@pytest.mark.parametrize(
    ("phase", "changes", "error"),
    [("quiet", 3, "changed 3 times"), ("written", 0, "never changed")],
)
def test_reads_that_saw_something_else_are_no_result(phase, changes, error):
    rows = rows_of("intervals")
    for row in rows:
        if row.get("phase") == phase:
            row["changes"] = changes
    with pytest.raises(ValueError, match=error):
        intervals.analyse(Raw(rows, {}))


def damaged(change):
    rows = rows_of("user")
    (row,) = (row for row in rows if "samples" in row)
    change(row["samples"])
    found = user.analyse(Raw(rows, {}))
    return found.metrics, found.claims[0]


def test_a_staircase_that_is_seen_whole_holds():
    metrics, claim = damaged(lambda samples: None)
    assert claim.holds is True
    assert metrics["region.user.damaged.ratio"].value == 0
    assert metrics["region.user.seen.ratio"].value > 0.9


def spoil(samples):
    samples["complement"][1500] ^= 1


def go_back(samples):
    samples["step"][1500] -= 50
    samples["complement"][1500] = (1 << 64) - 1 - samples["step"][1500]


def stand_still(samples):
    for name in ("step", "complement"):
        samples[name] = [samples[name][100]] * len(samples[name])


@pytest.mark.parametrize("change", [spoil, go_back, stand_still])
def test_samples_that_cannot_be_do_not_hold(change):
    assert damaged(change)[1].holds is False


def test_a_damaged_sample_that_is_marked_as_torn_is_no_harm():
    def tear(samples):
        spoil(samples)
        samples["torn"][1500] = 1

    metrics, claim = damaged(tear)
    assert claim.holds is True
    assert metrics["region.user.torn.ratio"].value > 0


def test_remote_ways_are_counted_beside_a_mapped_file():
    metrics = saved().metrics
    for size in (4, 8, 2048, 4096):
        counts = [metrics[f"read{size}.{way}.instructions"] for way in ("mapped", "kcore", "rdma")]
        assert {one.kind for one in counts} == {"counted"}
        assert 5 * counts[0].value < counts[1].value < counts[2].value


@pytest.mark.parametrize("changes", [0, 2])
def test_reads_that_did_not_find_the_pattern_are_no_result(changes):
    rows = rows_of("remote")
    next(row for row in rows if row.get("interval") == "rdma")["changes"] = changes
    with pytest.raises(ValueError, match=rf"by rdma changed {changes} times"):
        remote.analyse(Raw(rows, {}))


def test_a_machine_without_rdma_has_the_other_ways():
    rows = [row for row in rows_of("remote") if row.get("interval") != "rdma"]
    with pytest.raises(ValueError, match="reads by rdma are missing"):
        remote.analyse(Raw(rows, {}))
    rows.append({"part": "remote", "skipped": "RDMA", "reason": "no library"})
    assert len(remote.analyse(Raw(rows, {})).metrics) == 8


def test_a_clock_that_counts_no_instructions_is_no_result():
    rows = rows_of("remote")
    next(row for row in rows if "tick_ns" in row)["tick_ns"] = 0.5
    with pytest.raises(ValueError, match="does not count instructions"):
        remote.analyse(Raw(rows, {}))


def test_figures_are_drawn_from_saved_rows():
    drawn = experiment.figures("peek-interval", DATA)
    ids = [one.id for one in drawn]
    assert len(set(ids)) == len(ids) == 6
    assert {type(one) for one in drawn} == {Figure, Table}
    (distribution,) = (one for one in drawn if one.id == "peek-distribution")
    for series in distribution.series:
        assert list(series.x) == sorted(series.x)
        assert series.y[-1] == 1


@pytest.mark.parametrize("lost", ["intervals", "user", "remote"])
def test_incomplete_data_is_named(tmp_path, lost):
    kept = [json.dumps(row) + "\n" for row in ROWS if row["part"] != lost]
    (tmp_path / "raw.jsonl").write_text("".join(kept))
    shutil.copy(DATA / "meta.json.xz", tmp_path)
    with pytest.raises(TraplessError, match=f"'{lost}' is incomplete or damaged"):
        experiment.analyse("peek-interval", tmp_path)
