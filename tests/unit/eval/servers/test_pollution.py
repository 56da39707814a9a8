# SPDX-License-Identifier: GPL-2.0-only
"""Experiment servers: what is made of modelled runs of the web server and its twin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eval.servers import part_pollution
from eval.servers.counting import PROCESSORS
from eval.servers.server_results import SHORT
from trapless.experiments.experiment import Raw
from trapless.experiments.raw_files import read_rows
from trapless.model import clocks

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT / "docs" / "results" / "6.1" / "servers" / "raw.jsonl"
README = ROOT / "eval" / "servers" / "README.md"


@pytest.fixture(scope="module")
def modelled() -> Raw:
    return Raw(tuple(row for row in read_rows(DATA) if row["part"] == "pollution"), {})


def test_pollution_and_clocks_are_those_of_one_request(modelled):
    found = part_pollution.modelled_of(modelled.rows)
    assert {one.server for one in found} == set(part_pollution.SERVERS)
    metrics = part_pollution.analyse(modelled).metrics
    for one in found:
        for processor, short in SHORT.items():
            all_ = one.clocks(processor)
            assert all_.low < all_.middle < all_.high
            assert 0 < one.pollution(processor).middle < all_.middle
            name = f"http.{one.server}.{one.load}_{short}"
            assert metrics[f"{name}.clocks"].value == round(all_.middle)
            for role in ("l1d", "l1i"):
                missed = one.misses(processor, role)
                assert 0 < one.by_other_side(processor, role) < missed
            assert sum(one.parts(processor)) == pytest.approx(all_.middle)
            assert one.parts(processor)[0] > one.instructions * 0.25


def test_a_kernel_elsewhere_misses_what_the_other_processor_has_written(modelled):
    """More than where each side has caches of its own that need not agree."""
    for one in part_pollution.modelled_of(modelled.rows):
        for processor in PROCESSORS:
            apart = one.misses(processor, "l1d") - one.by_other_side(processor, "l1d")
            assert one.misses(processor, "l1d", elsewhere=True) > apart


def test_batches_make_fewer_crossings_and_the_ratio_is_to_the_twin(modelled):
    metrics = part_pollution.analyse(modelled).metrics
    for one, twin in part_pollution.pairs(part_pollution.modelled_of(modelled.rows)):
        assert one.load == twin.load
        if one.connections >= 8:
            assert one.crossings < 0.3 * twin.crossings
        for processor, short in SHORT.items():
            ratio = metrics[f"http.scheduler.{one.load}_{short}.clocks_to_epoll"].value
            expected = one.clocks(processor).middle / twin.clocks(processor).middle
            assert ratio == pytest.approx(expected, abs=1e-4)


def test_a_modelled_run_whose_replies_were_wrong_is_no_result(modelled):
    rows = [dict(row) for row in modelled.rows]
    next(row for row in rows if "proof" in row)["proof"] = "511 replies, each compared"
    with pytest.raises(ValueError, match="not each reply was right"):
        part_pollution.modelled_of(rows)
    assert len(part_pollution.figures(modelled)) == 3


def test_the_document_has_the_modelled_table(modelled):
    text = README.read_text(encoding="utf-8")
    table = next(one for one in part_pollution.figures(modelled) if one.id == "http-pollution")
    lines = [table.columns, ("---",) * len(table.columns)]
    lines += [row for row in table.rows if row[0] in ("keep1", "keep8", "keep64")]
    expected = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    (shown,) = re.findall(f"<!-- table: {table.id} -->\n(.*?)\n\n", text, re.S)
    assert shown == expected, f"put this there:\n{expected}"


def test_what_the_document_says_beside_it_is_so(modelled):
    metrics = part_pollution.analyse(modelled).metrics
    for one, twin in part_pollution.pairs(part_pollution.modelled_of(modelled.rows)):
        for processor, short in SHORT.items():
            ratios = [
                metrics[f"http.{name}.{one.load}_{short}.clocks_to_epoll"].value
                for name in ("scheduler", "elsewhere")
            ]
            bound = {1: 1.2, 2: 1.0, 4: 0.865}.get(one.connections, 0.8)
            assert bound - 0.15 < ratios[0] < bound
            saved = twin.clocks(processor).middle - one.clocks(processor).middle
            fewer = twin.misses(processor, "l1i") - one.misses(processor, "l1i")
            hit = clocks.costs_of(processor)["l2_hit"].middle
            if one.connections >= 8:
                assert 0.625 < fewer * hit / saved < 0.875
            if one.connections == 64:
                assert 0 < ratios[0] - ratios[1] <= 0.01
                assert 0.045 < twin.parts(processor)[1] / twin.clocks(processor).middle < 0.065
