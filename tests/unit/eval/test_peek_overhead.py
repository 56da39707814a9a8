# SPDX-License-Identifier: GPL-2.0-only
"""Experiment peek-overhead on rows whose figures are known: what is made of them, what is refused.

The two programs of Fig. 6 are run here, too, in miniature, on a file and on a process.
"""

from __future__ import annotations

import copy
import os

import pytest

from eval.peek_overhead import part_bandwidth as bandwidth
from eval.peek_overhead import spec
from trapless.experiments.collection import Extent
from trapless.experiments.experiment import Raw

KIB = 1 << 10
SIZES = (2 * KIB, 16 * KIB)
ALONE_NS = 1_000_000
TOTAL = 1 << 25


def ns_of(access, reads, repeat):
    """Writes take twice as long while the same region is read; everything wobbles a little."""
    slower = 2.0 if (access, reads) == ("write", "same") else 1.0
    return int(ALONE_NS * slower * (1 + 0.001 * (repeat % 3)))


def rows_of(form, repeats=5):
    rows, phase = [], 0
    for repeat in range(repeats):
        for size in SIZES:
            for access in ("read", "write"):
                for reads in ("none", "other", "paced", "same"):
                    phase += 2
                    run = {"phase": phase, "access": access, "bytes": size, "reads": reads}
                    run |= {"repeat": repeat, "total": TOTAL, "ns": ns_of(access, reads, repeat)}
                    seen = 500 if (access, reads) == ("write", "same") else 0
                    sweep = {"phase": phase, "sweep_reads": 1000, "early": 100}
                    sweep |= {"changes": seen, "share": 1.0}
                    rows += [run, sweep]
    return [{**row, "form": form} for row in rows]


ROWS = [row for form in bandwidth.FORMS for row in rows_of(form)]


def rows():
    return copy.deepcopy(ROWS)


def sweeps(found, **wanted):
    """The observer's rows of the runs that are so."""
    runs = {
        (row["form"], row["phase"])
        for row in found
        if all(row.get(key) == value for key, value in wanted.items())
    }
    return [r for r in found if "sweep_reads" in r and (r["form"], r["phase"]) in runs]


def test_the_loss_is_the_part_of_the_bandwidth_that_is_missing():
    metrics = bandwidth.analyse(Raw(rows(), {})).metrics
    assert metrics["write2048.mapped.same.ratio"].value == pytest.approx(0.5, abs=0.001)
    assert metrics["read2048.mapped.same.ratio"].value == pytest.approx(0, abs=0.001)
    assert metrics["write16384.guest.paced.ratio"].value == pytest.approx(0, abs=0.001)
    assert {metric.kind for metric in metrics.values()} == {"measured"}


def test_a_loss_above_the_papers_does_not_hold_and_says_why():
    (claim,) = bandwidth.analyse(Raw(rows(), {})).claims
    assert (claim.id, claim.holds) == ("peek-memory", False)
    assert "50.0% (50.0 to 50.0) of writes" in claim.ours
    assert "24 MB/s" in claim.note


def test_a_loss_below_the_papers_holds():
    found = rows()
    for row in found:
        if "ns" in row:
            row["ns"] = ALONE_NS
    (claim,) = bandwidth.analyse(Raw(found, {})).claims
    assert claim.holds is True


def test_runs_without_their_observer_do_not_count():
    found = rows()
    for row in sweeps(found, access="write", reads="same", repeat=0):
        row["share"] = 0.3
    for row in found:
        if (row.get("access"), row.get("reads"), row.get("repeat")) == ("write", "same", 0):
            row["ns"] = ALONE_NS
    for key, values in bandwidth.losses(found, "mapped").items():
        assert len(values) == (4 if key[0] == "write" and key[2] == "same" else 5)
    assert bandwidth.share(found) < 1


def test_where_none_had_its_observer_the_best_three_count():
    found = rows()
    for row in sweeps(found, access="read", reads="same"):
        row["share"] = 0.1
    assert len(bandwidth.losses(found, "guest")["read", 2 * KIB, "same"]) == 3


def test_a_run_that_its_observer_missed_was_not_observed():
    missed = sweeps(rows(), access="read", reads="same", repeat=0)
    found = [row for row in rows() if row not in missed]
    assert len(bandwidth.losses(found, "guest")["read", 2 * KIB, "same"]) == 4
    assert bandwidth.share(found) < 1


def test_what_was_never_observed_has_no_loss():
    missed = sweeps(rows(), access="read", reads="same")
    found = [row for row in rows() if row not in missed]
    with pytest.raises(ValueError, match="had no processor in any run"):
        bandwidth.losses(found, "guest")


@pytest.mark.parametrize(
    ("wanted", "changes", "error"),
    [
        ({"access": "write", "reads": "same"}, 0, "saw nothing change"),
        ({"access": "read", "reads": "other"}, 3, "changed 3 times"),
    ],
)
def test_an_observer_that_read_something_else_is_no_observer(wanted, changes, error):
    found = rows()
    for row in sweeps(found, **wanted):
        row["changes"] = changes
    with pytest.raises(ValueError, match=error):
        bandwidth.analyse(Raw(found, {}))


@pytest.mark.parametrize("form", sorted(bandwidth.FORMS))
def test_a_form_without_runs_is_missed(form):
    found = [row for row in rows() if row["form"] != form]
    with pytest.raises(ValueError, match=f"{form}: no runs"):
        bandwidth.analyse(Raw(found, {}))


def test_figures_have_a_line_for_each_access_and_reader():
    drawn = bandwidth.figures(Raw(rows(), {}))
    assert len({one.id for one in drawn}) == len(drawn) == 4
    mapped = drawn[0]
    losses = {series.name: series.y for series in mapped.series}
    assert losses["writes; the same"] == pytest.approx([50, 50], abs=0.1)
    assert mapped.marks[0].y == 5


class Tried:
    """As much of a Collection as both programs need."""

    @staticmethod
    def chosen(extent):
        return extent.quick

    class progress:  # noqa: N801
        @staticmethod
        def advance(done, total):
            assert 0 < done <= total


@pytest.mark.slow
@pytest.mark.parametrize("form", ["mapped", "process"])
def test_both_programs_meet(monkeypatch, form):
    """Whatever they measure: runs are seen, and what was written is seen to change."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    monkeypatch.setattr(spec, "REGION_BYTES", Extent((4 * KIB,), (4 * KIB,)))
    monkeypatch.setattr(spec, "REGION_REPEATS", {"local": Extent(3, 3)})
    found = bandwidth.collect_local(Tried, form)
    runs = {row["phase"]: row for row in found if "access" in row}
    seen = {row["phase"]: row for row in found if "sweep_reads" in row}
    assert len(runs) == 3 * 2 * 4
    assert seen.keys() <= runs.keys()
    read, changes = set(), 0
    for phase, sweep in seen.items():
        run = runs[phase]
        assert run["total"] == 256 << 20
        bandwidth.check(run, sweep)
        if sweep["sweep_reads"]:
            read.add((run["access"], run["reads"]))
        if (run["access"], run["reads"]) == ("write", "same"):
            changes += sweep["changes"]
    assert read == {(access, reads) for access in bandwidth.ACCESSES for reads in bandwidth.READS}
    assert changes
