# SPDX-License-Identifier: GPL-2.0-only
"""A guest that is restarted again and again, or makes believe so, takes neither the processor of
its observer nor the memory of whoever keeps its metrics.
"""

from __future__ import annotations

import itertools
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.peek import toy_kernel
from tests.unit.peek.machines.made_up import started
from tests.unit.peek.toy_kernel import ToyKernel
from trapless.peek.guest_text import GuestText
from trapless.peek.sampling import boots
from trapless.peek.serve import lives, metrics
from trapless.peek.serve import vm as vm_file
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.lives import Lives
from trapless.peek.serve.opener import Found, Opener
from trapless.peek.serve.vm import Settings, State, Vm
from trapless.peek.serve.workers import Workers

LIMIT_S = 60.0
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
    monkeypatch.setattr(vm_file, "LOOK_S", 0.05)
    monkeypatch.setattr(vm_file, "ATTEMPT_SHARE", SHARE)
    kernel, over, begun = ToyKernel(), threading.Event(), []
    ram = kernel.save(tmp_path)

    def note(text: str) -> None:
        if ": sampled" in text:
            begun.append((time.monotonic(), fleet.vms[0]._opening_s))

    with Opener() as opener:
        settings = Settings(
            opener, Workers(2), threading.Lock(), 10_000_000, None, 0, None, note
        )  # fmt: skip
        fleet = Fleet(settings, ("no machine of this host",), [ram])
        threads = [
            threading.Thread(target=fleet.run, args=(over.is_set,)),
            threading.Thread(target=restarts, args=(ram, kernel, over)),
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + LIMIT_S
        while len(begun) < 3 and time.monotonic() < end:
            time.sleep(0.02)
        over.set()
        for thread in threads:
            thread.join()
    assert len(begun) >= 3 and fleet.vms[0].reboots >= 2
    for (before, opening_s), (after, _) in itertools.pairwise(begun):
        assert opening_s > 0 and after - before >= SHARE * opening_s


def test_releases_of_a_guest_make_no_more_time_series_than_a_few(monkeypatch):
    settings = Settings(None, Workers(1), threading.Lock(), 1, None, 0, None, print)  # type: ignore
    vm = Vm(Found(1, 1, "qemu", "a"), "a", settings)
    monkeypatch.setattr(vm, "_sample", lambda: None)
    (info,) = (one for one in metrics.FAMILIES if one.name == "trapless_vm_info")
    seen = [list(info.read(vm))]
    for number in range(100):
        kernel = SimpleNamespace(
            release=GuestText(b"6.1.%d" % number),
            identity=("", bytes([number]), b""),
            close=lambda: None,
        )
        vm._adopt(SimpleNamespace(kernel=kernel, emulator=None, boots=None, signs=b""))
        seen.append(list(info.read(vm)))
    labels = [values[1] for ((values, _),) in seen]
    assert labels[:3] == ["", "6.1.0", "6.1.1"] and len(set(labels)) == vm_file.RELEASES_MAX + 2
    assert str(vm.release) == "6.1.99"  # which the page shows


# ---- A guest that never comes up -----------------------------------------------------------------


class Starting(ToyKernel):
    """A kernel that says whether it has booted."""

    def _image_data(self) -> None:
        super()._image_data()
        self.symbol("system_state", struct.pack("<I", 0))


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
    for name, value in (
        ("LOOK_S", 0.05),
        ("ATTEMPT_SHARE", 0),
        ("PAUSE_MIN_S", 0.05),
        ("BOOT_PAUSE_MAX_S", 0.05),
    ):
        monkeypatch.setattr(vm_file, name, value)


@contextmanager
def observed(ram: Path) -> Iterator[Vm]:
    over = threading.Event()
    with Opener() as opener:
        settings = Settings(
            opener, Workers(2), threading.Lock(), 10_000_000, None, 0, None, lambda _: None
        )
        fleet = Fleet(settings, ("no machine of this host",), [ram])
        loop = threading.Thread(target=fleet.run, args=(over.is_set,))
        loop.start()
        try:
            until(lambda: fleet.vms)
            yield fleet.vms[0]
        finally:
            over.set()
            loop.join()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


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
    with observed(ram) as vm:
        until(lambda: vm.state is before)
        for number in range(1, 4):
            write(ram, state, 0)
            write(ram, canary, number)
            seen = struct.pack("<Q", number)
            until(lambda seen=seen: any(one[1] == seen for one in tuple(vm._lives._seen)))
            assert vm.reboots == number
            assert vm.state is state_then
        with ram.open("r+b") as file:  # the firmware of the next start
            file.write(bytes(ram.stat().st_size))
        failures = vm.failures
        until(lambda: vm.failures > failures + 2)
        assert vm.state is state_then and vm.reboots == 3


@pytest.mark.slow
def test_a_kernel_whose_clock_stands_while_its_emulator_works_is_stuck(
    tmp_path, starting, quick, monkeypatch
):
    monkeypatch.setattr(lives, "STUCK_S", 1.0)
    monkeypatch.setattr(boots, "BUSY_SHARE", 0.01)
    state, jiffies = (
        starting.physical(starting.symbols[name]) for name in ("system_state", "jiffies_64")
    )
    starting.put(state, struct.pack("<I", RUNNING))
    ram = starting.save(tmp_path)
    with started("qemu-system-x86_64", BUSY, ram), observed(ram) as vm:
        until(lambda: vm.state is State.STUCK)
        assert "its clock stands still" in vm.reason and vm.clock_still_s() >= 1.0
        write(ram, jiffies, 10**6)
        until(lambda: vm.state is State.SAMPLED)
        assert vm.reason == "" and vm.reboots == 0
        until(lambda: vm.state is State.STUCK)
        vm._kernel.booting = ("another", b"", b"")  # which a search has seen
        until(lambda: vm.state is State.RESTARTING)
        assert vm.reboots == 1


def test_a_kernel_that_was_seen_before_is_no_other_one():
    """Memory keeps what is left of old ones, and each look may find another of them."""
    first, second, third = (("", bytes([number]), b"") for number in range(3))
    kernels, counts = Lives(), []
    for one in (first, first, second, first, second, third):
        kernels.see(one)
        counts.append(kernels.gone)
    assert counts == [0, 0, 1, 1, 1, 2]
    kernels.lose()
    kernels.lose()  # nothing was seen since
    kernels.see(("", b"other", b""))
    assert kernels.gone == 3
