# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek report`: a recording in tables: shares of each CPU, its run queue, its processes.

Reads a recording a segment at a time, so that hours fit in little memory. Samples that are torn,
absent or frozen for a CPU are counted and left out of its shares. It owns no sampling, and nothing
of what a field means (tier0.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek import tier0
from trapless.peek.errors import PeekError
from trapless.peek.recording import Recording
from trapless.peek.rows import Flag
from trapless.peek.tier0 import Part
from trapless.reporting.figures import Table

PROCESSES_SHOWN = 10
LAG_BIN_NS = 100
LAG_BINS = 100_000
"""Lags are counted in steps of 100 ns up to 10 ms: hours of samples take no more memory."""
COLUMNS = {
    Part.USER: "user",
    Part.KERNEL: "other kernel",
    Part.PROCESS: "user or kernel",
    Part.TOP_HALF: "top half",
    Part.BOTTOM_HALF: "bottom half",
    Part.IDLE: "idle",
}


@dataclass
class Cpu:
    """What the samples of one CPU add up to."""

    parts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Part), np.int64))
    left_out: int = 0
    queue_sum: int = 0
    queue_max: int = 0

    @property
    def samples(self) -> int:
        return int(self.parts.sum())

    def share(self, part: Part) -> float:
        return float(self.parts[part]) / max(self.samples, 1)


