# SPDX-License-Identifier: GPL-2.0-only
"""A guest that is restarted again and again, or makes believe so, takes neither the processor of
its observer nor the memory of whoever keeps its metrics.
"""

from __future__ import annotations

import itertools
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from tests.unit.peek.toy_kernel import ToyKernel
from trapless.peek.guest_text import GuestText
from trapless.peek.serve import metrics
from trapless.peek.serve import vm as vm_file
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.opener import Found, Opener
from trapless.peek.serve.vm import Settings, Vm
from trapless.peek.serve.workers import Workers

LIMIT_S = 60.0
SHARE = 4


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
        kernel = SimpleNamespace(release=GuestText(b"6.1.%d" % number), close=lambda: None)
        vm._adopt(SimpleNamespace(kernel=kernel, emulator=None, boots=None, signs=b""))
        seen.append(list(info.read(vm)))
    labels = [values[1] for ((values, _),) in seen]
    assert labels[:3] == ["", "6.1.0", "6.1.1"] and len(set(labels)) == vm_file.RELEASES_MAX + 2
    assert str(vm.release) == "6.1.99"  # which the page shows
