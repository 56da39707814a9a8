# SPDX-License-Identifier: MIT
"""The analysis of experiment own-call, on rows that stand here."""

from __future__ import annotations

import pytest

from eval.own_call import part_counts
from trapless.base.console import TraplessError
from trapless.experiments.experiment import Raw
from trapless.results.result_file import Metric

CHECK = {"check": "the module made each call", "made": 64, "executed": 64}
ROWS = [
    {"way": "plain", "value": 343.0}, {"way": "plain", "value": 341.0},
    {"way": "batch", "value": 158.5}, {"way": "batch", "value": 158.0}, CHECK,
]  # fmt: skip


def test_the_least_of_the_counts_is_reported_with_their_spread() -> None:
    assert part_counts.analyse(Raw(ROWS, {})).metrics == {
        "getppid.plain.n32.instructions": Metric(341.0, "instructions", "counted", 2, 2.0),
        "getppid.batch.n32.instructions": Metric(158.0, "instructions", "counted", 2, 0.5),
    }


def test_a_call_that_the_module_has_not_made_is_an_error() -> None:
    part_counts.check(ROWS)
    with pytest.raises(TraplessError, match="did not make each call"):
        part_counts.check([{**CHECK, "executed": 63}])
