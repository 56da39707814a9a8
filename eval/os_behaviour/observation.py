# SPDX-License-Identifier: GPL-2.0-only
"""Samples a guest from outside while it runs one load after the other, and adds up the samples of
each.

This file owns the samples that trapless.peek does not take anyway (which load is on), the counts
that are read now and then (how often interrupts came, how often each routine disabled them), and
the rows. trapless/peek owns the meaning of samples, part_behaviour.py the loads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trapless.experiments.collection import Row
from trapless.experiments.observer import ANNOUNCEMENT, OVER, Observed
from trapless.peek.emulator import Emulator, emulator_of
from trapless.peek.errors import PeekError
from trapless.peek.kernel.btf import Kind
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import code_names as names_file
from trapless.peek.sampling import probes, record, sites, tier0
from trapless.peek.sampling.code_names import Names
from trapless.peek.sampling.course import Course
from trapless.peek.sampling.probes import Mode, ProbeMap
from trapless.peek.sampling.recording import FIRST, Recorder, Recording
from trapless.peek.sampling.sample_rows import Flag
from trapless.peek.sampling.sample_summary import Summary
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.sampling.sampling_plan import Field, Plan
from trapless.peek.sampling.tier0 import SYSTEM, Part

INTERVAL_NS = 100_000
"""As in the paper."""
LIMIT_S = 4 * 3600
BLOCKS = 20
WORD = 8
LOAD = f"{SYSTEM}.load"
NEEDED = Mode.PARTS | Mode.INTERRUPTS | Mode.COUNTS

VECTORS = (
    "apic_timer_irqs",
    "apic_irq_work_irqs",
    "irq_resched_count",
    "irq_call_count",
    "x86_platform_ipis",
)
"""Members of irq_cpustat_t: the processor's own interrupts, which irqs_sum does not count."""


@dataclass
class Stage:
    """One load as it was seen: counts of its begin and its last look, and the sites meanwhile."""

    book: sites.SiteBook = field(default_factory=sites.SiteBook)
    first: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)


