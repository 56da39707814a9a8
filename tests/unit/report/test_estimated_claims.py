# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts of an estimate: what it can say of the papers' claims, what it leaves open, and that a
report keeps them apart from the verdicts of experiments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.report.made_up import a_result, page_of
from trapless.base.console import Silent
from trapless.experiments import report_files
from trapless.report import readme, saved_page, summary, text_report
from trapless.report.document import Report, Section
from trapless.results import claims, estimate_file, estimated_claims
from trapless.results.estimate_file import Call, Range, Saved


def exactly(ns: float) -> Range:
    return Range(ns, ns, ns)


def call(title: str, plain: float, saved: dict[int, Range]) -> Call:
    return Call(title, exactly(plain), exactly(plain - 50), saved)


WINS_AT_3 = {2: exactly(-20), 3: exactly(5), 32: exactly(50)}
SAVED = Saved(
    processor="Core of 2026",
    hypervisor="",
    kernel="6.18.1",
    clock_ghz=4.0,
    trap=exactly(80),
    calls={
        "getpid": call("getpid", 100, WINS_AT_3),
        "brk": call("sbrk", 120, WINS_AT_3),
        "pread1": call("pread of 1 B", 160, WINS_AT_3),
        "pwrite1": call("pwrite of 1 B", 1000, WINS_AT_3),
    },
    by_int=(exactly(300), {2: exactly(10), 32: exactly(200)}),
    uring={},
    supervisor_saves=(40, 70),
)


def verdicts(estimate: Saved) -> dict[str, bool | None]:
    return {claim_id: claim.holds for claim_id, claim in estimated_claims.judged(estimate).items()}


def test_ratios_of_time_are_judged_and_ranges_across_a_bound_are_open():
    assert verdicts(SAVED) == {
        "wsc-sysenter": False,  # wins from 3 calls on, not from 32
        "wsc-int": True,
        "wsc-fast-trap": True,  # 100 of 300
        "dms-saving": False,  # 160 to 280 clocks
        "dms-getpid": None,  # 30 to 60%, against 34%
        "dms-sbrk": None,  # 42 to 67%, against 57%
        "dms-read": True,  # 56 to 75%, against 80%
        "dms-write": False,  # 93 to 96%, against 81%
    }


def test_a_break_even_within_the_interval_is_open_where_its_ends_differ():
    saved = {2: Range(1, -1, 3), 4: exactly(9)}
    found = estimated_claims.judged(replace(SAVED, by_int=(exactly(300), saved)))["wsc-int"]
    assert (found.holds, found.ours) == (None, "N = 2 or N = 4")
    assert "within the interval" in found.note
    never = {2: exactly(-1), 128: exactly(-1)}
    found = estimated_claims.judged(replace(SAVED, by_int=(exactly(300), never)))["wsc-int"]
    assert (found.holds, found.ours) == (False, "never")


def test_an_int_that_the_hypervisor_handles_decides_nothing():
    estimate = replace(SAVED, by_int=(exactly(4000), SAVED.by_int[1]), hypervisor="KVM")
    found = estimated_claims.judged(estimate)
    for claim_id in ("wsc-int", "wsc-fast-trap"):
        assert found[claim_id].holds is None and "hypervisor" in found[claim_id].note
    assert verdicts(replace(estimate, hypervisor=""))["wsc-fast-trap"] is True


def test_what_an_older_estimate_lacks_is_left_out():
    older = replace(SAVED, by_int=None, calls={"getpid": SAVED.calls["getpid"]})
    assert set(verdicts(older)) == {"wsc-sysenter", "dms-saving", "dms-getpid"}
    assert estimated_claims.judged(None) == {}


def as_json() -> str:
    def value(one: Range) -> dict[str, float]:
        return {"ns": one.ns, "low": one.low, "high": one.high}

    def by_n(values: dict[int, Range]) -> dict[str, dict[str, float]]:
        return {f"n{n}": value(one) for n, one in values.items()}

    fields = ("processor", "hypervisor", "kernel", "clock_ghz")
    return json.dumps({
        "machine": {name: getattr(SAVED, name) for name in fields},
        "trap": value(SAVED.trap),
        "calls": {
            name: {
                "title": one.title, "plain": value(one.plain),
                "batch": by_n({32: one.batch}), "saved": by_n(one.saved),
            }
            for name, one in SAVED.calls.items()
        },
        "int80": {"plain": value(SAVED.by_int[0]), "saved": by_n(SAVED.by_int[1])},
        "uring": {},
        "supervisor": {"saved": {"low": 40, "high": 70}},
    })  # fmt: skip


def test_the_file_is_read_as_it_was_meant(tmp_path: Path):
    (tmp_path / estimate_file.NAME).write_text(as_json())
    assert estimate_file.load(tmp_path / estimate_file.NAME) == SAVED


@pytest.mark.slow
def test_a_report_keeps_both_verdicts_apart(chosen: Path, tmp_path: Path):
    before = report_files.read(chosen, Silent())
    (chosen / estimate_file.NAME).write_text(as_json())
    read = report_files.read(chosen, Silent())
    assert [claim.holds for claim in read.claims] == [claim.holds for claim in before.claims]
    assert "in a column of its own" in read.verdict()
    assert "It decides none of the claims that are left open." in read.verdict()
    assert "in a column of its own" not in before.verdict()
    page, text = page_of(chosen), text_report.text(read)
    for shown in (page, text, saved_page.document(read, chosen.parent)):
        assert "by estimate" in shown and "An estimate, in nanoseconds" in shown
    part = readme.generated(read, chosen)
    assert part.index("- By an estimate of time, a trap takes 80 ns") < part.index(
        "- Counted, a batch"
    )
    assert "By an estimate" not in readme.generated(before, chosen)


def test_a_time_is_shown_with_its_interval():
    timed = replace(SAVED.calls["getpid"], plain=Range(100, 98.4, 103.6))
    table = summary.time(Report(Path(), (), (), estimate=replace(SAVED, calls={"getpid": timed})))
    assert table is not None
    assert table.rows[0][1:4] == ("100 (98 to 104)", "50 (50 to 50)", "50%")


def test_an_open_claim_says_which_machine_is_wanted():
    found = claims.with_wanted(claims.undecided("srv-anycall", "2%", "No clock."))
    assert found.note.startswith("No clock. Wanted: two machines set aside")
    decided = claims.judge("wsc-int", "N = 2", {"N": 2})
    assert claims.with_wanted(decided) is decided
    for claim_id in claims.published():
        assert "Wanted: " in claims.with_wanted(claims.not_run(claim_id, "")).note


def test_claims_of_related_works_are_counted_apart():
    result = a_result()
    other = claims.undecided("srv-anycall", "2%", "No clock.")
    both = replace(result, claims=(*result.claims, other))
    section = Section("made-up", "", "", (), both, (), (), {})
    assert Report(Path(), (section,), ()).verdict() == (
        "3 claims of the four papers are tested here: 1 found to hold, 1 found not to hold, "
        "1 left open. Claims of related works: 1 left open."
    )


def test_open_claims_that_the_estimate_decides_are_named():
    result = a_result()
    names = ("dms-read", "dms-getpid", "dms-saving")
    both = replace(result, claims=tuple(claims.undecided(name, "", "No clock.") for name in names))
    section = Section("made-up", "", "", (), both, (), (), {})
    verdict = Report(Path(), (section,), (), estimate=SAVED).verdict()
    decided = "2 of the claims that are left open: dms-read holds, dms-saving does not hold."
    assert verdict.endswith(f" It decides {decided}")
