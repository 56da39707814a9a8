# SPDX-License-Identifier: GPL-2.0-only
"""Shows sums of stacks: as flame graphs in the formats of others' viewers, and as tables.

Owns two formats: speedscope's (https://www.speedscope.app, a page that works without a network),
and folded stacks, a line for each, which flamegraph.pl, inferno and speedscope read. The widths are
times: in the profile of CPUs the time that they executed, in that of threads the time of all
threads together.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel.stacks import Ending
from trapless.peek.sampling import names as names_file
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.tables import of_boot
from trapless.peek.stacks import profile as profile_file
from trapless.peek.stacks.profile import ON_CPU, Key, Profile
from trapless.report.figures import Table

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
CPUS, THREADS = "CPUs", "threads that wait"
USER_MODE = "(user mode)"
RUNNING = "(on a CPU: its registers are not in memory)"
LAST_ENTRY = "(user mode, as it was at the last entry to the kernel)"
LOST = "(callers not found)"
ROWS_SHOWN = 15
PLACES_SHOWN = 3
SCHEDULER = re.compile(
    r"(_*schedule(_\w+)?|preempt_schedule\w*|_*cond_resched\w*|io_schedule\w*|do_nanosleep)$"
)
"""The innermost functions of each thread that waits: they do not say what it waits for."""


def frames(key: Key, names: Mapping[int, GuestText]) -> list[str]:
    """The functions of a stack, outermost first, user mode's before the kernel's."""
    stack = key.stack
    head = [str(key.comm)]
    kernel = [names_file.name_in(names, address) for address in reversed(stack.addresses)]
    user = [] if key.user.whole else [LOST]
    user += [str(name) for name in reversed(key.user.names)]
    if key.is_cpu:
        if not kernel:
            return [*head, *(user if key.user.names else [USER_MODE])]
    elif key.state == ON_CPU:
        return [*head, RUNNING, *([LAST_ENTRY, *user] if key.user.names else ())]
    else:
        head.append(f"({key.state_text})")
    if stack.ending is Ending.LOST and not key.user.names:
        head.append(LOST)
    return head + (user if key.user.names else []) + kernel


def _parts(recording: Recording) -> Iterator[tuple[str, Counter[tuple[str, ...]]]]:
    """Times in nanoseconds by frames, for CPUs and for threads of each boot."""
    boots = recording.boots()
    for number, boot in enumerate(boots, 1):
        profile = profile_file.load(boot)
        if profile is None:
            continue
        names = names_file.load(boot)
        for title, is_cpu in ((CPUS, True), (THREADS, False)):
            times: Counter[tuple[str, ...]] = Counter()
            for key, time_ns in profile.times.items():
                if key.is_cpu == is_cpu:
                    times[tuple(frames(key, names))] += time_ns
            if times:
                boot_text = f" (boot {number} of {len(boots)})" if len(boots) > 1 else ""
                yield title + boot_text, times


def write(recording: Recording, path: Path) -> str:
    """Write a recording's stacks; the format is by the name. What was written, in words."""
    parts = list(_parts(recording))
    if not parts:
        raise PeekError(
            f"{recording.folder} has no stacks: record them with "
            "`trapless peek record --stacks 20 FOLDER`"
        )
    release = visible(str(recording.meta["about"].get("release", "a kernel")))
    is_json = path.suffix == ".json"
    text = json.dumps(speedscope(parts, release)) if is_json else folded(parts)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise PeekError(f"{path}: {error.strerror}") from error
    count = sum(len(times) for _, times in parts)
    return f"{count} stacks, {'for https://www.speedscope.app' if is_json else 'folded'}"


def folded(parts: Sequence[tuple[str, Counter[tuple[str, ...]]]]) -> str:
    """Lines of `frame;frame;frame microseconds`, with the profile's name as the first frame."""

    def plain(frame: str) -> str:
        return frame.replace(";", ":")

    lines = [
        f"{';'.join(map(plain, (title, *stack)))} {max(time_ns // 1000, 1)}"
        for title, times in parts
        for stack, time_ns in times.most_common()
    ]
    return "\n".join(lines)


def speedscope(parts: Sequence[tuple[str, Counter[tuple[str, ...]]]], title: str) -> dict[str, Any]:
    """The same for speedscope, with a profile for each part."""
    numbers: dict[str, int] = {}
    profiles = []
    for name, times in parts:
        rows = times.most_common()
        total = sum(times.values()) / 1e9
        profiles.append(
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": total,
                "samples": [
                    [numbers.setdefault(frame, len(numbers)) for frame in stack]
                    for stack, _ in rows
                ],
                "weights": [time_ns / 1e9 for _, time_ns in rows],
            }
        )
    return {
        "$schema": SCHEMA,
        "name": title,
        "exporter": "trapless peek",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame} for frame in numbers]},
        "profiles": profiles,
    }


def tables(recording: Recording) -> list[Table]:
    """The tables of all boots: what CPUs executed, and where threads waited."""
    boots = recording.boots()
    shown: list[Table] = []
    for number, boot in enumerate(boots, 1):
        profile = profile_file.load(boot)
        if profile is not None and profile.samples:
            shown += of_boot(list(_tables(profile, names_file.load(boot))), number, len(boots))
    return shown


def _tables(profile: Profile, names: Mapping[int, GuestText]) -> Iterator[Table]:
    cpus: Counter[tuple[str, str]] = Counter()
    threads: Counter[tuple[str, str, str]] = Counter()
    for key, time_ns in profile.times.items():
        if key.is_cpu:
            cpus[str(key.comm), _place(key, names)] += time_ns
        elif key.state != ON_CPU and key.state_text != "idle":
            threads[str(key.comm), key.state_text, _place(key, names)] += time_ns
    seconds = profile.time_ns / 1e9
    sampled = f"{profile.samples:,} samples in {seconds:.3g} s."
    if profile.left_out:
        sampled += f" {profile.left_out:,} stacks are left out, as there were too many."
    if cpus:
        total = sum(cpus.values())
        rows = [
            (name, f"{time_ns / total:.1%}", place)
            for (name, place), time_ns in cpus.most_common(ROWS_SHOWN)
        ]
        yield Table(
            id="stacks-cpus",
            title="What CPUs executed, by their registers",
            columns=("thread", "of CPUs' time", "function < caller"),
            rows=tuple(rows),
            caption=f"{sampled} {len(rows)} of {len(cpus)}.",
        )
    rows_ = [
        (name, state, f"{time_ns / max(profile.time_ns, 1):.2f}", place)
        for (name, state, place), time_ns in threads.most_common(ROWS_SHOWN)
    ]
    yield Table(
        id="stacks-threads",
        title="Where threads waited",
        columns=("thread", "state", "threads", "function < caller"),
        rows=tuple(rows_),
        caption=f"{sampled} {len(rows_)} of {len(threads)}. Threads: how many of them were there "
        "on average. Left out: functions of the scheduler, and kernel threads that are idle.",
    )


def _place(key: Key, names: Mapping[int, GuestText]) -> str:
    """The innermost functions that say what a stack is about."""
    functions = [names_file.name_in(names, address) for address in key.stack.addresses]
    if key.is_cpu and not functions:
        functions = list(map(str, key.user.names))
    while len(functions) > 1 and not key.is_cpu and SCHEDULER.fullmatch(functions[0]):
        functions.pop(0)
    if not functions:
        return USER_MODE if key.is_cpu else LOST
    return " < ".join(functions[:PLACES_SHOWN])
