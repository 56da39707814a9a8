# SPDX-License-Identifier: GPL-2.0-only
"""Gives sums of samples as JSON, for programs: what recording_tables.py shows to people, without
rounding.

Owns the names of the values. Shares are of 1, and those of a process leave out the handlers that
interrupted it. An unknown value is null, such as the pid of processes that are summed up because
they are too many. The guest's text has fields of its own, in which unprintable characters are
escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from trapless.peek import limits
from trapless.peek.guest_text import visible
from trapless.peek.kernel import counters
from trapless.peek.sampling import recording_tables
from trapless.peek.sampling.probes import Mode
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.sample_rows import Flag
from trapless.peek.sampling.sample_summary import NO_PID, Cpu, Summary, summarise
from trapless.peek.sampling.tier0 import Part

PARTS = {part: text.replace(" ", "_") for part, text in recording_tables.COLUMNS.items()}


def sums(summary: Summary, interval_ns: int, tasks: int = limits.SUMS_MAX) -> dict[str, Any]:
    """The sums of a recording, or of one second of `top`, with so many tasks at most."""
    time_s = recording_tables.seconds(summary, interval_ns)
    judged = bool(summary.judged)
    processes, threads = summary.counts or (None, None)
    total = max(summary.samples, 1)
    return {
        "seconds": time_s,
        "processes": processes,
        "threads": threads,
        "cpus": [_cpu(name, cpu, summary, time_s) for name, cpu in summary.cpus.items()],
        "differences": list(summary.differences),
        "interrupts_off": summary.disabled if judged else None,
        "disabling": [
            {
                "routine": str(routine.name),
                "share": routine.samples / max(summary.judged, 1),
                "times": routine.runs or None,
            }
            for routine in summary.routines()
        ]
        if judged
        else None,
        "tasks": [
            {"pid": pid if pid != NO_PID else None, "name": str(name), "share": count / total}
            for (pid, name), count in summary.processes.most_common(tasks)
        ],
        "sampling": {
            "samples": summary.rows,
            "interval_us": interval_ns / 1e3,
            "lag_us_p50": _finite(summary.lag_us(0.5)),
            "lag_us_p99": _finite(summary.lag_us(0.99)),
            "lost": summary.lost(),
            **{str(flag.name).lower(): summary.flagged(flag) for flag in Flag},
        },
    }


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value


def _cpu(name: str, cpu: Cpu, summary: Summary, time_s: float) -> dict[str, Any]:
    first, last = cpu.switches or (None, None)
    switches = None if first is None or last is None or not time_s else (last - first) / time_s
    number = int(name.removeprefix("cpu"))
    rates = summary.rates.get(number)
    delay_ns = None if rates is None else rates.get(counters.DELAY)
    ran = 1 - cpu.steal
    return {
        "cpu": number,
        "samples": cpu.samples,
        "left_out": cpu.left_out,
        "shares": {text: cpu.share(part) for part, text in PARTS.items() if cpu.parts[part]},
        "steal": cpu.steal if summary.threads else None,
        "wall_clock_shares": {
            text: cpu.share(part) * ran for part, text in PARTS.items() if cpu.parts[part]
        }
        if summary.threads
        else None,
        "interrupts_off": cpu.disabled if summary.judged else None,
        "entered_for": {
            text.replace(" ", "_"): int(cpu.entries[entry]) / max(int(cpu.entries.sum()), 1)
            for entry, text in recording_tables.ENTRIES.items()
        }
        if cpu.entries.any()
        else None,
        "run_queue": cpu.queue_sum / max(cpu.samples, 1),
        "run_queue_longest": cpu.queue_max,
        "switches_per_s": switches,
        "interrupts_per_s": None if rates is None else counters.interrupts(rates),
        "softirqs_per_s": None if rates is None else counters.softirqs(rates),
        "run_delay": None if delay_ns is None else delay_ns / 1e9,
    }


def knows_user_mode(summary: Summary) -> bool:
    """Whether user mode and the kernel are two shares in all samples."""
    return summary.probed[Mode.PARTS] == summary.rows or not summary.share(Part.PROCESS)


def report(recording: Recording, stacks: Callable[[Recording], Any] = lambda _: None) -> str:
    """A recording as one object, with an element for each boot.

    `stacks` gives what a boot's stacks are in JSON.
    """
    boots = []
    recordings = recording.boots()
    for boot in recordings:
        summary, about = summarise(boot), boot.meta["about"]
        boots.append(
            {
                "kernel": visible(str(about.get("release", ""))),
                "build_id": visible(str(about.get("build_id", ""))),
                "began_ns": boot.meta["realtime_ns"],
                "user_mode_known": knows_user_mode(summary),
                "ending": boot.end["ending"] if boot.end is not None else None,
                "problems": list(boot.problems),
                "left_out_samples": boot.left_out(),
                "clock_moved": None if summary.still is None else not summary.still,
                **sums(summary, int(boot.meta["interval_ns"]), limits.SUMS_MAX // len(recordings)),
                "stacks": stacks(boot),
            }
        )
    return json.dumps({"boots": boots}, indent=2)
