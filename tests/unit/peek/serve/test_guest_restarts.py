# SPDX-License-Identifier: GPL-2.0-only
"""A guest that is restarted again and again, or makes believe so, takes neither the processor of
its observer nor the memory of whoever keeps its metrics.
"""

from __future__ import annotations

import itertools
import os
import signal
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.peek import toy_kernel
from tests.unit.peek.machines.made_up_monitors import started
from tests.unit.peek.serve.serving import observing, settings, until
from tests.unit.peek.toy_kernel import ToyKernel
from trapless.peek.diagnosis.opener import Found
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.health.hang_causes import Cause
from trapless.peek.sampling import boots
from trapless.peek.serve import kernel_history, metrics, observed_vm, phases
from trapless.peek.serve.kernel_history import KernelHistory
from trapless.peek.serve.observed_vm import ObservedVm, State

SHARE = 4
BUSY = """
import mmap, sys, threading
with open(sys.argv.pop(), "r+b") as file:
    kept = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
work = threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True)
work.start()
sys.stdin.read()
"""
RUNNING = 3


def restarts(ram: Path, kernel: ToyKernel, over: threading.Event) -> None:
    """What shows another boot changes all the time, and the clock moves."""
    canary = kernel.physical(kernel.symbols["init_task"]) + 24
    jiffies = kernel.physical(kernel.symbols["jiffies_64"])
    with ram.open("r+b", buffering=0) as file:
        for tick in range(10**6):
            for place, value in ((jiffies, 10**6 + tick), (canary, tick // 100)):
                file.seek(place)
                file.write(struct.pack("<Q", value))
            if over.wait(0.005):
                return


@pytest.mark.slow
def test_a_guest_that_makes_believe_restarts_is_opened_with_pauses(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(phases, "LOOK_S", 0.05)
    monkeypatch.setattr(observed_vm, "ATTEMPT_SHARE", SHARE)
    kernel, over, begun = ToyKernel(), threading.Event(), []
    ram = kernel.save(tmp_path)

    def note(text: str) -> None:
        if " is sampled, Linux " in text:
            begun.append((time.monotonic(), inventory.vms[0].opening_s))

    with observing(ram, note=note) as inventory:
        thread = threading.Thread(target=restarts, args=(ram, kernel, over))
        thread.start()
        try:
            until(lambda: len(begun) >= 3)
        finally:
            over.set()
            thread.join()
    assert inventory.vms[0].reboots >= 2
    for (before, opening_s), (after, _) in itertools.pairwise(begun):
        assert opening_s > 0 and after - before >= SHARE * opening_s


def test_releases_of_a_guest_make_no_more_time_series_than_a_few():
    vm = ObservedVm(Found(1, 1, "qemu", "a"), "a", settings())
    (info,) = (one for one in metrics.FAMILIES if one.name == "trapless_vm_info")
    seen = [list(info.read(vm))]
    for number in range(100):
        identity = ("", bytes([number]), b"")
        vm.see(SimpleNamespace(release=GuestText(b"6.1.%d" % number), identity=identity))
        seen.append(list(info.read(vm)))
    labels = [values[1] for ((values, _),) in seen]
    assert labels[:3] == ["", "6.1.0", "6.1.1"] and len(set(labels)) == observed_vm.RELEASES_MAX + 2
    assert str(vm.release) == "6.1.99"  # which the page shows


# ---- A guest that never comes up -----------------------------------------------------------------


class Starting(ToyKernel):
    """A kernel that says whether it has booted."""

    def _image_data(self) -> None:
        super()._image_data()
        self.symbol("system_state", struct.pack("<I", 0))
        self.symbol("panic_cpu", struct.pack("<i", -1))


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> Starting:
    plain = toy_kernel._process_types

    def with_states(types: toy_kernel.Types, *others: int) -> None:
        types.enumeration("system_states", {"SYSTEM_BOOTING": 0, "SYSTEM_RUNNING": RUNNING})
        plain(types, *others)

    monkeypatch.setattr(toy_kernel, "_process_types", with_states)
    return Starting()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Looks and attempts follow each other at once."""
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(phases, "LOOK_S", 0.05)
    for name, value in (("ATTEMPT_SHARE", 0), ("PAUSE_MIN_S", 0.05), ("BOOT_PAUSE_MAX_S", 0.05)):
        monkeypatch.setattr(observed_vm, name, value)


def sampled(vm: ObservedVm) -> phases.Sampled:
    assert isinstance(vm.phase, phases.Sampled)
    return vm.phase


def write(ram: Path, at: int, value: int) -> None:
    with ram.open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(struct.pack("<Q", value))


@pytest.mark.slow
@pytest.mark.parametrize("before", [State.SAMPLED, State.BOOTING])
def test_kernels_that_die_while_they_boot_are_counted(tmp_path, starting, quick, before):
    state = starting.physical(starting.symbols["system_state"])
    canary = starting.physical(starting.symbols["init_task"]) + 24
    if before is State.SAMPLED:
        starting.put(state, struct.pack("<I", RUNNING))
    ram = starting.save(tmp_path)
    state_then = State.BOOTING if before is State.BOOTING else State.RESTARTING
    with observing(ram) as inventory:
        until(lambda: inventory.vms)
        vm = inventory.vms[0]
        until(lambda: vm.state is before)
        for number in range(1, 4):
            write(ram, state, 0)
            write(ram, canary, number)
            seen = struct.pack("<Q", number)
            until(lambda seen=seen: any(one[1] == seen for one in tuple(vm.history._seen)))
            assert vm.reboots == number
            assert vm.state is state_then
        with ram.open("r+b") as file:  # the firmware of the next start
            file.write(bytes(ram.stat().st_size))
        pauses: set[float] = set()
        until(lambda: pauses.add(vm.attempts.due_s) or len(pauses) > 3)
        assert vm.state is state_then and vm.reboots == 3
        assert vm.failures == 0  # it boots, for all that is known


@pytest.mark.slow
def test_a_kernel_that_panicked_before_its_first_program_is_no_longer_booting(
    tmp_path, starting, quick
):
    starting.put(starting.physical(starting.symbols["panic_cpu"]), struct.pack("<i", 1))
    with observing(starting.save(tmp_path)) as inventory:
        until(lambda: inventory.vms and inventory.vms[0].state is State.SAMPLED)


@pytest.mark.slow
def test_a_kernel_whose_clock_stands_while_its_emulator_works_is_stuck(
    tmp_path, starting, quick, monkeypatch
):
    monkeypatch.setattr(kernel_history, "STUCK_S", 1.0)
    monkeypatch.setattr(boots, "BUSY_SHARE", 0.01)
    state, jiffies = (
        starting.physical(starting.symbols[name]) for name in ("system_state", "jiffies_64")
    )
    starting.put(state, struct.pack("<I", RUNNING))
    ram = starting.save(tmp_path)
    with started("qemu-system-x86_64", BUSY, ram), observing(ram) as inventory:
        until(lambda: inventory.vms)
        vm = inventory.vms[0]
        until(lambda: vm.state is State.STUCK)
        assert "its clock stands still" in vm.reason and vm.clock_still_s() >= 1.0
        write(ram, jiffies, 10**6)
        until(lambda: vm.state is State.SAMPLED)
        assert vm.reason == "" and vm.reboots == 0
        until(lambda: vm.state is State.STUCK)
        sampled(vm)._opened.kernel.booting = ("another", b"", b"")  # which a search has seen
        until(lambda: vm.state is State.RESTARTING)
        assert vm.reboots == 1


@pytest.mark.slow
def test_a_kernel_that_panics_is_stuck_at_the_next_look(tmp_path, starting, quick):
    """Long before its clock has stood still for so long that it counts."""
    state, panic_cpu = (
        starting.physical(starting.symbols[name]) for name in ("system_state", "panic_cpu")
    )
    starting.put(state, struct.pack("<I", RUNNING))
    ram, said = starting.save(tmp_path), []
    with observing(ram, note=said.append) as inventory:
        until(lambda: inventory.vms and inventory.vms[0].state is State.SAMPLED)
        vm = inventory.vms[0]
        write(ram, panic_cpu, 1)
        until(lambda: vm.state is State.STUCK)
        assert vm.clock_still_s() < kernel_history.STUCK_S and vm.cause is Cause.PANIC
        assert said[-1].endswith(" is stuck: its kernel has panicked")


@pytest.mark.slow
def test_a_sampler_that_ends_is_followed_by_another_one(tmp_path, quick):
    """One that was killed, after a pause; one whose plan is old by now, at once."""
    kernel = ToyKernel()
    ram = kernel.save(tmp_path)
    with observing(ram) as inventory:
        until(lambda: inventory.vms and inventory.vms[0].state is State.SAMPLED)
        vm = inventory.vms[0]
        os.kill(sampled(vm)._run.pid, signal.SIGKILL)
        until(lambda: vm.failures == 1)
        until(lambda: vm.state is State.SAMPLED)
        write(ram, kernel.physical(kernel.symbols["__cpu_online_mask"]), 1)
        before = vm.phase
        until(lambda: vm.phase is not before and vm.state is State.SAMPLED)
        assert sampled(vm)._run._plan.count("group cpu") == 1
        assert (vm.failures, vm.reboots, vm.reason) == (1, 0, "")


def test_a_kernel_that_was_seen_before_is_no_other_one():
    """Memory keeps what is left of old ones, and each look may find another of them."""
    first, second, third = (("", bytes([number]), b"") for number in range(3))
    kernels, counts = KernelHistory(), []
    for one in (first, first, second, first, second, third):
        kernels.see(one)
        counts.append(kernels.gone)
    assert counts == [0, 0, 1, 1, 1, 2]
    kernels.lose()
    kernels.lose()  # nothing was seen since
    kernels.see(("", b"other", b""))
    assert kernels.gone == 3
