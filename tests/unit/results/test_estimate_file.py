# SPDX-License-Identifier: GPL-2.0-only
"""The saved estimate of a machine: who finds it, and that nobody trusts a wrong one."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trapless.results import estimate_file
from trapless.stat import stat_text

SAVED: dict[str, Any] = {
    "machine": {
        "processor": estimate_file._processor(),
        "hypervisor": "KVM",
        "kernel": os.uname().release,
        "clock_ghz": 4.0,
    },
    "trap": {"ns": 82.4, "low": 80.0, "high": 90.0},
    "calls": {
        "getppid": {
            "title": "getppid",
            "plain": {"ns": 100.0, "low": 99.0, "high": 101.0},
            "batch": {"n32": {"ns": 45.0, "low": 40.0, "high": 50.0}},
            "saved": {"n32": {"ns": 55.0, "low": 50.0, "high": 60.0}},
        }
    },
    "uring": {"uring.nop": {"n32": {"ns": 70.0, "low": 69.0, "high": 71.0}}},
    "supervisor": {"saved": {"low": 20.0, "high": 60.0}},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_last_estimate_of_this_machine_is_found() -> None:
    assert estimate_file.of_this_machine() is None
    estimate_file.save(SAVED)
    found = estimate_file.of_this_machine()
    assert found is not None
    assert found.trap.ns == 82.4
    assert found.calls["getppid"].saved[32].high == 60.0
    line = stat_text.own_trap(SimpleNamespace(entries=4612), found)  # type: ignore[arg-type]
    assert "4,612 crossings take 380 us (370 to 420)" in line and "measured" not in line
    estimate_file.save({**SAVED, "date": "2026-11-30 09:30 UTC"})
    found = estimate_file.of_this_machine()
    assert found is not None and found.when == ", measured on 2026-11-30 09:30 UTC"


@pytest.mark.parametrize("what", ["processor", "kernel"])
def test_one_of_another_machine_is_not(what: str) -> None:
    other = copy.deepcopy(SAVED)
    other["machine"][what] = "another"
    estimate_file.save(other)
    assert estimate_file.of_this_machine() is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"machine": 3}', "[" * 100_000])
def test_a_damaged_one_is_none(cache: Path, content: str) -> None:
    cache.mkdir()
    (cache / estimate_file.NAME).write_text(content)
    assert estimate_file.of_this_machine() is None
