# SPDX-License-Identifier: GPL-2.0-only
"""The verdict on a claim, from values that may be ranges, or biased against it."""

from __future__ import annotations

import pytest

from trapless.results import claims


@pytest.mark.parametrize(
    ("n", "biased", "holds"),
    [(2, False, True), (3, False, False), (2, True, True), (3, True, None), ((2, 3), False, None)],
)
def test_values_that_are_biased_against_a_claim_confirm_it_and_never_refute_it(n, biased, holds):
    assert claims.judge("wsc-int", "", {"N": n}, biased=biased).holds is holds
