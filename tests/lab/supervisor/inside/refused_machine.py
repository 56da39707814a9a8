# SPDX-License-Identifier: GPL-2.0-only
"""A guest where supervisor mode is refused altogether, for the reasons in $EXPECTED: the module,
every command and doctor's prediction without the module all say so."""

from __future__ import annotations

import json
import os

import pytest

from tests.lab.supervisor.inside.people import process, shell, trapless
from trapless.doctor import supervisor_offer
from trapless.doctor.capabilities import Host
from trapless.supervisor import control
from trapless.supervisor.refusals import explain, of_mask, table

pytestmark = pytest.mark.timeout(1200)

EXPECTED = os.environ["EXPECTED"].split(",")
FIRST = next(row for row in table().values() if row.name in EXPECTED)


def test_the_module_says_why():
    assert [row.name for row in of_mask(control.refusals())] == EXPECTED


def test_doctor_shows_each_reason_of_the_module():
    head, *reasons = supervisor_offer.examine(Host())
    assert not head.ok and "the module refuses it" in head.found
    assert [one.id for one in reasons] == [f"supervisor-{name}" for name in EXPECTED]


def test_doctor_would_have_predicted_it_without_the_module():
    predicted = [one.id for one in supervisor_offer._predicted(Host()) if not one.ok]
    reasons = [
        f"supervisor-{row.name}"
        for row in table().values()
        if row.name in EXPECTED and row.code in supervisor_offer.PREDICTIONS
    ]
    assert predicted == (["supervisor", *reasons] if reasons else [])


def test_no_command_goes_on():
    with process(shell("read line")) as pid:
        done = trapless("switch", "--supervisor", str(pid), str(pid))
        assert (done.status, done.out) == (1, "")
        words = f"trapless: supervisor mode is refused here: {explain(FIRST.code)}\n"
        assert done.err == words  # once, though two were asked for
        done = trapless("run", "--mode", "supervisor", "--", "echo", "ran")
        assert (done.status, done.out, done.err) == (125, "", words)


def test_the_list_is_empty_and_names_the_reasons():
    data = json.loads(trapless("ps", "--json").out)
    assert (data["refusals"], data["processes"], data["ended"]) == (EXPECTED, [], None)
