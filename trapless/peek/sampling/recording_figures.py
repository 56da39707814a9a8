# SPDX-License-Identifier: GPL-2.0-only
"""Makes figures of a recording's course, and the page that has them and the tables.

Owns the choice of what each chart shows. course.py and sample_summary.py have the sums, and
trapless/report draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.sampling import recording_tables
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.sample_summary import LAG_BIN_NS, Summary, summarise
from trapless.report import page
from trapless.report.figures import Figure, Series, Table

LAG_POINTS = 60
TIME = "seconds"


def write(recording: Recording, path: Path, more: Sequence[Table] = ()) -> Sequence[Table]:
    """Write the page of a recording into the file `path`, and return its tables.

    `more`: tables of what else the recording has. PeekError says why there is no page.
    """
    shown: list[Table] = []
    items: list[Figure | Table] = []
    boots = recording.boots()
    for number, boot in enumerate(boots, 1):
        summary = summarise(boot)
        contents = recording_tables.of_boot(
            recording_tables.tables(boot, summary), number, len(boots)
        )
        charts = figures(summary, int(boot.meta["interval_ns"]))
        shown += contents
        items += [contents[0], *recording_tables.of_boot(charts, number, len(boots)), *contents[1:]]
    release = visible(str(recording.meta["about"].get("release", "a kernel")))
    try:
        page.write(path, f"{release}, looked at from outside", (), [*items, *more])
    except OSError as error:  # not of the recording, which was read before
        raise PeekError(f"{path} cannot be written: {error.strerror}") from error
    return [*shown, *more]


def figures(summary: Summary, interval_ns: int) -> tuple[Figure, ...]:
    """The figures that the sums of a recording allow."""
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
                for part, text in recording_tables.COLUMNS.items()
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
    """The distribution of lags: the share of the samples up to each lag."""
    shares = np.cumsum(summary.lags) / max(summary.rows, 1)
    last = int(np.searchsorted(shares, 1.0)) + 1
    steps = np.unique(np.geomspace(1, max(last, 2), LAG_POINTS).astype(np.int64))
    return Figure(
        id="lag",
        title="Lag of samples behind their deadlines",
        x_label="µs",
        y_label="% of samples up to it",
        series=(_series("lag", steps * LAG_BIN_NS / 1e3, 100 * shares[steps - 1]),),
        log_x=True,
        kind="measured",
    )
