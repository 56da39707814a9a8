# SPDX-License-Identifier: GPL-2.0-only
"""Intervals, sums, the refusal of readings that differ, and what is shown: on readings made up so
that the sums are known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from trapless.base.console import TraplessError
from trapless.cli import cli
from trapless.estimate import estimate_text, estimated_machine, placements, sums
from trapless.estimate.placements import Reading

CLOCKS = 2.5
"""Clocks of the time-stamp counter in a nanosecond."""
HERE = estimated_machine.Machine(
    "Core of 2026", 8, 7, "6.18.1", "", {"spectre_v2": "Retpolines"}, "performance", (),
    "2026-11-30 09:30 UTC",
)  # fmt: skip
BEYOND, NOSYS, FIXED, EACH = 60.0, 80.0, 120.0, 10.0
BARE = 77.0
"""60 and 0.85 of what is missing to 80."""
DIRECTORY = {"names": 100.0, "statx": 700.0, "refused": 200.0, "fstat": 377.0}


def reading(factor: float = 1.0, uring: bool = True) -> Reading:
    """A trap of 60 to 80 ns, by the way to a handler. A batch of N takes 120 + 10 N, and each call
    20 ns more than the last one."""
    ns = {"function": 1.0, "vdso": 4.0, "popfq": 5.0, "lseek": 95.0, "path": 9.0}
    ns |= {"beyond": BEYOND, "nosys": NOSYS}
    ns |= {call.subject: NOSYS + 20.0 * (i + 1) for i, call in enumerate(sums.CALLS)}
    ns |= {f"batch.n{n}": FIXED / n + EACH for n in sums.BATCHES}
    ns |= {
        f"request.{loop}.n{sums.REQUEST_N}": 4.0 + i
        for i, loop in enumerate(estimated_machine.LOOPS)
    }
    ns |= {
        f"mix.{mix}.{loop}.n{sums.REQUEST_N}": 5.0 if loop.startswith("hot_") else 11.0
        for mix in sums.MIXES
        for loop in estimated_machine.LOOPS
    }
    ns |= {f"listing.{part}.n256": value for part, value in DIRECTORY.items()}
    if uring:
        ns |= {f"{k}.n{n}": 300.0 / n for k in ("uring.nop", "uring.read") for n in (1, 8, 32, 128)}
    ns["chain"] = 0.25
    clocks = {name: value * CLOCKS * factor for name, value in ns.items()}
    return Reading(50, CLOCKS, clocks, clocks, {} if uring else {"uring": "Function not allowed"})


def made(readings=None):
    return sums.make(readings or [reading()] * 16, HERE.loop)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # The k-th smallest and largest of n: tables of the sign test, two-sided, at least 95%.
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (16, 4, 13), (20, 6, 15), (25, 8, 18)],
)
def test_intervals_are_those_of_the_sign_test(count, low, high):
    found = sums.interval([float(value) for value in range(count, 0, -1)])
    assert (found.low, found.ns, found.high) == (low, (count + 1) / 2, high)


def test_an_interval_of_few_values_is_all_of_them():
    assert sums.interval([3.0, 1.0]) == sums.Value(2.0, 1.0, 3.0)


def test_a_wild_placement_moves_neither_value_nor_interval():
    found = sums.interval([100.0] * 15 + [1000.0])
    assert found == sums.Value(100.0, 100.0, 100.0)


def test_sums_are_right():
    found = made()
    assert found.trap.ns == pytest.approx(BARE - 1)
    assert found.clock_ghz == pytest.approx(4.0)
    for i, call in enumerate(found.calls):
        plain = NOSYS + 20.0 * (i + 1)
        assert call.plain.ns == pytest.approx(plain)
        for n in sums.BATCHES:
            crossings = call.call.crossings
            saved = crossings * (BARE - FIXED / n - EACH)
            assert call.saved[n].ns == pytest.approx(saved)
            assert call.batch[n].ns == pytest.approx(plain - saved)
            # The way to a handler is not known: half of the difference, or a tenth more than it.
            assert call.saved[n].low == pytest.approx(saved - crossings * (BARE - 70.0))
            assert call.saved[n].high == pytest.approx(saved + crossings * (82.0 - BARE))
            assert call.batch[n].high == pytest.approx(plain - saved + crossings * (BARE - 70.0))
        assert call.break_even == 3  # 70 > 120 / 3 + 10 beyond doubt; for 2 they are equal
    assert found.supervisor_saved == pytest.approx((BARE / 2 - 9, BARE - 9))
    assert found.worst_half == 0.0


def test_a_compound_call_lies_between_the_sums_that_can_be_measured():
    found = made().directory
    low, high = 100 + 377 - BARE, 100 + 700 - 200
    assert found.plain.ns == pytest.approx(100 + 700)
    assert (found.compound.low, found.compound.high) == pytest.approx((low, high))
    assert found.compound.ns == pytest.approx(low + sums.LOOKUP * (high - low))
    assert (found.saved.low, found.saved.high) == pytest.approx((800 - high, 800 - low))
    assert found.saved.ns == pytest.approx(800 - found.compound.ns)


def test_a_batch_that_never_wins_says_never():
    slow = reading()
    median = {k: 400.0 if k.startswith("batch.") else v for k, v in slow.median.items()}
    found = made([replace(slow, median=median)] * 16)
    assert found.calls[0].break_even is None
    assert "never" in "\n".join(estimate_text.lines(found, HERE))


def test_sums_are_made_within_a_process_first():
    """Placements that are slow as a whole widen prices, and leave what is saved consistent."""
    found = made([reading(1.0 + 0.001 * (i % 4)) for i in range(16)])
    for call in found.calls:
        for n in sums.BATCHES:
            assert call.saved[n].low <= call.saved[n].ns <= call.saved[n].high
            difference = call.plain.ns - call.saved[n].ns
            assert call.batch[n].ns == pytest.approx(difference, rel=0.01)


def test_halves_that_differ_are_refused_with_the_remedy():
    with pytest.raises(TraplessError, match=r"halves of the run differ by 6%.*try again"):
        made([reading()] * 8 + [reading(1.06)] * 8)
    assert made([reading()] * 8 + [reading(1.04)] * 8).worst_half == pytest.approx(0.04)


def test_what_stands_beside_the_sums_does_not_forbid_them():
    moved = reading()
    median = {k: v * (2 if k.startswith("uring") else 1) for k, v in moved.median.items()}
    assert made([reading()] * 8 + [replace(moved, median=median)] * 8).worst_half == 0.0


def test_the_report_says_that_it_is_an_estimate_and_of_what():
    said = "\n".join(estimate_text.lines(made(), HERE))
    assert said.startswith("An estimate, and no measurement of the module")
    for word in ("Core of 2026", "6.18.1", "retpolines", "Retpolines", "76.0 ns", "saves from",
                 "N=3", "measured     2026-11-30 09:30 UTC"):  # fmt: skip
        assert word in said, word
    for loop in estimated_machine.LOOPS:  # that of this kernel, too
        assert f"  with {estimated_machine.loop_text(loop)}" in said
    assert "the shortest reading 76.0 ns" in said and "openat and close (2 calls)" in said
    assert max(map(len, said.splitlines())) <= 100


def test_a_machine_without_io_uring_says_why():
    said = "\n".join(estimate_text.lines(made([reading(uring=False)] * 16), HERE))
    assert "io_uring is not to be had here: Function not allowed" in said


def test_json_has_each_figure_with_its_interval():
    data = json.loads(json.dumps(estimate_text.as_json(made(), HERE)))
    assert (data["kind"], data["date"]) == ("estimate", "2026-11-30 09:30 UTC")
    assert data["trap"] == {"ns": 76.0, "low": 76.0, "high": 76.0, "least": 76.0}
    assert set(data["request"]["ns"]) == set(estimated_machine.LOOPS)
    assert set(data["mixes"]) == set(sums.MIXES)
    files = data["mixes"]["files"]
    assert (files["table"]["ns"], files["directly"]["ns"]) == (11, 5)
    getpid = data["calls"]["getpid"]
    assert set(getpid["batch"]) == set(getpid["saved"]) == {f"n{n}" for n in sums.BATCHES}
    for value in (getpid["plain"], getpid["batch"]["n32"], getpid["saved"]["n32"]):
        assert {"ns", "low", "high"} <= set(value)
    assert getpid["break_even_n"] == 3
    assert data["directory"]["n"] == sums.DIRECTORY_N
    assert data["directory"]["saved"]["low"] == pytest.approx(200)


def test_a_file_that_cannot_be_written_costs_no_report(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(placements, "run", lambda *_: [reading()] * 16)
    done = CliRunner().invoke(cli, ["estimate", "--json", str(tmp_path / "no" / "file")])
    assert "An estimate, and no measurement" in done.output
    assert isinstance(done.exception, TraplessError) and "No such file" in str(done.exception)


def test_figures_take_the_place_of_older_ones_when_they_are_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(placements, "run", lambda *_: [reading()] * 16)
    file, old = tmp_path / "here.json", tmp_path / "old.json"
    file.write_text("old")
    old.hardlink_to(file)  # nothing was written into the old file
    assert CliRunner().invoke(cli, ["estimate", "--json", str(file)]).exit_code == 0
    assert json.loads(file.read_text())["kind"] == "estimate" and old.read_text() == "old"
    said = CliRunner().invoke(cli, ["estimate", "--json", "-"])
    assert json.loads(said.stdout)["kind"] == "estimate"
