# SPDX-License-Identifier: GPL-2.0-only
"""Writes events as a Perfetto trace.

Owns the choice of tracks. Events that the kernel's own tracer has are written as that tracer writes
them, so that the viewer draws them as usual: scheduling, interrupts and softirqs for each CPU,
states and system calls for each thread. All others get tracks of their own: chosen places are
instants on their thread, with their values; run queues are counters; interprocessor interrupts are
slices; and an instant says where events were lost. event_decoder.py decodes the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from trapless.peek import limits
from trapless.peek.guest_text import GuestText
from trapless.peek.trace.event_decoder import Event, Names, Value
from trapless.peek.trace.perfetto_file import PerfettoFile, narrow

STATES = {"R": 0, "S": 1, "D": 2, "T": 4, "t": 8, "X": 16, "Z": 32, "P": 64, "I": 128, "R+": 256}
IDLE_COMM = "swapper"
VECTORS = ("local_timer", "reschedule", "call_function", "call_function_single", "irq_work")
ENTRY, EXIT = "_entry", "_exit"
FTRACE_EVENTS_MAX = 512
"""The most events of one CPU that one packet holds."""
NUMBER_MASK = (1 << 31) - 1
ARGUMENTS = ("a", "b", "c", "d", "e")
WAKEUPS = ("sched_waking", "sched_wakeup", "sched_wakeup_new")


class PerfettoWriter:
    """Writes one trace. `queues`: about how long each CPU's run queue was when the trace began.

    Events change that number. A CPU that goes idle has an empty queue, so its number is exact from
    then on. One thread.
    """

    def __init__(
        self,
        file: BinaryIO,
        names: Names,
        release: GuestText,
        banner: GuestText,
        queues: Mapping[int, int] | None = None,
    ) -> None:
        self._out = PerfettoFile(file)
        self._out.begin(str(release), str(banner))
        self._names = names
        self._bundles: dict[int, Any] = {}
        self._open: dict[int, list[str]] = {}  # names of slices that have begun, by CPU
        self._queues = dict(queues or {})
        self._running: dict[int, tuple[str, int]] = {}  # name and priority, by CPU
        self._last_ns = 0

    def write(self, event: Event) -> None:
        self._last_ns = max(self._last_ns, event.t_ns)
        if event.lost:
            self._lose(event)
        if event.name in _FTRACE:
            self._ftrace(event)
        elif event.name == "sched_update_nr_running_tp":
            self._queue(event)
        elif (name := _vector(event.name)) is not None:
            self._vector(event, name)
        else:
            self._instant(event)

    def flush(self) -> None:
        for cpu in sorted(self._bundles):
            self._out.put(self._bundles[cpu])
        self._bundles.clear()
        self._out.flush()

    def close(self) -> None:
        """End all slices, then write the names of the processes, which viewers use everywhere."""
        self.flush()
        for cpu in list(self._open):
            self._close_slices(cpu, self._last_ns)
        packet = self._out.packet()
        packet.timestamp = self._last_ns
        for task in self._names.known.values():
            if task.pid == task.group:
                packet.process_tree.processes.add(
                    pid=narrow(task.pid),
                    ppid=narrow(task.parent),
                    cmdline=[str(task.comm)],
                    cmdline_is_comm=True,
                    is_kthread=task.is_kernel,
                )
            packet.process_tree.threads.add(
                tid=narrow(task.pid), tgid=narrow(task.group), name=str(task.comm)
            )
        self._out.put(packet)
        self._out.flush()

    def _ftrace(self, event: Event) -> None:
        packet = self._bundles.get(event.cpu) or self._bundle(event)
        one = packet.ftrace_events.event.add(timestamp=event.t_ns, pid=event.pid)
        message, values = getattr(one, event.name), event.values
        for member, label in _FTRACE[event.name].items():
            value = values[label]
            try:
                setattr(message, member, value if isinstance(value, int) else str(value))
            except ValueError:  # there is no such pid, CPU or priority: the guest has made it up
                setattr(message, member, _number(value) & NUMBER_MASK)
        if event.name == "sched_switch":
            self._switch(message, event)
        elif event.name == "sys_enter":
            message.args.extend(values[name] for name in ARGUMENTS)
        elif event.name in WAKEUPS:
            message.success = 1
        if len(packet.ftrace_events.event) >= FTRACE_EVENTS_MAX:
            self.flush()

    def _bundle(self, event: Event) -> Any:
        """Begin a new packet for the events of this event's CPU."""
        packet = self._bundles[event.cpu] = self._out.packet()
        packet.timestamp = event.t_ns
        packet.ftrace_events.cpu = event.cpu
        return packet

    def _switch(self, one: Any, event: Event) -> None:
        """Add what a switch does not hold: the name and the priority of the thread that leaves."""
        one.prev_state = STATES[str(event.values["state"])]
        one.next_comm = str(event.values["comm"]) if one.next_pid else IDLE_COMM
        name, priority = self._running.get(event.cpu, ("", 120))
        comm = str(self._names.of(one.prev_pid).comm) if one.prev_pid else IDLE_COMM
        one.prev_comm, one.prev_prio = comm or name, priority
        self._running[event.cpu] = (one.next_comm, one.next_prio)
        if one.next_pid == 0 and self._queues.get(event.cpu):
            self._set_queue(event.cpu, event.t_ns, 0)

    def _lose(self, event: Event) -> None:
        self._close_slices(event.cpu, event.t_ns)
        track = self._out.track("events lost", f"CPU {event.cpu}")
        self._out.instant(track, event.t_ns, "events lost", {"count": event.lost})
        self.flush()
        self._bundle(event).ftrace_events.lost_events = True

    def _close_slices(self, cpu: int, t_ns: int) -> None:
        track = self._out.track("interprocessor and timer interrupts", f"CPU {cpu}")
        for _ in self._open.pop(cpu, []):
            self._out.slice_end(track, t_ns)

    def _vector(self, event: Event, name: str) -> None:
        track = self._out.track("interprocessor and timer interrupts", f"CPU {event.cpu}")
        opened = self._open.setdefault(event.cpu, [])
        if event.name.endswith(ENTRY):
            if len(opened) >= limits.SLICES_OPEN_MAX:  # ends were lost, or there are none
                self._close_slices(event.cpu, event.t_ns)
                opened = self._open.setdefault(event.cpu, [])
            opened.append(name)
            self._out.slice_begin(track, event.t_ns, name, dict(event.values))
        elif opened and opened[-1] == name:
            opened.pop()
            self._out.slice_end(track, event.t_ns)

    def _queue(self, event: Event) -> None:
        cpu = _number(event.values["queue"])
        length = self._queues.get(cpu, 0) + _number(event.values["change"])
        self._set_queue(cpu, event.t_ns, max(length, 0))

    def _set_queue(self, cpu: int, t_ns: int, length: int) -> None:
        self._queues[cpu] = length
        self._out.count(self._out.counter("run queue", f"CPU {cpu}", "threads"), t_ns, length)

    def _instant(self, event: Event) -> None:
        values: dict[str, Value] = {**event.values, "cpu": event.cpu}
        if event.pid:
            group = self._names.of(event.pid).group
            track = self._out.thread(group, event.pid)
        else:
            track = self._out.track("events while idle", f"CPU {event.cpu}")
        self._out.instant(track, event.t_ns, event.name, values)


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _vector(name: str) -> str | None:
    for ending in (ENTRY, EXIT):
        if name.endswith(ending) and name.removesuffix(ending) in VECTORS:
            return name.removesuffix(ending)
    return None


# For each event, the member of Perfetto's message that takes each value.
_WAKEUP = {"comm": "comm", "pid": "pid", "prio": "prio", "target_cpu": "cpu"}
_SOFTIRQ = {"vec": "vector"}
_FTRACE = {
    "sched_switch": {"prev_pid": "prev", "next_pid": "next", "next_prio": "prio"},
    **dict.fromkeys(WAKEUPS, _WAKEUP),
    "sched_process_exit": {"pid": "pid", "tgid": "tgid"},
    "sys_enter": {"id": "nr"},
    "sys_exit": {"id": "nr", "ret": "result"},
    "irq_handler_entry": {"irq": "irq", "name": "name"},
    "irq_handler_exit": {"irq": "irq", "ret": "result"},
    **dict.fromkeys(("softirq_raise", "softirq_entry", "softirq_exit"), _SOFTIRQ),
}
