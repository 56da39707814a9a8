# SPDX-License-Identifier: GPL-2.0-only
"""Modelled clocks: the arithmetic by hand, and tables whose every figure has a source."""

from __future__ import annotations

import doctest
import json

import pytest

from trapless.base.console import TraplessError
from trapless.model import processors, trap_clocks
from trapless.model.processors import Case, Range
from trapless.model.trap_clocks import Counts


def test_the_examples_hold():
    assert doctest.testmod(trap_clocks).failed == 0


def test_every_case_has_a_source_and_says_what_it_is():
    measured = processors.with_traps()
    assert {"pentium-4", "core-i7-9700k", "xeon-e5-2667v4"} <= measured.keys()
    for processor in measured.values():
        assert processor.cpi
        ids = [case.id for case in processor.cases]
        assert len(ids) == len(set(ids)) > 0
        assert not processor.cases[0].source.startswith("as above")
        for case in processor.cases:
            assert min(map(len, (case.source, case.note, case.text))) > 5
            published = case.saved or case.trap
            assert 0 < published.low <= published.high
            assert case.call in ("", "nosys", "getppid")


def test_two_processors_are_there_with_and_without_mitigations():
    with_and_without = [p for p in processors.with_traps().values() if len(p.cases) > 1]
    assert len(with_and_without) >= 2
    for processor in with_and_without:
        dearest, *_, cheapest = processor.cases
        assert dearest.trap.low > cheapest.trap.high


def test_the_paper_s_own_figures_come_out_of_its_saving():
    """Fig. 7: getpid takes 34%, so 850 saved clocks are 66% of a trap-type call."""
    case = processors.with_traps()["pentium-4"].cases[0]
    function = 850 * 0.34 / 0.66
    ratio = trap_clocks.estimate(case, 1, Counts(0, function), {}).ratio
    assert ratio.low < 0.34 < ratio.high
    assert trap_clocks.largest_cpi(case, Counts(0, 100), 0.34) == pytest.approx(800 * 0.34 / 66)


def test_work_with_many_calls_pays_a_transition_for_each():
    case = Case("x", "", "", "", trap=Range(200, 300), call="nosys")
    references = {"nosys": Counts(100, 20)}
    found = trap_clocks.estimate(case, 0.5, Counts(10000, 8000, calls=10), references)
    assert found.trap == Range(5000 + 10 * 150, 5000 + 10 * 250)
    assert found.supervisor == 4000
    assert found.ratio.high == pytest.approx(4000 / 6500)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"saved_clocks": [1, 2], "call_clocks": [1, 2], "call": "nosys"},
        {"call_clocks": [1, 2]},
        {"saved_clocks": [1, 2], "call": "nosys"},
        {"saved_clocks": [1, 2, 3]},
    ],
)
def test_a_damaged_table_is_named(tmp_path, fields):
    path = tmp_path / "odd.json"
    case = {"id": "a", "text": "b", "source": "c", "note": "d", **fields}
    path.write_text(json.dumps({"name": "Odd", "traps": {"cpi": [1], "cases": [case]}}))
    with pytest.raises(TraplessError, match=r"odd\.json"):
        processors.read(path)
