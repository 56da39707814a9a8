# SPDX-License-Identifier: GPL-2.0-only
"""The judge of the lab's programs: each way to fail fails, and only 77 skips."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from tests.lab.runner.bochs import without_its_own
from tests.lab.runner.suite import programs, sources
from tests.lab.runner.verdict import Outcome, judge
from tests.make import make

ROOT = Path(__file__).resolve().parents[3]
GOOD = Outcome("exit", 0, "", "trapless: loaded")
STEP = """WARNING: CPU: 1 PID: 297 at arch/x86/kernel/traps.c:1120 exc_debug_kernel+0xca/0x160
RIP: 0010:exc_debug_kernel+0xca/0x160
Call Trace:
 <#DB>
 asm_exc_debug+0x1e/0x40
RIP: 0010:{place}
 </#DB>
---[ end trace 0000000000000000 ]---
"""
SPLAT = "WARNING: CPU: 1 PID: 77 at kmod/ring.c:5 tlk_ring_free+0x1/0x2 [trapless]"


def test_a_clean_exit_passes() -> None:
    assert judge(GOOD).kind == "pass"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"code": 1, "output": "x is 1, expected 2"}, "x is 1, expected 2"),
        ({"code": 2}, "exit status 2"),
        ({"end": "signal", "code": 11}, "signal 11"),
        ({"end": "timeout", "code": 9, "ms": 20000}, "timeout"),
        ({"end": "unkillable"}, "unkillable"),
        ({"end": "crash", "output": "Kernel panic"}, "Kernel panic"),
        ({"end": "missing", "output": "no such kernel"}, "no such kernel"),
        ({"kernel": SPLAT}, "tlk_ring_free"),
        ({"kernel": SPLAT, "code": 77}, "tlk_ring_free"),
        ({"in_use": 2}, "2 users left"),
        ({"in_use": -1}, "users left"),
        ({"cpus_offline": 1}, "left 1 CPU(s) offline"),
    ],
)
def test_each_way_to_fail_fails(change: dict[str, object], text: str) -> None:
    verdict = judge(dataclasses.replace(GOOD, **change))
    assert verdict.kind == "fail"
    assert text in verdict.text


def test_77_skips_with_its_reason() -> None:
    verdict = judge(dataclasses.replace(GOOD, code=77, output="no audit\n"))
    assert (verdict.kind, verdict.text) == ("skip", "no audit")


@pytest.mark.parametrize("entry", ["entry_SYSCALL_64", "tlk_supervisor_call"])
def test_a_step_over_syscall_makes_bochs_warn_at_the_entry_alone(entry: str) -> None:
    at_entry, later = (STEP.format(place=f"{entry}+{at}/0xe7") for at in ("0x0", "0x4"))
    assert without_its_own(f"before\n{at_entry}after\n").split() == ["before", "after"]
    assert without_its_own(later) == later


def test_every_program_is_found_and_says_what_it_tests() -> None:
    files = sources()
    assert len(files) > 70
    for name, path in files.items():
        head = path.read_text()[:600]
        assert "SPDX-License-Identifier" in head, name
        assert head.count("/*") + head.count("//") >= 2, f"{name}: no sentence on what it tests"


def test_the_runner_has_every_program() -> None:
    """suite.py and Makefile.inc list the same folders."""
    listed = ROOT / "build/tests/lab/tests.inc"
    make(listed)
    assert re.findall(r"TEST\((\w+)\)", listed.read_text()) == programs()


def test_the_document_names_every_program() -> None:
    text = (ROOT / "docs/lab-tests.md").read_text()
    named = set(re.findall(r"`([a-z0-9_]{8,})`", text))
    own = {name for name in programs() if not name.startswith("lib_")}
    assert own - named == set(), "docs/lab-tests.md lacks these"
    assert {name for name in named if "_" in name} - {*programs()} == set(), "these are gone"


@pytest.mark.slow  # all of them are built for it
def test_programs_refuse_the_host(tmp_path: Path) -> None:
    """They attack the kernel they run on."""
    binary = ROOT / "build/tests/lab/labtests"
    make(binary)
    for argv in (["--each", "batch_keeps_order=5"], ["batch_keeps_order"]):
        done = subprocess.run(
            [binary, *argv], cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 2
        assert "no guest of the lab" in done.stderr
        assert done.stdout == ""
