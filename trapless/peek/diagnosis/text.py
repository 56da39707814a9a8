# SPDX-License-Identifier: GPL-2.0-only
"""Writes diagnoses, threads, stacks and logs for people and as JSON.

Owns the form alone. Text of a guest is visible text by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from trapless.peek.diagnosis.two_looks import Diagnosis
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.health.hang_causes import Cause
from trapless.peek.kernel.health.printk_ring import Log, Record
from trapless.peek.kernel.health.processes import Process
from trapless.peek.kernel.health.thread_states import letter_of
from trapless.peek.kernel.kernel_stacks import CpuStack, ThreadStack
from trapless.peek.kernel.unwinding.frames import Ending

NAMED_MAX = 8
ENDS = {
    Cause.PANIC: "the machine has panicked",
    Cause.HALTED: "the machine was told to stand still",
}
UNITS = ((86_400, 1.5, "d"), (3600, 1.5, "h"), (60, 3, "min"))
"""Each with how many of it are the least that is said in it."""
ENDINGS = {
    Ending.LOST: "its callers are not known",
    Ending.GUESSED: "with a frame that no table describes",
}


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(4.2), duration(95), duration(200), duration(7300)
    ('4 s', '95 s', '3 min', '2 h')
    """
    for size, least, unit in UNITS:
        if seconds >= least * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def diagnosis(found: Diagnosis, longer_s: float) -> Iterator[str]:
    """The lines of `peek why`, the likeliest cause first."""
    if not found.hangs:
        rest = "and the CPUs go on" if found.looks > 1 else "as far as one look shows"
        yield (
            f"Nothing in the kernel has hung for {longer_s:g} s: no thread has been blocked for so "
            f"long, {rest}."
        )
        yield "Programs that wait for each other sleep as idle ones do: `peek stacks` shows where."
    for number, one in enumerate(found.verdicts, 1):
        yield f"{number}. {one.text}"
        yield from (f"     {line}" for line in one.evidence)
    if found.notes:
        yield ""
        yield from (f"Note: {line}" for line in found.notes)
    yield ""
    until = " until then" if _causes(found) & ENDS.keys() else ""
    yield (
        f"{found.machine}, {found.release}, up {duration(found.look.uptime_s)}{until}, "
        f"{_cpus(found)}, {found.look.threads} threads; {_looks(found)}"
    )


def _causes(found: Diagnosis) -> set[Cause]:
    return {one.cause for one in found.verdicts}


def _cpus(found: Diagnosis) -> str:
    """How many CPUs a machine has. A panic and a halt stop those that ran until then."""
    online = sum(one.is_online for one in found.look.processors)
    stopped = 0
    if _causes(found) & ENDS.keys():
        stopped = sum(one.clock_ns > 0 and not one.is_online for one in found.look.processors)
    text = f"{online + stopped} CPU{'s' * (online + stopped != 1)}"
    return f"{text}, {stopped} of them stopped" if stopped else text


def _looks(found: Diagnosis) -> str:
    if found.looks > 1:
        return "looked at twice"
    for cause in ENDS.keys() & _causes(found):
        return f"one look was enough: {ENDS[cause]}"
    return "one look, at memory that does not change"


def diagnosis_in_json(found: Diagnosis) -> dict[str, Any]:
    """The same for programs."""
    return {
        "machine": found.machine,
        "hangs": found.hangs,
        "kernel": found.release,
        "uptime_s": round(found.look.uptime_s, 3),
        "looks": found.looks,
        "verdicts": [
            {
                "cause": str(one.cause),
                "text": one.text,
                "seconds": round(one.seconds, 3),
                "evidence": list(one.evidence),
            }
            for one in found.verdicts
        ],
        "notes": list(found.notes),
        "cpus": [
            {
                "cpu": one.number,
                "online": one.is_online,
                "idle": one.is_idle,
                "pid": one.pid,
                "name": one.comm,
                "runnable": one.runnable,
                "held_s": round(one.held_s, 3),
            }
            for one in found.look.processors
        ],
    }


