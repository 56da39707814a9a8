# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of experiments on numbers whose answer is known."""

from __future__ import annotations

import pytest

from trapless.experiments import fit

SIZES = (1, 2, 3, 8, 32, 128)


def costs(slope, intercept):
    return {n: slope * n + intercept for n in SIZES}


def test_a_straight_line_is_found_exactly():
    line = fit.line(costs(313.0, 8.0))
    assert (line.slope, line.intercept) == (pytest.approx(313), pytest.approx(8))
    assert line.residual == pytest.approx(0, abs=1e-12)


def test_a_bend_shows_in_the_residual():
    points = costs(10.0, 0.0)
    points[8] *= 1.5
    assert fit.line(points).residual > 0.2


def test_one_point_is_no_line():
    with pytest.raises(ValueError, match="two points"):
        fit.line({1: 5.0})


def test_equation_1_takes_trap_work_and_request_apart():
    # A trap of 246, a call that works 67, a request of 56, a batch that costs 525 once.
    equation = fit.equation1(costs(246, 8), costs(246 + 67, 8), costs(56 + 67, 525))
    assert equation.a == pytest.approx(246)
    assert equation.work == pytest.approx(67)
    assert equation.s == pytest.approx(56)
    assert equation.o1 == pytest.approx(8)
    assert equation.fixed == pytest.approx(525)
    assert equation.o2 == pytest.approx(525 - 246)
    assert equation.saving == pytest.approx(190)
    assert equation.break_even == pytest.approx((525 - 8) / 190)


def test_a_batch_that_saves_nothing_never_breaks_even():
    assert fit.equation1(costs(200, 0), costs(210, 0), costs(260, 500)).break_even is None


def test_a_batch_that_is_cheaper_from_the_start_breaks_even_at_nothing():
    assert fit.equation1(costs(200, 10), costs(210, 10), costs(100, 0)).break_even == 0.0


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({1: 9, 2: 4, 4: 3, 8: 2}, 2),
        ({1: 9, 2: 4, 4: 6, 8: 2}, 8),  # a relapse at 4: what comes before does not count
        ({1: 1, 2: 1, 4: 1, 8: 1}, 1),
        ({1: 9, 2: 9, 4: 9, 8: 9}, None),
        ({1: 9, 2: 5, 4: 5, 8: 5}, None),  # as dear is not cheaper
        ({16: 1}, None),  # nothing in common
    ],
)
def test_the_first_n_that_wins_for_good(other, expected):
    assert fit.observed_break_even({1: 5, 2: 5, 4: 5, 8: 5}, other) == expected


def test_drift_between_rounds_cancels_in_paired_ratios():
    base = {"a": 100.0, "b": 150.0, "c": 300.0}
    other = {"a": 50.0, "b": 75.0, "c": 150.0, "d": 1.0}
    assert fit.paired_ratios(other, base) == (0.5, 0.5, 0.5)


def test_summary_is_median_and_quartiles():
    summary = fit.summary([5, 1, 2, 100, 3])
    assert (summary.median, summary.low, summary.high, summary.n) == (3, 2, 5, 5)
    assert summary.spread == 3
    assert fit.summary([7.0]) == fit.Summary(7.0, 7.0, 7.0, 1)
    with pytest.raises(ValueError, match="no samples"):
        fit.summary([])


def test_a_ratio_in_a_sentence_says_where_its_samples_disagree():
    assert fit.percent(fit.Summary(0.5, 0.48, 0.52, 9)) == "50%"
    assert fit.percent(fit.Summary(0.5, 0.4, 0.8, 9)) == "50% (40 to 80%)"


def test_a_confidence_interval_holds_the_median_and_narrows_with_samples():
    wide = fit.confidence([1.0, 2.0, 3.0, 4.0, 5.0])
    narrow = fit.confidence([1.0, 2.0, 3.0, 4.0, 5.0] * 40)
    assert wide.low < wide.median == 3 < wide.high
    assert narrow.median == 3
    assert narrow.width < wide.width
    assert fit.confidence([2.0, 2.0, 2.0]).width == 0


def test_a_confidence_interval_is_the_same_each_time():
    samples = [0.1, 0.7, 0.3, 0.4, 0.35]
    assert fit.confidence(samples) == fit.confidence(samples)


def test_two_samples_have_no_confidence_interval():
    with pytest.raises(ValueError, match="2 samples"):
        fit.confidence([1.0, 2.0])
