# SPDX-License-Identifier: GPL-2.0-only
"""Web servers timed on a machine's own kernel: rows become times a request and shares of epoll's."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.servers import here
from trapless.experiments.experiment import Raw

REQUESTS = 1000
TURNS = 3


def rows(*, inside: bool) -> list[dict]:
    """Turns in which io_uring takes half of epoll's time, and the load twice of the server's."""
    found: list[dict] = [
        {"clocks_per_ns": 2.0},
        {"load": "keep8", "requests": REQUESTS},
    ]
    ns = {"scheduler": 8000, "epoll": 10_000, "io_uring": 5000}
    if inside:
        ns[here.INSIDE] = 9000
        found.append({"server": here.INSIDE, "stayed": 990, "left": 10})
    else:
        found.append({"skipped": here.INSIDE, "reason": "no module"})
    for turn in range(TURNS):
        for server, each in ns.items():
            row = {"kind": "measured", "server": server, "load": "keep8", "turn": turn}
            grown = each * REQUESTS * (turn + 1)  # a turn that the machine disturbs
            found.append({**row, "unit": "cpu-ns", "value": grown})
            found.append({**row, "unit": "clocks", "value": 4 * grown})
    return found


def raw(*, inside: bool) -> Raw:
    return Raw(rows(inside=inside), {}, Path())


def test_turns_become_times_of_a_request_and_paired_shares():
    metrics = here.analyse(raw(inside=True)).metrics
    assert metrics["http.scheduler.keep8.cpu-ns"].value == 16_000
    assert metrics["http.scheduler.keep8.ns"].value == 32_000
    assert metrics["http.io_uring.keep8.ratio"].value == 0.5
    assert metrics["http.epoll-supervisor.keep8.ratio"].value == 0.9
    assert metrics["http.epoll-supervisor.keep8.ratio"].spread == 0
    assert metrics["http.epoll-supervisor.all.share"].value == 0.99
    (table,) = here.figures(raw(inside=True))
    assert ("keep8", "io_uring", "10.00", "50%", "20.00") in table.rows
    assert "99.0% of its calls" in table.caption


def test_a_machine_that_refuses_the_mode_has_the_other_servers():
    metrics = here.analyse(raw(inside=False)).metrics
    assert metrics["http.scheduler.keep8.ratio"].value == 0.8
    assert not any("supervisor" in name for name in metrics)
    (table,) = here.figures(raw(inside=False))
    assert len(table.rows) == len(here.SERVERS)


def test_no_figure_is_made_of_nothing():
    with pytest.raises(ValueError, match="no server"):
        here.samples(Raw([{"load": "keep8", "requests": 1}], {}, Path()), "cpu-ns")
