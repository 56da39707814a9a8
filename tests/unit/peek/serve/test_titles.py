# SPDX-License-Identifier: GPL-2.0-only
"""Titles of machines: each is its user's and says so, and no user makes too many."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.peek.serve.test_strangers import a_fleet
from trapless.peek.serve import fleet as fleet_file
from trapless.peek.serve import titles as titles_file
from trapless.peek.serve import users
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.opener import NAME_CHARS_MAX, Found
from trapless.peek.serve.titles import Notes
from trapless.peek.serve.vm import State

OURS, ALICE, BOB, NAMELESS = os.geteuid(), 4001, 4002, 4003


@pytest.fixture(autouse=True)
def accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text(
        f"alice:x:{ALICE}:1::/:/bin/sh\nbob:x:{BOB}:1::/:/bin/sh\n{'x' * 50}:x:4003\n"
    )
    monkeypatch.setattr(users, "PASSWD", passwd)
    monkeypatch.setattr(users, "READ_S", 0.0)


def machine(pid: int, name: str, owner: int = OURS) -> Found:
    return Found(pid, 1, "qemu", name, owner=owner)


def take(fleet: Fleet, *found: Found) -> list[tuple[str, State]]:
    """The titles and states once these machines run."""
    fleet._found = list(found)
    fleet._take_found(time.monotonic())
    return [(vm.title, vm.state) for vm in fleet.vms]


def titles(fleet: Fleet, found: Iterable[Found]) -> set[str]:
    return {title for title, _ in take(fleet, *found)}


def test_a_title_says_whose_a_machine_is_where_that_is_not_expected():
    names = [
        machine(1, "web"),
        machine(2, "web", ALICE),
        machine(3, "web", BOB),
        machine(4, "web", NAMELESS),
        machine(5, "w" * NAME_CHARS_MAX, ALICE),
        machine(6, "", ALICE),
        machine(7, "web", ALICE),
    ]
    found = [title for title, _ in take(a_fleet(), *names)]
    assert found[:4] == ["web", "web (alice)", "web (bob)", f"web (uid {NAMELESS})"]
    assert found[4] == "w" * (NAME_CHARS_MAX - 8) + " (alice)"
    assert found[5:] == ["pid-6 (alice)", "web-7 (alice)"]


def test_the_title_of_a_machine_that_has_ended_is_its_users():
    """Else another user could hide that it has ended, and take its name when it comes back."""
    fleet = a_fleet()
    take(fleet, machine(100, "web"))
    ended = ("web", State.ENDED)
    assert take(fleet, machine(99, "web", ALICE))[0] == ended
    assert ended in take(fleet, machine(98, "web", ALICE), machine(99, "web", ALICE))
    assert ("web", State.WAITING) in take(fleet, machine(200, "web"))
    assert len([title for title, _ in take(fleet) if title == "web"]) == 1


def test_a_title_that_looks_like_another_users_is_its_owners():
    fleet = a_fleet()
    take(fleet, machine(1, "web (alice)"))
    found = take(fleet, machine(2, "web", ALICE))
    assert found == [("web (alice)", State.ENDED), ("web-2 (alice)", State.WAITING)]


def test_a_title_comes_back_while_work_for_its_last_machine_goes_on():
    fleet = a_fleet()
    take(fleet, machine(100, "web"))
    before = fleet.vms[0]
    before._job = job = fleet.settings.workers.submit(OURS, lambda: time.sleep(0))
    assert take(fleet, machine(200, "web")) == [("web", State.WAITING)]
    assert fleet._forgotten == [before]
    while not job.done:
        time.sleep(0.01)
    fleet._round(0.0)
    take(fleet)
    assert not fleet._forgotten


def test_machines_that_have_ended_are_remembered_by_their_users(monkeypatch):
    monkeypatch.setattr(fleet_file, "ENDED_MAX", 3)
    fleet = a_fleet()
    take(fleet, machine(1, "victim"))
    take(fleet, *(machine(pid, f"x{pid}", ALICE) for pid in range(2, 12)))
    found = take(fleet)
    assert found[0] == ("victim", State.ENDED)
    assert [title for title, _ in take(fleet)] == [
        "victim",
        *(f"x{n} (alice)" for n in (9, 10, 11)),
    ]
    monkeypatch.setattr(fleet_file, "REMEMBER_S", -1.0)
    assert take(fleet) == []


def test_a_user_makes_few_titles_and_each_machine_has_one(monkeypatch):
    monkeypatch.setattr(titles_file, "TITLES_MOST", 10)
    monkeypatch.setattr(titles_file, "TITLES_HOUR", 0)
    fleet, seen = a_fleet(), set()
    for look in range(5):
        found = [machine(100 * look + at, f"n{look}-{at}", ALICE) for at in range(20)]
        live = [vm.title for vm in fleet.vms if vm.found in found]
        assert len(live) == len(set(live))
        seen |= titles(fleet, [*found, machine(9000 + look, f"ours-{look}")])
    alices = {title for title in seen if title.endswith(" (alice)")}
    assert len(alices) <= 10 + 20 and "machine-1 (alice)" in alices
    assert seen - alices == {f"ours-{look}" for look in range(5)}
    again = titles(fleet, [machine(1, "n0-0", ALICE)])
    assert "n0-0 (alice)" in again  # which is not new


def test_a_budget_grows_by_the_hour(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = titles_file.Budget(2, 1)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    now[0] = 3600.0
    assert [budget.take() for _ in range(2)] == [True, False]
    now[0] = 360000.0
    assert [budget.take() for _ in range(3)] == [True, True, False]


def test_notes_about_a_user_are_bounded_and_say_so(monkeypatch):
    monkeypatch.setattr(titles_file, "NOTES_MOST", 2)
    monkeypatch.setattr(titles_file, "NOTES_HOUR", 0)
    said: list[str] = []
    notes = Notes(said.append, ALICE)
    for number in range(5):
        notes(str(number))
    notes._budget.most, notes._budget._left = 1, 1
    notes("last")
    assert said == ["0", "1", "3 notes about machines of alice were left out", "last"]


def test_ends_of_a_users_machines_fill_no_journal(monkeypatch):
    monkeypatch.setattr(titles_file, "NOTES_MOST", 5)
    monkeypatch.setattr(titles_file, "NOTES_HOUR", 0)
    fleet, said = a_fleet(), []
    object.__setattr__(fleet.settings, "note", said.append)
    take(fleet, machine(1, "victim"), *(machine(pid, f"x{pid}", ALICE) for pid in range(2, 40)))
    take(fleet)
    assert len(said) == 6 and "victim: ended" in said