def processes(found: Sequence[Process]) -> Iterator[str]:
    """The lines of `peek ps`: programs, then what has no command line, as threads of the kernel."""
    yield f"{'PID':>7} STATE {'FOR':>7} {'CPU':>3} {'WAITS IN':<28} {'NAME':<16} COMMAND"
    for one in sorted(found, key=lambda one: not str(one.command)):
        command = str(one.command) or f"[{one.comm}]"
        yield (
            f"{one.pid:>7} {one.state:<5} {duration(one.seconds):>7} {one.cpu:>3} "
            f"{one.place or '-':<28} {one.comm:<16} {command}"
        )


def processes_in_json(found: Sequence[Process]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "pid": one.pid,
            "process": one.group,
            "state": one.state,
            "seconds": round(one.seconds, 3),
            "cpu": one.cpu,
            "waits_in": one.place,
            "name": str(one.comm),
            "command": str(one.command),
        }
        for one in found
    ]


Name = Callable[[int], GuestText]


def stacks(
    threads: Sequence[ThreadStack], cpus: Sequence[CpuStack], name: Name
) -> list[dict[str, Any]]:
    """All stacks: those of CPUs first, then those of threads, equal ones together."""
    found: list[dict[str, Any]] = [
        {"cpu": one.cpu, "threads": [_thread(one.pid, one.comm)], **_frames(one, name)}
        for one in cpus
    ]
    groups: dict[tuple[object, ...], list[ThreadStack]] = {}
    for one in threads:
        key = (letter_of(one.state), one.stack, one.user.names)
        groups.setdefault(key, []).append(one)
    ordered = sorted(groups.values(), key=lambda group: (_order(group[0]), -len(group)))
    return found + [
        {
            "state": letter_of(group[0].state),
            "threads": [_thread(one.pid, one.comm) for one in group],
            **_frames(group[0], name),
        }
        for group in ordered
    ]


def _order(one: ThreadStack) -> int:
    """On a CPU first, then those that are blocked, then all others."""
    if one.stack is None:
        return 0
    return 1 if letter_of(one.state) == "D" else 2


def _thread(pid: int, comm: GuestText) -> dict[str, Any]:
    return {"pid": pid, "name": str(comm)}


def _frames(one: ThreadStack | CpuStack, name: Name) -> dict[str, Any]:
    stack = one.stack
    return {
        "known": stack is not None,
        "kernel": [] if stack is None else [str(name(place)) for place in stack.addresses],
        "user": list(map(str, one.user.names)),
        "lack": "" if stack is None else ENDINGS.get(stack.ending, ""),
    }


def stacks_for_people(found: Iterable[dict[str, Any]], lack: str) -> Iterator[str]:
    """The lines of `peek stacks`. `lack` says why the registers of a CPU are not known."""
    for one in found:
        threads = one["threads"]
        names = ", ".join(f"{each['name']} ({each['pid']})" for each in threads[:NAMED_MAX])
        more = f" and {len(threads) - NAMED_MAX} more" if len(threads) > NAMED_MAX else ""
        head = f"CPU {one['cpu']}" if "cpu" in one else f"{len(threads)} in {one['state']}"
        yield f"{head}: {names}{more}"
        if not one["known"]:
            yield f"    on a CPU: {lack}"
        yield from (f"    {frame}" for frame in one["kernel"])
        yield from (f"    {frame} (user)" for frame in one["user"])
        if one["lack"]:
            yield f"    ({one['lack']})"
        yield ""


def log(records: Iterable[Record]) -> Iterator[str]:
    """The lines of `peek dmesg`."""
    for one in records:
        for line in one.lines:
            us = one.time_ns // 1000  # cut off, as the kernel prints it
            yield f"[{us // 1_000_000:5}.{us % 1_000_000:06}] {line.with_tabs()}"


def left_out(log: Log) -> str:
    """What `peek dmesg` says of a log of which it shows a part."""
    return (
        f"trapless: the log is long: its newest {len(log.records):,} records are shown, and "
        f"{log.left_out:,} older ones are not"
    )


def log_in_json(one: Record) -> dict[str, Any]:
    """One record for programs."""
    return {
        "sequence": one.sequence,
        "seconds": one.time_ns / 1e9,
        "level": one.level,
        "text": "\n".join(line.with_tabs() for line in one.lines),
    }
