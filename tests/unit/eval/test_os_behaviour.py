# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of os-behaviour: rows as shares, times, metrics, claims and tables.

Owns the tests of eval/os_behaviour as far as they need no VM: its rows are made here.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.os_behaviour import analysis, paper_tables
from eval.os_behaviour import part_behaviour as behaviour
from trapless.experiments.experiment import Raw
from trapless.peek.sampling.tier0 import Part

ROOT = Path(__file__).resolve().parents[3]

NAMES = [part.name.lower() for part in Part]


def load(name: str, shares: tuple[float, ...], off: float, **more: Any) -> list[dict[str, Any]]:
    """Rows of a load of 10 s with 100,000 samples. Shares: user, TH, BH, kernel, idle, percent."""
    counts = [round(1000 * share) for share in shares]
    parts = dict(zip(NAMES, [*counts, 0], strict=True))
    disabled = round(1000 * off)
    routines = [
        {"name": "(top halves)", "samples": disabled // 2, "own": 0, "runs": 0},
        {"name": "__schedule", "samples": disabled // 4, "own": disabled // 4, "runs": 5000},
        {"name": "rmqueue.isra.0", "samples": disabled // 4, "own": 0, "runs": 9},
    ]
    row = {
        "observed": name,
        "limit_s": 20,
        "interval_ns": 100_000,
        "slots": 100_000,
        "whole_share": 0.5,
        "rows": 100_000,
        "samples": 100_000,
        "parts": parts,
        "judged": 100_000,
        "off": disabled,
        "routines": routines,
        "switches": 7,
        "counts": {"interrupts": 20_000, "softirqs": 5},
        "left_out": 0,
        "flags": {"late": 10, "torn": 0, "frozen": 0, "absent": 0},
        "lag_us_p99": 12.0,
        "course": {
            "seconds": [float(second) for second in range(9)],
            "tasks": [5.0, 5, 5, 9, 9, 9, 20, 20, 20],
            "queue": [1.0, 1, 1, 9, 9, 9, 12, 12, 12],
            "queue_max": [3, 3, 3, 9, 9, 40, 40, 50, 50],
        },
        "blocks": {
            **{part: [count // 2, count - count // 2] for part, count in parts.items()},
            "judged": [50_000, 50_000],
            "off": [disabled // 2, disabled - disabled // 2],
        },
        **more,
    }
    account = {"accounted": name, "user": 1500, "kernel": 500, "idle": 500}
    return [{"load": name, "number": 1, "ended": True, "ms": 10_000}, account, row]


REQUESTS = {"requests": 4000, "failed": 0, "each_second": [400, 380, 1]}


def rows_like_the_papers() -> list[dict[str, Any]]:
    """Four loads with the shares of Table 1."""
    parts = (Part.USER, Part.TOP_HALF, Part.BOTTOM_HALF, Part.KERNEL, Part.IDLE)
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(analysis.LOADS):
        shares = [analysis.PAPER_SHARES[part][place] for part in parts]
        shares[0] += 100 - sum(shares)  # the paper's are rounded
        more = {"requests": REQUESTS} if name == "httpd" else {}
        rows += load(name, tuple(shares), analysis.PAPER_OFF[place], **more)
    return rows


def course(tasks: list[int], longest: int) -> dict[str, list[int]]:
    """Of two spans, with a run queue that grows to `longest`."""
    return {"seconds": [1, 2], "tasks": tasks, "queue": [1, 2], "queue_max": [1, longest]}


def row_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row.get("observed") == name)


def claims_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {claim.id: claim for claim in behaviour.analyse(Raw(rows, {})).claims}


def test_the_papers_own_figures_hold() -> None:
    claims = claims_of(rows_like_the_papers())
    assert list(claims) == ["peek-shares", "peek-irqoff", "peek-routines", "peek-runq"]
    for claim in claims.values():
        claim.check()
        assert claim.holds, claim.note


def test_metrics_are_shares_with_how_much_they_differ() -> None:
    rows = rows_like_the_papers()
    row_of(rows, "make")["blocks"]["user"] = [50_000, 42_900]
    metrics = behaviour.analyse(Raw(rows, {})).metrics
    for name, one in metrics.items():
        one.check(name)
    user = metrics["make.sampled.user.percent"]
    assert (round(user.value, 1), user.n) == (93.0, 2)
    assert user.spread > metrics["make.sampled.idle.percent"].spread
    assert metrics["httpd.sampled.interrupts-off.percent"].value == 10.6
    assert metrics["httpd.sampled.queue-max.tasks"].value == 50


def test_means_are_of_counted_runs_over_the_time_that_samples_stand_for() -> None:
    """10 s of samples are half of the load; 20,000 interrupts and 5000 runs are of all of it."""
    seen = analysis.loads_of(rows_like_the_papers())["httpd"]
    handlers, scheduler, pages = seen.routines()
    assert handlers.mean_us == pytest.approx(5300 * 100 / 10_000)
    assert scheduler.mean_us == pytest.approx(2650 * 100 / 2500)
    assert (pages.name, pages.mean_us, pages.runs) == ("rmqueue", None, 0)
    assert seen.interrupt_interval_us == pytest.approx(1000)
    lossy = replace(seen, row={**seen.row, "rows": 50_000})
    assert lossy.routines()[0].mean_us == pytest.approx(2 * handlers.mean_us)


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ({"parts": dict(zip(NAMES, (10_000, 9_200, 21_500, 59_300, 0, 0), strict=True))}, "shares"),
        ({"off": 2_000}, "irqoff"),
        ({"routines": [{"name": "x", "samples": 9, "own": 9, "runs": 1}]}, "routines"),
        ({"counts": {"interrupts": 20_000_000, "softirqs": 5}}, "routines"),
        (
            {
                "course": {
                    "seconds": [1, 2],
                    "tasks": [9, 9],
                    "queue": [1, 2],
                    "queue_max": [50, 50],
                }
            },
            "runq",
        ),
        (
            {"course": {"seconds": [1, 2], "tasks": [1, 9], "queue": [1, 2], "queue_max": [2, 9]}},
            "runq",
        ),
    ],
)
def test_what_is_not_as_published_does_not_hold(change: dict[str, Any], claim: str) -> None:
    rows = rows_like_the_papers()
    row_of(rows, "httpd").update(change)
    claims = claims_of(rows)
    wrong = [name for name, one in claims.items() if one.holds is False]
    assert wrong == [f"peek-{claim}"]
    assert not [name for name, one in claims.items() if one.holds is None]


def test_a_run_queue_that_may_have_grown_by_chance_leaves_the_claim_open() -> None:
    course = {
        "tasks": [1.0] * 16 + [5.0] * 16 + [9.0] * 16,
        "queue": [12.0, 13.0, 14.0] * 5 + [13.0] * 18 + [12.3, 13.3, 14.2] * 5,
        "queue_max": [50] * 48,
    }
    rows = rows_like_the_papers()
    row_of(rows, "httpd")["course"].update(course)
    assert claims_of(rows)["peek-runq"].holds is None


def test_a_share_that_another_run_may_have_outside_the_bound_leaves_the_claim_open() -> None:
    rows = rows_like_the_papers()
    off = row_of(rows, "httpd")["routines"]
    off[0]["samples"], off[1]["samples"] = 2600, 3200  # 26% and 32%
    off[2]["samples"] = 10_000 - 2600 - 3200
    assert claims_of(rows)["peek-routines"].holds is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"samples": 99_999}, "do not add up"),
        ({"judged": 99_999}, "probes were not on"),
        ({"parts": dict(zip(NAMES, (0, 0, 0, 0, 0, 100_000), strict=True))}, "not told apart"),
    ],
)
def test_samples_that_cannot_be_are_refused(change: dict[str, Any], says: str) -> None:
    rows = rows_like_the_papers()
    row_of(rows, "qsort").update(change)
    with pytest.raises(ValueError, match=says):
        analysis.loads_of(rows)


