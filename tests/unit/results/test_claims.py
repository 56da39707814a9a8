# SPDX-License-Identifier: GPL-2.0-only
"""The verdict on a claim, from values that may be ranges, or biased against it."""

from __future__ import annotations

import pytest

from eval.peek_interval import part_intervals
from trapless.report.document import _counted
from trapless.results import claims


@pytest.mark.parametrize(
    ("n", "biased", "holds"),
    [(2, False, True), (3, False, False), (2, True, True), (3, True, None), ((2, 3), False, None)],
)
def test_values_that_are_biased_against_a_claim_confirm_it_and_never_refute_it(n, biased, holds):
    assert claims.judge("wsc-int", "", {"N": n}, biased=biased).holds is holds


def test_a_headline_names_the_claims_that_could_only_hold():
    found = [
        claims.judge("peek-p99-8", "30 ns", {"interval in ns": 30.0}),
        claims.judge("wsc-int", "", {"N": 2}),
    ]
    assert _counted(found) == "2 found to hold (of which 1 cannot fail here: peek-p99-8)"
    assert _counted(found[1:]) == "1 found to hold"


def test_claims_that_cannot_fail_say_so_in_their_notes():
    sure = {name for name, known in claims.published().items() if known.cannot_fail}
    assert sure == {"peek-interval-4", "peek-interval-2048", "peek-p99-8"}
    assert "cannot fail here" in part_intervals.NOTE
