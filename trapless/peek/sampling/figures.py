# SPDX-License-Identifier: GPL-2.0-only
"""A recording's course as figures, and the page that they stand on with its tables.

It owns what is drawn over what. The sums are course.py's and summary.py's, drawing is the report's
(trapless/report).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trapless.peek.sampling import tables
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.summary import LAG_BIN_NS, Summary, summarise
from trapless.report import page
from trapless.report.figures import Figure, Series, Table

LAG_POINTS = 60
TIME = "seconds"


def write(recording: Recording, path: Path) -> Sequence[Table]:
    """Write a recording's page; its tables."""
    summary = summarise(recording)
    shown = tables.tables(recording, summary)
    first, rest = shown[0], shown[1:]
    release = str(recording.meta["about"].get("release", "a kernel"))
    drawn = figures(summary, int(recording.meta["interval_ns"]))
    page.write(path, f"{release}, looked at from outside", (), (first, *drawn, *rest))
    return shown


def figures(summary: Summary, interval_ns: int) -> tuple[Figure, ...]:
    """What can be drawn of a recording."""
    return tuple(_figures(summary, interval_ns))


def _series(name: str, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> Series:
    return Series(name, tuple(x.tolist()), tuple(y.tolist()))


def _figures(summary: Summary, interval_ns: int) -> Iterator[Figure]:
    course = summary.course
    if course is not None and len(course.filled) > 1:
        x = course.seconds(interval_ns)
        samples = course.parts.sum(axis=1)
        yield Figure(
            id="shares-over-time",
            title="Where the CPUs were",
            x_label=TIME,
            y_label="% of all CPUs' time",
            series=tuple(
                _series(text, x, 100 * course.mean(course.parts[:, part], samples))
                for part, text in tables.COLUMNS.items()
                if course.parts[:, part].any()
            ),
            kind="measured",
            stacked=True,
        )
        yield Figure(
            id="queue-over-time",
            title="Run queues of all CPUs together",
            x_label=TIME,
            y_label="tasks that run or want to",
            series=(
                _series("longest", x, course.queue_max[course.filled]),
                _series("mean", x, course.mean(course.queue)),
            ),
            kind="measured",
        )
        if summary.counts:
            yield Figure(
                id="processes-over-time",
                title="Processes",
                x_label=TIME,
                y_label="processes, kernel threads with them",
                series=(
                    _series("threads", x, course.mean(course.threads)),
                    _series("processes", x, course.mean(course.processes)),
                ),
                kind="measured",
                from_zero=False,
            )
        if course.judged.any():
            share = 100 * course.mean(course.disabled, course.judged)
            share[course.judged[course.filled] == 0] = np.nan
            yield Figure(
                id="interrupts-over-time",
                title="Interrupts switched off",
                x_label=TIME,
                y_label="% of all CPUs' time",
                series=(_series("off", x, share),),
                kind="measured",
            )
    yield _lags(summary)


def _lags(summary: Summary) -> Figure:
    """How late samples were: the share of them up to each lag."""
    found = np.cumsum(summary.lags) / max(summary.rows, 1)
    last = int(np.searchsorted(found, 1.0)) + 1
    steps = np.unique(np.geomspace(1, max(last, 2), LAG_POINTS).astype(np.int64))
    return Figure(
        id="lag",
        title="Lag of samples behind their deadlines",
        x_label="µs",
        y_label="% of samples up to it",
        series=(_series("lag", steps * LAG_BIN_NS / 1e3, 100 * found[steps - 1]),),
        log_x=True,
        kind="measured",
    )
