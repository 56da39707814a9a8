# SPDX-License-Identifier: GPL-2.0-only
"""Decodes events: turns numbers from the rings into names, texts and signed values.

Owns the meaning of each tracepoint's values, and the names of processes as they change. It reads
the target only for what a value points to, like an interrupt's name, and for processes without a
name. rings.py reads events; text_trace.py and perfetto.py write them.
"""

from __future__ import annotations

import signal
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trapless import calls
from trapless.base.console import TraplessError
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.tasks import Task
from trapless.peek.trace.rings import Events, Place

Value = int | str | GuestText

IDLE, NO_NAME = GuestText(b"idle"), GuestText(b"")
KERNEL_HALF = 1 << 63
STATES = "SDTtXZP"  # a task's state, bit by bit, as `ps` and the kernel's own tracers have them
REPORTED = 0x7F
IDLE_STATE = 0x402  # uninterruptible, and not counted as load
PREEMPTED = 1 << 32
SOFTIRQS = (
    *("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER"),
    "RCU",
)
LOOK_AGAIN_S, LOOK_SHARE = 1.0, 10
"""The pause, by this machine's clock, between two reads of the target's lists for processes without
a name, and how many times as long as a read it is at least: events may have any pid and time."""


@dataclass(frozen=True, slots=True)
class Event:
    """One decoded event. `lost`: the number of events lost on its CPU directly before it."""

    t_ns: int  # CLOCK_MONOTONIC of the target
    cpu: int
    pid: int  # of the thread that ran
    name: str
    values: Mapping[str, Value]
    lost: int = 0


def signed(value: int, bits: int = 64) -> int:
    """
    >>> signed(2**64 - 2), signed(7)
    (-2, 7)
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def state_letter(value: int) -> str:
    """
    >>> [state_letter(state) for state in (0, 1, 0x402, PREEMPTED, 0x20)]
    ['R', 'S', 'I', 'R+', 'Z']
    """
    if value & PREEMPTED:
        return "R+"
    if value & IDLE_STATE == IDLE_STATE:
        return "I"
    bits = value & REPORTED
    return STATES[bits.bit_length() - 1] if bits else "R"


@lru_cache(maxsize=1)
def _call_names() -> dict[int, str]:
    try:
        return {call.nr: call.name for call in calls.load()}
    except TraplessError:  # an installation without the header
        return {}


def call_name(number: int) -> str:
    """The name of a system call of x86-64, or its number."""
    return _call_names().get(number, f"call {signed(number)}")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _make_room(kept: dict[int, Any], count: int = 1) -> None:
    """Forget all kept names when there is no room for more: a trace may be long, and events may
    lie."""
    if len(kept) + count > limits.TRACE_KEPT_MAX:
        kept.clear()


class Names:
    """The names of threads by pid, from events and from the target's lists. One thread."""

    def __init__(self, target: Target | None) -> None:
        self._target = target
        self.known: dict[int, Task] = {}
        self._look_s = 0.0  # when it may look again
        self._missing: set[int] = set()

    def look(self) -> None:
        """Read the target's lists."""
        began_s = time.monotonic()
        if self._target is not None:
            threads = self._target.threads()
            _make_room(self.known, len(threads))
            self.known.update(threads)
        now = time.monotonic()
        self._look_s = now + max(LOOK_AGAIN_S, LOOK_SHARE * (now - began_s))

    def of(self, pid: int) -> Task:
        """The thread with a pid; its name is empty where it is not known."""
        if pid == 0:
            return Task(0, 0, IDLE, 0, True)
        new = pid not in self.known and pid not in self._missing
        if new and time.monotonic() >= self._look_s:
            self.look()
            if pid not in self.known:
                self._missing.add(pid)
        return self.known.get(pid) or Task(pid, pid, NO_NAME, 0, False)

    def learn(self, pid: int, comm: GuestText, group: int | None = None) -> None:
        """Take the name of a thread from an event."""
        old = self.known.get(pid)
        if not pid or (old and old.comm == comm and group in (None, old.group)):
            return
        base = old or Task(pid, pid, comm, 0, False)
        if old is None:
            _make_room(self.known)
        self.known[pid] = Task(
            pid, group if group is not None else base.group, comm, base.parent, base.is_kernel
        )
        self._missing.discard(pid)


