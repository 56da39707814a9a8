# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek trace --recording`: a recording as a Perfetto trace. Needs no module.

Equal samples in a row become one slice, from the first of them to the next that differs. So the
ends of a slice are true to one interval, and shorter slices may be missing. Each CPU has a track
for where it was, one for its process, one for who switched interrupts off, and a counter for its
run queue. There is no slice where samples are missing or do not count for the CPU. Each boot has
tracks of its own. judgement.py decides what samples mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.guest_processor import X86_64
from trapless.peek.sampling import code_names as names_file
from trapless.peek.sampling.judgement import Column, CpuSamples, judge
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.recording_tables import COLUMNS
from trapless.peek.sampling.sample_summary import left_out_text
from trapless.peek.sampling.tier0 import SYSTEM, Part
from trapless.peek.sampling.tier1 import WHO_TEXT, Who
from trapless.peek.trace.perfetto_file import PerfettoFile
from trapless.peek.trace.trace import open_output

GAP_SLOTS = 3
"""The number of slots without a sample that ends a slice, because what happened there is
unknown."""

Namer = Callable[[int], str | None]


@dataclass(frozen=True)
class Export:
    """The counts of what was written."""

    samples: int
    slices: int
    cpus: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.slices:,} slices of {self.cpus} CPUs from {self.samples:,} samples"
        return "; ".join((text, *self.problems))


@dataclass
class _Track:
    """Makes slices of values. `name` gives the name of a value's slices, or None for no slice."""

    out: PerfettoFile
    number: int
    interval_ns: int
    name: Namer
    slices: int = 0
    _value: int | None = None
    _slot: int = 0  # of the last sample
    _t_ns: int = 0
    _is_open: bool = False

    def add(self, slots: Column, times: Column, values: Column) -> None:
        """Add samples that count, in the order of their slots."""
        if not len(slots):
            return
        jumps = np.diff(slots.astype(np.int64), prepend=self._slot) > GAP_SLOTS
        changes = np.append(True, values[1:] != values[:-1]) | jumps
        for place in np.flatnonzero(changes).tolist():
            value, t_ns = int(values[place]), int(times[place])
            if place:
                self._t_ns = int(times[place - 1])
            if value != self._value or jumps[place]:
                self._end(min(t_ns, self._t_ns + self.interval_ns) if jumps[place] else t_ns)
                self._begin(value, t_ns)
        self._slot, self._t_ns = int(slots[-1]), int(times[-1])

    def close(self) -> None:
        self._end(self._t_ns + self.interval_ns)

    def _begin(self, value: int, t_ns: int) -> None:
        self._value = value
        name = self.name(value)
        if name is not None:
            self.out.slice_begin(self.number, t_ns, name)
            self._is_open = True
            self.slices += 1

    def _end(self, t_ns: int) -> None:
        if self._is_open:
            self.out.slice_end(self.number, t_ns)
            self._is_open = False


