# SPDX-License-Identifier: GPL-2.0-only
"""Adds samples up over time: a course has the sums for each of a few hundred spans of a recording.

Owns the division of a recording's time and the sums of each span. sample_summary.py fills it with
judged samples, and recording_figures.py draws it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek.sampling import tier0
from trapless.peek.sampling.tier0 import Part

SPANS_MAX = 240
"""The most spans that a figure can show."""

Sums = npt.NDArray[np.float64]


@dataclass
class Course:
    """Sums over all CPUs for each of `spans` spans, which have `span_slots` slots each.

    Every array has one element for each span; `parts` has a row for each span. One thread.
    """

    span_slots: int
    spans: int
    rows: Sums = field(init=False)
    parts: Sums = field(init=False)  # samples, with a column for each Part
    judged: Sums = field(init=False)  # samples for which it is known whether interrupts were off
    disabled: Sums = field(init=False)
    queue: Sums = field(init=False)  # the lengths of all run queues, summed over rows
    queue_max: Sums = field(init=False)
    processes: Sums = field(init=False)  # summed over rows
    threads: Sums = field(init=False)

    def __post_init__(self) -> None:
        for name in ("rows", "judged", "disabled", "queue", "queue_max", "processes", "threads"):
            setattr(self, name, np.zeros(self.spans))
        self.parts = np.zeros((self.spans, len(Part)))

    @classmethod
    def over(cls, slots: int) -> Course:
        """An empty course for a recording with so many slots.

        >>> Course.over(1000).span_slots, Course.over(1000).spans
        (5, 200)
        """
        span_slots = max(1, -(-slots // SPANS_MAX))
        return cls(span_slots, max(1, -(-slots // span_slots)))

    def _span(self, slots: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return np.minimum(slots.astype(np.int64) // self.span_slots, self.spans - 1)

    def _sum(self, span: npt.NDArray[np.int64], weights: npt.NDArray[Any]) -> Sums:
        sums: Sums = np.bincount(span, weights=weights, minlength=self.spans).astype(np.float64)
        return sums

    def add_rows(self, table: pa.Table) -> None:
        """Add the values of the whole system from a table of rows."""
        span = self._span(table["slot"].to_numpy())
        self.rows += np.bincount(span, minlength=self.spans)
        queues = [name for name in table.column_names if name.endswith(".nr_running")]
        if queues:
            total = sum(table[name].to_numpy().astype(np.int64) for name in queues)
            self.queue += self._sum(span, np.asarray(total))
            first = np.flatnonzero(np.diff(span, prepend=-1))  # rows are in order of their slots
            longest = np.maximum.reduceat(np.asarray(total), first)
            self.queue_max[span[first]] = np.maximum(self.queue_max[span[first]], longest)
        processes = tier0.processes(table)
        if processes is not None:
            self.processes += self._sum(span, processes)
        if "system.threads" in table.column_names:
            self.threads += self._sum(span, table["system.threads"].to_numpy())

    def add_cpu(
        self,
        slots: npt.NDArray[Any],
        parts: npt.NDArray[np.uint8],
        off: npt.NDArray[np.bool_],
        judged: npt.NDArray[np.bool_],
    ) -> None:
        """Add samples of one CPU. The arrays have one element for each sample.

        `parts`: where the CPU was. `judged`: whether it is known that interrupts were `off` or on.
        """
        span = self._span(slots)
        places = span * len(Part) + parts
        counts = np.bincount(places, minlength=self.spans * len(Part))
        self.parts += counts.reshape(self.spans, len(Part))
        self.judged += self._sum(span, judged)
        self.disabled += self._sum(span, off)

    @property
    def filled(self) -> npt.NDArray[np.int64]:
        """The numbers of the spans that have samples."""
        return np.flatnonzero((self.rows > 0) & (self.parts.sum(axis=1) > 0))

    def mean(self, sums: Sums, of: Sums | None = None) -> Sums:
        """`sums` divided by the rows, or by `of`, in each span that is filled."""
        filled = self.filled
        counts = np.maximum((self.rows if of is None else of)[filled], 1.0)
        means: Sums = np.divide(sums[filled], counts)
        return means

    def seconds(self, interval_ns: int) -> Sums:
        """The middle of each span that is filled, in seconds after the recording's begin."""
        span_s = self.span_slots * interval_ns / 1e9
        return np.array([(span + 0.5) * span_s for span in self.filled.tolist()])