@dataclass
class Summary:
    """Samples, added up. `threads`: how many were recorded beside; none, one for all, or each."""

    groups: Sequence[str]
    threads: int
    cpus: dict[str, Cpu] = field(init=False)
    processes: Counter[tuple[int, str]] = field(default_factory=Counter)  # samples by (pid, name)
    rows: int = 0
    slots: tuple[int, int] | None = None  # the first and the last with a sample
    flags: Counter[Flag] = field(default_factory=Counter)
    lags: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(LAG_BINS, np.int64))

    def __post_init__(self) -> None:
        self.cpus = {name: Cpu() for name in self.groups}

    def add(self, table: pa.Table) -> None:
        """Take samples: columns as recordings have them."""
        if not table.num_rows:
            return
        slots, flags = table["slot"].to_numpy(), table["flags"].to_numpy()
        self.slots = (self.slots[0] if self.slots else int(slots[0]), int(slots[-1]))
        for flag in Flag:
            self.flags[flag] += int(((flags & flag) != 0).sum())
        self.rows += table.num_rows
        steps = np.minimum(table["lag_ns"].to_numpy() // LAG_BIN_NS, LAG_BINS - 1)
        self.lags += np.bincount(steps, minlength=LAG_BINS)
        frozen = table["frozen"].to_numpy()
        for number, name in enumerate(self.groups):
            bad = (table["torn"].to_numpy() | table["absent"].to_numpy()) >> np.uint64(number)
            bad = (bad & np.uint64(1)) | self._frozen(frozen, number)
            _add(self, name, table, bad == 0)

    def _frozen(self, frozen: npt.NDArray[np.uint64], number: int) -> npt.NDArray[np.uint64]:
        """Whether a CPU's own thread stood still; where one thread is all CPUs, that one."""
        if not self.threads:
            return np.zeros(len(frozen), np.uint64)
        bit = number if self.threads == len(self.groups) else 0
        return (frozen >> np.uint64(bit)) & np.uint64(1)

    def lost(self) -> float:
        """Which part of the slots has no sample, from the first one to the last."""
        first, last = self.slots if self.slots else (0, 0)
        return 1 - self.rows / max(last - first + 1, self.rows, 1)

    def flagged(self, flag: Flag) -> float:
        """Which part of the samples has a flag."""
        return self.flags[flag] / max(self.rows, 1)

    def lag_text(self, part: float) -> str:
        """The lag that so large a part of the samples does not exceed."""
        place = int(np.searchsorted(np.cumsum(self.lags), part * max(self.rows, 1)))
        if place >= LAG_BINS - 1:
            return f"over {LAG_BINS * LAG_BIN_NS / 1e6:g} ms"
        return f"{(place + 1) * LAG_BIN_NS / 1e3:.1f} µs"


def summarise(recording: Recording) -> Summary:
    """Add up all that is whole of a recording."""
    groups = [str(name) for name in recording.meta["groups"]]
    summary = Summary(groups, len(recording.meta["threads"]))
    for table in recording.tables():
        summary.add(table)
    if not summary.rows:
        raise PeekError(f"{recording.folder}: no rows; {'; '.join(recording.problems)}")
    return summary


def _add(summary: Summary, name: str, table: pa.Table, good: npt.NDArray[np.bool_]) -> None:
    def column(member: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = table[f"{name}.{member}"].to_numpy()[good]
        return values

    cpu = summary.cpus[name]
    cpu.left_out += int((~good).sum())
    tracked = f"{name}.context" in table.column_names
    found = tier0.parts(
        column("preempt_count"),
        column("pid"),
        column("context") if tracked else None,
        column("context_active") if tracked else None,
    )
    cpu.parts += np.bincount(found, minlength=len(Part))
    queue = column("nr_running")
    if len(queue):
        cpu.queue_sum += int(queue.sum())
        cpu.queue_max = max(cpu.queue_max, int(queue.max()))
    pids, comms = column("pid"), table[f"{name}.comm"].to_numpy(zero_copy_only=False)[good]
    running = (found == Part.PROCESS) | (found == Part.USER) | (found == Part.KERNEL)
    pairs = zip(pids[running].tolist(), comms[running].tolist(), strict=True)
    for (pid, comm), count in Counter(pairs).items():
        summary.processes[(pid, _text(comm))] += count


def _text(comm: bytes) -> str:
    return comm.split(b"\0")[0].decode("utf-8", "replace")


def tables(recording: Recording) -> Sequence[Table]:
    """The recording for people."""
    summary = summarise(recording)
    return (shares(summary), processes(summary), _sampling(recording, summary))


def shares(summary: Summary) -> Table:
    """A row for each CPU."""
    shown = [part for part in COLUMNS if any(cpu.parts[part] for cpu in summary.cpus.values())]
    unknown = Part.PROCESS in shown
    return Table(
        id="shares",
        title="Where each CPU was",
        columns=("CPU", *(COLUMNS[part] for part in shown), "run queue", "longest", "left out"),
        rows=tuple(_row(name, cpu, shown) for name, cpu in summary.cpus.items()),
        caption="Left out: samples that were torn, or of a virtual CPU that stood still."
        + (
            " User mode and the kernel cannot be told apart in this kernel's memory; with the "
            "boot parameter nohz_full they can."
            if unknown
            else ""
        ),
    )


def _row(name: str, cpu: Cpu, shown: Sequence[Part]) -> tuple[str, ...]:
    return (
        name.removeprefix("cpu"),
        *(f"{cpu.share(part):.1%}" for part in shown),
        f"{cpu.queue_sum / max(cpu.samples, 1):.2f}",
        str(cpu.queue_max),
        str(cpu.left_out),
    )


def processes(summary: Summary) -> Table:
    """Who ran most."""
    total = sum(cpu.samples for cpu in summary.cpus.values())
    rows = tuple(
        (str(pid), name, f"{count / max(total, 1):.1%}")
        for (pid, name), count in summary.processes.most_common(PROCESSES_SHOWN)
    )
    return Table(
        id="processes",
        title="Processes, of the time of all CPUs",
        columns=("PID", "name", "share"),
        rows=rows,
        caption=f"{len(rows)} of {len(summary.processes)}.",
    )


def _sampling(recording: Recording, summary: Summary) -> Table:
    return Table(
        id="sampling",
        title="How well it was sampled",
        columns=(
            "samples",
            "interval",
            "lag, median",
            "lag, 99%",
            "lost",
            "late",
            "torn",
            "frozen",
        ),
        rows=(
            (
                str(summary.rows),
                f"{int(recording.meta['interval_ns']) / 1e3:g} µs",
                *(summary.lag_text(part) for part in (0.5, 0.99)),
                f"{summary.lost():.2%}",
                *(f"{summary.flagged(flag):.2%}" for flag in (Flag.LATE, Flag.TORN, Flag.FROZEN)),
            ),
        ),
        caption="; ".join(recording.problems),
    )
