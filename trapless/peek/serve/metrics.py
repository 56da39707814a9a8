# SPDX-License-Identifier: GPL-2.0-only
"""Gives what is known of all machines to Prometheus, by its own client library.

Owns the names of the metrics, which end in their units, and their help texts. Labels are few and
bounded: a machine's name is its operator's, a CPU is a number, and of a guest's own text only its
first releases, and a fixed number of process names if they are asked for, become labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trapless import __version__
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.health.hang_causes import Cause
from trapless.peek.sampling.sample_rows import Flag
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.observed_vm import ObservedVm, State

LABEL_CHARS_MAX = 64

Samples = Iterator[tuple[tuple[str, ...], float]]


@dataclass(frozen=True)
class Family:
    """A metric of machines. `labels` come after the machine's name; `read` gives their values."""

    name: str  # with its unit as its last part, and without _total
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    help: str
    labels: tuple[str, ...]
    read: Callable[[ObservedVm], Samples]


def label(text: GuestText | str | None) -> str:
    """Text as the value of a label, which is printable and bounded.

    >>> label(GuestText(b"a\\x1b" + 100 * b"b")) == "a\\\\x1b" + 59 * "b"
    True
    """
    return "" if text is None else str(text)[:LABEL_CHARS_MAX]


def _one(value: float | None) -> Samples:
    if value is not None:
        yield (), value


def _states(vm: ObservedVm) -> Samples:
    for state in State:
        yield (state.value,), float(vm.state is state)


def _cpu_seconds(vm: ObservedVm) -> Samples:
    for number, cpu in vm.tally.cpus.items():
        for state, seconds in cpu.states_s.items():
            yield (number, state), seconds


def _cause(vm: ObservedVm) -> Samples:
    if vm.state is State.STUCK:
        yield (str(vm.cause or UNKNOWN),), 1.0


def _judged(value: str) -> Callable[[ObservedVm], Samples]:
    def read(vm: ObservedVm) -> Samples:
        for number, cpu in vm.tally.cpus.items():
            if cpu.judged_s:
                yield (number,), getattr(cpu, value)

    return read


def _switches(vm: ObservedVm) -> Samples:
    for number, cpu in vm.tally.cpus.items():
        if cpu.switches:
            yield (number,), float(cpu.switches)


def _numbered(values: dict[int, float]) -> Samples:
    for number, seconds in values.items():
        yield (str(number),), seconds


def _processes(vm: ObservedVm) -> Samples:
    sums: dict[str, float] = {}
    for name, seconds in vm.tally.processes_s.items():  # two labels may look the same
        sums[label(name)] = sums.get(label(name), 0.0) + seconds
    for text, seconds in sums.items():
        yield (text,), seconds


def _flagged(flag: Flag) -> Callable[[ObservedVm], Samples]:
    return lambda vm: _one(vm.tally.flags[flag])


