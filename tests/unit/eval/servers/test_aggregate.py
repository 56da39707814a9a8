# SPDX-License-Identifier: GPL-2.0-only
"""Experiment servers: which calls of an event loop may wait, what that would save, and what the
document about it says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eval.servers import deferral, part_aggregate
from eval.servers.deferral import LOOSE, POLICIES, STRICT, Call, Costs, replay
from trapless.experiments.experiment import Raw
from trapless.experiments.raw_files import read_rows
from trapless.report.figures import Table

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT / "docs" / "results" / "6.1" / "servers" / "raw.jsonl"
DOCUMENT = ROOT / "eval" / "servers" / "aggregate.md"


def calls(*words: str) -> tuple[Call, ...]:
    return tuple(map(Call.of, words))


WAIT = "epoll_wait 0x8 - - 0x1"
FILE = ("openat 0xffffff9c - - 0x9", "sendfile 0x3 - - 0x64", "close 0x9 - - 0")


# ---- Which calls may wait ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "by"),
    [
        ("close 0x9 - - 0", POLICIES),
        ("epoll_ctl 0x8 0x2 0x9 0", POLICIES),
        ("epoll_ctl 0x8 0x3 0x9 0", POLICIES),
        ("epoll_ctl 0x8 0x1 0x9 0", (LOOSE,)),
        ("setsockopt 0x9 0x6 0x1 0", POLICIES),
        ("setsockopt 0x9 0x1 0x2 0", (LOOSE,)),
        ("shutdown 0x9 0x1 - 0", (LOOSE,)),
        ("writev 0x9 - - 0x64", (LOOSE,)),
        ("recvfrom 0x9 - - 0x64", ()),
        ("openat 0xffffff9c - - 0x9", ()),
    ],
)
def test_a_call_may_wait_by_its_rule(words, by):
    assert tuple(policy for policy in POLICIES if Call.of(words).may_wait(policy)) == by


def test_a_call_that_makes_a_descriptor_takes_a_close_with_it():
    found = replay([calls(*FILE, "recvfrom 0x3 - - 0x26", *FILE, WAIT)], STRICT)
    assert found.deferred == {"close": 2}
    assert found.batches == {2: 2}  # the second openat, the wait: recvfrom came before


@pytest.mark.parametrize(
    ("after", "waits"),
    [
        ("fstat 0x9 - - 0", False),  # on the descriptor itself
        ("fstat 0xa - - 0", True),
        ("recvfrom 0x3 - - 0x26", True),
        ("sendto 0x3 - - 0x26", False),  # the peer would see another order
        ("accept4 0x6 - - 0x9", False),
        ("unlink 0x7f00 - - 0", False),  # of what is not known others may see the effect
    ],
)
def test_nobody_sees_another_order(after, waits):
    found = replay([calls("close 0x9 - - 0", after, "epoll_ctl 0x8 0x2 0x5 0", WAIT)], STRICT)
    assert found.batches == ({3: 1} if waits else {2: 2})


def test_the_loose_policy_makes_all_at_the_wait():
    assert replay([calls(*FILE, *FILE, WAIT)], LOOSE).batches == {5: 1}
    assert replay([calls("close 0x9 - - 0")], LOOSE).batches == {1: 1}  # nothing is lost


def test_a_batch_that_costs_more_than_its_calls_saves_nothing():
    costs = Costs({2: 300.0, 4: 300.0}, {2: 400.0, 4: 250.0})
    assert [costs.saved(n) for n in (1, 2, 3, 4, 8)] == [0, 0, 150, 200, 400]
    bound = deferral.bound([calls(*FILE, *FILE, *FILE, WAIT)], LOOSE, costs, 3, 30_000.0)
    assert (bound.deferred, bound.saved, bound.of) == (2.0, 7 * 50 / 3, 10_000.0)
    assert bound.share == pytest.approx(bound.saved / 10_000)


def test_calls_are_divided_behind_each_wait():
    of_thread = calls(*FILE, WAIT, FILE[0])
    assert [len(window) for window in deferral.windows(of_thread)] == [4, 1]


# ---- What was recorded, and the document -------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> Raw:
    return Raw(tuple(row for row in read_rows(DATA) if row["part"] == "aggregate"), {})


def test_no_server_would_save_a_hundredth_by_calls_that_may_wait(recorded):
    metrics = part_aggregate.analyse(recorded).metrics
    shares = {name: one.value for name, one in metrics.items() if name.endswith("share-at-most")}
    assert len(shares) == 2 * sum(map(len, part_aggregate.LOADS.values()))
    assert all(share < 0.01 for name, share in shares.items() if STRICT in name)
    assert all(0 <= shares[name] <= shares[name.replace(STRICT, LOOSE)] for name in shares)


def as_markdown(table: Table) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def test_the_document_has_the_figures_of_the_recording(recorded):
    text = DOCUMENT.read_text(encoding="utf-8")
    for table in part_aggregate.figures(recorded):
        (shown,) = re.findall(f"<!-- table: {table.id} -->\n(.*?)\n\n", text, re.S)
        assert shown == as_markdown(table), f"put this there:\n{as_markdown(table)}"
    metrics = part_aggregate.analyse(recorded).metrics
    for policy in POLICIES:
        (shown,) = re.findall(f"<!-- most: {policy} -->([^<]+)<!--/-->", text)
        most = max(one.value for name, one in metrics.items() if f"-{policy}." in name
                   and name.endswith("share-at-most"))  # fmt: skip
        assert shown == f"{most:.2%}"


@pytest.mark.parametrize("change", [{"instructions": 0}, {"server": "another"}])
def test_a_server_that_did_nothing_is_no_result(recorded, change):
    head = next(row for row in recorded.rows if "threads" in row)
    rows = tuple({**row, **change} if row is head else row for row in recorded.rows)
    with pytest.raises(ValueError, match="did nothing under keep8"):
        part_aggregate.analyse(replace(recorded, rows=rows))


def test_a_guest_counts_without_strace_and_records_with_it():
    for server, load in part_aggregate.servers():
        script = part_aggregate.script(server, load)
        assert script.index("after=$(used)") < script.index("/usr/bin/strace -ff")
        assert f"grep -q '^{load.requests} replies, each compared$'" in script
