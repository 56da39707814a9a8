# SPDX-License-Identifier: GPL-2.0-only
"""The codes that cross from C to Python: stat_labels.h and trapless.stat.labels are the same."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from trapless.base.paths import repo_root
from trapless.stat import costs, labels
from trapless.supervisor.control import Calls

HEADER = (repo_root() / "stat" / "include" / "stat_labels.h").read_text(encoding="utf-8")
NUMBERS = re.findall(r"^#define STAT_(\w+) (0x[0-9a-f]+|\d+)\b", HEADER, re.M)
LISTS = re.findall(r"^#define STAT_(\w+)\(X\)((?:.*\\\n)*.*)$", HEADER, re.M)
GUARD = 1


@pytest.mark.parametrize(("name", "value"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_each_number_is_the_same_in_c_and_in_python(name, value):
    assert getattr(labels, name) == int(value, 0)


@pytest.mark.parametrize(("name", "text"), LISTS, ids=[name for name, _ in LISTS])
def test_each_list_is_the_same_in_c_and_in_python(name, text):
    assert getattr(labels, name) == tuple(re.findall(r"X\((\w+)\)", text))


def test_nothing_is_defined_on_one_side_alone():
    in_python = {name for name in vars(labels) if name.isupper()}
    in_c = {name for name, _ in (*NUMBERS, *LISTS)}
    assert in_python == in_c
    assert HEADER.count("#define") == len(in_c) + GUARD


def test_calls_and_loops_are_those_that_python_reads():
    assert tuple(field.name for field in fields(Calls)) == labels.CALLS
    assert {loop for _, loop, _ in costs.STEPS} | set(costs.UNSEEN) <= {*labels.LOOPS}


def test_labels_have_room_for_every_code():
    assert len(labels.LOOPS) <= labels.LOOP_MASK + 1
    facts = [labels.FACT_STATUS, labels.FACT_CALLS, labels.FACT_DEMOTIONS]
    assert max(facts) <= labels.FACT_MASK
    assert len(labels.EVENTS) <= 1 << labels.PHASE_SHIFT
    turns = labels.TURN + 2 * (labels.TURNS_MAX - 1) + labels.TURN_SUPERVISOR
    assert turns < labels.CALIBRATION and 16 * turns + len(labels.EVENTS) < labels.FACT_DEMOTIONS