def test_a_load_that_was_not_seen_is_refused() -> None:
    rows = [row for row in rows_like_the_papers() if row.get("observed") != "make"]
    with pytest.raises(LookupError):
        analysis.loads_of(rows)


def test_tables_have_the_papers_beside_ours() -> None:
    rows = [*rows_like_the_papers(), {"versions": {"lua5.4": "5.4.4"}}]
    drawn = {item.id: item for item in paper_tables.figures(Raw(rows, {}))}
    assert drawn["shares"].rows[1] == ("top half", *("0.1 (0.1)",) * 2, "0.2 (0.2)", "9.2 (9.2)")
    assert drawn["shares"].rows[-1][4] == "55.9 (55.9)"
    assert drawn["witness"].rows[3] == (
        "httpd",
        *("44.0", "60.0"),
        *("55.9", "20.0"),
        *("0.1", "20.0"),
        "2,500",
    )
    assert drawn["interrupts-off"].rows[1][-1] == "10.6 (10.6)"
    routines = drawn["routines"].rows
    assert routines[0] == ("(top halves)", "50.0", "TH", "46.3")
    assert ("kmem_cache_free", "0.0", "kmem_cache_free", "7.0") in routines
    assert [row[0] for row in drawn["disabled-times"].rows] == ["(top halves)", "__schedule"]
    assert drawn["httpd-tasks"].series[1].y[-1] == 50
    assert drawn["httpd-replies"].series[0].y == (400.0, 380.0)
    assert drawn["samples"].rows[0][:4] == ("nop", "10.0", "has no end", "100,000")
    assert drawn["samples"].rows[1][2] == "yes"


def test_the_guest_is_told_its_loads_as_a_shell_takes_them(tmp_path: Path) -> None:
    for quick in (True, False):
        timed = behaviour.timed_loads(quick)
        assert tuple(one.load.name for one in timed) == analysis.LOADS
        lines = behaviour.guest_script(timed)
        stub = tmp_path / "stub"
        stub.write_text('#!/bin/sh\nprintf "%s\\n" "$#"\n')
        stub.chmod(0o755)
        last = lines[-1].replace("/tmp/os-behaviour", str(stub))
        done = subprocess.run(["sh", "-c", last], capture_output=True, text=True)
        assert done.stdout.strip() == str(1 + 3 * len(timed))
