# SPDX-License-Identifier: GPL-2.0-only
"""Events as lines: for people, or as JSON. Owns nothing of what they mean (trace_events.py)."""

from __future__ import annotations

import errno
import json
from typing import TextIO

from trapless.peek.trace.events import Event, Names, Value

ADDRESS_MIN = 1 << 20
"""Numbers from here on are shown in hexadecimal: addresses and flags, hardly counts."""
ERRORS = range(-4095, 0)
ARGUMENTS = ("a", "b", "c", "d", "e")


def _number(value: Value) -> str:
    return hex(value) if isinstance(value, int) and value >= ADDRESS_MIN else str(value)


def _values(event: Event) -> str:
    values = dict(event.values)
    if event.name == "sys_enter":
        arguments = ", ".join(_number(values[name]) for name in ARGUMENTS)
        return f"{values['call']}({arguments})"
    if event.name == "sys_exit":
        result = int(values["result"])
        name = f" ({errno.errorcode.get(-result, '?')})" if result in ERRORS else ""
        return f"{values['call']} = {_number(result)}{name}"
    return " ".join(f"{label}={_number(value)}" for label, value in values.items())


class TextWriter:
    """A line for each event, columns one below the other."""

    def __init__(self, file: TextIO, names: Names) -> None:
        self._file, self._names = file, names

    def write(self, event: Event) -> None:
        if event.lost:
            self._file.write(f"{'':18} cpu{event.cpu:<3} {event.lost} events lost\n")
        who = f"{self._names.of(event.pid, event.t_ns).comm or '?'}/{event.pid}"
        seconds, rest = divmod(event.t_ns, 1_000_000_000)
        head = f"{seconds:>8}.{rest:09} cpu{event.cpu:<3} {who:<22}"
        self._file.write(f"{head} {event.name:<18} {_values(event)}".rstrip() + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.flush()


class JsonWriter:
    """A JSON object for each event, on a line of its own.

    Values keep their numbers; `lost` is there only where events were lost before.
    """

    def __init__(self, file: TextIO, names: Names) -> None:
        self._file, self._names = file, names

    def write(self, event: Event) -> None:
        task = self._names.of(event.pid, event.t_ns)
        row: dict[str, object] = {
            "t_ns": event.t_ns,
            "cpu": event.cpu,
            "pid": event.pid,
            "process": task.group,
            "comm": task.comm,
            "event": event.name,
            "values": event.values,
        }
        if event.lost:
            row["lost"] = event.lost
        self._file.write(json.dumps(row) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.flush()
