# SPDX-License-Identifier: GPL-2.0-only
"""Events as a Perfetto trace.

What the kernel's own tracers know is written as they write it, so that the viewer draws it as it
always does: scheduling for each CPU, states and system calls for each thread, interrupts and
softirqs for each CPU. Everything else has a track of its own here: chosen places are instants on
the thread that was there, with their values; run queues are counters; interrupts between
processors are slices; and where events were lost, it says so. It owns no meaning of values
(trace_events.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from trapless.peek.trace.events import Event, Names, Value
from trapless.peek.trace.perfetto_file import PerfettoFile

STATES = {"R": 0, "S": 1, "D": 2, "T": 4, "t": 8, "X": 16, "Z": 32, "P": 64, "I": 128, "R+": 256}
IDLE_COMM = "swapper"
VECTORS = ("local_timer", "reschedule", "call_function", "call_function_single", "irq_work")
ENTRY, EXIT = "_entry", "_exit"
FTRACE_EVENTS_MAX = 512
"""Of one CPU in a packet."""
ARGUMENTS = ("a", "b", "c", "d", "e")

Values = Mapping[str, Any]


class PerfettoWriter:
    """One trace. `queues`: how long each CPU's run queue was about when it began.

    Changes are added to that. A CPU that goes idle has an empty queue: from then on it is exact.
    """

    def __init__(
        self,
        file: BinaryIO,
        names: Names,
        release: str,
        banner: str,
        queues: Mapping[int, int] | None = None,
    ) -> None:
        self._out = PerfettoFile(file)
        self._out.begin(release, banner)
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
        convert = _FTRACE.get(event.name)
        if convert is not None:
            self._ftrace(event, convert)
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
        """Last, what the processes were called: viewers take it for all of the trace."""
        self.flush()
        for cpu in list(self._open):
            self._close_slices(cpu, self._last_ns)
        packet = self._out.packet()
        packet.timestamp = self._last_ns
        for task in self._names.known.values():
            if task.pid == task.group:
                packet.process_tree.processes.add(
                    pid=task.pid,
                    ppid=task.parent,
                    cmdline=[task.comm],
                    cmdline_is_comm=True,
                    is_kthread=task.is_kernel,
                )
            packet.process_tree.threads.add(tid=task.pid, tgid=task.group, name=task.comm)
        self._out.put(packet)
        self._out.flush()

    def _ftrace(self, event: Event, convert: Callable[[Any, Values], None]) -> None:
        packet = self._bundles.get(event.cpu) or self._bundle(event)
        one = packet.ftrace_events.event.add(timestamp=event.t_ns, pid=event.pid)
        convert(one, event.values)
        if event.name == "sched_switch":
            self._switch(one.sched_switch, event)
        if len(packet.ftrace_events.event) >= FTRACE_EVENTS_MAX:
            self.flush()

    def _bundle(self, event: Event) -> Any:
        """A new packet for events of one CPU, from this one on."""
        packet = self._bundles[event.cpu] = self._out.packet()
        packet.timestamp = event.t_ns
        packet.ftrace_events.cpu = event.cpu
        return packet

    def _switch(self, one: Any, event: Event) -> None:
        """Who leaves is known by what was said when it came, or by the lists."""
        name, priority = self._running.get(event.cpu, ("", 120))
        known = self._names.of(one.prev_pid, event.t_ns).comm if one.prev_pid else IDLE_COMM
        one.prev_comm, one.prev_prio = known or name, priority
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
            opened.append(name)
            self._out.slice_begin(track, event.t_ns, name, dict(event.values))
        elif opened and opened[-1] == name:
            opened.pop()
            self._out.slice_end(track, event.t_ns)

    def _queue(self, event: Event) -> None:
        cpu = int(event.values["queue"])
        length = self._queues.get(cpu, 0) + int(event.values["change"])
        self._set_queue(cpu, event.t_ns, max(length, 0))

    def _set_queue(self, cpu: int, t_ns: int, length: int) -> None:
        self._queues[cpu] = length
        self._out.count(self._out.counter("run queue", f"CPU {cpu}", "threads"), t_ns, length)

    def _instant(self, event: Event) -> None:
        values: dict[str, Value] = {**event.values, "cpu": event.cpu}
        if event.pid:
            group = self._names.of(event.pid, event.t_ns).group
            track = self._out.thread(group, event.pid)
        else:
            track = self._out.track("events while idle", f"CPU {event.cpu}")
        self._out.instant(track, event.t_ns, event.name, values)


def _vector(name: str) -> str | None:
    for ending in (ENTRY, EXIT):
        if name.endswith(ending) and name.removesuffix(ending) in VECTORS:
            return name.removesuffix(ending)
    return None


def _sched_switch(one: Any, values: Values) -> None:
    event = one.sched_switch
    event.prev_pid, event.next_pid = values["prev"], values["next"]
    event.prev_state = STATES[values["state"]]
    event.next_prio = values["prio"]
    event.next_comm = values["comm"] if values["next"] else IDLE_COMM


def _wakeup(kind: str) -> Callable[[Any, Values], None]:
    def convert(one: Any, values: Values) -> None:
        event = getattr(one, kind)
        event.comm, event.pid, event.prio = values["comm"], values["pid"], values["prio"]
        event.target_cpu, event.success = values["cpu"], 1

    return convert


def _sched_process_exit(one: Any, values: Values) -> None:
    event = one.sched_process_exit
    event.pid, event.tgid = values["pid"], values["tgid"]


def _sys_enter(one: Any, values: Values) -> None:
    one.sys_enter.id = values["nr"]
    one.sys_enter.args.extend(values[name] for name in ARGUMENTS)


def _sys_exit(one: Any, values: Values) -> None:
    one.sys_exit.id, one.sys_exit.ret = values["nr"], values["result"]


def _irq_handler_entry(one: Any, values: Values) -> None:
    one.irq_handler_entry.irq, one.irq_handler_entry.name = values["irq"], values["name"]


def _irq_handler_exit(one: Any, values: Values) -> None:
    one.irq_handler_exit.irq, one.irq_handler_exit.ret = values["irq"], values["result"]


def _softirq(kind: str) -> Callable[[Any, Values], None]:
    def convert(one: Any, values: Values) -> None:
        getattr(one, kind).vec = values["vector"]

    return convert


_FTRACE: dict[str, Callable[[Any, Values], None]] = {
    "sched_switch": _sched_switch,
    "sched_waking": _wakeup("sched_waking"),
    "sched_wakeup": _wakeup("sched_wakeup"),
    "sched_wakeup_new": _wakeup("sched_wakeup_new"),
    "sched_process_exit": _sched_process_exit,
    "sys_enter": _sys_enter,
    "sys_exit": _sys_exit,
    "irq_handler_entry": _irq_handler_entry,
    "irq_handler_exit": _irq_handler_exit,
    "softirq_raise": _softirq("softirq_raise"),
    "softirq_entry": _softirq("softirq_entry"),
    "softirq_exit": _softirq("softirq_exit"),
}
