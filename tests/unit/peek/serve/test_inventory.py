# SPDX-License-Identifier: GPL-2.0-only
"""The list of machines: their titles, and what is shown of those that have ended."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from tests.unit.peek.serve.serving import settings, until
from trapless.peek.diagnosis.opener import Found
from trapless.peek.errors import PeekError
from trapless.peek.serve import inventory as inventory_file
from trapless.peek.serve import phases
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.observed_vm import State
from trapless.peek.serve.phases import BeingOpened


def machine(pid: int, name: str) -> Found:
    return Found(pid, 1, "qemu", name)


def take(inventory: Inventory, *found: Found) -> list[tuple[str, State]]:
    """The titles and states once these machines run."""
    inventory._latest = list(found)
    inventory._take_latest(time.monotonic())
    return [(vm.title, vm.state) for vm in inventory.vms]


def test_no_two_machines_have_one_title():
    inventory = Inventory(settings())
    names = [("web-20", 10), ("web", 11), ("web", 20), ("web", 20), ("w" * 64, 5), ("w" * 64, 6)]
    found = [Found(pid, at, "qemu", name) for at, (name, pid) in enumerate(names)]
    found += [Found(0, at, "file", "ram", f"/{at}/ram") for at in range(4)]
    titles = [title for title, _ in take(inventory, *found)]
    assert len(set(titles)) == len(titles) == 10 and max(map(len, titles)) == 64
    assert titles[:2] == ["web-20", "web"] and titles[6] == "ram"


def test_a_machine_that_comes_back_has_its_title_again():
    inventory = Inventory(settings())
    take(inventory, machine(100, "web"))
    assert take(inventory) == [("web", State.ENDED)]
    assert take(inventory, machine(200, "web")) == [("web", State.WAITING)]


def test_the_last_machines_that_have_ended_are_shown_for_a_while(monkeypatch):
    monkeypatch.setattr(inventory_file, "ENDED_MAX", 3)
    inventory = Inventory(settings())
    take(inventory, *(machine(pid, f"x{pid}") for pid in range(2, 12)))
    take(inventory)
    assert take(inventory) == [(f"x{n}", State.ENDED) for n in (9, 10, 11)]
    monkeypatch.setattr(inventory_file, "REMEMBER_S", -1.0)
    assert take(inventory) == []


def test_what_is_opened_when_its_machine_has_gone_is_closed(monkeypatch):
    go, closed = threading.Event(), threading.Event()
    opened = SimpleNamespace(kernel=SimpleNamespace(close=closed.set))
    monkeypatch.setattr(BeingOpened, "_open", lambda self: go.wait() and opened)
    inventory = Inventory(settings())
    take(inventory, machine(1, "web"))
    (vm,) = inventory.vms
    phases.step(vm)
    take(inventory)
    assert vm.state is State.ENDED and not closed.is_set()
    go.set()
    until(closed.is_set)


def test_machines_are_looked_for_again_whatever_happens(monkeypatch):
    monkeypatch.setattr(inventory_file, "FIND_S", 0.01)
    errors = [TypeError("x"), PeekError("y")]

    def running(files: object) -> list[Found]:
        if errors:
            raise errors.pop(0)
        inventory._over.set()
        return [machine(1, "a")]

    inventory = Inventory(settings(SimpleNamespace(running=running)))
    inventory._find()
    assert inventory._latest == [machine(1, "a")] and not inventory.error


@pytest.mark.parametrize(("pattern", "is_wanted"), [("web-*", True), ("db-*", False)])
def test_patterns_choose_machines_by_their_names(pattern, is_wanted):
    assert Inventory(settings(), [pattern])._is_wanted(machine(1, "web-1")) is is_wanted
