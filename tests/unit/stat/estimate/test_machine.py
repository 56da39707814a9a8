# SPDX-License-Identifier: GPL-2.0-only
"""What an estimate says of the machine, from files as several kernels write them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.estimate import estimated_machine
from trapless.estimate.commands import estimate

RETPOLINES = "Mitigation: Retpolines; STIBP: disabled; RSB filling"
IBRS = "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling"


@pytest.mark.parametrize(
    ("mitigations", "loop"),
    [
        ({"spectre_v2": RETPOLINES}, "hot_retpoline_plain"),
        ({"spectre_v2": RETPOLINES, "spec_rstack_overflow": "Mitigation: Safe RET"},
         "hot_retpoline_safe"),
        ({"spectre_v2": IBRS, "spec_rstack_overflow": "Vulnerable: Safe RET, no microcode"},
         "direct_safe"),
        ({"spectre_v2": RETPOLINES, "retbleed": "Mitigation: untrained return thunk; SMT on"},
         "hot_retpoline_thunk"),
        ({"spectre_v2": IBRS, "retbleed": "Mitigation: Enhanced IBRS",
          "indirect_target_selection": "Mitigation: Aligned branch/return thunks"},
         "direct_thunk"),
        ({"spectre_v2": IBRS, "retbleed": "Not affected"}, "direct_plain"),
        ({"spectre_v2": "Mitigation: Enhanced IBRS + Retpolines"}, "hot_retpoline_plain"),
        ({}, "direct_plain"),
    ],
)  # fmt: skip
def test_the_loop_is_built_as_the_kernel_protects_itself(mitigations, loop):
    assert estimated_machine.loop_of(mitigations) == loop
    assert loop in estimated_machine.LOOPS


@pytest.mark.parametrize("loop", estimated_machine.LOOPS)
def test_each_loop_has_a_twin_that_makes_hot_calls_the_other_way(loop):
    table, directly = estimated_machine.loop_by_table(loop), estimated_machine.loop_directly(loop)
    assert {table, directly} < set(estimated_machine.LOOPS) and loop in (table, directly)
    assert "hot calls directly" in estimated_machine.loop_text(directly)
    assert "hot calls directly" not in estimated_machine.loop_text(table)


def test_the_loops_are_those_that_are_built():
    header = (repo_root() / "stat" / "estimate" / "loop.h").read_text()
    built = re.findall(r"\bX\((\w+)\)", header.partition("ESTIMATE_LOOPS(X)")[2])
    assert tuple(built) == estimated_machine.LOOPS
    rules = (repo_root() / "stat" / "Makefile.inc").read_text().replace("\\\n", " ")
    assert (
        tuple(re.findall(r"^ESTIMATE_LOOPS = (.*)$", rules, re.M)[0].split())
        == estimated_machine.LOOPS
    )


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def a_machine(root, flags="fpu syscall"):
    cpu = f"processor\t: 0\nmodel name\t: Core of 2026\nflags\t\t: {flags}\n"
    write(root, "proc/cpuinfo", cpu + "\n" + cpu.replace(": 0", ": 1"))
    write(root, "proc/sys/kernel/osrelease", "6.18.1")
    write(root, "proc/loadavg", "0.01 0.02 0.03 1/100 4711")
    write(root, f"{estimated_machine.VULNERABILITIES}/spectre_v2", RETPOLINES)
    write(root, "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance")


def test_a_quiet_machine_is_described_and_all_is_pinned(tmp_path):
    a_machine(tmp_path)
    found = estimated_machine.describe(1, tmp_path)
    assert (found.processor, found.cpus, found.kernel) == ("Core of 2026", 2, "6.18.1")
    assert (found.hypervisor, found.governor, found.not_pinned) == ("", "performance", ())
    assert found.loop == "hot_retpoline_plain"


def test_what_cannot_be_pinned_is_said(tmp_path):
    a_machine(tmp_path, flags="fpu hypervisor")
    write(tmp_path, "sys/class/dmi/id/sys_vendor", "QEMU")
    write(tmp_path, "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")
    write(tmp_path, "sys/devices/system/cpu/cpufreq/boost", "1")
    write(tmp_path, "sys/devices/system/cpu/smt/active", "1")
    write(tmp_path, "proc/loadavg", "3.20 2 1 4/100 4711")
    (tmp_path / estimated_machine.VULNERABILITIES / "spectre_v2").unlink()
    found = estimated_machine.describe(1, tmp_path)
    assert found.hypervisor == "QEMU"
    said = "\n".join(found.not_pinned)
    for word in ("powersave", "boost", "SMT", "virtual machine", "mitigations", "3.20"):
        assert word in said, word


def test_a_machine_that_tells_nothing_is_described_as_that(tmp_path):
    found = estimated_machine.describe(0, tmp_path)
    assert (found.processor, found.cpus, found.hypervisor) == ("unknown", 0, "")
    assert any("frequency" in what for what in found.not_pinned)


def test_another_processor_is_refused(monkeypatch):
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="aarch64"))
    done = CliRunner().invoke(estimate, [])
    assert isinstance(done.exception, TraplessError)
    assert "compiled for x86-64, not aarch64" in str(done.exception)
