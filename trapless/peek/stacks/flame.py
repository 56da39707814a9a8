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
from typing import Any, TypeAlias

from trapless.base.files import replace_file
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel.unwinding.frames import Ending
from trapless.peek.sampling import code_names as names_file
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.recording_tables import of_boot
from trapless.peek.stacks import profile as profile_file
from trapless.peek.stacks.profile import ON_CPU, OTHER_NAME, Key, Profile
from trapless.report.figures import Table

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
CPUS, THREADS = "CPUs", "threads that wait"
USER_MODE = "(user mode)"
RUNNING = "(on a CPU: its registers are not in memory)"
LAST_ENTRY = "(user mode, as it was at the last entry to the kernel)"
LOST = "(callers not found)"
ROWS_SHOWN = 15
JSON_ROWS_MAX = 1000
"""The number of stacks of each boot that are shown: those with the most time."""
PLACES_SHOWN = 3
CpuTimes: TypeAlias = Counter[tuple[str, str]]
ThreadTimes: TypeAlias = Counter[tuple[str, str, str]]
SCHEDULER = re.compile(
    r"(_*schedule(_\w+)?|preempt_schedule\w*|_*cond_resched\w*|io_schedule\w*|do_nanosleep)$"
)
"""The innermost functions of each thread that waits: they do not say what it waits for."""


class Texts(dict[int | GuestText, str]):
    """The text for each address and name of user mode: each is made once, and kept. One thread.

    Beyond the number that a recorder keeps of both, all others share one text.
    """

    def __init__(self, names: Mapping[int, GuestText]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, one: int | GuestText) -> str:
        if len(self) >= 2 * limits.NAMES_MAX:
            return str(OTHER_NAME)
        text = names_file.name_in(self._names, one) if isinstance(one, int) else str(one)
        self[one] = text
        return text


def frames(key: Key, texts: Texts) -> list[str]:
    """The functions of a stack, outermost first, user mode's before the kernel's."""
    stack = key.stack
    head = [str(key.comm)]
    kernel = [texts[address] for address in reversed(stack.addresses)]
    user = [] if key.user.whole else [LOST]
    user += [texts[name] for name in reversed(key.user.names)]
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
        texts = Texts(names_file.load(boot))
        for title, is_cpu in ((CPUS, True), (THREADS, False)):
            times: Counter[tuple[str, ...]] = Counter()
            for key, time_ns in profile.times.items():
                if key.is_cpu == is_cpu:
                    times[tuple(frames(key, texts))] += time_ns
            if times:
                boot_text = f" (boot {number} of {len(boots)})" if len(boots) > 1 else ""
                yield title + boot_text, times


def write(recording: Recording, path: Path) -> str:
    """Write a recording's stacks; the format is by the name. What was written, in words.

    PeekError where it has none, or where `path` cannot be written: then it is as it was before.
    """
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
        replace_file(path, text + "\n")
    except OSError as error:  # not of the recording, which was read before
        raise PeekError(f"{path} cannot be written: {error.strerror}") from error
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
            sums = _sums(profile, Texts(names_file.load(boot)))
            shown += of_boot(list(_tables(profile, *sums)), number, len(boots))
    return shown


def in_json(boot: Recording) -> dict[str, Any] | None:
    """The content of one boot's tables, for JSON; None if no stacks were sampled."""
    profile = profile_file.load(boot)
    if profile is None or not profile.samples:
        return None
    cpus, threads = _sums(profile, Texts(names_file.load(boot)))
    time_ns, total = max(profile.time_ns, 1), max(cpus.total(), 1)
    return {
        "samples": profile.samples,
        "seconds": profile.time_ns / 1e9,
        "left_out": profile.left_out,
        "cpus": [
            {"thread": name, "share": of / total, "place": place}
            for (name, place), of in cpus.most_common(JSON_ROWS_MAX)
        ],
        "waiting": [
            {"thread": name, "state": state, "threads": of / time_ns, "place": place}
            for (name, state, place), of in threads.most_common(JSON_ROWS_MAX)
        ],
    }


def _sums(profile: Profile, texts: Texts) -> tuple[CpuTimes, ThreadTimes]:
    """Times in nanoseconds by what is shown of a stack: of CPUs, and of threads that waited."""
    cpus, threads = CpuTimes(), ThreadTimes()
    for key, time_ns in profile.times.items():
        if key.is_cpu:
            cpus[str(key.comm), _place(key, texts)] += time_ns
        elif key.state != ON_CPU and key.state_text != "idle":
            threads[str(key.comm), key.state_text, _place(key, texts)] += time_ns
    return cpus, threads


def _tables(profile: Profile, cpus: CpuTimes, threads: ThreadTimes) -> Iterator[Table]:
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


def _place(key: Key, texts: Texts) -> str:
    """The innermost functions that say what a stack is about."""
    functions = [texts[address] for address in key.stack.addresses]
    if key.is_cpu and not functions:
        functions = [texts[name] for name in key.user.names]
    while len(functions) > 1 and not key.is_cpu and SCHEDULER.fullmatch(functions[0]):
        functions.pop(0)
    if not functions:
        return USER_MODE if key.is_cpu else LOST
    return " < ".join(functions[:PLACES_SHOWN])
