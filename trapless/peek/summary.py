# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek report`: a recording in tables: shares of each CPU, its run queue, its processes.

Reads a recording a segment at a time, so that hours fit in little memory. Samples that are torn,
absent or frozen for a CPU are counted and left out of its shares. It owns no sampling, and nothing
of what a field means (tier0.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek import tier0
from trapless.peek.errors import PeekError
from trapless.peek.recording import Recording
from trapless.peek.tier0 import Part
from trapless.reporting.figures import Table

PROCESSES_SHOWN = 10
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
    """A recording, added up."""

    cpus: dict[str, Cpu]
    processes: Counter[tuple[int, str]]  # samples by (pid, name), of all CPUs
    rows: int = 0
    lags: list[npt.NDArray[np.uint32]] = field(default_factory=list)


def summarise(recording: Recording) -> Summary:
    """Add up all that is whole of a recording."""
    groups = [str(name) for name in recording.meta["groups"]]
    summary = Summary({name: Cpu() for name in groups}, Counter())
    for table in recording.tables():
        summary.rows += table.num_rows
        summary.lags.append(table["lag_ns"].to_numpy())
        frozen = table["frozen"].to_numpy()
        for number, name in enumerate(groups):
            bad = (table["torn"].to_numpy() | table["absent"].to_numpy()) >> np.uint64(number)
            bad = (bad & np.uint64(1)) | _frozen(recording, frozen, number)
            _add(summary, name, table, bad == 0)
    if not summary.rows:
        raise PeekError(f"{recording.folder}: no rows; {'; '.join(recording.problems)}")
    return summary


def _frozen(
    recording: Recording, frozen: npt.NDArray[np.uint64], number: int
) -> npt.NDArray[np.uint64]:
    """Whether a CPU's own thread stood still; where one thread is all CPUs, that one."""
    threads = len(recording.meta["threads"])
    if not threads:
        return np.zeros(len(frozen), np.uint64)
    bit = number if threads == len(recording.meta["groups"]) else 0
    return (frozen >> np.uint64(bit)) & np.uint64(1)


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
    return (_shares(summary), _processes(summary), _sampling(recording, summary))


def _shares(summary: Summary) -> Table:
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


def _processes(summary: Summary) -> Table:
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
        caption=f"The first {PROCESSES_SHOWN} of {len(summary.processes)}.",
    )


def _sampling(recording: Recording, summary: Summary) -> Table:
    lags = np.concatenate(summary.lags)
    end: Mapping[str, int] = recording.end or {}
    slots = end.get("slots", summary.rows)
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
                *(f"{np.percentile(lags, part) / 1e3:.1f} µs" for part in (50, 99)),
                *(
                    f"{end[name] / max(slots, 1):.2%}" if name in end else "unknown"
                    for name in ("lost", "late", "torn", "frozen")
                ),
            ),
        ),
        caption="; ".join(recording.problems),
    )
