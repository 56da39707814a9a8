# SPDX-License-Identifier: GPL-2.0-only
"""Writes events as lines, for people or as JSON. Owns the form of a line."""

from __future__ import annotations

import errno
import json
from typing import TextIO

from trapless.peek.trace.event_decoder import Event, Names, Value

ADDRESS_MIN = 1 << 20
"""Numbers from here on are written in hexadecimal: they are addresses and flags, hardly counts."""
ERRORS = range(-4095, 0)


def _number(value: Value) -> str:
    return hex(value) if isinstance(value, int) and value >= ADDRESS_MIN else str(value)


def _values(event: Event) -> str:
    values = dict(event.values)
    if event.name == "sys_enter":
        arguments = ", ".join(_number(values[name]) for name in "abcde")
        return f"{values['call']}({arguments})"
    if event.name == "sys_exit":
        result = int(str(values["result"]))
        name = f" ({errno.errorcode.get(-result, '?')})" if result in ERRORS else ""
        return f"{values['call']} = {_number(result)}{name}"
    return " ".join(f"{label}={_number(value)}" for label, value in values.items())


def _plain(item: tuple[str, Value]) -> tuple[str, int | str]:
    label, value = item
    return label, value if isinstance(value, int) else str(value)


class _LineWriter:
    def __init__(self, file: TextIO, names: Names) -> None:
        self._file, self._names = file, names

    def flush(self) -> None:
        self._file.flush()

    close = flush


class TextWriter(_LineWriter):
    """Writes a line for each event, in columns. One thread."""

    def write(self, event: Event) -> None:
        if event.lost:
            self._file.write(f"{'':18} cpu{event.cpu:<3} {event.lost} events lost\n")
        who = f"{self._names.of(event.pid).comm or '?'}/{event.pid}"
        seconds, rest = divmod(event.t_ns, 1_000_000_000)
        head = f"{seconds:>8}.{rest:09} cpu{event.cpu:<3} {who:<22}"
        self._file.write(f"{head} {event.name:<18} {_values(event)}".rstrip() + "\n")


class JsonWriter(_LineWriter):
    """Writes a JSON object for each event, on a line of its own. One thread.

    Values keep their numbers; an event has `lost` only where events were lost before it.
    """

    def write(self, event: Event) -> None:
        task = self._names.of(event.pid)
        row: dict[str, object] = {
            "t_ns": event.t_ns,
            "cpu": event.cpu,
            "pid": event.pid,
            "process": task.group,
            "comm": str(task.comm),
            "event": event.name,
            "values": dict(map(_plain, event.values.items())),
        }
        if event.lost:
            row["lost"] = event.lost
        self._file.write(json.dumps(row) + "\n")