class _Cpu:
    """The tracks of one CPU: where it was, its process, its interrupts, its run queue."""

    def __init__(
        self, out: PerfettoFile, name: str, boot: str, interval_ns: int, who: Namer
    ) -> None:
        self._out = out
        title = f"CPU {name.removeprefix('cpu')}{boot}"
        self._numbers: dict[tuple[int, GuestText], int] = {}  # of processes, by pid and name
        self._labels: dict[int, str] = {}
        self._next = 0

        def track(name: str, namer: Namer) -> _Track:
            return _Track(out, out.track(name, title), interval_ns, namer)

        self._part = track("where", lambda value: COLUMNS[Part(value)])
        self._process = track("process", lambda value: self._labels[value] or None)
        self._disabled = track("interrupts off, by", who)
        self._queue = out.counter("run queue", title, "threads")
        self._length = -1

    @property
    def slices(self) -> int:
        return self._part.slices + self._process.slices + self._disabled.slices

    def add(self, samples: CpuSamples, table: pa.Table, times: Column) -> None:
        if len(self._labels) > limits.SUMS_MAX:  # numbers stay different: a slice may be in two
            self._numbers.clear()
            self._labels.clear()
        slots, times = samples.slots, times[samples.good]
        self._part.add(slots, times, samples.parts)
        pairs = zip(samples.columns["pid"].tolist(), samples.comms(table), strict=True)
        processes = np.array([self._number(*pair) for pair in pairs], np.int64)
        self._process.add(slots, times, processes)
        who = samples.disabled_by()
        if who is not None:
            self._disabled.add(slots, times, who)
        self._count(times, samples.columns["nr_running"])

    def _number(self, pid: int, comm: GuestText) -> int:
        if (pid, comm) not in self._numbers:
            self._numbers[pid, comm], self._next = self._next, self._next + 1
            self._labels[self._numbers[pid, comm]] = f"{comm} {pid}" if pid else ""
        return self._numbers[pid, comm]

    def _count(self, times: Column, lengths: Column) -> None:
        changes = np.flatnonzero(np.diff(lengths.astype(np.int64), prepend=self._length))
        for place in changes.tolist():
            self._length = int(lengths[place])
            self._out.count(self._queue, int(times[place]), self._length)

    def close(self) -> None:
        for track in (self._part, self._process, self._disabled):
            track.close()


def export(folder: Path, output: Path) -> Export:
    """Write the recording in `folder` as a Perfetto trace into the file `output`, with all boots.

    Where that fails, there is no file.
    """
    boots = Recording.open(folder).boots()
    about, opened = boots[0].meta["about"], False
    try:
        with open_output(output) as file:
            opened = True
            out = PerfettoFile(file.buffer)
            release, banner = (
                GuestText.stored(str(about.get(key, ""))) for key in ("release", "banner")
            )
            out.begin(str(release), str(banner), str(about.get("processor", X86_64)))
            began_ns = int(boots[0].meta["monotonic_ns"])
            parts = [
                _export_boot(
                    out,
                    boot,
                    f" (boot {number} of {len(boots)})" if len(boots) > 1 else "",
                    int(boot.meta["monotonic_ns"]) - began_ns,
                )
                for number, boot in enumerate(boots, 1)
            ]
            whole = _together(parts)
            if not whole.samples:
                why = "; ".join(("it has no sample that can be read", *whole.problems))
                raise PeekError(f"{folder}: {why}")
    except BaseException:
        if opened and output.is_file():
            output.unlink()
        raise
    return whole


def _together(parts: Sequence[Export]) -> Export:
    return Export(
        sum(part.samples for part in parts),
        sum(part.slices for part in parts),
        max(part.cpus for part in parts),
        tuple(problem for part in parts for problem in part.problems),
    )


def _export_boot(out: PerfettoFile, boot: Recording, title: str, shift_ns: int) -> Export:
    """Write one boot, whose first deadline was `shift_ns` after that of the first boot."""
    names = names_file.load(boot)

    def who(value: int) -> str | None:
        if value == Who.ENABLED:
            return None
        return WHO_TEXT.get(value) or names_file.name_in(names, value)

    cpus = {
        name: _Cpu(out, name, title, int(boot.meta["interval_ns"]), who)
        for name in boot.meta["groups"]
        if name != SYSTEM
    }
    samples, threads = 0, len(boot.meta["threads"])
    for table in boot.tables():
        samples += table.num_rows
        times = boot.times_ns(table) + shift_ns
        for one in judge(table, [*cpus], threads, boot.meta["about"].get("context_user")):
            cpus[one.name].add(one, table, times)
    for cpu in cpus.values():
        cpu.close()
    slices = sum(cpu.slices for cpu in cpus.values())
    left_out = left_out_text(boot.left_out())
    left_outs = (f"left out{title}: {left_out}",) if left_out else ()
    return Export(samples, slices, len(cpus), (*left_outs, *boot.problems))
