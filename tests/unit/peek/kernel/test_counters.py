# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel counts itself: where each kernel keeps it, and rates, in tables and in JSON."""

from __future__ import annotations

import doctest
import json

import numpy as np
import pytest

from tests.unit.peek.test_summary import busy_and_idle, head
from trapless.peek.errors import PeekError
from trapless.peek.kernel import counters
from trapless.peek.kernel.btf import Place
from trapless.peek.kernel.counters import Counters, Reading
from trapless.peek.sampling import json_form, recording_tables, tier0
from trapless.peek.sampling.record import Counts
from trapless.peek.sampling.recording import Recorder, Recording
from trapless.peek.sampling.sample_summary import summarise

OLD = {("irq_cpustat_t", "apic_timer_irqs"): (8, 4), ("irq_cpustat_t", "irq_resched_count"): (4, 4)}
NEW = {("irq_cpustat_t", "counts[1]"): (12, 4)}
BOTH = {
    ("kernel_stat", "irqs_sum"): (0, 8),
    ("kernel_stat", "softirqs[3]"): (20, 4),
    ("rq", "rq_sched_info.run_delay"): (24, 8),
}
PERCPU = {"irq_stat": 0, "kstat": 0x100, "runqueues": 0x200}


class Kernel:
    """Two CPUs whose counters are bytes; it answers as a target does."""

    def __init__(self, places, constants) -> None:
        self.places, self.constants = places | BOTH, constants
        self.data = bytearray(0x2000)
        self.cpus_online = (0, 1)
        self.memory = self.types = self

    def place(self, record: str, path: str) -> Place:
        try:
            offset, size = self.places[record, path]
        except KeyError:
            raise PeekError("no member") from None
        return Place(offset, 1, size)

    def enumerator(self, name: str) -> tuple[int, int] | None:
        return (1, self.constants[name]) if name in self.constants else None

    def has_symbol(self, name: str) -> bool:
        return name in PERCPU

    def percpu(self, name: str, cpu: int) -> int:
        return PERCPU[name] + 0x1000 * cpu

    def physical(self, address: int) -> int:
        return address

    def read(self, address: int, length: int) -> bytes:
        return bytes(self.data[address : address + length])

    def read_all(self, places: list[tuple[int, int]]) -> list[bytes]:
        return [self.read(*place) for place in places]

    def put(self, address: int, value: int, size: int) -> None:
        self.data[address : address + size] = value.to_bytes(size, "little")


SOFT = {"NET_RX_SOFTIRQ": 3}
KERNELS = {
    "members": (OLD, SOFT, 8),
    "an array": (NEW, {**SOFT, "IRQ_COUNT_APIC_TIMER": 1}, 12),
}


def test_examples_are_so():
    assert doctest.testmod(counters).failed == 0


@pytest.mark.parametrize("form", KERNELS)
def test_counters_are_found_by_features(form):
    places, constants, timer_at = KERNELS[form]
    kernel = Kernel(places, constants)
    read = Counters(kernel)
    kernel.put(0x1000 + timer_at, 1000, 4)
    first = read.read()
    kernel.put(0x1000 + timer_at, 1250, 4)
    kernel.put(0x100 + 20, 50, 4)
    kernel.put(0x200 + 24, 10**9, 8)
    last = Reading(first.time_ns + 2 * 10**9, read.read().values)
    rates = read.rates(first, last)
    assert rates[1]["timer"] == 125 and rates[0]["timer"] == 0
    assert counters.softirqs(rates[0]) == {"net_rx": 25}
    assert rates[0][counters.DELAY] == 5e8
    assert ("reschedule" in rates[0]) == (form == "members")


def test_rates_are_shown_and_kept(tmp_path):
    kernel = Kernel(OLD, SOFT)
    what = head()
    counts = Counts(kernel)
    kernel.put(8, 500, 4)
    kernel.put(0x200 + 24, 10**9, 8)
    counts.look()
    kernel.put(8, 9, 4)  # another kernel's, after a reset
    counts.look()
    counts._readings = [Reading(10**9 * at, one.values) for at, one in enumerate(counts._readings)]
    rows = busy_and_idle(what)
    rows["frozen"][:250] = 1  # CPU 0 was kept from running
    rows["flags"][:250] = 4
    about = {"context_user": 2, "differences": [tier0.LATE_TIMER]}
    with Recorder(tmp_path / "r", what, about) as recorder:
        recorder.add(rows)
        counts.keep(recorder, alive_ns=10**9)
        recorder.close(None)
    recording = Recording.open(tmp_path / "r")
    summary = summarise(recording)
    assert summary.rates[0]["timer"] == 500
    shown = {table.id: table for table in recording_tables.tables(recording, summary)}
    (cpu0, _) = shown["counts"].rows
    assert dict(zip(shown["counts"].columns, cpu0, strict=True)) == {
        "CPU": "0",
        "timer": "500",
        "reschedule": "0",
        "device": "0",
        "run delay, s": "1.00",
    }
    steals = [dict(zip(shown["shares"].columns, row, strict=True)) for row in shown["shares"].rows]
    assert [row["steal"] for row in steals] == ["25.0%", "0.0%"]
    assert tier0.LATE_TIMER in shown["shares"].caption
    (boot,) = json.loads(json_form.report(recording))["boots"]
    cpu = boot["cpus"][0]
    assert cpu["interrupts_per_s"]["timer"] == 500 and cpu["run_delay"] == 1
    assert cpu["steal"] == 0.25 and boot["differences"] == [tier0.LATE_TIMER]
    for name, share in cpu["shares"].items():
        assert cpu["wall_clock_shares"][name] == pytest.approx(0.75 * share)


def test_shares_of_processes_are_named_as_what_they_are(tmp_path):
    what = head()
    with Recorder(tmp_path / "r", what, {"context_user": 2}) as recorder:
        recorder.add(busy_and_idle(what))
        recorder.close(None)
    recording = Recording.open(tmp_path / "r")
    (table,) = (one for one in recording_tables.tables(recording) if one.id == "processes")
    assert table.columns[-1] == "share without interrupts"
    # Of 2,000 samples of two CPUs, 700 had pid 7 and no handler.
    assert table.rows == (("7", "worker", "35.0%"),)
    assert np.isclose(summarise(recording).processes.total(), 700)