class Counters:
    """How many interrupts and softirqs a kernel has had, as it counts them itself."""

    def __init__(self, target: Target) -> None:
        self._target = target
        types = target.btf
        number = types.find(Kind.TYPEDEF, "irq_cpustat_t")
        record_ = types.plain(number[0]) if number else None
        if record_ is None:
            raise PeekError(f"{target.release} does not say how it counts interrupts")
        offsets = {str(member.name): member.bit_offset // 8 for member in types.members(record_)}
        self._vectors = [offsets[name] for name in VECTORS if name in offsets]

    def read(self) -> dict[str, int]:
        """The counts of all CPUs, by now."""
        target, sums = self._target, {"interrupts": 0, "softirqs": 0}
        softirqs = target.place("kernel_stat", "softirqs")
        for cpu in target.cpus_online:
            stat, own = target.percpu("kstat", cpu), target.percpu("irq_stat", cpu)
            sums["interrupts"] += target.read_u64(stat + target.offset("kernel_stat", "irqs_sum"))
            for offset in self._vectors:
                sums["interrupts"] += int.from_bytes(target.read(own + offset, 4), "little")
            counts = np.frombuffer(target.read(stat + softirqs.offset, softirqs.size), "<u4")
            sums["softirqs"] += int(counts.sum())
        return sums


def follow(guest: Observed, folder: Path, on_load: Callable[[int], None]) -> dict[int, Stage]:
    """Record into `folder` until all loads are over. `on_load` is told each one that begins."""
    emulator = emulator_of(guest.ram)
    if emulator is None:
        raise PeekError("the process that emulates the guest was not found")
    place(emulator)
    with Target.open(guest.ram) as target:
        probe_map = probes.find(target, again=True)
        if probe_map is None or probe_map.active & NEEDED != NEEDED:
            raise PeekError("the guest's module has no probes on: its log says why")
        plan = plan_of(target, guest, emulator, probe_map)
        with Sampler(record.source_of(target), plan) as run:
            guest.go_on()
            stages = _store(target, run, folder, probe_map, emulator, on_load)
    if run.end is None:
        raise PeekError("the sampler was killed")
    return stages


def place(emulator: Emulator) -> None:
    """The virtual processors on one CPU of this machine, all else (the sampler, who makes requests,
    the emulator's own work, this thread) on others, where there are any."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[-1:])
    others = set(cpus[1:-1]) or {cpus[-1]}
    for task in Path(f"/proc/{emulator.pid}/task").iterdir():
        mine = {cpus[0]} if int(task.name) in emulator.threads else others
        with contextlib.suppress(ProcessLookupError):  # a helper of the emulator's, gone again
            os.sched_setaffinity(int(task.name), mine)


def plan_of(target: Target, guest: Observed, emulator: Emulator, probe_map: ProbeMap) -> Plan:
    """The plan: peek's samples of a kernel with probes, and which load is on."""
    plan = record.plan_for(
        target, INTERVAL_NS, LIMIT_S * 10**9, max(os.sched_getaffinity(0)), emulator, probe_map
    )
    setting = guest.announcement + ANNOUNCEMENT.size - WORD  # its last member
    load = Field("load", WORD, setting)
    groups = [
        replace(group, fields=(*group.fields, load)) if group.name == SYSTEM else group
        for group in plan.groups
    ]
    return replace(plan, groups=tuple(groups))


def _store(
    target: Target,
    run: Sampler,
    folder: Path,
    probe_map: ProbeMap,
    emulator: Emulator,
    on_load: Callable[[int], None],
) -> dict[int, Stage]:
    batches = record.samples(run)
    about = record.about_target(target, probe_map, emulator)
    names, counters, watched = Names(target), Counters(target), sites.SiteBook()
    stages: dict[int, Stage] = {}
    over = False
    with Recorder(folder, run.head, about) as recorder:
        for rows in batches:
            recorder.add(rows)
            names.see(rows)
            watched.look(target, probe_map)
            load = int(rows[LOAD][-1])
            if load == OVER:
                if not over:
                    run.stop()
                over = True
            elif load:
                if load not in stages:
                    stages[load] = Stage(first=counters.read())
                    on_load(load)
                stages[load].book.look(target, probe_map)
                stages[load].last = counters.read()
        names.keep(recorder)
        sites.keep(recorder, watched.sites())
        recorder.close(run.end)
    return stages


@dataclass(frozen=True)
class Window:
    """The slots of a load that count, and how many processes there were just before it."""

    begin: int
    end: int
    processes: int


def windows(recording: Recording) -> dict[int, Window]:
    """Where in a recording each load is, by its samples."""
    columns = [name for name in _columns(recording) if name.startswith(f"{SYSTEM}.processes.")]
    slots, loads, processes = [], [], []
    for table in recording.tables(["slot", LOAD, *columns]):
        slots.append(table["slot"].to_numpy())
        loads.append(table[LOAD].to_numpy())
        processes.append(tier0.processes(table))
    slot, load = np.concatenate(slots), np.concatenate(loads)
    count = np.concatenate([np.zeros(0, np.int64) if one is None else one for one in processes])
    by_load = {}
    for number in sorted({int(one) for one in np.unique(load)} - {0, OVER}):
        places = np.flatnonzero(load == number)
        before = max(int(places[0]) - 1, 0)
        there = int(count[before]) if len(count) else 0
        by_load[number] = Window(int(slot[places[0]]), int(slot[places[-1]]) + 1, there)
    return by_load


def _columns(recording: Recording) -> list[str]:
    for table in recording.tables():
        return [str(name) for name in table.column_names]
    return []


def first_ns(recording: Recording) -> int:
    """When slot 0 was due, by this machine's monotonic clock."""
    for table in recording.tables(["slot"]):
        return int(table.schema.metadata[FIRST.encode()])
    raise PeekError(f"{recording.folder}: no rows")


def summarise(recording: Recording, number: int, window: Window, stage: Stage) -> Summary:
    """The samples of one load, added up."""
    summary = Summary(
        [str(name) for name in recording.meta["groups"]],
        len(recording.meta["threads"]),
        stage.book.sites(),
        names_file.load(recording),
        recording.meta["about"].get("context_user"),
        Course.over(window.end - window.begin),
    )
    for table in recording.tables():
        slot = table["slot"].to_numpy()
        mine = (table[LOAD].to_numpy() == number) & (slot >= window.begin) & (slot < window.end)
        if mine.any():
            rebased = pa.array(slot[mine] - np.uint64(window.begin))
            chosen = table.filter(pa.array(mine))
            place_ = chosen.column_names.index("slot")
            summary.add(chosen.set_column(place_, "slot", rebased))
    return summary


def row_of(summary: Summary, window: Window, whole: Window, stage: Stage) -> Row:
    """The sums of a load, as a row of the raw data.

    Interrupts and runs are of the whole load, samples of the window that counts: `whole_share` says
    which part of the load that is, so that the two can be held against each other.
    """
    cpus = summary.cpus.values()
    slots = window.end - window.begin
    return {
        "interval_ns": INTERVAL_NS,
        "slots": slots,
        "whole_share": slots / (whole.end - whole.begin),
        "rows": summary.rows,
        "samples": summary.samples,
        "parts": {part.name.lower(): sum(int(cpu.parts[part]) for cpu in cpus) for part in Part},
        "judged": summary.judged,
        "off": sum(cpu.who.total() for cpu in cpus),
        "routines": [vars(routine) for routine in summary.routines()],
        "switches": sum(cpu.switches[1] - cpu.switches[0] for cpu in cpus if cpu.switches),
        "counts": {name: stage.last[name] - count for name, count in stage.first.items()},
        "left_out": sum(cpu.left_out for cpu in cpus),
        "flags": {flag.name.lower(): summary.flags[flag] for flag in Flag if flag.name},
        "lag_us_p99": min(summary.lag_us(0.99), 1e9),
        "course": course_of(summary, window),
        "blocks": blocks_of(summary),
    }


def blocks_of(summary: Summary) -> Row:
    """The same sums for each of a few parts of the time: how much they differ is what another run
    may differ by."""
    course = summary.course
    assert course is not None
    blocks = np.array_split(course.filled, min(BLOCKS, len(course.filled)))
    sums = {part.name.lower(): course.parts[:, part] for part in Part}
    sums |= {"judged": course.judged, "off": course.disabled}
    return {name: [int(values[block].sum()) for block in blocks] for name, values in sums.items()}


def course_of(summary: Summary, window: Window) -> dict[str, Any]:
    """Tasks and run queue over the load's time, as Fig. 5 has them."""
    course = summary.course
    assert course is not None  # summarise() makes one
    filled = course.filled
    tasks = course.mean(course.processes) - window.processes
    return {
        "seconds": [round(float(value), 4) for value in course.seconds(INTERVAL_NS)],
        "tasks": [round(float(value), 2) for value in tasks],
        "queue": [round(float(value), 3) for value in course.mean(course.queue)],
        "queue_max": [int(value) for value in course.queue_max[filled]],
    }
