# SPDX-License-Identifier: GPL-2.0-only
"""Experiment peek-fleet's figures, from rows as a run writes them."""

from __future__ import annotations

from typing import Any

import pytest

from eval.peek_fleet import part_cost
from trapless.experiments.experiment import Raw

OPENING = {"what": "opening", "seconds": 2.5, "cpu_s": 1, "pss_kb": 220_000, "rss_kb": 1}


def window(repeat: int, **changed: float) -> dict[str, Any]:
    return {
        "what": "window",
        "repeat": repeat,
        "seconds": 20.0,
        "cpu_s": 10.0 + repeat,
        "pss_kb": 108_000,
        "rss_kb": 217_000,
        "processes": 52,
        "up": 50.0,
        "taken": 99_000.0,
        "lost": 1_000.0,
        "process_s": 600.0,
        "idle_s": 1_400.0,
        **changed,
    }


def raw(*rows: dict[str, Any]) -> Raw:
    place = {"part": "cost", "machines": 50, "kind": "simulated"}
    return Raw([{**place, **row} for row in rows] + [{"boot": "real"}], {})


def test_figures_are_medians_of_windows():
    metrics = part_cost.analyse(raw(OPENING, *(window(repeat) for repeat in range(3)))).metrics
    for name, metric in metrics.items():
        metric.check(name)
    found = {name: metric.value for name, metric in metrics.items()}
    assert found == {
        "simulated50.serve.cpu.cores": 0.55,
        "simulated50.serve.memory.mb": 108.0,
        "simulated50.serve.resident.mb": 217.0,
        "simulated50.serve.lost.ratio": 0.01,
        "simulated50.serve.opening-memory.mb": 220.0,
        "simulated50.serve.opening.s": 2.5,
        "simulated50.serve.busy.ratio": 0.3,
    }
    (table,) = part_cost.figures(raw(OPENING, window(0)))
    assert table.rows == (("50 simulated", "0.50", "108 MB", "217 MB", "220 MB", "1.00%"),)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"up": 49.0}, "49 of 50 machines were sampled"),
        ({"process_s": 800.0, "idle_s": 1_200.0}, "were 40.0% busy, and are 30%"),
    ],
)
def test_what_cannot_be_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        part_cost.analyse(raw(OPENING, window(0, **changed)))