UNKNOWN = "unknown"
COUNTER, GAUGE = CounterMetricFamily, GaugeMetricFamily
FAMILIES = (
    Family(
        "trapless_vm_up",
        GAUGE,
        "1 where the machine's kernel is sampled, 0 where it is not.",
        (),
        lambda vm: _one(vm.state is State.SAMPLED),
    ),
    Family(
        "trapless_vm_state",
        GAUGE,
        "1 for the state that the machine is in: waiting, sampled, stuck (it panicked, or its "
        "clock stands still while its emulator works), unreadable (its memory), no_kernel (that "
        "could be read), booting, restarting, ended. The page has the reason.",
        ("state",),
        _states,
    ),
    Family(
        "trapless_vm_stuck_cause",
        GAUGE,
        f"1 for the likeliest cause of a machine that is stuck: {', '.join(Cause)}, or {UNKNOWN}. "
        "The page has it in words, and `trapless peek why` all others.",
        ("cause",),
        _cause,
    ),
    Family(
        "trapless_vm_info",
        GAUGE,
        "The machine's monitor and the release of its kernel; the value is 1.",
        ("monitor", "kernel"),
        lambda vm: iter([((label(vm.found.kind), label(vm.release_label)), 1.0)]),
    ),
    Family(
        "trapless_vm_reboots",
        COUNTER,
        "Kernels that were seen in the machine and are gone, also those that never came up. Some "
        "that came and went within seconds are not seen.",
        (),
        lambda vm: _one(vm.reboots),
    ),
    Family(
        "trapless_vm_failures",
        COUNTER,
        "Attempts to open or sample the machine that have failed; while it boots there are none.",
        (),
        lambda vm: _one(vm.failures),
    ),
    Family(
        "trapless_vm_cpu_seconds",
        COUNTER,
        "Time of each CPU by where it was: user, kernel, process (user mode or its kernel, where "
        "no probes tell them apart), top_half, bottom_half, idle; unseen without a sample that "
        "counts. All states together are the time of this host's clock.",
        ("cpu", "state"),
        _cpu_seconds,
    ),
    Family(
        "trapless_vm_run_queue_task_seconds",
        COUNTER,
        "Lengths of the run queue, summed over time: its rate is the mean length, with the task "
        "that runs.",
        ("cpu",),
        lambda vm: (((number,), cpu.queue_s) for number, cpu in vm.tally.cpus.items()),
    ),
    Family(
        "trapless_vm_run_queue_longest_tasks",
        GAUGE,
        "The longest run queue of a CPU in the last second.",
        (),
        lambda vm: _one(vm.tally.queue_max if vm.state is State.SAMPLED else None),
    ),
    Family(
        "trapless_vm_interrupts_off_seconds",
        COUNTER,
        "Time in which interrupts were off; only with the module's probes in the guest.",
        ("cpu",),
        _judged("disabled_s"),
    ),
    Family(
        "trapless_vm_interrupts_judged_seconds",
        COUNTER,
        "Time for which it is known whether interrupts were off: the shares are of this.",
        ("cpu",),
        _judged("judged_s"),
    ),
    Family(
        "trapless_vm_context_switches",
        COUNTER,
        "Switches from one task to another, as the guest's scheduler counts them.",
        ("cpu",),
        _switches,
    ),
    Family(
        "trapless_vm_steal_seconds",
        COUNTER,
        "Time in which a virtual processor wanted to run and the host ran something else, by the "
        "host's scheduler.",
        ("vcpu",),
        lambda vm: _numbered(vm.tally.steal_s),
    ),
    Family(
        "trapless_vm_host_cpu_seconds",
        COUNTER,
        "Time in which the host ran a virtual processor.",
        ("vcpu",),
        lambda vm: _numbered(vm.tally.run_s),
    ),
    Family(
        "trapless_vm_clock_still_seconds",
        GAUGE,
        "How long the guest's clock has stood still: of a guest that is stopped or stuck it grows "
        "for ever, of an idle one to some seconds.",
        (),
        lambda vm: _one(vm.clock_still_s()),
    ),
    Family(
        "trapless_vm_processes",
        GAUGE,
        "Processes in the guest, kernel threads with them.",
        (),
        lambda vm: _one(vm.tally.counts[0] if vm.tally.counts else None),
    ),
    Family(
        "trapless_vm_threads",
        GAUGE,
        "Threads in the guest.",
        (),
        lambda vm: _one(vm.tally.counts[1] if vm.tally.counts else None),
    ),
    Family(
        "trapless_vm_process_cpu_seconds",
        COUNTER,
        "Time of processes on CPUs by their names, of which there are as many as --processes says; "
        "(others) has the rest.",
        ("process",),
        _processes,
    ),
    Family(
        "trapless_vm_taken_samples",
        COUNTER,
        "Samples taken, each of all CPUs.",
        (),
        lambda vm: _one(vm.tally.rows),
    ),
    Family(
        "trapless_vm_lost_samples",
        COUNTER,
        "Samples that were not taken in their time.",
        (),
        lambda vm: _one(vm.tally.lost),
    ),
    Family(
        "trapless_vm_late_samples",
        COUNTER,
        "Samples taken more than half an interval late.",
        (),
        _flagged(Flag.LATE),
    ),
    Family(
        "trapless_vm_torn_samples",
        COUNTER,
        "Samples in which a CPU changed during each reading, and does not count.",
        (),
        _flagged(Flag.TORN),
    ),
    Family(
        "trapless_vm_frozen_samples",
        COUNTER,
        "Samples in which a virtual processor that was to run did not, and does not count.",
        (),
        _flagged(Flag.FROZEN),
    ),
    Family(
        "trapless_vm_absent_samples",
        COUNTER,
        "Samples in which something of a CPU could not be read.",
        (),
        _flagged(Flag.ABSENT),
    ),
)


class InventoryCollector(Collector):
    """The metrics of all machines, as a scrape finds them."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def collect(self) -> Iterator[Metric]:
        inventory = self._inventory
        with inventory.settings.lock:
            families = [self._family(one) for one in FAMILIES]
            families += self._of_daemon()
        yield from families

    def _family(self, family: Family) -> Metric:
        metric = family.kind(family.name, family.help, labels=("vm", *family.labels))
        for vm in self._inventory.vms:
            for values, value in family.read(vm):
                metric.add_metric((vm.title, *values), value)
        return metric

    def _of_daemon(self) -> Iterator[Metric]:
        inventory = self._inventory
        states = GAUGE("trapless_serve_vms", "Machines by their state.", labels=("state",))
        for state in State:
            states.add_metric((state.value,), sum(vm.state is state for vm in inventory.vms))
        yield states
        about = GAUGE("trapless_serve_info", "The daemon; the value is 1.", labels=("version",))
        about.add_metric((__version__,), 1.0)
        yield about
        interval_s = inventory.settings.interval_ns / 1e9
        yield GAUGE("trapless_serve_interval_seconds", "From sample to sample.", value=interval_s)
        folder = inventory.settings.recordings
        if folder is None:
            return
        yield GAUGE("trapless_serve_recordings_bytes", "Recordings on disk.", value=folder.bytes)
        text = "The bound of the recordings."
        yield GAUGE("trapless_serve_recordings_limit_bytes", text, value=folder.bytes_max)
        text = "1 while recordings cannot be written, as on a full disk."
        yield GAUGE("trapless_serve_recordings_failing", text, value=float(bool(folder.error)))
        text = "Errors while recordings were written."
        yield COUNTER("trapless_serve_recordings_errors", text, value=folder.errors)
        text = "Samples that were shown and not recorded."
        yield COUNTER("trapless_serve_unrecorded_samples", text, value=folder.dropped)