class Decoder:
    """Decodes the events of one target. One thread."""

    def __init__(self, places: Sequence[Place], target: Target | None) -> None:
        self._places, self._target = tuple(map(_checked, places)), target
        self.names = Names(target)
        self._queues: dict[int, int] = {}
        self._texts: dict[int, GuestText] = {}
        self._symbols: dict[int, GuestText] = {}
        if target is not None:
            self._queues = {target.percpu("runqueues", cpu): cpu for cpu in target.cpus_possible}

    def decode(self, events: Events) -> Iterator[Event]:
        """The decoded events, in the order of an array of TAKEN."""
        for t_ns, number, pid, values, cpu, lost in events.tolist():
            if number < len(self._places):  # else memory is damaged: the target is ending
                place = self._places[number]
                named = dict(zip(place.labels, map(int, values), strict=False))
                decoded = self._decoded(place.name, named)
                self._learn(place.name, decoded)
                yield Event(t_ns, cpu, pid, place.name, decoded, lost)

    def _decoded(self, name: str, values: dict[str, int]) -> dict[str, Value]:
        fields = _FIELDS.get(name, {})
        decoded: dict[str, Value] = {
            field: convert(self, value)
            for label, value in values.items()
            for field, convert in fields.get(label, {label: _plain}).items()
        }
        if fields is _TASK:
            data = struct.pack("<QQ", decoded.pop("comm.0", 0), decoded.pop("comm.1", 0))
            decoded["comm"] = GuestText(data)
        return decoded

    def _learn(self, name: str, values: Mapping[str, Value]) -> None:
        comm = values.get("comm")
        if not isinstance(comm, GuestText):
            return
        pid = values.get("next" if name == "sched_switch" else "pid", values.get("child"))
        group = values.get("tgid")
        if isinstance(pid, int):
            self.names.learn(pid, comm, group if isinstance(group, int) else None)

    def symbol(self, address: int) -> Value:
        """The name of an address of the kernel; the number of an address of the user."""
        if address < KERNEL_HALF or self._target is None:
            return f"{address:#x}"
        if address not in self._symbols:
            _make_room(self._symbols)
            self._symbols[address] = self._target.name_of(address)
        return self._symbols[address]

    def text(self, address: int) -> GuestText:
        """The text at an address of the kernel."""
        if self._target is None or address < KERNEL_HALF:
            return NO_NAME
        if address not in self._texts:
            _make_room(self._texts)
            try:
                self._texts[address] = self._target.read_string(address, 64)
            except PeekError:  # its driver has gone
                return NO_NAME
        return self._texts[address]

    def queue(self, address: int) -> int:
        """The CPU whose run queue is at an address; -1 for any other address."""
        return self._queues.get(address, -1)


def _checked(place: Place) -> Place:
    """The place; PeekError where it lacks values that its kind of event has."""
    lacking = [label for label in NEEDED.get(place.name, ()) if label not in place.labels]
    if lacking:
        raise PeekError(
            f"the module's events {place.name} have no {', '.join(lacking)}: its memory is damaged"
        )
    return place


Field = Callable[[Decoder, int], Value]


def _plain(_: Decoder, value: int) -> Value:
    return value


def _signed(_: Decoder, value: int) -> Value:
    return signed(value)


def _softirq(_: Decoder, vector: int) -> Value:
    return SOFTIRQS[vector] if vector < len(SOFTIRQS) else "?"


def _handler(decoder: Decoder, value: int) -> Value:
    return {0: "default", 1: "ignored"}.get(value) or decoder.symbol(value)


_TASK: dict[str, dict[str, Field]] = {
    "state": {"state": lambda _, value: state_letter(value)},
    "prio": {"prio": _signed},  # below zero with a deadline
}
_CALL: dict[str, dict[str, Field]] = {
    "nr": {"call": lambda _, value: call_name(value), "nr": _signed},  # -1 after a signal's handler
}
_SOFTIRQ: dict[str, dict[str, Field]] = {"vector": {"vector": _plain, "name": _softirq}}
_FAULT: dict[str, dict[str, Field]] = {"ip": {"ip": Decoder.symbol}}
_SIGNAL: dict[str, dict[str, Field]] = {
    "signal": {"name": lambda _, value: signal_name(value), "signal": _plain},
    "code": {"code": _signed},
    "handler": {"handler": _handler},
}
_FIELDS: dict[str, dict[str, dict[str, Field]]] = {
    "sched_switch": _TASK,
    "sched_waking": _TASK,
    "sched_wakeup": _TASK,
    "sched_wakeup_new": _TASK,
    "sched_process_fork": _TASK,
    "sched_process_exec": _TASK,
    "sched_update_nr_running_tp": {
        "rq": {"queue": Decoder.queue}, "change": {"change": _signed},
    },
    "sys_enter": _CALL,
    "sys_exit": {**_CALL, "result": {"result": _signed}},
    "irq_handler_entry": {
        "name": {"name": Decoder.text}, "handler": {"handler": Decoder.symbol},
    },
    "irq_handler_exit": {"result": {"result": _signed}},
    "softirq_raise": _SOFTIRQ,
    "softirq_entry": _SOFTIRQ,
    "softirq_exit": _SOFTIRQ,
    "page_fault_user": _FAULT,
    "page_fault_kernel": _FAULT,
    "signal_generate": _SIGNAL,
    "signal_deliver": _SIGNAL,
}  # fmt: skip
"""For each tracepoint and value of it: the fields of the decoded event. Other values stay."""

NEEDED: dict[str, tuple[str, ...]] = {
    "sched_switch": ("prev", "state", "next", "prio", "comm.0", "comm.1"),
    **dict.fromkeys(
        ("sched_waking", "sched_wakeup", "sched_wakeup_new"),
        ("pid", "prio", "cpu", "comm.0", "comm.1"),
    ),
    "sched_process_fork": ("parent", "child", "comm.0", "comm.1"),
    "sched_process_exec": ("pid", "comm.0", "comm.1"),
    "sched_update_nr_running_tp": ("rq", "change"),
    "sys_enter": ("nr", *"abcde"),
    "sys_exit": ("nr", "result"),
    "irq_handler_entry": ("irq", "name", "handler"),
    "irq_handler_exit": ("irq", "result"),
    **dict.fromkeys(("softirq_raise", "softirq_entry", "softirq_exit"), ("vector",)),
    **dict.fromkeys(("page_fault_user", "page_fault_kernel"), ("ip",)),
    **dict.fromkeys(("signal_generate", "signal_deliver"), ("signal",)),
}
"""Values without which an event cannot be decoded or written."""
