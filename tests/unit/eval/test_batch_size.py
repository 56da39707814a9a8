# SPDX-License-Identifier: GPL-2.0-only
"""Experiment batch-size: how `trapless estimate` is held against the module, and what is saved of
arm64.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.batch_size import call_costs, part_calls, part_estimate
from trapless.estimate.sums import BEYOND, NO_CALL
from trapless.experiments import experiment
from trapless.experiments.experiment import Raw

RESULTS = Path(__file__).parents[3] / "docs/results"
OF_ARM64 = sorted(RESULTS.glob("*-arm64/batch-size"))


def readings(kind, module):
    """Rows of a boot in which a plain call takes 300, of which its handler takes 100."""
    of_all = {BEYOND: 200, NO_CALL: 200} | dict.fromkeys(part_estimate.CALLS, 300)
    for n in part_estimate.BATCHES:
        of_all[f"batch.n{n}"] = 50
        of_all |= {f"module.{call}.n{n}": module for call in part_estimate.CALLS}
    return [
        {"boot": f"estimate-{kind}", "subject": name, "least": value, "median": 10 * value}
        for name, value in of_all.items()
    ]


def test_the_estimate_is_held_against_the_module():
    raw = Raw([*readings("counted", 150), *readings("measured", 120)], {})
    metrics = part_estimate.analyse(raw).metrics
    assert len(metrics) == 2 * len(part_estimate.CALLS) * len(part_estimate.BATCHES)
    assert metrics["getppid.estimate.n32.ratio"].value == 1.0
    assert metrics["pread1.estimate.n8.time-ratio"].value == 1.25
    assert metrics["pread1.estimate.n8.time-ratio"].kind == "measured"
    (table,) = part_estimate.figures(raw)
    assert table.rows[0] == ("getppid", "1", "150", "150", "+0.0%", "+25.0%")


def test_results_saved_before_there_was_an_estimate_show_none():
    raw = Raw([], {})
    assert part_estimate.figures(raw) == () and not part_estimate.analyse(raw).metrics


@pytest.mark.parametrize("lost", ["getppid", "batch.n8", "module.pread1.n128"])
def test_a_reading_that_lacks_a_subject_is_no_result(lost):
    rows = [row for row in readings("counted", 150) if row["subject"] != lost]
    with pytest.raises(KeyError, match=lost):
        part_estimate.analyse(Raw(rows, {}))


@pytest.mark.slow
@pytest.mark.parametrize("folder", OF_ARM64, ids=lambda folder: folder.parent.name)
def test_a_batch_wins_early_on_arm64(folder):
    result = experiment.analyse("batch-size", folder)
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    plain, batch = (metrics[f"getppid.{way}.n32.instructions"] for way in ("plain", "batch"))
    assert batch <= 0.45 * plain
    assert metrics["getppid.batch.break_even.n"] <= 3
    (claim,) = (one for one in result.claims if one.id == "wsc-sysenter")
    assert claim.note.startswith("arm64's SVC stands for SYSENTER.")


def test_two_kernels_of_arm64_are_saved():
    assert len(OF_ARM64) == 2


def bent(off):
    """Counts of getpid and read1, whose single call takes `off` less in a batch than others do."""
    sizes = (1, 2, 4, 8, 32)
    counted = {}
    for call in ("nosys", "getpid", "read1"):
        for mechanism, once, each in (("plain", 8, 300), ("batch", 540, 120)):
            less = off if (call, mechanism) == ("read1", "batch") else 0
            counted[call, mechanism] = {
                n: [(once + each * n - (less if n == 1 else 0)) / n] for n in sizes
            }
    return counted


@pytest.mark.parametrize(("off", "holds"), [(0, True), (200, False)])
def test_the_call_and_the_n_that_bend_the_line_are_named(off, holds):
    counted = bent(off)
    claim = part_calls.claim_equation(call_costs.fits(counted), counted, {}, None)
    assert claim.holds is holds
    assert ("at N = 1 read1 is off its line by -" in claim.note) is not holds
    assert ("and -0.0% by plain calls" in claim.note or "+0.0% by plain" in claim.note) is not holds
    assert ("Without N = 1 no batch is off by more than 0.0%" in claim.note) is not holds
